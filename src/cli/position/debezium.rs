//! The offset that a Debezium connector for MySQL or MariaDB has saved, as a place to begin at.
//!
//! Debezium keeps `gtids` of the transactions that are done as a whole, and `file` and `pos` of where the one begins that it is
//! in; how far into that it was (`event`, `row`) is left out here, so what it has sent of it comes once more.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::config::{GtidStart, MysqlStart};

/// Why a text is no place to begin at.
#[derive(Debug, Error)]
pub(super) enum OffsetError {
    #[error(
        "stdin is no offset of Debezium: expected the JSON value of the connector's record in the offsets topic, what Connect \
         answers to GET /connectors/NAME/offsets, or the file of Debezium Server's offsets"
    )]
    Json(#[source] serde_json::Error),
    #[error(
        "stdin has no offset: expected the JSON value of the connector's record in the offsets topic, what Connect answers to GET \
         /connectors/NAME/offsets, or the file of Debezium Server's offsets"
    )]
    Nothing,
    #[error("stdin has {count} offsets, and none says whose it is: expected one, of this pipeline's server")]
    Several { count: usize },
    #[error(
        "stdin has offsets of {found}, expected one of `{expected}`, which is the source's `id`: the connector's topic.prefix is to \
         be the same, or pass --as-this with the one offset that is meant"
    )]
    Foreign { found: String, expected: String },
    #[error(
        "the offset is of PostgreSQL, where the slot has it: name the connector's slot in the pipeline file, and it goes on where \
         that stands"
    )]
    Postgres,
    #[error("the connector was making a snapshot: let it end first, or begin with `start` in the pipeline file")]
    Snapshot,
    #[error("the offset has neither gtids nor file and pos")]
    NoPlace,
    #[error("the offset's gtids `{gtids}` are no set of MySQL's or MariaDB's")]
    Gtids { gtids: String },
}

#[derive(Debug, Deserialize)]
struct Offset {
    file: Option<String>,
    pos: Option<u64>,
    gtids: Option<String>,
    /// Of PostgreSQL alone, as the two below.
    lsn: Option<Value>,
    lsn_proc: Option<Value>,
    lsn_commit: Option<Value>,
    snapshot: Option<Value>,
    snapshot_completed: Option<bool>,
    /// Tables that an incremental snapshot has still to read.
    incremental_snapshot_collections: Option<Value>,
}

/// The answer of Connect's REST interface.
#[derive(Debug, Deserialize)]
struct Answer {
    offsets: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
struct Partition {
    partition: Option<Value>,
    offset: Value,
}

/// What a file of Java's serialized objects begins with.
const JAVA_OBJECTS: [u8; 4] = [0xac, 0xed, 0x00, 0x05];

/// Reads the offset of a server, which is a connector's topic.prefix: by itself, behind its key as a console consumer prints it, in
/// Connect's answer, or in the file that Debezium Server keeps. Of several of one server the last holds, as in a topic.
/// `as_this`: an offset that is the only one may be another server's.
pub(super) fn read(bytes: &[u8], server: &str, as_this: bool) -> Result<MysqlStart, OffsetError> {
    let mut unnamed = Vec::new();
    let mut named: BTreeMap<String, Value> = BTreeMap::new();
    let mut key = None;
    for value in values(bytes)? {
        match value {
            // The key of what follows.
            Value::Array(parts) => key = server_of(parts.get(1)),
            Value::Object(_) if value.get("offsets").is_some() => {
                let answer: Answer = serde_json::from_value(value).map_err(OffsetError::Json)?;
                for Partition { partition, offset } in answer.offsets {
                    match server_of(partition.as_ref()) {
                        Some(server) => drop(named.insert(server, offset)),
                        None => unnamed.push(offset),
                    }
                }
            }
            Value::Null => drop(key.take().map(|server| named.remove(&server))),
            offset => match key.take() {
                Some(server) => drop(named.insert(server, offset)),
                None => unnamed.push(offset),
            },
        }
    }
    let found = || {
        named
            .keys()
            .map(|server| format!("`{server}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let offset = match (unnamed.len(), named.len()) {
        (0, 0) => return Err(OffsetError::Nothing),
        (1, 0) => unnamed.pop(),
        (0, 1) if as_this => named.values().next().cloned(),
        (0, _) => match named.get(server) {
            Some(offset) => Some(offset.clone()),
            None => {
                return Err(OffsetError::Foreign {
                    found: found(),
                    expected: server.to_owned(),
                });
            }
        },
        (count, more) => return Err(OffsetError::Several { count: count + more }),
    };
    place(serde_json::from_value(offset.unwrap_or_default()).map_err(OffsetError::Json)?)
}

/// `{"server": "shop"}`, of a connector's one task.
fn server_of(partition: Option<&Value>) -> Option<String> {
    Some(partition?.get("server")?.as_str()?.to_owned())
}

/// The JSON values one after the other. In a file of Java's they stand between the marks of its objects.
fn values(bytes: &[u8]) -> Result<Vec<Value>, OffsetError> {
    if !bytes.starts_with(&JAVA_OBJECTS) {
        let values = serde_json::Deserializer::from_slice(bytes).into_iter();
        return values.collect::<Result<_, _>>().map_err(OffsetError::Json);
    }
    let mut values = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| b"[{".contains(byte)) {
        rest = &rest[at..];
        let mut stream = serde_json::Deserializer::from_slice(rest).into_iter();
        match stream.next() {
            Some(Ok(value)) => {
                values.push(value);
                rest = &rest[stream.byte_offset()..];
            }
            _ => rest = &rest[1..],
        }
    }
    Ok(values)
}

fn place(offset: Offset) -> Result<MysqlStart, OffsetError> {
    if offset.lsn.or(offset.lsn_proc).or(offset.lsn_commit).is_some() {
        return Err(OffsetError::Postgres);
    }
    let is_snapshot = offset
        .snapshot
        .is_some_and(|snapshot| !matches!(snapshot, Value::Null | Value::Bool(false)));
    let is_incremental = offset.incremental_snapshot_collections.is_some();
    if is_incremental || (is_snapshot && offset.snapshot_completed != Some(true)) {
        return Err(OffsetError::Snapshot);
    }
    let gtids = offset.gtids.map(|gtids| gtids.split_whitespace().collect::<String>());
    match (gtids.filter(|gtids| !gtids.is_empty()), offset.file, offset.pos) {
        (Some(gtids), ..) => match gtids.parse::<GtidStart>() {
            Ok(gtids) => Ok(MysqlStart::Gtid(gtids)),
            Err(_) => Err(OffsetError::Gtids { gtids }),
        },
        (None, Some(file), Some(position)) => Ok(MysqlStart::File { file, position }),
        (None, ..) => Err(OffsetError::NoPlace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MysqlStart, OffsetError> {
        super::read(text.as_bytes(), "shop", false)
    }

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn gtid(text: &str) -> MysqlStart {
        MysqlStart::Gtid(text.parse().expect("a set"))
    }

    #[test]
    fn a_saved_offset_is_a_place() {
        let set = format!("{UUID}:1-5");
        let offset = format!(
            r#"{{"transaction_id":null,"ts_sec":1,"file":"binlog.000003","pos":197,"gtids":"{set}","row":1,"server_id":1,"event":2}}"#
        );
        let answer = format!(r#"{{"offsets":[{{"partition":{{"server":"shop"}},"offset":{offset}}}]}}"#);
        let printed = format!("[\"c\",{{\"server\":\"shop\"}}]\t{offset}\n");
        let indented = format!("{{\n\t\"offsets\": [{{\n\t\t\"offset\": {offset}}}]}}");
        for text in [&offset, &answer, &printed, &indented] {
            assert_eq!(read(text).unwrap(), gtid(&set), "{text}");
        }
        let two = format!("{UUID}:1-5,\\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1-2");
        let spread = read(&format!(r#"{{"gtids":"{two}"}}"#)).unwrap();
        assert_eq!(spread, gtid(&two.replace("\\n", "")));
        assert_eq!(read(r#"{"gtids":"0-1-5"}"#).unwrap(), gtid("0-1-5"));
        let file = MysqlStart::File {
            file: "binlog.000003".to_owned(),
            position: 197,
        };
        for text in [
            r#"{"file":"binlog.000003","pos":197}"#,
            r#"{"file":"binlog.000003","pos":197,"gtids":"","snapshot":"INITIAL","snapshot_completed":true}"#,
        ] {
            assert_eq!(read(text).unwrap(), file);
        }
    }

    #[test]
    fn what_is_none_is_told_why() {
        let cases = [
            ("", "GET /connectors"),
            ("no", "no offset"),
            (r#"{"lsn_proc":1,"lsn_commit":2}"#, "PostgreSQL"),
            (
                r#"{"gtids":"0-1-5","incremental_snapshot_collections":"[]"}"#,
                "snapshot",
            ),
            (r#"{"gtids":"0-1-5"} {"gtids":"0-1-6"}"#, "2 offsets"),
            (r#"{"lsn":1,"txId":2}"#, "PostgreSQL"),
            (
                r#"{"file":"a.1","pos":4,"snapshot":true,"snapshot_completed":false}"#,
                "snapshot",
            ),
            (r#"{"ts_sec":1}"#, "neither"),
            (r#"{"gtids":"nothing"}"#, "`nothing`"),
            (r#"{"offsets":[]}"#, "no offset"),
            ("[1]", "no offset"),
        ];
        for (text, expected) in cases {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_offset_is_the_last_of_this_server_and_no_other_s() {
        let line =
            |server: &str, gtids: &str| format!("[\"c\",{{\"server\":\"{server}\"}}]\t{{\"gtids\":\"{gtids}\"}}\n");
        let of_two = line("shop", "0-1-5") + &line("shop", "0-1-6") + &line("other", "0-1-9");
        assert_eq!(read(&of_two).unwrap(), gtid("0-1-6"));
        let foreign = line("other", "0-1-9");
        let answer = r#"{"offsets":[{"partition":{"server":"other"},"offset":{"gtids":"0-1-9"}}]}"#;
        for text in [foreign.as_str(), answer] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("`other`") && error.contains("--as-this"), "{error}");
            assert_eq!(super::read(text.as_bytes(), "shop", true).unwrap(), gtid("0-1-9"));
        }
        let both = line("other", "0-1-9") + &line("third", "0-1-8");
        assert!(super::read(both.as_bytes(), "shop", true).is_err());
        let deleted = line("shop", "0-1-5") + "[\"c\",{\"server\":\"shop\"}]\tnull\n";
        assert!(matches!(read(&deleted), Err(OffsetError::Nothing)));
    }

    /// As `FileOffsetBackingStore` writes a map of byte arrays.
    #[test]
    fn an_offset_is_found_in_the_file_of_debezium_server() {
        let mut file = JAVA_OBJECTS.to_vec();
        file.extend(b"sr\0\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16`\xd1\x03\0\x02F\0\nloadFactorI\0\tthresholdxp?@\0\0\0\0\0\x0c");
        file.extend(b"w\x08\0\0\0\x10\0\0\0\x01ur\0\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\0\0xp\0\0\0\x1b");
        file.extend(br#"["kafka",{"server":"shop"}]"#);
        file.extend(b"uq\0~\0\x02\0\0\0\x11");
        file.extend(br#"{"gtids":"0-1-5"}"#);
        file.push(b'x');
        assert_eq!(super::read(&file, "shop", false).unwrap(), gtid("0-1-5"));
    }
}
