//! The header by which consumers tell that they have done an event before.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::connect;
use crate::config::pipeline::{HeadersAs, Idempotency as Config, IdempotencyKey};
use crate::processor::error::Problem;
use crate::processor::field::{FieldPath, Fields, Names, Slot, named_text};
use crate::processor::json;
use crate::processor::template::{Compiled, Rendering};
use crate::record::Header;

/// What the header is called, and where its value comes from.
#[derive(Debug)]
pub(super) struct Idempotency {
    header: Arc<str>,
    key: Key,
}

#[derive(Debug)]
enum Key {
    Field(Slot),
    Digest {
        parts: Vec<Compiled<FieldPath>>,
        separator: String,
    },
}

impl Idempotency {
    pub(super) fn new(config: &Config, names: &mut Names) -> Self {
        let key = match &config.key {
            IdempotencyKey::Column(name) => Key::Field(names.slot(name)),
            IdempotencyKey::Sha256 { parts, separator } => Key::Digest {
                parts: parts
                    .iter()
                    .map(|part| Compiled::new(part, |path| names.path(path)))
                    .collect(),
                separator: separator.clone(),
            },
        };
        Self {
            header: Arc::from(config.header.as_str()),
            key,
        }
    }

    /// Adds the header, if each field of it has a text that is not empty.
    pub(super) fn push(
        &self,
        headers: &mut Vec<Header>,
        fields: &Fields<'_>,
        names: &Names,
        form: HeadersAs,
    ) -> Result<(), Problem> {
        let value = match &self.key {
            Key::Field(slot) => {
                let field = fields.field(*slot);
                let text = named_text(field, names.name(*slot))?.filter(|text| !text.as_str().is_empty());
                text.and_then(|text| connect::header(form, field, Some(text)))
            }
            Key::Digest { parts, separator } => {
                digest(parts, separator, fields)?.map(|digits| connect::text_header(form, &digits))
            }
        };
        headers.extend(value.map(|value| Header {
            name: Arc::clone(&self.header),
            value: Some(value),
        }));
        Ok(())
    }
}

/// None: a part lacks a field.
fn digest(parts: &[Compiled<FieldPath>], separator: &str, fields: &Fields<'_>) -> Result<Option<String>, Problem> {
    let mut joined = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        if part.render(&mut joined, |place, name| named_text(fields.at(place), name))? != Rendering::Whole {
            return Ok(None);
        }
    }
    let mut digits = Vec::with_capacity(64);
    json::write_hex(&mut digits, &Sha256::digest(joined));
    Ok(Some(String::from_utf8_lossy(&digits).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pipeline;
    use crate::processor::sample::*;
    use crate::row::{ColumnKind, Value};

    fn with(key: IdempotencyKey) -> pipeline::Outbox {
        pipeline::Outbox {
            idempotency: Some(Config {
                header: "idempotency-key".to_owned(),
                key,
            }),
            ..outbox()
        }
    }

    fn column(name: &str) -> pipeline::Outbox {
        with(IdempotencyKey::Column(name.to_owned()))
    }

    fn sha256(parts: &[&str], separator: &str) -> pipeline::Outbox {
        with(IdempotencyKey::Sha256 {
            parts: parts.iter().map(|part| template(part)).collect(),
            separator: separator.to_owned(),
        })
    }

    fn key(config: &pipeline::Outbox, text: &str) -> Option<String> {
        let record = published(only(config.clone()).process(message(text.to_owned())));
        header(&record, "idempotency-key").map(str::to_owned)
    }

    #[test]
    fn a_field_s_text_is_the_key() {
        let config = column("request");
        for (member, expected) in [
            (r#""request": "r-1","#, Some("r-1")),
            (r#""request": 17,"#, Some("17")),
            (r#""request": "","#, None),
            (r#""request": null,"#, None),
            (r#""request": {},"#, None),
            ("", None),
        ] {
            let text = format!(r#"{{{member} "payload": {{"request": "other"}}}}"#);
            assert_eq!(key(&config, &text).as_deref(), expected, "{member}");
        }
        let uuid = outbox_row(&[
            (
                "request",
                ColumnKind::Binary,
                Value::Bytes(bytes::Bytes::from_static(&[0x11; 16])),
            ),
            ("payload", ColumnKind::Text, text("x")),
        ]);
        let record = published(only(config).process(uuid));
        assert_eq!(
            header(&record, "idempotency-key"),
            Some("11111111-1111-1111-1111-111111111111")
        );
    }

    /// Digests by another implementation.
    #[test]
    fn a_hash_is_of_all_parts_and_the_separator() {
        let text = r#"{"recordId": 42, "meta": {"hash": "ab"}, "payload": 1}"#;
        let parts = &["orders", "${recordId}", "v${meta.hash}"];
        for (separator, expected) in [
            ("|", "332b17428e20718dc14b09076351f0180fdf428badd7aba208ebf5406636cf71"),
            ("", "2fba0bae180e4e82d8b75f5e60846170eaee30502131974a9769ef1996cd11dc"),
        ] {
            assert_eq!(key(&sha256(parts, separator), text).as_deref(), Some(expected));
        }
        for lacking in [
            r#"{"recordId": 42, "payload": 1}"#,
            r#"{"recordId": "", "meta": {"hash": "ab"}, "payload": 1}"#,
        ] {
            assert_eq!(key(&sha256(parts, "|"), lacking), None, "{lacking}");
        }
    }

    #[test]
    fn it_is_a_header_like_the_others() {
        let config = pipeline::Outbox {
            headers_as: HeadersAs::Json,
            additional_headers: vec![("a".to_owned(), "a".to_owned())],
            ..column("request")
        };
        let text = r#"{"request": "r-1", "a": 1, "payload": 1}"#;
        assert_eq!(key(&config, text).as_deref(), Some("\"r-1\""));
        let record = published(only(config.clone()).process(message(text)));
        let names: Vec<_> = record.headers.iter().map(|header| &*header.name).collect();
        assert_eq!(names, ["df-event-id", "a", "idempotency-key"]);

        // A dead letter has it too.
        let strict = pipeline::Outbox { strict: true, ..config };
        let error = only(strict).process(message(text)).unwrap_err();
        assert!(
            error
                .outline
                .headers
                .iter()
                .any(|header| &*header.name == "idempotency-key")
        );
    }

    #[test]
    fn what_cannot_be_text_makes_the_event_invalid() {
        for config in [column("request"), sha256(&["${request}"], "|")] {
            let (_, error) = failed(only(config).process(message(r#"{"request": "\ud800", "payload": 1}"#)));
            assert!(error.contains("`request` is no text"), "{error}");
        }
    }
}
