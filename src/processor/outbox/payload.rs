//! How a payload that stands without an envelope is written.

use bytes::Bytes;

use crate::config::pipeline::{self, PayloadAs};
use crate::processor::error::{Problem, TextFault};
use crate::processor::field::{Field, Text, named_text};
use crate::processor::json;

#[derive(Debug)]
pub(super) struct PayloadForm {
    form: PayloadAs,
    tombstone_on_empty: bool,
}

impl PayloadForm {
    pub(super) fn new(config: &pipeline::Outbox) -> Self {
        Self {
            form: config.payload_as,
            tombstone_on_empty: config.tombstone_on_empty,
        }
    }

    /// The record's value; none is a tombstone. `name`: the payload's field.
    pub(super) fn value(&self, payload: Field<'_>, name: &str) -> Result<Option<Bytes>, Problem> {
        let bytes = match self.form {
            PayloadAs::Text if payload.is_json_string() => named_text(payload, name)?.map(Text::into_bytes),
            _ => payload.bytes(),
        };
        let is_empty = |bytes: &Bytes| bytes.trim_ascii().is_empty();
        if self.tombstone_on_empty && bytes.as_ref().is_none_or(is_empty) {
            return Ok(None);
        }
        match (self.form, bytes, payload) {
            (PayloadAs::JsonString, None, _) => Ok(Some(Bytes::from_static(b"null"))),
            // A message's member, which is JSON already; a cell's text is what the string has to hold.
            (PayloadAs::JsonString, Some(bytes), Field::Json { .. }) if payload.is_json_string() => Ok(Some(bytes)),
            (PayloadAs::JsonString, Some(bytes), _) => quoted(&bytes, name).map(Some),
            (PayloadAs::Raw | PayloadAs::Text, bytes, _) => Ok(bytes),
        }
    }
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
        };
        let value = form.value(payload, "payload")?;
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
