//! Each column type, with its extremes: what arrives is what the server itself prints.

use std::collections::BTreeMap;

use mysql::prelude::Queryable;

use super::cases::{CASES, Case, Shown};
use super::{TABLES, bed, cells, relayed, version};
use crate::support::mysql::Flavor;
use crate::support::{Db, over_each};

/// What JSON the server's text becomes.
fn expected(shown: Shown, text: Option<String>) -> String {
    match (shown, text) {
        (_, None) => "null".to_owned(),
        (Shown::Number | Shown::Json, Some(text)) => text,
        (Shown::Text, Some(text)) => serde_json::to_string(&text).unwrap(),
        (Shown::Bytes, Some(digits)) => format!(r#""\\x{}""#, digits.to_lowercase()),
    }
}

/// The server's own text for a column, or its bytes in hexadecimal digits.
fn oracle(kind: &str, shown: Shown, column: &str) -> String {
    match shown {
        // HEX takes a number's digits.
        Shown::Bytes if kind.starts_with("bit") => format!("HEX(CAST({column} AS BINARY))"),
        Shown::Bytes => format!("HEX({column})"),
        _ => format!("CAST({column} AS CHAR)"),
    }
}

fn every_type_arrives_as_the_server_prints_it(db: Db) {
    let bed = bed(db);
    let mut app = bed.app();
    app.query_drop("SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = ''")
        .unwrap();
    let version = version(&bed);
    let cases = CASES.iter().filter(|(_, _, on, _)| {
        let from = match bed.flavor() {
            Flavor::Mysql => on.mysql,
            Flavor::Mariadb => on.mariadb,
        };
        from.is_some_and(|from| from <= version)
    });
    let cases: Vec<&Case> = cases.collect();

    let columns: Vec<String> = (0..cases.len()).map(|at| format!("c{at}")).collect();
    let definitions = cases
        .iter()
        .zip(&columns)
        .map(|((kind, ..), column)| format!("{column} {kind}"));
    let definitions: Vec<String> = definitions.collect();
    let definitions = definitions.join(", ");
    app.query_drop(format!("CREATE TABLE t (id INT PRIMARY KEY, {definitions})"))
        .unwrap();
    let value_count = cases.iter().map(|(.., values)| values.len()).max().unwrap();
    // In the last row all are NULL.
    for row in 0..=value_count {
        let values = cases.iter().map(|(.., values)| match values {
            ["DEFAULT"] => "DEFAULT",
            values => values.get(row).copied().unwrap_or("NULL"),
        });
        let values: Vec<&str> = values.collect();
        let insert = format!(
            "INSERT INTO t (id, {}) VALUES ({row}, {})",
            columns.join(", "),
            values.join(", ")
        );
        app.query_drop(&insert)
            .unwrap_or_else(|error| panic!("{error}: {insert}"));
    }
    let oracles = cases
        .iter()
        .zip(&columns)
        .map(|((kind, shown, ..), column)| oracle(kind, *shown, column));
    let oracles: Vec<String> = oracles.collect();
    let printed: Vec<mysql::Row> = app
        .query(format!("SELECT {} FROM t ORDER BY id", oracles.join(", ")))
        .unwrap();
    app.query_drop("UPDATE t SET id = id + 100").unwrap();
    app.query_drop("DELETE FROM t").unwrap();

    bed.kafka
        .create_topic(&bed.events(), 1, &[("max.message.bytes", "8000000")]);
    let rows = value_count + 1;
    let records = relayed(&bed, TABLES, 3 * rows);
    let mut faults = BTreeMap::new();
    for (row, printed) in printed.iter().enumerate() {
        let insert = cells(&records[row], "after").unwrap();
        let updated = &records[rows + row];
        let images = [
            ("INSERT", Some(insert)),
            ("UPDATE's old row", cells(updated, "before")),
            ("UPDATE's new row", cells(updated, "after")),
            ("DELETE's old row", cells(&records[2 * rows + row], "before")),
        ];
        for (image, found) in images {
            let found = found.unwrap_or_else(|| panic!("row {row} has no {image}"));
            for (at, (kind, shown, _, values)) in cases.iter().enumerate() {
                let expected = expected(*shown, printed.get(at).unwrap());
                let found = match found.get(&columns[at]) {
                    Some(cell) => cell.get(),
                    // MariaDB 11.8 logs them only where they were computed.
                    None if image != "INSERT" && kind.contains(" AS (") && bed.flavor() == Flavor::Mariadb => continue,
                    None => "nothing",
                };
                if found != expected {
                    let value = values.get(row).copied().unwrap_or("NULL");
                    faults
                        .entry(format!("{kind} {value}"))
                        .or_insert((image, found.to_owned(), expected));
                }
            }
        }
    }
    assert!(faults.is_empty(), "found and expected: {faults:#?}");
}

over_each!(every_type_arrives_as_the_server_prints_it: mysql, mariadb);
