//! Letters as text and as JSON.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::letters::{Letter, Parked};

use super::error::DlqError;

/// Longer cells are cut in the table.
const WIDEST: usize = 60;
/// Bytes in a line of a hex dump.
const DUMP: usize = 16;

/// Aligned columns, with a line of their names.
pub(super) fn table(letters: &[Parked]) -> String {
    let head = [
        "ID",
        "PARKED AT",
        "REASON",
        "EVENT TYPE",
        "AGGREGATE",
        "TARGET",
        "ATTEMPTS",
        "REPLAYED",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(letters.iter().map(row));
    let widths: [usize; 8] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn row(parked: &Parked) -> [String; 8] {
    let letter = &parked.letter;
    let replayed = match &parked.replay {
        None => "no".to_owned(),
        Some(replay) if replay.is_published() => replay.at.clone(),
        Some(_) => "failed".to_owned(),
    };
    [
        parked.id.to_string(),
        letter.parked_at.clone(),
        letter.reason.clone(),
        letter.event_type.clone().unwrap_or_else(|| "-".to_owned()),
        aggregate(letter),
        letter.target.clone().unwrap_or_else(|| "-".to_owned()),
        letter.attempts.to_string(),
        replayed,
    ]
    .map(|cell| cell_text(&cell))
}

fn aggregate(letter: &Letter) -> String {
    match (&letter.aggregate_type, &letter.aggregate_id) {
        (Some(kind), Some(id)) => format!("{kind}/{id}"),
        (Some(only), None) | (None, Some(only)) => only.clone(),
        (None, None) => "-".to_owned(),
    }
}

/// Text of an application may be anything: what would move the cursor is escaped.
fn cell_text(text: &str) -> String {
    let mut safe: String = text.chars().take(WIDEST).collect::<String>();
    if text.chars().nth(WIDEST).is_some() {
        safe.push('…');
    }
    escaped(&safe)
}

fn escaped(text: &str) -> String {
    let escape = |char: char| match char.is_control() {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Everything of a letter, for people.
pub(super) fn whole(parked: &Parked) -> String {
    let letter = &parked.letter;
    let mut lines = vec![
        ("id", parked.id.to_string()),
        ("pipeline", letter.pipeline.clone()),
        ("source", letter.source.clone()),
        ("sink", letter.sink.clone()),
        ("position", letter.position.clone()),
        ("parked at", letter.parked_at.clone()),
        ("reason", format!("{} ({})", letter.reason, letter.detail)),
        ("error", letter.error.clone()),
        ("attempts", letter.attempts.to_string()),
        ("event id", letter.event_id.clone()),
    ];
    let optional = [
        ("event type", &letter.event_type),
        ("aggregate type", &letter.aggregate_type),
        ("aggregate id", &letter.aggregate_id),
        ("target", &letter.target),
    ];
    lines.extend(
        optional
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.clone()?))),
    );
    lines.extend(letter.notes.iter().map(|(name, text)| (name.as_str(), text.clone())));
    if let Some(replay) = &parked.replay {
        lines.push(("replayed", format!("{}: {}", replay.at, replay.outcome)));
    }
    lines.push(("key", one_line(letter.key.as_ref())));
    let mut out = String::new();
    for (name, text) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<20}{}", escaped(&text));
    }
    out.push_str("headers\n");
    for header in &letter.headers {
        let _ = writeln!(out, "  {}: {}", escaped(&header.name), one_line(header.value.as_ref()));
    }
    match &letter.value {
        None => out.push_str("value: null\n"),
        Some(value) => {
            let _ = writeln!(out, "value ({} bytes)", value.len());
            match printable(value) {
                Some(text) => {
                    out.push_str(text);
                    if !text.ends_with('\n') && !text.is_empty() {
                        out.push('\n');
                    }
                }
                None => write_dump(&mut out, value),
            }
        }
    }
    out
}

fn one_line(bytes: Option<&Bytes>) -> String {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => "null".to_owned(),
        Some((_, Ok(text))) => escaped(text),
        Some((bytes, Err(_))) => bytes.iter().fold("0x".to_owned(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        }),
    }
}

/// Text that does nothing to a terminal but to fill it.
fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = |char: char| !char.is_control() || matches!(char, '\n' | '\r' | '\t');
    text.chars().all(is_plain).then_some(text)
}

fn write_dump(out: &mut String, bytes: &[u8]) {
    for (number, line) in bytes.chunks(DUMP).enumerate() {
        let _ = write!(out, "{:08x} ", number * DUMP);
        for byte in line {
            let _ = write!(out, " {byte:02x}");
        }
        let gap = (DUMP - line.len()) * 3 + 2;
        let text: String = line
            .iter()
            .map(|byte| match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '.',
            })
            .collect();
        let _ = writeln!(out, "{:gap$}{text}", "");
    }
}

/// What `list` shows, as one array.
pub(super) fn list_json(letters: &[Parked]) -> Result<Vec<u8>, DlqError> {
    let all: Vec<Value> = letters.iter().map(|parked| Value::Object(fields(parked))).collect();
    serde_json::to_vec_pretty(&all).map_err(DlqError::Json)
}

/// Everything of a letter, on one line.
pub(super) fn json_line(parked: &Parked) -> Result<Vec<u8>, DlqError> {
    serde_json::to_vec(&everything(parked)).map_err(DlqError::Json)
}

/// The same on several.
pub(super) fn json_pretty(parked: &Parked) -> Result<Vec<u8>, DlqError> {
    serde_json::to_vec_pretty(&everything(parked)).map_err(DlqError::Json)
}

/// What is said of a letter, without what is in it.
fn fields(parked: &Parked) -> Map<String, Value> {
    #[derive(Serialize)]
    struct Fields<'a> {
        id: String,
        pipeline: &'a str,
        source: &'a str,
        sink: &'a str,
        position: &'a str,
        parked_at: &'a str,
        reason: &'a str,
        detail: &'a str,
        error: &'a str,
        attempts: u32,
        event_id: &'a str,
        event_type: Option<&'a str>,
        aggregate_type: Option<&'a str>,
        aggregate_id: Option<&'a str>,
        target: Option<&'a str>,
        replayed: bool,
        replayed_at: Option<&'a str>,
        replay_outcome: Option<&'a str>,
    }
    let letter = &parked.letter;
    let fields = Fields {
        id: parked.id.to_string(),
        pipeline: &letter.pipeline,
        source: &letter.source,
        sink: &letter.sink,
        position: &letter.position,
        parked_at: &letter.parked_at,
        reason: &letter.reason,
        detail: &letter.detail,
        error: &letter.error,
        attempts: letter.attempts,
        event_id: &letter.event_id,
        event_type: letter.event_type.as_deref(),
        aggregate_type: letter.aggregate_type.as_deref(),
        aggregate_id: letter.aggregate_id.as_deref(),
        target: letter.target.as_deref(),
        replayed: parked.is_replayed(),
        replayed_at: parked.replay.as_ref().map(|replay| replay.at.as_str()),
        replay_outcome: parked.replay.as_ref().map(|replay| replay.outcome.as_str()),
    };
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => fields,
        // Texts and numbers can always be JSON.
        _ => Map::new(),
    }
}

/// The same, with key, headers and value: text as it is, other bytes as base64.
fn everything(parked: &Parked) -> Map<String, Value> {
    let letter = &parked.letter;
    let mut all = fields(parked);
    let notes: Map<String, Value> = letter
        .notes
        .iter()
        .map(|(name, text)| (name.clone(), json!(text)))
        .collect();
    all.insert("notes".to_owned(), Value::Object(notes));
    all.insert("timestamp_ms".to_owned(), json!(letter.record_timestamp_ms));
    insert_bytes(&mut all, "key", letter.key.as_ref());
    let headers = letter.headers.iter().map(|header| {
        let mut object = Map::new();
        object.insert("name".to_owned(), json!(header.name));
        insert_bytes(&mut object, "value", header.value.as_ref());
        Value::Object(object)
    });
    all.insert("headers".to_owned(), headers.collect());
    insert_bytes(&mut all, "value", letter.value.as_ref());
    all
}

fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&Bytes>) {
    let (name, value) = match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (name.to_owned(), Value::Null),
        Some((_, Ok(text))) => (name.to_owned(), json!(text)),
        Some((bytes, Err(_))) => (format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    };
    object.insert(name, value);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::letters::{LetterId, Replay};
    use crate::record::Header;

    fn parked(value: &'static [u8]) -> Parked {
        Parked {
            id: LetterId::Record {
                partition: 0,
                offset: 17,
            },
            letter: Letter {
                pipeline: "orders".to_owned(),
                source: "pg1".to_owned(),
                sink: "k1".to_owned(),
                position: "0/1".to_owned(),
                event_id: "7f".to_owned(),
                event_type: Some("created\u{1b}[2J".to_owned()),
                aggregate_type: Some("Order".to_owned()),
                aggregate_id: Some("7".to_owned()),
                reason: "permanent_failure".to_owned(),
                detail: "refused".to_owned(),
                error: "no".to_owned(),
                attempts: 5,
                target: None,
                parked_at: "2026-11-28T05:17:01.124Z".to_owned(),
                record_timestamp_ms: 5,
                key: Some(Bytes::from_static(b"\xff")),
                value: Some(Bytes::from_static(value)),
                headers: vec![Header {
                    name: Arc::from("a"),
                    value: Some(Bytes::from_static(b"\xfe")),
                }],
                notes: vec![("tailpost-dlq-prefix".to_owned(), "outbox".to_owned())],
            },
            replay: Some(Replay {
                at: "t".to_owned(),
                outcome: "failed: no".to_owned(),
            }),
        }
    }

    #[test]
    fn a_table_is_aligned_and_leaves_the_terminal_alone() {
        let lines = table(&[parked(b"1")]);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0].find("REASON"), lines[1].find("permanent_failure"));
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            [
                "0:17",
                "2026-11-28T05:17:01.124Z",
                "permanent_failure",
                "created\\u{1b}[2J",
                "Order/7",
                "-",
                "5",
                "failed"
            ]
        );
        assert_eq!(table(&[]).lines().count(), 1);
    }

    #[test]
    fn a_value_that_is_no_text_is_dumped() {
        let text = whole(&parked(b"{\"a\":1}"));
        assert!(text.ends_with("value (7 bytes)\n{\"a\":1}\n"), "{text}");
        assert!(
            text.contains("key                 0xff\n") && text.contains("  a: 0xfe\n"),
            "{text}"
        );
        let text = whole(&parked(b"0123456789abcdef\xff!"));
        let dump = "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n\
                    00000010  ff 21                                            .!\n";
        assert!(text.ends_with(dump), "{text}");
    }

    #[test]
    fn json_has_bytes_that_are_no_text_as_base64() {
        let line: Value = serde_json::from_slice(&json_line(&parked(b"\xff")).unwrap()).unwrap();
        assert_eq!(line["value_base64"], json!("/w=="));
        assert_eq!(line["headers"], json!([{"name": "a", "value_base64": "/g=="}]));
        assert_eq!((&line["id"], &line["replayed"]), (&json!("0:17"), &json!(false)));
        let list: Value = serde_json::from_slice(&list_json(&[parked(b"1")]).unwrap()).unwrap();
        assert_eq!(list[0]["reason"], json!("permanent_failure"));
        assert_eq!(list[0].get("value"), None);
    }
}
