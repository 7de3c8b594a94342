//! A record as one JSON object without line breaks: what the sinks `stdout` and `file` write, and `http` as its body
//! `envelope`.
//!
//! ```json
//! {"topic":"orders","key":"7","timestamp_ms":1700000000000,"headers":{"df-event-id":"7f"},"value":{"a":1.50}}
//! ```
//! A value that is JSON stands there as it is, but for line breaks between its parts, which become blanks. Other text is
//! `value_text`, other bytes are `value_base64`; a tombstone is `"value":null`, so that JSON's own null is text. A key that
//! is no text is `key_base64`. A header that comes more than once has a list; one that is no text has `{"base64": ...}`.

use std::io::Write as _;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::processor::is_json_text;
use crate::record::{Header, Record};

/// Whether the bytes are one JSON text.
pub(super) fn is_json(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(is_json_text)
}

/// Appends JSON, which must be that, without line breaks: inside of strings JSON has none that are not escaped.
pub(super) fn write_in_one_line(out: &mut Vec<u8>, json: &[u8]) {
    out.extend(json.iter().map(|&byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => byte,
    }));
}

/// Appends the record. `topic`: whether its target is told.
pub(super) fn write(out: &mut Vec<u8>, record: &Record, topic: bool) {
    out.push(b'{');
    if topic {
        out.extend_from_slice(b"\"topic\":");
        write_text(out, &record.topic);
        out.push(b',');
    }
    match record.key.as_deref().map(std::str::from_utf8) {
        None => out.extend_from_slice(b"\"key\":null"),
        Some(Ok(key)) => {
            out.extend_from_slice(b"\"key\":");
            write_text(out, key);
        }
        Some(Err(_)) => {
            out.extend_from_slice(b"\"key_base64\":");
            write_base64(out, record.key.as_deref().unwrap_or_default());
        }
    }
    // Writing to a vector cannot fail.
    let _ = write!(out, ",\"timestamp_ms\":{}", record.timestamp_ms);
    if let Some(partition) = record.partition {
        let _ = write!(out, ",\"partition\":{partition}");
    }
    out.extend_from_slice(b",\"headers\":{");
    write_headers(out, &record.headers);
    out.extend_from_slice(b"},");
    match record.value.as_deref() {
        None => out.extend_from_slice(b"\"value\":null"),
        Some(value) if value.trim_ascii() != b"null" && is_json(value) => {
            out.extend_from_slice(b"\"value\":");
            write_in_one_line(out, value);
        }
        Some(value) => match std::str::from_utf8(value) {
            Ok(text) => {
                out.extend_from_slice(b"\"value_text\":");
                write_text(out, text);
            }
            Err(_) => {
                out.extend_from_slice(b"\"value_base64\":");
                write_base64(out, value);
            }
        },
    }
    out.push(b'}');
}

/// Each name once, where it first comes.
fn write_headers(out: &mut Vec<u8>, headers: &[Header]) {
    for (index, header) in headers.iter().enumerate() {
        if headers[..index].iter().any(|before| before.name == header.name) {
            continue;
        }
        if index > 0 {
            out.push(b',');
        }
        write_text(out, &header.name);
        out.push(b':');
        let mut same = headers[index..].iter().filter(|other| other.name == header.name);
        if headers[index + 1..].iter().any(|other| other.name == header.name) {
            out.push(b'[');
            if let Some(first) = same.next() {
                write_header(out, first.value.as_ref());
            }
            for value in same {
                out.push(b',');
                write_header(out, value.value.as_ref());
            }
            out.push(b']');
        } else {
            write_header(out, header.value.as_ref());
        }
    }
}

fn write_header(out: &mut Vec<u8>, value: Option<&Bytes>) {
    match value.map(|value| (value, std::str::from_utf8(value))) {
        None => out.extend_from_slice(b"null"),
        Some((_, Ok(text))) => write_text(out, text),
        Some((bytes, Err(_))) => {
            out.extend_from_slice(b"{\"base64\":");
            write_base64(out, bytes);
            out.push(b'}');
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Text can always be a JSON string, and writing to a vector cannot fail.
    let _ = serde_json::to_writer(out, text);
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let _ = write!(out, "\"{}\"", Base64Display::new(bytes, &STANDARD));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn record(value: Option<&[u8]>) -> Record {
        Record {
            topic: Arc::from("orders"),
            partition: None,
            key: Some(Bytes::from_static(b"7")),
            value: value.map(Bytes::copy_from_slice),
            headers: Vec::new(),
            timestamp_ms: 5,
            about: None,
        }
    }

    fn line(record: &Record) -> String {
        let mut out = Vec::new();
        write(&mut out, record, true);
        String::from_utf8(out).unwrap()
    }

    fn header(name: &str, value: Option<&'static [u8]>) -> Header {
        Header {
            name: Arc::from(name),
            value: value.map(Bytes::from_static),
        }
    }

    #[test]
    fn json_stays_as_it_is_on_one_line() {
        assert_eq!(
            line(&record(Some(b"{ \"a\" :\r\n 1.50 }"))),
            r#"{"topic":"orders","key":"7","timestamp_ms":5,"headers":{},"value":{ "a" :   1.50 }}"#
        );
    }

    #[test]
    fn what_is_no_json_or_no_text_says_so() {
        let members = |record: Record| {
            let parsed: Value = serde_json::from_str(&line(&record)).unwrap();
            (
                parsed.get("value").cloned(),
                parsed.get("value_text").cloned(),
                parsed.get("value_base64").cloned(),
            )
        };
        assert_eq!(members(record(None)), (Some(Value::Null), None, None));
        assert_eq!(members(record(Some(b"a\nb"))), (None, Some(json!("a\nb")), None));
        assert_eq!(members(record(Some(b""))), (None, Some(json!("")), None));
        assert_eq!(members(record(Some(b"\xff"))), (None, None, Some(json!("/w=="))));
        // JSON's own null is there, and is no tombstone.
        assert_eq!(members(record(Some(b" null\n"))), (None, Some(json!(" null\n")), None));
        // Invalid UTF-8 inside of a string is no JSON.
        assert_eq!(members(record(Some(b"\"\xff\""))).2, Some(json!("Iv8i")));
    }

    #[test]
    fn a_header_that_repeats_has_a_list() {
        let record = Record {
            headers: vec![
                header("a", Some(b"1")),
                header("b", None),
                header("a", Some(b"\xff")),
                header("c", Some(b"x\"y")),
            ],
            key: Some(Bytes::from_static(b"\xfe")),
            ..record(None)
        };
        let parsed: Value = serde_json::from_str(&line(&record)).unwrap();
        assert_eq!(
            parsed["headers"],
            json!({"a": ["1", {"base64": "/w=="}], "b": null, "c": "x\"y"})
        );
        assert_eq!(parsed["key_base64"], json!("/g=="));
    }

    proptest! {
        #[test]
        fn every_record_is_one_line_of_json(
            value in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
            key in prop::option::of(prop::collection::vec(any::<u8>(), 0..5)),
            names in prop::collection::vec("[ab\"\\n]", 0..5),
        ) {
            let record = Record {
                key: key.map(Bytes::from),
                value: value.map(Bytes::from),
                headers: names.iter().map(|name| header(name, Some(b"v"))).collect(),
                ..record(None)
            };
            let line = line(&record);
            prop_assert!(!line.contains('\n'));
            prop_assert!(serde_json::from_str::<Value>(&line).unwrap().is_object());
        }
    }
}
