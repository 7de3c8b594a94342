//! How a payload that stands without an envelope is written.

use bytes::Bytes;

use crate::config::pipeline::{self, PayloadAs};
use crate::processor::envelope::{write_member, write_payload};
use crate::processor::error::{Problem, TextFault};
use crate::processor::field::{Field, Fields, Names, Slot, Text, named_text};
use crate::processor::json;

#[derive(Debug)]
pub(super) struct PayloadForm {
    form: PayloadAs,
    tombstone_on_empty: bool,
    members: Vec<Member>,
}

/// What stands beside the payload in an object.
#[derive(Debug)]
struct Member {
    /// As JSON, and the colon.
    name: Vec<u8>,
    slot: Slot,
    field: String,
}

impl PayloadForm {
    pub(super) fn new(config: &pipeline::Outbox, names: &mut Names) -> Self {
        let members = config.envelope_fields.iter().map(|(member, field)| {
            let mut name = Vec::new();
            json::write_string(&mut name, member);
            name.push(b':');
            Member {
                name,
                slot: names.slot(field),
                field: field.clone(),
            }
        });
        Self {
            form: config.payload_as,
            tombstone_on_empty: config.tombstone_on_empty,
            members: members.collect(),
        }
    }

    /// The record's value; none is a tombstone. `name`: the payload's field.
    pub(super) fn value(&self, payload: Field<'_>, name: &str, fields: &Fields<'_>) -> Result<Option<Bytes>, Problem> {
        if self.tombstone_on_empty
            && self
                .text(payload, name)?
                .is_none_or(|text| text.trim_ascii().is_empty())
        {
            return Ok(None);
        }
        if self.members.is_empty() {
            return self.plain(payload, name);
        }
        let mut out = br#"{"payload":"#.to_vec();
        match self.form {
            PayloadAs::Raw => write_payload(&mut out, payload)?,
            PayloadAs::Text | PayloadAs::JsonString => match self.text(payload, name)? {
                None => out.extend_from_slice(b"null"),
                Some(text) if self.form == PayloadAs::JsonString && is_string_member(payload) => {
                    out.extend_from_slice(&text);
                }
                Some(text) => out.extend_from_slice(&quoted(&text, name)?),
            },
        }
        for member in &self.members {
            let field = fields.field(member.slot);
            if field != Field::Missing {
                out.push(b',');
                out.extend_from_slice(&member.name);
                write_member(&mut out, field, &member.field)?;
            }
        }
        out.push(b'}');
        Ok(Some(Bytes::from(out)))
    }

    /// The payload by itself.
    fn plain(&self, payload: Field<'_>, name: &str) -> Result<Option<Bytes>, Problem> {
        let text = self.text(payload, name)?;
        match (self.form, text) {
            (PayloadAs::JsonString, None) => Ok(Some(Bytes::from_static(b"null"))),
            (PayloadAs::JsonString, Some(text)) if !is_string_member(payload) => quoted(&text, name).map(Some),
            (PayloadAs::Raw | PayloadAs::Text | PayloadAs::JsonString, text) => Ok(text),
        }
    }

    /// The payload's bytes, as text without the quotes and escapes of a JSON string. None: null.
    fn text(&self, payload: Field<'_>, name: &str) -> Result<Option<Bytes>, Problem> {
        match self.form {
            PayloadAs::Text if payload.is_json_string() => Ok(named_text(payload, name)?.map(Text::into_bytes)),
            _ => Ok(payload.bytes()),
        }
    }
}

/// A message's member, which is a JSON string already; a cell's text is what a string has to hold.
fn is_string_member(payload: Field<'_>) -> bool {
    matches!(payload, Field::Json { .. }) && payload.is_json_string()
}

fn quoted(bytes: &[u8], name: &str) -> Result<Bytes, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::NotText {
        field: name.to_owned(),
        fault: TextFault::NotUtf8,
    })?;
    let mut out = Vec::with_capacity(bytes.len() + 16);
    json::write_string(&mut out, text);
    Ok(Bytes::from(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{ColumnKind, Value};

    const FORMS: [PayloadAs; 3] = [PayloadAs::Raw, PayloadAs::Text, PayloadAs::JsonString];

    fn written(form: PayloadAs, tombstone_on_empty: bool, payload: Field<'_>) -> Result<Option<String>, Problem> {
        let form = PayloadForm {
            form,
            tombstone_on_empty,
            members: Vec::new(),
        };
        let value = form.value(payload, "payload", &Fields::None)?;
        Ok(value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
    }

    /// As a message's member, in each form.
    #[track_caller]
    fn member(text: &'static str, expected: [&str; 3]) {
        let event = Bytes::from_static(text.as_bytes());
        let field = Field::of_json(std::str::from_utf8(&event).unwrap(), &event);
        for (form, expected) in FORMS.into_iter().zip(expected) {
            assert_eq!(written(form, false, field), Ok(Some(expected.to_owned())), "{form:?}");
        }
    }

    /// As a cell, in each form.
    #[track_caller]
    fn cell(text: &'static str, kind: ColumnKind, expected: [&str; 3]) {
        let value = Value::Text(Bytes::from_static(text.as_bytes()));
        for (form, expected) in FORMS.into_iter().zip(expected) {
            let written = written(form, false, Field::of_cell(&value, kind));
            assert_eq!(written, Ok(Some(expected.to_owned())), "{form:?}");
        }
    }

    #[test]
    fn members_in_each_form() {
        member(
            r#""{\"b\":1, \"a\":\u006eull}""#,
            [
                r#""{\"b\":1, \"a\":\u006eull}""#,
                r#"{"b":1, "a":null}"#,
                r#""{\"b\":1, \"a\":\u006eull}""#,
            ],
        );
        member(
            r#"{"a": "x"}"#,
            [r#"{"a": "x"}"#, r#"{"a": "x"}"#, r#""{\"a\": \"x\"}""#],
        );
        member("1.50", ["1.50", "1.50", r#""1.50""#]);
    }

    #[test]
    fn cells_in_each_form() {
        cell(
            r#"{"a": "é"}"#,
            ColumnKind::Json,
            [r#"{"a": "é"}"#, r#"{"a": "é"}"#, r#""{\"a\": \"é\"}""#],
        );
        cell(
            r#" "a\nb""#,
            ColumnKind::Json,
            [r#" "a\nb""#, "a\nb", r#"" \"a\\nb\"""#],
        );
        // Text that merely looks like a JSON string.
        cell(r#""a""#, ColumnKind::Text, [r#""a""#, r#""a""#, r#""\"a\"""#]);
    }

    #[test]
    fn a_null_is_a_tombstone_or_the_word() {
        assert_eq!(written(PayloadAs::Raw, false, Field::Null), Ok(None));
        assert_eq!(written(PayloadAs::Text, false, Field::Null), Ok(None));
        let word = Ok(Some("null".to_owned()));
        assert_eq!(written(PayloadAs::JsonString, false, Field::Null), word);
        assert_eq!(written(PayloadAs::JsonString, true, Field::Null), Ok(None));
    }

    #[test]
    fn what_is_blank_can_be_a_tombstone() {
        for form in FORMS {
            for text in ["", " ", "\t\r\n"] {
                let value = Value::Text(Bytes::from_static(text.as_bytes()));
                let field = Field::of_cell(&value, ColumnKind::Text);
                assert_eq!(written(form, true, field), Ok(None), "{form:?} {text:?}");
                assert!(written(form, false, field).unwrap().is_some(), "{form:?} {text:?}");
            }
        }
        let empty = Value::Bytes(Bytes::new());
        assert_eq!(
            written(PayloadAs::Raw, true, Field::of_cell(&empty, ColumnKind::Binary)),
            Ok(None)
        );
        let member = Bytes::from_static(b"\"\"");
        let member = Field::of_json(std::str::from_utf8(&member).unwrap(), &member);
        assert_eq!(
            written(PayloadAs::Text, true, member),
            Ok(None),
            "the text in the quotes"
        );
        assert_eq!(written(PayloadAs::Raw, true, member), Ok(Some("\"\"".to_owned())));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_where_text_is_due() {
        let value = Value::Bytes(Bytes::from_static(b"\xff"));
        let field = Field::of_cell(&value, ColumnKind::Binary);
        assert!(written(PayloadAs::JsonString, false, field).is_err());
        let lone = Bytes::from_static(br#""\ud800""#);
        let lone = Field::of_json(std::str::from_utf8(&lone).unwrap(), &lone);
        assert!(written(PayloadAs::Text, false, lone).is_err());
        assert_eq!(written(PayloadAs::Raw, false, lone), Ok(Some(r#""\ud800""#.to_owned())));
    }
}
