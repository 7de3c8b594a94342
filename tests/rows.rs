//! Rows of ordinary tables in the native envelope, each cell as the server prints it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::{OUTBOX, TestBed};

pub fn pipeline() -> String {
    OUTBOX
        .replace("outbox: {prefixes: [outbox]}", "tables: ['t*']")
        .replace(
            "  processors:\n    - {type: outbox, topic: '<topic>', raw_payload: true}\n",
            "",
        )
        .replace("brokers: '<brokers>'", "brokers: '<brokers>', topic: '<topic>'")
}

/// Relays what these statements do, each by itself, after the tables were made. Gives the envelopes in order.
pub fn relayed(bed: &TestBed, tables: &str, statements: &[&str], count: usize) -> Vec<(Option<String>, String)> {
    let mut app = bed.app();
    app.batch_execute(tables).unwrap();
    let mut relay = bed.relay(&pipeline());
    relay.start();
    relay.wait_ready();
    for statement in statements {
        app.batch_execute(statement).unwrap();
    }
    relay.wait_settled(count as u64);
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(count).iter();
    records
        .map(|record| {
            (
                record.key_text().map(str::to_owned),
                record.value_text().unwrap().to_owned(),
            )
        })
        .collect()
}

fn values(envelopes: &[(Option<String>, String)]) -> Vec<Value> {
    envelopes
        .iter()
        .map(|(_, text)| serde_json::from_str(text).unwrap())
        .collect()
}

/// Types of the test's own.
const TYPES: &str = "CREATE EXTENSION hstore;
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TYPE pair AS (a int, b text);
    CREATE DOMAIN positive AS int4 CHECK (value > 0);
    CREATE DOMAIN label AS text;
    CREATE DOMAIN flags AS boolean[];
    CREATE TYPE textrange AS RANGE (subtype = text);";

/// Cells of one row: column type and value in SQL.
const CELLS: [(&str, &str); 96] = [
    ("bool", "true"),
    ("bool", "false"),
    ("int2", "-32768"),
    ("int4", "2147483647"),
    ("int8", "-9223372036854775808"),
    ("oid", "4294967295"),
    ("float4", "0.1"),
    ("float4", "'NaN'"),
    ("float8", "'NaN'"),
    ("float8", "'Infinity'"),
    ("float8", "'-Infinity'"),
    ("float8", "0.1::float8 + 0.2"),
    ("float8", "1e300"),
    ("float8", "'-0'"),
    ("numeric", "'NaN'"),
    ("numeric", "123456789012345678901234567890.123456789000"),
    ("numeric(10,2)", "-0.05"),
    ("numeric", "1e-20"),
    ("json", r#"'{ "a" : 1.50, "a":[ ] , "n": 12345678901234567890 }'"#),
    ("jsonb", r#"'{ "b" : 1.50, "a":[ ] , "n": 12345678901234567890.10 }'"#),
    ("jsonb", "'null'"),
    ("json", "'\"text\"'"),
    (
        "text",
        "E'quote \" backslash \\\\ tab \\t newline \\n control \\x01 ä€'",
    ),
    ("text", "''"),
    ("text", "'null'"),
    ("varchar(5)", "'a b'"),
    ("char(5)", "'ab'"),
    ("timestamptz", "'2024-02-29 12:30:00.123456+05:30'"),
    ("timestamptz", "'infinity'"),
    ("timestamptz", "'0044-03-15 12:00:00 BC'"),
    ("timestamp", "'2024-02-29 12:30:00'"),
    ("date", "'9999-12-31'"),
    ("time", "'23:59:59.999999'"),
    ("timetz", "'23:59:59+02'"),
    ("interval", "'1 year -2 days 03:04:05.6'"),
    ("uuid", "'0191F0A0-0000-7000-8000-0000000000FF'"),
    ("bytea", r"'\x5c00ff27'"),
    ("bytea", "''"),
    ("int4[]", "'{{1,2},{3,NULL}}'"),
    ("text[]", r#"ARRAY['a,b', 'c"d', '', NULL, 'NULL', 'e\f']"#),
    ("inet", "'10.0.0.1/8'"),
    ("money", "12.5"),
    ("bit(3)", "B'101'"),
    ("int4range", "'[1,5)'"),
    ("point", "'(1.5,2)'"),
    ("text", "NULL"),
    ("numeric", "'Infinity'"),
    ("numeric", "'-Infinity'"),
    ("numeric", "-0.000"),
    ("date", "'infinity'"),
    ("date", "'0044-03-15 BC'"),
    ("timestamp", "'-infinity'"),
    ("timestamp", "'4713-01-01 00:00:00 BC'"),
    ("time", "'24:00:00'"),
    ("interval", "'-178000000 years'"),
    ("money", "'-92233720368547758.08'"),
    ("cidr", "'10.1.0.0/16'"),
    ("inet", "'2001:db8::1/64'"),
    ("macaddr", "'08:00:2b:01:02:03'"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'"),
    ("varbit", "B''"),
    ("bit(70)", "B'1'::bit(70)"),
    ("int8range", "'(,5]'"),
    ("numrange", "'empty'"),
    ("tstzrange", "'[2024-01-01 00:00+02, infinity)'"),
    ("int4multirange", "'{[1,3), [5,9)}'"),
    ("textrange", r#"'["a,b","c""d"]'"#),
    ("line", "'{1,-2,3}'"),
    ("lseg", "'[(0,0),(1,1e300)]'"),
    ("box", "'(2,2),(0,0)'"),
    ("path", "'[(0,0),(1,1)]'"),
    ("polygon", "'((0,0),(1,1),(0,1))'"),
    ("circle", "'<(1,2),3>'"),
    ("mood", "'ok'"),
    ("mood[]", "'{sad,NULL}'"),
    ("pair", r#"ROW(1, 'a"b,c')"#),
    ("pair[]", "ARRAY[ROW(1, NULL)::pair]"),
    ("positive", "7"),
    ("label", "'x'"),
    ("hstore", r#"'"a"=>"1", "b c"=>NULL'"#),
    ("xml", "'<a b=\"c\">&amp;</a>'"),
    ("tsvector", "'a fat cat'"),
    ("jsonpath", "'$.a[*]'"),
    ("pg_lsn", "'16/B374D848'"),
    // By names without a schema where the search path finds them.
    ("regclass", "'pg_catalog.pg_class'"),
    ("regtype", "'int4'"),
    ("xid", "'4294967295'"),
    ("xid8", "'18446744073709551615'"),
    ("tid", "'(1,2)'"),
    ("name", "'a b'"),
    ("\"char\"", "'x'"),
    ("numeric[]", "'{1.50,NaN,NULL}'"),
    ("jsonb[]", r#"ARRAY['{"a": 1}'::jsonb]"#),
    ("flags", "'{t,f}'"),
    ("positive[]", "'{7}'"),
    ("datemultirange", "'{[2024-01-01,2024-02-01)}'"),
];

/// What JSON the server's text becomes.
fn expected(kind: &str, text: Option<&str>) -> String {
    let Some(text) = text else { return "null".to_owned() };
    let number = text.parse::<f64>().is_ok_and(f64::is_finite);
    match kind {
        "bool" => text.to_owned(),
        "int2" | "int4" | "int8" | "oid" | "positive" => text.to_owned(),
        "float4" | "float8" if number => text.to_owned(),
        "json" | "jsonb" => text.to_owned(),
        _ => serde_json::to_string(text).unwrap(),
    }
}

#[test]
fn every_cell_is_what_the_server_prints() {
    let bed = TestBed::new();
    let columns: Vec<String> = CELLS
        .iter()
        .enumerate()
        .map(|(at, (kind, _))| format!("c{at} {kind}"))
        .collect();
    let values: Vec<&str> = CELLS.iter().map(|(_, value)| *value).collect();
    let envelopes = relayed(
        &bed,
        &format!("{TYPES} CREATE TABLE t (id int PRIMARY KEY, {})", columns.join(", ")),
        &[&format!("INSERT INTO t VALUES (0, {})", values.join(", "))],
        1,
    );
    let mut app = bed.app();
    app.batch_execute(
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3",
    )
    .unwrap();
    // A cast to text cuts char's blanks, the type's own output does not.
    let printed: Vec<String> = CELLS
        .iter()
        .enumerate()
        .map(|(at, (kind, _))| match *kind {
            "char(5)" => format!("format('%s', c{at})"),
            _ => format!("c{at}::text"),
        })
        .collect();
    let row = app
        .query_one(&format!("SELECT {} FROM t", printed.join(", ")), &[])
        .unwrap();
    let envelope: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&envelopes[0].1).unwrap();
    let after: BTreeMap<String, Box<RawValue>> = serde_json::from_str(envelope["after"].get()).unwrap();
    assert_eq!(after.len(), CELLS.len() + 1);
    for (at, (kind, value)) in CELLS.iter().enumerate() {
        assert_eq!(
            after[&format!("c{at}")].get(),
            expected(kind, row.get(at)),
            "{kind} {value}"
        );
    }
}

#[test]
fn each_operation_has_its_envelope_and_key() {
    let bed = TestBed::new();
    let envelopes = relayed(
        &bed,
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        &[
            "INSERT INTO t VALUES (1, 'a')",
            "UPDATE t SET note = NULL",
            "UPDATE t SET id = 2",
            "DELETE FROM t",
            "TRUNCATE t",
        ],
        5,
    );
    let all = values(&envelopes);
    let shown: Vec<Value> = all
        .iter()
        .map(|value| json!([value["op"], value["before"], value["after"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["c", null, {"id": 1, "note": "a"}]),
            json!(["u", null, {"id": 1, "note": null}]),
            json!(["u", {"id": 1}, {"id": 2, "note": null}]),
            json!(["d", {"id": 2}, null]),
            json!(["t", null, null]),
        ]
    );
    let keys: Vec<_> = envelopes.iter().map(|(key, _)| key.as_deref()).collect();
    assert_eq!(
        keys,
        [
            Some(r#"{"id":1}"#),
            Some(r#"{"id":1}"#),
            Some(r#"{"id":2}"#),
            Some(r#"{"id":2}"#),
            None
        ]
    );
    for value in &all {
        assert_eq!(value["source"]["table"], "t");
        assert_eq!(value["source"]["schema"], "public");
        assert_eq!(value["source"]["db"], bed.name.as_str());
        assert_eq!(value["source"]["name"], "pg1");
        assert_eq!(value["source"]["connector"], "postgresql");
        assert!(value["source"]["lsn"].as_u64() > Some(0) && value["source"]["txId"].as_u64() > Some(0));
        assert!(value["ts_ms"].is_u64() && value["ts_ms"] == value["source"]["ts_ms"]);
    }
}

#[test]
fn old_rows_and_keys_are_those_of_the_replica_identity() {
    let bed = TestBed::new();
    let rows = [
        "INSERT INTO <t> VALUES (1, 'a', 'x')",
        "UPDATE <t> SET a = 'b'",
        "UPDATE <t> SET note = 'y'",
        "DELETE FROM <t>",
    ];
    let of = |table: &str| rows.map(|row| row.replace("<t>", table));
    let statements: Vec<String> = ["tindex", "tfull"].into_iter().flat_map(of).collect();
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let envelopes = relayed(
        &bed,
        "CREATE TABLE tindex (id int, a text NOT NULL, note text);
         CREATE UNIQUE INDEX by_a ON tindex (a);
         ALTER TABLE tindex REPLICA IDENTITY USING INDEX by_a;
         CREATE TABLE tfull (id int, a text, note text);
         ALTER TABLE tfull REPLICA IDENTITY FULL",
        &statements,
        8,
    );
    let shown: Vec<Value> = envelopes
        .iter()
        .map(|(key, text)| {
            let value: Value = serde_json::from_str(text).unwrap();
            json!([key, value["before"], value["after"]])
        })
        .collect();
    let row = |a: &str, note: &str| json!({"id": 1, "a": a, "note": note});
    let key = |a: &str| json!(format!(r#"{{"a":"{a}"}}"#));
    assert_eq!(
        shown,
        [
            json!([key("a"), null, row("a", "x")]),
            json!([key("b"), {"a": "a"}, row("b", "x")]),
            json!([key("b"), null, row("b", "y")]),
            json!([key("b"), {"a": "b"}, null]),
            // Where the whole row is the identity and there is no primary key, no columns are a key.
            json!([null, null, row("a", "x")]),
            json!([null, row("a", "x"), row("b", "x")]),
            json!([null, row("b", "x"), row("b", "y")]),
            json!([null, row("b", "y"), null]),
        ]
    );
}

#[test]
fn a_large_value_that_an_update_left_alone_is_named_as_unchanged() {
    let bed = TestBed::new();
    let large = "x".repeat(20_000);
    let envelopes = relayed(
        &bed,
        "CREATE TABLE t (id int PRIMARY KEY, note text, large text, other text);
         ALTER TABLE t ALTER large SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL;
         CREATE TABLE tfull (LIKE t INCLUDING ALL);
         ALTER TABLE tfull REPLICA IDENTITY FULL",
        &[
            &format!("INSERT INTO t VALUES (1, 'a', '{large}', '{large}')"),
            "UPDATE t SET note = 'b'",
            &format!("INSERT INTO tfull VALUES (1, 'a', '{large}', '{large}')"),
            "UPDATE tfull SET note = 'b'",
            "DELETE FROM tfull",
        ],
        5,
    );
    let all = values(&envelopes);
    assert_eq!(all[0]["after"]["large"], large.as_str());
    assert_eq!(all[1]["after"], json!({"id": 1, "note": "b"}));
    assert_eq!(all[1]["unchanged"], json!(["large", "other"]));
    // The old row has them where the replica identity is full.
    assert_eq!(
        all[3]["before"],
        json!({"id": 1, "note": "a", "large": large, "other": large})
    );
    assert_eq!(
        all[3]["after"],
        json!({"id": 1, "note": "b", "large": large, "other": large})
    );
    assert_eq!(all[3].get("unchanged"), None);
    assert_eq!(all[4]["before"]["large"], large.as_str());
}

#[test]
fn a_column_added_in_mid_stream_is_there_from_the_next_row_on() {
    let bed = TestBed::new();
    let envelopes = relayed(
        &bed,
        "CREATE TABLE t (id int PRIMARY KEY, gone text)",
        &[
            "INSERT INTO t VALUES (1, 'a')",
            "BEGIN; INSERT INTO t VALUES (2, 'b'); ALTER TABLE t ADD COLUMN added int DEFAULT 7; INSERT INTO t VALUES (3, 'c'); COMMIT",
            "ALTER TABLE t DROP COLUMN gone; ALTER TABLE t RENAME COLUMN added TO renamed",
            "INSERT INTO t VALUES (4, 8)",
        ],
        4,
    );
    let rows: Vec<Value> = values(&envelopes)
        .into_iter()
        .map(|mut value| value["after"].take())
        .collect();
    assert_eq!(
        rows,
        [
            json!({"id": 1, "gone": "a"}),
            json!({"id": 2, "gone": "b"}),
            json!({"id": 3, "gone": "c", "added": 7}),
            json!({"id": 4, "renamed": 8}),
        ]
    );
}

#[test]
fn a_partitioned_tables_rows_come_under_the_roots_name() {
    let bed = TestBed::new();
    let envelopes = relayed(
        &bed,
        "CREATE TABLE t (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
         CREATE TABLE part1 PARTITION OF t FOR VALUES FROM (0) TO (10);
         CREATE TABLE part2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        &[
            "INSERT INTO t VALUES (1, 'a'), (11, 'b')",
            // From one partition to the other.
            "UPDATE t SET id = 12 WHERE id = 1",
            "CREATE TABLE part3 PARTITION OF t FOR VALUES FROM (20) TO (30); INSERT INTO t VALUES (21, 'c')",
            // Not in the log, as is what else takes rows away with their partition.
            "TRUNCATE part3",
            "ALTER TABLE t DETACH PARTITION part1; DROP TABLE part2",
            "TRUNCATE t",
        ],
        6,
    );
    let all = values(&envelopes);
    for value in &all {
        assert_eq!(value["source"]["table"], "t", "{value}");
    }
    let shown: Vec<Value> = all
        .iter()
        .map(|value| json!([value["op"], value["before"]["id"], value["after"]["id"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["c", null, 1]),
            json!(["c", null, 11]),
            json!(["d", 1, null]),
            json!(["c", null, 12]),
            json!(["c", null, 21]),
            json!(["t", null, null]),
        ]
    );
}

#[test]
fn names_that_need_quotes_work_everywhere() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        r#"CREATE SCHEMA "My-Schema";
           CREATE TABLE "My-Schema"."T ""1"" ä" ("Id" int PRIMARY KEY, "sp alte" text, "a.b" text);
           CREATE TYPE "My-Schema"."State" AS ENUM ('on', 'off');
           CREATE DOMAIN "My-Schema"."Count" AS int;
           ALTER TABLE "My-Schema"."T ""1"" ä" ADD state "My-Schema"."State", ADD count "My-Schema"."Count""#,
    )
    .unwrap();
    let pipeline = pipeline()
        .replace("['t*']", r#"['My-Schema.T "1" ä']"#)
        .replace("publication: <publication>", r#"publication: 'My-"Pub", one'"#)
        .replace(
            "topic: '<topic>'",
            "topic: '<name>.${source.schema}', key: '${sp alte}'",
        );
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    app.batch_execute(
        r#"INSERT INTO "My-Schema"."T ""1"" ä" VALUES (1, 'text', 'dot', 'off', 3); TRUNCATE "My-Schema"."T ""1"" ä""#,
    )
    .unwrap();
    relay.wait_settled(2);
    let mut reader = bed.reader(&["My-Schema"]);
    let record = &reader.exactly(2)[0];
    let envelope: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
    assert_eq!(record.key_text(), Some("text"));
    assert_eq!(
        envelope["after"],
        json!({"Id": 1, "sp alte": "text", "a.b": "dot", "state": "off", "count": 3})
    );
    assert_eq!(envelope["source"]["table"], r#"T "1" ä"#);
}

/// Servers before 18 never send them; from then on the publication says so.
#[test]
fn a_generated_column_is_there_where_the_publication_has_it() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, net INT, gross INT GENERATED ALWAYS AS (net * 2) STORED, note TEXT)",
    )
    .unwrap();
    let mut relay = bed.relay(
        "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: postgres, config: {<source>, tables: [public.orders]}}
  sinks: [{type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<topic>'}}]
",
    );
    relay.start();
    relay.wait_ready();
    app.batch_execute("INSERT INTO orders VALUES (1, 50, DEFAULT, 'a')")
        .unwrap();
    let version: i32 = app
        .query_one("SELECT current_setting('server_version_num')::int", &[])
        .unwrap()
        .get(0);
    let sends_generated = version >= 180_000;
    // The publication that the pipeline made has them; one that leaves them out has its rows without.
    relay.wait_published(1);
    if sends_generated {
        let publish = format!(
            "ALTER PUBLICATION {} SET (publish_generated_columns = none)",
            bed.publication
        );
        bed.admin().batch_execute(&publish).unwrap();
    }
    app.batch_execute("INSERT INTO orders VALUES (2, 60, DEFAULT, 'b')")
        .unwrap();
    relay.wait_published(2);
    let mut reader = bed.reader(&["events"]);
    let rows: Vec<Value> = reader
        .exactly(2)
        .iter()
        .map(|record| serde_json::from_slice::<Value>(record.value.as_ref().unwrap()).unwrap()["after"].take())
        .collect();
    let mut expected = json!({"id": 1, "net": 50, "note": "a"});
    if sends_generated {
        expected["gross"] = 100.into();
    }
    assert_eq!(rows[0], expected);
    assert_eq!(rows[1], json!({"id": 2, "net": 60, "note": "b"}));
}
