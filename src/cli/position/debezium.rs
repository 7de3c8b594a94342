//! The offset that a Debezium connector for MySQL or MariaDB has saved, as a place to begin at.
//!
//! Debezium keeps `gtids` of the transactions that are done as a whole, and `file` and `pos` of where the one begins that it is
//! in; how far into that it was (`event`, `row`) is left out here, so what it has sent of it comes once more.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::config::{GtidStart, MysqlStart};

/// Why a text is no place to begin at.
#[derive(Debug, Error)]
pub(super) enum OffsetError {
    #[error(
        "stdin is no offset of Debezium: expected the JSON value of the connector's record in the offsets topic, or what Connect \
         answers to GET /connectors/NAME/offsets"
    )]
    Json(#[source] serde_json::Error),
    #[error("stdin has {count} offsets: expected one, of this pipeline's server")]
    Several { count: usize },
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
    /// Of PostgreSQL alone.
    lsn: Option<Value>,
    snapshot: Option<Value>,
    snapshot_completed: Option<bool>,
}

/// The answer of Connect's REST interface.
#[derive(Debug, Deserialize)]
struct Answer {
    offsets: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
struct Partition {
    offset: Value,
}

/// Reads an offset: by itself, behind its key and a tab as a console consumer prints it, or in Connect's answer.
pub(super) fn read(text: &str) -> Result<MysqlStart, OffsetError> {
    let text = text.trim();
    let text = text.rsplit_once('\t').map_or(text, |(_, value)| value);
    let mut value: Value = serde_json::from_str(text).map_err(OffsetError::Json)?;
    if value.get("offsets").is_some() {
        let mut answer: Answer = serde_json::from_value(value).map_err(OffsetError::Json)?;
        let count = answer.offsets.len();
        value = match (answer.offsets.pop(), count) {
            (Some(partition), 1) => partition.offset,
            _ => return Err(OffsetError::Several { count }),
        };
    }
    place(serde_json::from_value(value).map_err(OffsetError::Json)?)
}

fn place(offset: Offset) -> Result<MysqlStart, OffsetError> {
    if offset.lsn.is_some() {
        return Err(OffsetError::Postgres);
    }
    let is_snapshot = offset
        .snapshot
        .is_some_and(|snapshot| !matches!(snapshot, Value::Null | Value::Bool(false)));
    if is_snapshot && offset.snapshot_completed != Some(true) {
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
        for text in [&offset, &answer, &printed] {
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
            (r#"{"lsn":1,"txId":2}"#, "PostgreSQL"),
            (
                r#"{"file":"a.1","pos":4,"snapshot":true,"snapshot_completed":false}"#,
                "snapshot",
            ),
            (r#"{"ts_sec":1}"#, "neither"),
            (r#"{"gtids":"nothing"}"#, "`nothing`"),
            (r#"{"offsets":[]}"#, "0 offsets"),
            ("[1]", "no offset"),
        ];
        for (text, expected) in cases {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
