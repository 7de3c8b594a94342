//! Outbox events: the payload is what the application wrote, and ids, keys and headers are its cells' exact text.

use mysql::Value as Param;
use mysql::prelude::Queryable;

use super::{OUTBOXES, bed, keys, relayed, run, version};
use crate::support::kafka::Record;
use crate::support::mysql::{Flavor, Script};
use crate::support::{Db, heavy, over_each};

fn values(records: &[Record]) -> Vec<Option<&[u8]>> {
    records.iter().map(|record| record.value.as_deref()).collect()
}

fn a_json_payload_is_the_servers_text(db: Db) {
    let documents = [
        "'null'",
        "'true'",
        "'\"text\"'",
        "'-1.50'",
        "'12345678901234567890'",
        "'[]'",
        r#"' { "b" : 1.50 , "a":[ ], "long name": "é\\u0001\\n\\"😀", "b": 2 } '"#,
        "JSON_OBJECT('amount', 12.50, 'id', 18446744073709551615, 'at', TIMESTAMP'2024-02-29 12:34:56.000001')",
        "JSON_OBJECT('lines', JSON_ARRAY(JSON_OBJECT('price', -0.05, 'day', DATE'2024-02-29'), JSON_ARRAY(1e300, 0.1e0)))",
        "JSON_OBJECT('large', REPEAT('é', 40000))",
        "NULL",
    ];
    let bed = bed(db);
    let mut app = bed.app();
    // InnoDB, so that the server can be asked what it has.
    app.run("SET NAMES utf8mb4; CREATE TABLE t_outbox (id INT AUTO_INCREMENT PRIMARY KEY, payload JSON)")
        .unwrap();
    for document in documents {
        app.query_drop(format!("INSERT INTO t_outbox (payload) VALUES ({document})"))
            .unwrap();
    }
    let printed: Vec<Option<String>> = app
        .query("SELECT CAST(payload AS CHAR) FROM t_outbox ORDER BY id")
        .unwrap();
    let records = relayed(&bed, OUTBOXES, documents.len());
    for ((record, printed), document) in records.iter().zip(&printed).zip(documents) {
        assert_eq!(record.value_text(), printed.as_deref(), "{document}");
    }
}

over_each!(a_json_payload_is_the_servers_text: mysql, mariadb);

/// A type that holds texts, in what charset, or bytes; and how long it makes them.
const PAYLOADS: [(&str, bool); 12] = [
    ("VARCHAR(200)", true),
    ("TINYTEXT", true),
    ("TEXT", true),
    ("MEDIUMTEXT", true),
    ("LONGTEXT", true),
    ("TEXT CHARACTER SET utf16", true),
    ("VARBINARY(200)", false),
    ("TINYBLOB", false),
    ("BLOB", false),
    ("MEDIUMBLOB", false),
    ("LONGBLOB", false),
    ("BINARY(8)", false),
];

fn a_payload_is_byte_for_byte_what_was_written(db: Db) {
    let every_byte: Vec<u8> = (0..200).map(|byte: u8| byte.wrapping_mul(37)).collect();
    let texts: [&[u8]; 5] = [
        b"",
        b" { \"b\" : 1.50 , \"a\":[ ] , \"b\": 2 } \n",
        "quote \" backslash \\ tab \t zero \0 é€😀".as_bytes(),
        b"null",
        b"trailing blanks  ",
    ];
    let bytes: [&[u8]; 5] = [b"", b"\0", b"\xff\xfe\x80 no UTF-8 \xc3", b"{\"a\": 1}", &every_byte];
    let bed = bed(db);
    let mut app = bed.app();
    let mut written: Vec<(&str, Option<Vec<u8>>)> = Vec::new();
    for (at, (kind, is_text)) in PAYLOADS.iter().enumerate() {
        app.query_drop(format!("CREATE TABLE t{at}_outbox (payload {kind}) ENGINE = BLACKHOLE"))
            .unwrap();
        let insert = app.prep(format!("INSERT INTO t{at}_outbox VALUES (?)")).unwrap();
        for payload in if *is_text { texts } else { bytes } {
            let mut payload = match kind.strip_prefix("BINARY") {
                Some(_) => payload[..payload.len().min(8)].to_vec(),
                None => payload.to_vec(),
            };
            let param = match is_text {
                true => Param::from(String::from_utf8(payload.clone()).unwrap()),
                false => Param::Bytes(payload.clone()),
            };
            app.exec_drop(&insert, (param,)).unwrap();
            if kind.starts_with("BINARY") {
                payload.resize(8, 0);
            }
            written.push((kind, Some(payload)));
        }
        app.exec_drop(&insert, (Param::NULL,)).unwrap();
        written.push((kind, None));
    }
    let records = relayed(&bed, OUTBOXES, written.len());
    for (record, (kind, payload)) in records.iter().zip(&written) {
        assert_eq!(record.value, *payload, "{kind}");
    }
}

over_each!(a_payload_is_byte_for_byte_what_was_written: mysql, mariadb);

fn text_of_another_charset_is_published_in_utf8(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        "SET NAMES utf8mb4;
         CREATE TABLE t_outbox (aggregate_id VARCHAR(20) CHARACTER SET cp1251, payload TEXT CHARACTER SET latin1) ENGINE = BLACKHOLE;
         INSERT INTO t_outbox VALUES ('заказ', 'prix: 5 €, payé')",
    );
    let records = relayed(&bed, OUTBOXES, 1);
    assert_eq!(records[0].value_text(), Some("prix: 5 €, payé"));
    assert_eq!(records[0].key_text(), Some("заказ"));
    assert_eq!(records[0].header("df-aggregate-id"), Some("заказ"));
}

over_each!(text_of_another_charset_is_published_in_utf8: mysql, mariadb);

fn ten_megabytes_arrive_whole(db: Db) {
    let _heavy = heavy();
    let text = "Ten megabytes of text. é€😀 ".repeat(10_000_000 / 32);
    let bytes: Vec<u8> = (0..10_000_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let bed = bed(db);
    bed.kafka
        .create_topic(&bed.events(), 1, &[("max.message.bytes", "12000000")]);
    let mut app = bed.app();
    app.run(
        "CREATE TABLE a_outbox (payload LONGTEXT) ENGINE = BLACKHOLE;
         CREATE TABLE b_outbox (payload LONGBLOB) ENGINE = BLACKHOLE",
    )
    .unwrap();
    app.exec_drop("INSERT INTO a_outbox VALUES (?)", (&text,)).unwrap();
    app.exec_drop("INSERT INTO b_outbox VALUES (?)", (Param::Bytes(bytes.clone()),))
        .unwrap();
    app.run("INSERT INTO a_outbox VALUES ('small')").unwrap();
    let records = relayed(&bed, OUTBOXES, 3);
    // Not assert_eq, which would print them.
    let expected = [text.as_bytes(), &bytes, b"small"];
    assert!(values(&records) == expected.map(Some));
}

over_each!(ten_megabytes_arrive_whole: mysql, mariadb);

fn sixteen_bytes_are_a_uuid_as_id_and_key_and_others_hexadecimal_digits(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        "CREATE TABLE a_outbox (id BINARY(16), aggregate_id BINARY(16), payload TEXT) ENGINE = BLACKHOLE;
         CREATE TABLE b_outbox (id VARBINARY(16), aggregate_id BINARY(8), event_type BINARY(16), payload TEXT);
         INSERT INTO a_outbox VALUES (X'0123456789ABCDEF0123456789ABCD00', X'00000000000000000000000000000000', 'a');
         INSERT INTO b_outbox VALUES (X'00FF', X'0100', X'20', 'b')",
    );
    let records = relayed(&bed, OUTBOXES, 2);
    let text = |record: &Record| {
        let names = ["df-event-id", "df-aggregate-id", "df-event-type"];
        names.map(|name| record.header(name).map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    let zero = "00000000-0000-0000-0000-000000000000";
    assert_eq!(
        text(&records[0]),
        [some("01234567-89ab-cdef-0123-456789abcd00"), some(zero), None]
    );
    assert_eq!(
        text(&records[1]),
        [
            some("00ff"),
            some("0100000000000000"),
            some("20000000-0000-0000-0000-000000000000")
        ]
    );
    assert_eq!(keys(&records), [Some(zero), Some("0100000000000000")]);
}

over_each!(sixteen_bytes_are_a_uuid_as_id_and_key_and_others_hexadecimal_digits: mysql, mariadb);

fn numbers_and_other_cells_are_exact_in_keys_and_headers(db: Db) {
    let pipeline = OUTBOXES.replace(
        "raw_payload: true",
        "raw_payload: true, key: '${aggregate_id}/${amount}', additional_headers: {amount: amount, at: at, half: half, flags: flags, bits: bits, document: document}",
    );
    let bed = bed(db);
    run(
        &bed,
        r#"SET NAMES utf8mb4;
         CREATE TABLE t_outbox (id DECIMAL(30, 10), aggregate_id BIGINT UNSIGNED, aggregate_type MEDIUMINT,
             event_type ENUM('made', 'p''aid'), amount DECIMAL(10, 2), at DATETIME(6), half DOUBLE, flags SET('a', 'b', 'c'),
             bits BIT(12), document JSON, payload TEXT) ENGINE = BLACKHOLE;
         INSERT INTO t_outbox VALUES (-12345678901234567890.0000000001, 18446744073709551615, -1, 'p''aid', -0.05,
             '2024-02-29 12:34:56.000001', 0.5e0, 'a,c', b'100000000001', '"text"', 'x')"#,
    );
    let records = relayed(&bed, &pipeline, 1);
    let document = match bed.flavor() {
        Flavor::Mysql => "text",
        // A text there.
        Flavor::Mariadb => "\"text\"",
    };
    let headers = [
        ("df-event-id", "-12345678901234567890.0000000001"),
        ("df-aggregate-type", "-1"),
        ("df-aggregate-id", "18446744073709551615"),
        ("df-event-type", "p'aid"),
        ("amount", "-0.05"),
        ("at", "2024-02-29 12:34:56.000001"),
        ("half", "0.5"),
        ("flags", "a,c"),
        ("bits", "0801"),
        ("document", document),
    ];
    for (name, text) in headers {
        assert_eq!(records[0].header(name), Some(text), "{name}");
    }
    assert_eq!(records[0].headers.len(), headers.len());
    assert_eq!(keys(&records), [Some("18446744073709551615/-0.05")]);
}

over_each!(numbers_and_other_cells_are_exact_in_keys_and_headers: mysql, mariadb);

#[test]
fn mariadbs_own_types_are_ids_by_their_text() {
    let bed = bed(Db::Mariadb);
    run(
        &bed,
        "CREATE TABLE t_outbox (id UUID, aggregate_id UUID, aggregate_type INET6, payload UUID) ENGINE = BLACKHOLE;
         INSERT INTO t_outbox VALUES ('123e4567-e89b-12d3-a456-426655440000', '0191f0a0-0000-7000-8000-000000000000', '::1',
             'ffffffff-ffff-4fff-bfff-ffffffffff00')",
    );
    let records = relayed(&bed, OUTBOXES, 1);
    assert_eq!(
        records[0].header("df-event-id"),
        Some("123e4567-e89b-12d3-a456-426655440000")
    );
    assert_eq!(records[0].key_text(), Some("0191f0a0-0000-7000-8000-000000000000"));
    assert_eq!(records[0].header("df-aggregate-type"), Some("::1"));
    assert_eq!(records[0].value_text(), Some("ffffffff-ffff-4fff-bfff-ffffffffff00"));
}

/// Columns that the application need not name, and whose values the server makes.
fn generated_and_invisible_columns_are_fields_as_others_are(db: Db) {
    let bed = bed(db);
    if version(&bed) < 80_023 {
        return; // no invisible columns
    }
    run(
        &bed,
        "CREATE TABLE t_outbox (number INT, aggregate_id VARCHAR(20) INVISIBLE DEFAULT 'unseen',
             event_type VARCHAR(20) AS (CONCAT('made-', number)) VIRTUAL,
             payload VARCHAR(20) AS (CONCAT('<', number, '>')) STORED);
         INSERT INTO t_outbox (number) VALUES (7)",
    );
    let records = relayed(&bed, OUTBOXES, 1);
    assert_eq!(records[0].value_text(), Some("<7>"));
    assert_eq!(records[0].header("df-event-type"), Some("made-7"));
    assert_eq!(records[0].key_text(), Some("unseen"));
}

over_each!(generated_and_invisible_columns_are_fields_as_others_are: mysql, mariadb);
