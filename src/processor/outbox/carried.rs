//! Headers that an event carries along in one field: a mapping of its own, and the context of a trace.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use java_properties::PropertiesIter;

use super::connect;
use crate::config::pipeline::{Columns, HeadersAs, JsonAs};
use crate::processor::error::Problem;
use crate::processor::field::{Field, Slot, Text};
use crate::processor::json;
use crate::record::Header;

/// How a mapping's members become headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried {
    pub(super) keeps_null: bool,
    pub(super) form: HeadersAs,
    pub(super) json_as: JsonAs,
}

impl Carried {
    /// The members of a JSON object or of an hstore, as headers behind those that are there; a null has none. A name that is there
    /// already stays as it is, and of a name that the object has twice the last counts; objects and lists are left out unless
    /// their text is asked for, as are nulls unless they are kept. `name`: the field's.
    pub(super) fn push_members(self, headers: &mut Vec<Header>, field: Field<'_>, name: &str) -> Result<(), Problem> {
        let no_headers = || Problem::NoHeaders { field: name.to_owned() };
        let Some((text, event)) = field.written().map_err(|_| no_headers())? else {
            return Ok(());
        };
        // By what it says, not by its column's type: JSON is a LONGTEXT in MariaDB.
        if json::trim(text) == "null" {
            return Ok(());
        }
        let mut members: Vec<(Cow<'_, str>, Field<'_>)> = Vec::new();
        let is_object = json::for_each_member(text, |member, value| {
            let Some(member) = member.text() else { return };
            let value = Field::of_json(value, event);
            match members.iter_mut().find(|(known, _)| *known == member) {
                Some((_, known)) => *known = value,
                None => members.push((member, value)),
            }
        });
        if is_object.is_ok() {
            for (member, value) in members {
                if let Some(json) = connect::written_header(self.form, self.json_as, value) {
                    Self::push(headers, &member, Some(json));
                    continue;
                }
                match (value, value.text()) {
                    (Field::Null, _) => self.push_text(headers, &member, value, None),
                    (_, Ok(Some(text))) => self.push_text(headers, &member, value, Some(text)),
                    // No text that could stand in a header.
                    (_, Ok(None) | Err(_)) => {}
                }
            }
            return Ok(());
        }
        for (member, value) in hstore(text).ok_or_else(no_headers)? {
            self.push_text(headers, &member, Field::Null, value.map(Text::Made));
        }
        Ok(())
    }

    fn push_text(self, headers: &mut Vec<Header>, name: &str, field: Field<'_>, text: Option<Text<'_>>) {
        if text.is_some() || self.keeps_null {
            Self::push(headers, name, connect::header(self.form, field, text));
        }
    }

    fn push(headers: &mut Vec<Header>, name: &str, value: Option<Bytes>) {
        let is_there = headers.iter().any(|header| &*header.name == name);
        if !is_there && !name.is_empty() {
            headers.push(Header {
                name: Arc::from(name),
                value,
            });
        }
    }
}

/// The pairs of an hstore as the server prints it: `"a"=>"1", "b"=>NULL`.
fn hstore(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, after) = quoted(rest)?;
        let after = after.strip_prefix("=>")?;
        let (value, after) = match after.strip_prefix("NULL") {
            Some(after) => (None, after),
            None => quoted(after).map(|(value, after)| (Some(value), after))?,
        };
        pairs.push((key, value));
        rest = match after {
            "" => after,
            more => more.strip_prefix(", ")?,
        };
    }
    Some(pairs)
}

/// A text in quotes, with `\` before each quote and backslash in it; and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut out = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (end, '"') => return Some((out, &text[end + 1..])),
            (_, '\\') => out.push(characters.next()?.1),
            (_, other) => out.push(other),
        }
    }
}

/// Where an event has the context of its trace, and the headers that it becomes.
#[derive(Debug)]
pub(super) struct TraceColumn {
    pub(super) slot: Slot,
    traceparent: Arc<str>,
    tracestate: Arc<str>,
}

impl TraceColumn {
    pub(super) fn new(slot: Slot) -> Self {
        let [traceparent, tracestate] = Columns::TRACE_HEADERS.map(Arc::from);
        Self {
            slot,
            traceparent,
            tracestate,
        }
    }

    /// A traceparent as it is, or those of Java properties, which is what Debezium's `tracingspancontext` has. Any other text
    /// is left out: a trace is not worth an event.
    pub(super) fn push(&self, headers: &mut Vec<Header>, text: &Text<'_>, form: HeadersAs) {
        let text = text.as_str().trim();
        let mut push = |name: &Arc<str>, value: &str| {
            headers.push(Header {
                name: Arc::clone(name),
                value: Some(connect::text_header(form, value)),
            });
        };
        if is_traceparent(text) {
            return push(&self.traceparent, text);
        }
        let [parent, state] = properties(text, [&self.traceparent, &self.tracestate]);
        let Some(parent) = parent.filter(|value| is_traceparent(value)) else {
            return;
        };
        push(&self.traceparent, &parent);
        if let Some(state) = state {
            push(&self.tracestate, &state);
        }
    }
}

/// W3C Trace Context, "traceparent Header": version, trace id, parent id, flags; a later version may have more behind them.
fn is_traceparent(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut is_hex = |length: usize| {
        let part = parts.next().unwrap_or_default();
        let is_hex = part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then_some(part)
    };
    let (version, trace, parent, flags) = (is_hex(2), is_hex(32), is_hex(16), is_hex(2));
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    version.is_some_and(|version| version != "ff" && (version != "00" || text.len() == 55))
        && trace.is_some_and(|trace| !is_zero(trace))
        && parent.is_some_and(|parent| !is_zero(parent))
        && flags.is_some()
}

/// The values of two names in the text of `java.util.Properties`; of a name that is there twice the last, as there. A text
/// that is none has neither.
fn properties(text: &str, names: [&str; 2]) -> [Option<String>; 2] {
    let mut values = [None, None];
    let read = PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8).read_into(|name, value| {
        for (value_of, wanted) in values.iter_mut().zip(names) {
            if name == wanted {
                *value_of = Some(value.clone());
            }
        }
    });
    match read {
        Ok(()) => values,
        Err(_) => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::processor::field::Names;
    use crate::row::{ColumnKind, Value};

    type Pushed = Vec<(String, Option<String>)>;

    fn shown(headers: Vec<Header>) -> Pushed {
        let text = |value: Bytes| String::from_utf8(value.to_vec()).unwrap();
        headers
            .into_iter()
            .map(|header| (header.name.to_string(), header.value.map(text)))
            .collect()
    }

    fn members(text: &str, keeps_null: bool) -> Result<Pushed, Problem> {
        members_as(HeadersAs::Text, text, keeps_null)
    }

    fn members_as(form: HeadersAs, text: &str, keeps_null: bool) -> Result<Pushed, Problem> {
        let value = Value::Text(Bytes::copy_from_slice(text.as_bytes()));
        let json_as = JsonAs::Value;
        let carried = Carried {
            keeps_null,
            form,
            json_as,
        };
        let mut headers = vec![Header {
            name: Arc::from("id"),
            value: None,
        }];
        carried.push_members(&mut headers, Field::of_cell(&value, ColumnKind::Text), "h")?;
        Ok(shown(headers.split_off(1)))
    }

    fn pairs(pairs: &[(&str, Option<&str>)]) -> Pushed {
        let owned = |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(str::to_owned));
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn members_of_an_object_are_headers() {
        let object = r#" {"a": "x\n\u00e9", "b": 1.50, "c": true, "n": null, "o": {}, "l": [], "\u0064": "", "id": "own", "": 1} "#;
        let expected = pairs(&[
            ("a", Some("x\né")),
            ("b", Some("1.50")),
            ("c", Some("true")),
            ("d", Some("")),
        ]);
        assert_eq!(members(object, false), Ok(expected));
        for none in ["{}", " null "] {
            assert_eq!(members(none, true), Ok(Vec::new()), "{none}");
        }
    }

    #[test]
    fn of_a_name_that_is_there_twice_the_last_member_counts() {
        let one_and_two = Ok(pairs(&[("a", Some("2")), ("b", Some("1"))]));
        assert_eq!(members(r#"{"a": 1, "b": 1, "\u0061": 2}"#, false), one_and_two);
        for (last, keeps_null, expected) in [
            ("null", false, pairs(&[])),
            ("null", true, pairs(&[("a", None)])),
            ("{}", true, pairs(&[])),
        ] {
            assert_eq!(
                members(&format!(r#"{{"a": 1, "a": {last}}}"#), keeps_null),
                Ok(expected)
            );
        }
    }

    #[test]
    fn pairs_of_an_hstore_are_headers() {
        let text = r#""a"=>"1", "b \"q\" \\"=>"", "n"=>NULL, "id"=>"own""#;
        let expected = pairs(&[("a", Some("1")), ("b \"q\" \\", Some(""))]);
        assert_eq!(members(text, false), Ok(expected.clone()));
        assert_eq!(members(text, true), Ok([expected, pairs(&[("n", None)])].concat()));
        assert_eq!(members("", false), Ok(Vec::new()), "an empty hstore");
    }

    #[test]
    fn members_can_be_json() {
        let as_json = |text| members_as(HeadersAs::Json, text, true);
        let object = r#"{"a": "x\u000a", "b": 1.50, "c": true, "n": null, "o": {}}"#;
        let expected = [("a", r#""x\n""#), ("b", "1.50"), ("c", "true"), ("n", "null")];
        assert_eq!(
            as_json(object),
            Ok(pairs(&expected.map(|(name, value)| (name, Some(value)))))
        );
        let expected = pairs(&[("a", Some(r#""1""#)), ("n", Some("null"))]);
        assert_eq!(as_json(r#""a"=>"1", "n"=>NULL"#), Ok(expected));
        assert_eq!(members_as(HeadersAs::Json, r#""n"=>NULL"#, false), Ok(Vec::new()));
    }

    #[test]
    fn what_holds_no_headers_is_refused() {
        for text in [
            "[1]",
            "1",
            "text",
            r#"{"a": 1"#,
            r#"{"a": 1} x"#,
            r#""a"=>1"#,
            r#""a"=>"1" "b"=>"2""#,
            r#""a"#,
        ] {
            assert_eq!(
                members(text, true),
                Err(Problem::NoHeaders { field: "h".to_owned() }),
                "{text}"
            );
        }
        let mut headers = Vec::new();
        let carried = Carried {
            keeps_null: true,
            form: HeadersAs::Text,
            json_as: JsonAs::Value,
        };
        for field in [Field::Null, Field::Missing] {
            assert_eq!(carried.push_members(&mut headers, field, "h"), Ok(()));
        }
        assert_eq!(headers, []);
    }

    fn trace(text: &str) -> Pushed {
        let mut headers = Vec::new();
        TraceColumn::new(Names::default().slot("t")).push(&mut headers, &Text::Plain(text), HeadersAs::Text);
        shown(headers)
    }

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_passed_on() {
        assert_eq!(trace(&format!(" {PARENT}\n")), pairs(&[("traceparent", Some(PARENT))]));
        let later = format!("cc{}-what-follows", &PARENT[2..]);
        assert_eq!(trace(&later), pairs(&[("traceparent", Some(&later))]));
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace(text), [], "{text}");
        }
    }

    #[test]
    fn a_context_in_properties_is_passed_on() {
        let text = format!(
            "#Sat Nov 28 05:17:01 UTC 2026\ntracestate=rojo\\=1,congo\\:2\ntraceparent : {PARENT}\n!x\nother=1\n"
        );
        assert_eq!(
            trace(&text),
            pairs(&[("traceparent", Some(PARENT)), ("tracestate", Some("rojo=1,congo:2"))])
        );
        let as_java_writes = format!("tracestate=none\ntracestate=rojo\\u003d1,\\\n  congo=2\ntraceparent={PARENT}");
        assert_eq!(
            trace(&as_java_writes),
            pairs(&[("traceparent", Some(PARENT)), ("tracestate", Some("rojo=1,congo=2"))]),
            "the last of a name, with what is escaped and continued"
        );
        let no_escape = format!("traceparent={PARENT}\ntracestate=\\u00zz");
        assert_eq!(trace(&no_escape), [], "no properties");
        assert_eq!(trace("tracestate=a=1"), [], "a state without its parent says nothing");
        assert_eq!(trace("traceparent=none"), []);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text in any::<String>()) {
            let _ = members(&text, true);
            trace(&text);
        }

        #[test]
        fn what_an_hstore_holds_is_found(held in prop::collection::btree_map("\\PC{1,8}", prop::option::of("\\PC{0,8}"), 0..5)) {
            let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            let text: Vec<String> = held.iter()
                .map(|(key, value)| format!("{}=>{}", quote(key), value.as_deref().map_or("NULL".to_owned(), quote)))
                .collect();
            prop_assert_eq!(hstore(&text.join(", ")), Some(held.into_iter().collect::<Vec<_>>()));
        }
    }
}
