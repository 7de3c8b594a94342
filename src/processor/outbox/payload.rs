//! How a payload that stands without an envelope is written.

use bytes::Bytes;

use super::connect::{self, SchemaEnvelope};
use crate::config::pipeline::{self, JsonAs, LeftOut, PayloadAs};
use crate::processor::envelope::{write_member, write_payload};
use crate::processor::error::{Problem, TextFault};
use crate::processor::field::{Field, Fields, Names, Slot, Text, named_text};
use crate::processor::json;

#[derive(Debug)]
pub(super) struct PayloadForm {
    form: PayloadAs,
    left_out: LeftOut,
    tombstone_on_empty: bool,
    members: Vec<Member>,
    json_as: JsonAs,
    schema: Option<SchemaEnvelope>,
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
            json::write_connect_string(&mut name, member);
            name.push(b':');
            Member {
                name,
                slot: names.slot(field),
                field: field.clone(),
            }
        });
        Self {
            form: config.payload_as,
            left_out: config.left_out,
            tombstone_on_empty: config.tombstone_on_empty,
            members: members.collect(),
            json_as: config.json_as,
            schema: config.payload_schema.as_deref().map(SchemaEnvelope::new),
        }
    }

    /// The record's value; none is a tombstone. `name`: the payload's field.
    pub(super) fn value(&self, payload: Field<'_>, name: &str, fields: &Fields<'_>) -> Result<Option<Bytes>, Problem> {
        if self.tombstone_on_empty && self.is_empty(payload, name)? {
            return Ok(None);
        }
        let value = match self.members.is_empty() {
            true => self.plain(payload, name)?,
            false => Some(self.object(payload, name, fields)?),
        };
        Ok(match (&self.schema, value) {
            (Some(schema), Some(value)) => Some(schema.around(&value)),
            (_, value) => value,
        })
    }

    /// Whether there is nothing in it: null, or a text of nothing but blanks and control characters.
    fn is_empty(&self, payload: Field<'_>, name: &str) -> Result<bool, Problem> {
        let bytes = match self.form {
            // Bytes are in a format of their own, of which no bytes at all may be a whole message: Protobuf's is one of defaults.
            _ if matches!(payload, Field::Binary(_)) => return Ok(false),
            PayloadAs::JsonString | PayloadAs::Expanded if is_string_member(payload) => {
                payload.text().ok().flatten().map(Text::into_bytes).or(payload.bytes())
            }
            _ => self.text(payload, name)?,
        };
        Ok(bytes.is_none_or(|bytes| bytes.iter().all(|byte| *byte <= b' ')))
    }

    /// The payload by itself.
    fn plain(&self, payload: Field<'_>, name: &str) -> Result<Option<Bytes>, Problem> {
        match self.form {
            PayloadAs::Raw | PayloadAs::Text => self.text(payload, name),
            PayloadAs::Compact => Ok(self.compact(payload).map(Bytes::from).or(payload.bytes())),
            PayloadAs::JsonString => self.json_string(payload, name).map(Some),
            PayloadAs::Expanded => self.expanded(payload, name).map(Some),
        }
    }

    /// The payload beside other members.
    fn object(&self, payload: Field<'_>, name: &str, fields: &Fields<'_>) -> Result<Bytes, Problem> {
        let mut out = br#"{"payload":"#.to_vec();
        let write_payload =
            |out: &mut Vec<u8>| write_payload(out, payload).map_err(|_| not_text(name, TextFault::NotUtf8));
        match self.form {
            PayloadAs::Raw => write_payload(&mut out)?,
            PayloadAs::Text => match self.text(payload, name)? {
                None => out.extend_from_slice(b"null"),
                Some(text) => out.extend_from_slice(&quoted(&text, name)?),
            },
            PayloadAs::Compact => match self.compact(payload) {
                Some(json) => out.extend_from_slice(&json),
                None => write_payload(&mut out)?,
            },
            PayloadAs::JsonString => out.extend_from_slice(&self.json_string(payload, name)?),
            PayloadAs::Expanded => out.extend_from_slice(&self.expanded(payload, name)?),
        }
        for member in &self.members {
            let field = fields.field(member.slot);
            if field != Field::Missing {
                out.push(b',');
                out.extend_from_slice(&member.name);
                match connect::written_value(self.json_as, field) {
                    Some(json) => out.extend_from_slice(&json),
                    None => write_member(&mut out, field, &member.field)?,
                }
            }
        }
        out.push(b'}');
        Ok(Bytes::from(out))
    }

    /// The payload's bytes, as text without the quotes and escapes of a JSON string. None: null.
    fn text(&self, payload: Field<'_>, name: &str) -> Result<Option<Bytes>, Problem> {
        match self.form {
            PayloadAs::Text if payload.is_json_string() => Ok(named_text(payload, name)?.map(Text::into_bytes)),
            _ => Ok(payload.bytes()),
        }
    }

    /// None: no JSON. Text that merely looks like it is the application's own, byte for byte.
    fn compact(&self, payload: Field<'_>) -> Option<Vec<u8>> {
        if !payload.is_json() {
            return None;
        }
        let (text, _) = payload.written().ok()??;
        json::compact(text, self.left_out)
    }

    fn json_string(&self, payload: Field<'_>, name: &str) -> Result<Bytes, Problem> {
        match payload.bytes() {
            None => Ok(Bytes::from_static(b"null")),
            Some(bytes) if is_string_member(payload) => Ok(bytes),
            Some(bytes) => quoted(&bytes, name),
        }
    }

    fn expanded(&self, payload: Field<'_>, name: &str) -> Result<Bytes, Problem> {
        let Some((written, _)) = payload.written().map_err(|fault| not_text(name, fault))? else {
            return Ok(Bytes::from_static(b"null"));
        };
        let expanded = |text: &str| json::expanded(text, self.left_out).map(Bytes::from);
        let Field::Json { .. } = payload else {
            return Ok(expanded(written).unwrap_or_else(|| connect::string(written)));
        };
        // A message's member has a type of its own.
        let mut out = Vec::new();
        match written.as_bytes().first() {
            Some(b'"') => {
                if let Some(json) = json::unescaped(written).ok().and_then(|text| expanded(&text)) {
                    return Ok(json);
                }
                json::rewrite_connect_string(&mut out, written);
            }
            Some(b'{' | b'[') => return Ok(expanded(written).unwrap_or_else(|| connect::string(written))),
            Some(b't' | b'f') => out.extend_from_slice(written.as_bytes()),
            _ => json::write_number(&mut out, written),
        }
        Ok(Bytes::from(out))
    }
}

/// A message's member, which is a JSON string already; a cell's text is what a string has to hold.
fn is_string_member(payload: Field<'_>) -> bool {
    matches!(payload, Field::Json { .. }) && payload.is_json_string()
}

fn quoted(bytes: &[u8], name: &str) -> Result<Bytes, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| not_text(name, TextFault::NotUtf8))?;
    Ok(connect::string(text))
}

fn not_text(name: &str, fault: TextFault) -> Problem {
    let field = name.to_owned();
    Problem::NotText { field, fault }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{ColumnKind, Value};

    const FORMS: [PayloadAs; 5] = [
        PayloadAs::Raw,
        PayloadAs::Text,
        PayloadAs::JsonString,
        PayloadAs::Compact,
        PayloadAs::Expanded,
    ];

    fn form(form: PayloadAs, tombstone_on_empty: bool) -> PayloadForm {
        PayloadForm {
            form,
            left_out: LeftOut::default(),
            tombstone_on_empty,
            members: Vec::new(),
            json_as: JsonAs::Value,
            schema: None,
        }
    }

    fn value(form: &PayloadForm, payload: Field<'_>) -> Result<Option<String>, Problem> {
        let value = form.value(payload, "payload", &Fields::None)?;
        Ok(value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
    }

    fn written(as_form: PayloadAs, tombstone_on_empty: bool, payload: Field<'_>) -> Result<Option<String>, Problem> {
        value(&form(as_form, tombstone_on_empty), payload)
    }

    /// As a message's member, in each form.
    #[track_caller]
    fn member(text: &'static str, expected: [&str; 5]) {
        let event = Bytes::from_static(text.as_bytes());
        let field = Field::of_json(std::str::from_utf8(&event).unwrap(), &event);
        for (form, expected) in FORMS.into_iter().zip(expected) {
            assert_eq!(written(form, false, field), Ok(Some(expected.to_owned())), "{form:?}");
        }
    }

    /// As a cell, in each form.
    #[track_caller]
    fn cell(text: &'static str, kind: ColumnKind, expected: [&str; 5]) {
        let value = Value::Text(Bytes::from_static(text.as_bytes()));
        for (form, expected) in FORMS.into_iter().zip(expected) {
            let written = written(form, false, Field::of_cell(&value, kind));
            assert_eq!(written, Ok(Some(expected.to_owned())), "{form:?}");
        }
    }

    #[test]
    fn members_in_each_form() {
        let string = r#""{\"b\":1, \"a\":\u006eull}""#;
        member(
            string,
            [string, r#"{"b":1, "a":null}"#, string, string, r#"{"b":1,"a":null}"#],
        );
        let object = r#"{"a": "x"}"#;
        member(
            object,
            [object, object, r#""{\"a\": \"x\"}""#, r#"{"a":"x"}"#, r#"{"a":"x"}"#],
        );
        member("1.50", ["1.50", "1.50", r#""1.50""#, "1.50", "1.5"]);
        member("true", ["true", "true", r#""true""#, "true", "true"]);
        member(
            "[1, 2.0]",
            ["[1, 2.0]", "[1, 2.0]", r#""[1, 2.0]""#, "[1,2.0]", "[1,2.0]"],
        );
        // What cannot be expanded is a string of its text.
        let mixed = r#"{"m": [1, "a"]}"#;
        member(
            mixed,
            [
                mixed,
                mixed,
                r#""{\"m\": [1, \"a\"]}""#,
                r#"{"m":[1,"a"]}"#,
                r#""{\"m\": [1, \"a\"]}""#,
            ],
        );
        let text = r#""\u0061\/ \"""#;
        member(text, [text, "a/ \"", text, text, r#""a/ \"""#]);
    }

    #[test]
    fn cells_in_each_form() {
        let object = r#"{"a": "é😀"}"#;
        let compact = r#"{"a":"é😀"}"#;
        let expanded = r#"{"a":"é\uD83D\uDE00"}"#;
        let string = r#""{\"a\": \"é\uD83D\uDE00\"}""#;
        cell(object, ColumnKind::Json, [object, object, string, compact, expanded]);
        cell(object, ColumnKind::Text, [object, object, string, object, expanded]);
        cell(
            r#" "a\nb""#,
            ColumnKind::Json,
            [r#" "a\nb""#, "a\nb", r#"" \"a\\nb\"""#, r#""a\nb""#, r#"" \"a\\nb\"""#],
        );
        // Text that merely looks like a JSON string.
        let string = r#""\"a\"""#;
        cell(
            r#""a""#,
            ColumnKind::Text,
            [r#""a""#, r#""a""#, string, r#""a""#, string],
        );
        cell(
            " {oops",
            ColumnKind::Text,
            [" {oops", " {oops", r#"" {oops""#, " {oops", r#"" {oops""#],
        );
        cell("", ColumnKind::Text, ["", "", r#""""#, "", r#""""#]);
    }

    #[test]
    fn members_that_are_left_out() {
        let text = Value::Text(Bytes::from_static(br#"{"a": null, "e": [ ], "n": 1.50}"#));
        let field = Field::of_cell(&text, ColumnKind::Json);
        for (as_form, expected) in [
            (PayloadAs::Compact, r#"{"n":1.50}"#),
            (PayloadAs::Expanded, r#"{"n":1.5}"#),
        ] {
            let form = PayloadForm {
                left_out: LeftOut {
                    null_members: true,
                    empty_arrays: true,
                },
                ..form(as_form, false)
            };
            assert_eq!(value(&form, field), Ok(Some(expected.to_owned())));
        }
    }

    #[test]
    fn a_schema_stands_around_the_value() {
        let with_schema = |tombstone_on_empty| PayloadForm {
            schema: Some(SchemaEnvelope::new(r#"{ "type": "string", "optional": true }"#)),
            ..form(PayloadAs::JsonString, tombstone_on_empty)
        };
        let around = |payload: &str| {
            let value = format!(r#"{{"schema":{{"type":"string","optional":true}},"payload":{payload}}}"#);
            Ok(Some(value))
        };
        let text = Value::Text(Bytes::from_static(br#"{"b": 1}"#));
        let cell = Field::of_cell(&text, ColumnKind::Json);
        assert_eq!(value(&with_schema(true), cell), around(r#""{\"b\": 1}""#));
        assert_eq!(value(&with_schema(false), Field::Null), around("null"));
        assert_eq!(value(&with_schema(true), Field::Null), Ok(None));
    }

    #[test]
    fn a_null_is_a_tombstone_or_the_word() {
        assert_eq!(written(PayloadAs::Raw, false, Field::Null), Ok(None));
        assert_eq!(written(PayloadAs::Text, false, Field::Null), Ok(None));
        assert_eq!(written(PayloadAs::Compact, false, Field::Null), Ok(None));
        let word = Ok(Some("null".to_owned()));
        for form in [PayloadAs::JsonString, PayloadAs::Expanded] {
            assert_eq!(written(form, false, Field::Null), word);
            assert_eq!(written(form, true, Field::Null), Ok(None));
        }
    }

    #[test]
    fn what_is_blank_can_be_a_tombstone() {
        for form in FORMS {
            for text in ["", " ", "\t\r\n", "\x0b\0"] {
                let value = Value::Text(Bytes::from_static(text.as_bytes()));
                let field = Field::of_cell(&value, ColumnKind::Text);
                assert_eq!(written(form, true, field), Ok(None), "{form:?} {text:?}");
                assert!(written(form, false, field).unwrap().is_some(), "{form:?} {text:?}");
            }
        }
        let member = Bytes::from_static(b"\"\"");
        let member = Field::of_json(std::str::from_utf8(&member).unwrap(), &member);
        for form in [PayloadAs::Text, PayloadAs::JsonString, PayloadAs::Expanded] {
            assert_eq!(
                written(form, true, member),
                Ok(None),
                "{form:?}: the text in the quotes"
            );
        }
        assert_eq!(written(PayloadAs::Raw, true, member), Ok(Some("\"\"".to_owned())));
    }

    #[test]
    fn bytes_are_never_a_tombstone() {
        for form in FORMS {
            for bytes in ["", " "] {
                let value = Value::Bytes(Bytes::from_static(bytes.as_bytes()));
                let field = Field::of_cell(&value, ColumnKind::Binary);
                let as_it_is = written(form, false, field);
                assert_eq!(written(form, true, field), as_it_is, "{form:?} {bytes:?}");
                assert_ne!(as_it_is, Ok(None), "{form:?} {bytes:?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_where_text_is_due() {
        let value = Value::Bytes(Bytes::from_static(b"\xff"));
        let field = Field::of_cell(&value, ColumnKind::Binary);
        for form in [PayloadAs::JsonString, PayloadAs::Expanded] {
            assert!(written(form, false, field).is_err());
        }
        let bytes = form(PayloadAs::Compact, false).value(field, "payload", &Fields::None);
        assert_eq!(bytes, Ok(Some(Bytes::from_static(b"\xff"))));
        let lone = Bytes::from_static(br#""\ud800""#);
        let lone = Field::of_json(std::str::from_utf8(&lone).unwrap(), &lone);
        assert!(written(PayloadAs::Text, false, lone).is_err());
        for (form, expected) in [(PayloadAs::Raw, r#""\ud800""#), (PayloadAs::Expanded, r#""\uD800""#)] {
            assert_eq!(written(form, false, lone), Ok(Some(expected.to_owned())));
        }
    }
}
