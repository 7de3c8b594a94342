use super::*;
use crate::config::pipeline::{GtidStart, MysqlStart};

/// The contract's second example: MySQL with several outboxes.
const MYSQL_EXAMPLE: &str = r#"apiVersion: deltaforge/v1
kind: Pipeline
metadata:
  name: shop
spec:
  source:
    type: mysql
    config:
      id: m1
      dsn: ${MYSQL_DSN}
      tables: [shop.orders, shop.orders_outbox, shop.payments_outbox]
      outbox: {tables: ["shop.*_outbox"]}
  processors:
    - {type: outbox, tables: [orders_outbox], topic: "orders.${event_type}", raw_payload: true}
    - {type: outbox, tables: [payments_outbox], topic: "payments.${event_type}", raw_payload: true, columns: {payload: data}}
  sinks:
    - {type: kafka, config: {id: k1, brokers: "${KAFKA_BROKERS}", topic: events.default}}
"#;

pub(super) fn ours_mysql() -> String {
    MYSQL_EXAMPLE.replace("deltaforge/v1", "tailpost/v1")
}

/// The example in tailpost/v1 with one text replaced, which must be there.
fn mysql_with(from: &str, to: &str) -> String {
    let text = ours_mysql();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

fn mysql_source_with(line: &str) -> String {
    mysql_with("      id: m1\n", &format!("      id: m1\n      {line}\n"))
}

fn mysql(loaded: &Loaded) -> &Mysql {
    match &loaded.pipeline.source {
        Source::Mysql(mysql) => mysql,
        Source::Postgres(postgres) => panic!("{postgres:?}"),
    }
}

fn start_of(text: &str) -> MysqlStart {
    mysql(&loaded(&mysql_source_with(&format!("start: {text}"))))
        .start
        .clone()
}

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

#[test]
fn the_example_loads_in_both_versions_and_as_both_types() {
    for version in ["tailpost/v1", "deltaforge/v1"] {
        for kind in ["mysql", "mariadb"] {
            let text = MYSQL_EXAMPLE
                .replace("deltaforge/v1", version)
                .replace("type: mysql", &format!("type: {kind}"));
            let loaded = loaded(&text);
            assert_eq!(loaded.notes, []);
            let source = mysql(&loaded);
            assert_eq!((source.id.as_str(), loaded.pipeline.source.id()), ("m1", "m1"));
            assert_eq!(source.dsn.to_string(), "mysql://app@db:3307/shop");
            assert_eq!(source.tables.len(), 3);
            assert!(source.tables[0].matches("shop", "orders") && source.tables[0].names_one());
            assert!(source.outbox[0].matches("shop", "orders_outbox") && !source.outbox[0].matches("shop", "orders"));
            assert_eq!((source.outbox.len(), &source.start), (1, &MysqlStart::Earliest));
            assert_eq!(source.max_message_bytes, 64 << 20);
            assert!((0x4000_0000..=0x7fff_ffff).contains(&source.server_id));
            assert!(loaded.pipeline.source.selects_outboxes());
            assert_eq!(loaded.pipeline.processors.len(), 2);
            let Processor::Outbox(payments) = &loaded.pipeline.processors[1] else {
                panic!("an outbox processor")
            };
            assert_eq!(payments.columns.payload, "data");
        }
    }
}

#[test]
fn every_key_reaches_the_source() {
    let text = mysql_source_with("server_id: 4294967295\n      max_message_bytes: 1GiB\n      start: latest");
    let loaded = loaded(&text);
    let source = mysql(&loaded);
    assert_eq!((source.server_id, source.max_message_bytes), (u32::MAX, 1 << 30));
    assert_eq!(source.start, MysqlStart::Latest);
    let mut variables = environment();
    variables.insert("SERVER_ID".to_owned(), "7".to_owned());
    let loaded = load_with(&mysql_source_with("server_id: ${SERVER_ID}"), &variables).unwrap();
    assert_eq!(mysql(&loaded).server_id, 7);
}

#[test]
fn a_server_id_that_is_not_given_follows_the_pipelines_name_alone() {
    let id_of = |text: &str| mysql(&loaded(text)).server_id;
    let id = id_of(&ours_mysql());
    for same in [mysql_with("id: m1", "id: m2"), mysql_with("[shop.orders, ", "[")] {
        assert_eq!(id_of(&same), id);
    }
    assert_ne!(id_of(&mysql_with("name: shop", "name: shop2")), id);
}

#[test]
fn start_is_a_word_a_gtid_or_a_place_in_a_file() {
    assert_eq!(start_of("earliest"), MysqlStart::Earliest);
    let gtid_of = |text: String| match start_of(&format!("{{gtid: \"{text}\"}}")) {
        MysqlStart::Gtid(gtid) => gtid,
        other => panic!("{other:?}"),
    };
    for set in [format!("{UUID}:1-5"), format!("{UUID}:1-5:7:blue:1-3")] {
        assert_eq!(gtid_of(set.clone()), GtidStart::Mysql(set.parse().unwrap()));
    }
    for position in ["0-1-100", "0-1-100,1-2-7"] {
        assert_eq!(
            gtid_of(position.to_owned()),
            GtidStart::Mariadb(position.parse().unwrap())
        );
    }
    assert_eq!(
        start_of(&format!("\n        gtid: |\n          {UUID}:1-5,\n          {UUID}:8")),
        MysqlStart::Gtid(GtidStart::Mysql(format!("{UUID}:1-5:8").parse().unwrap()))
    );
    let place = |file: &str, position| MysqlStart::File {
        file: file.to_owned(),
        position,
    };
    assert_eq!(start_of("{file: binlog.000123, pos: 157}"), place("binlog.000123", 157));
    assert_eq!(start_of("{file: db-1.bin.0999999}"), place("db-1.bin.0999999", 4));
    assert_eq!(
        start_of("{file: b.000001, pos: 4294967295}"),
        place("b.000001", u64::from(u32::MAX))
    );
}

#[test]
fn values_out_of_their_rules_are_refused() {
    for (line, expected) in [
        ("server_id: 0", "expected a whole number from 1 to 4294967295, found 0"),
        ("server_id: 4294967296", "expected a whole number from 1 to 4294967295"),
        ("server_id: '5'", "remove the quotes"),
        ("max_message_bytes: 2GiB", "expected 1KiB to 1GiB"),
        ("start: newest", "expected `earliest` or `latest`, found `newest`"),
        ("start: latst", "did you mean `latest`?"),
        (
            "start: 5",
            "expected earliest, latest, {gtid: ...} or {file: ..., pos: ...}",
        ),
        ("start: {}", "found neither `gtid` nor `file`"),
        ("start: {gtid: x}", "expected a GTID set such as"),
        ("start: {gtid: ''}", "expected a GTID set such as"),
        ("start: {gtid: 'a:1'}", "expected a GTID set such as"),
        ("start: {gtid: 0-1}", "expected a GTID set such as"),
        ("start: {gtid: 5}", "start.gtid: expected text, found the number 5"),
        ("start: {pos: 4}", "`pos` without `file`: expected a binlog file's name"),
        (
            "start: {gtid: 0-1-1, file: b.000001}",
            "both a GTID and a place in a file",
        ),
        ("start: {gtid: 0-1-1, pos: 4}", "both a GTID and a place in a file"),
        (
            "start: {file: binlog.000123, pos: 3}",
            "start.pos: expected a whole number from 4 to 4294967295, found 3",
        ),
        (
            "start: {file: b.000001, pos: 4294967296}",
            "expected a whole number from 4 to 4294967295",
        ),
        (
            "start: {file: binlog, pos: 4}",
            "start.file: expected a binlog file's name such as binlog.000123, found `binlog`",
        ),
        ("start: {file: binlog.123}", "expected a binlog file's name"),
        ("start: {file: '.000123'}", "expected a binlog file's name"),
        (
            "start: {file: /var/lib/mysql/binlog.000123}",
            "expected a binlog file's name",
        ),
        ("start: {file: binlog.000123x}", "expected a binlog file's name"),
        ("start: {file: b.000001, position: 4}", "unknown key"),
        ("server_di: 5", "unknown key; did you mean `server_id`?"),
    ] {
        let line = violation(&mysql_source_with(line));
        assert!(
            line.starts_with("10:") && line.contains(expected),
            "{expected}:\n{line}"
        );
    }
    for (from, to, expected) in [
        (
            "dsn: ${MYSQL_DSN}",
            "dsn: mysql://h",
            "10:12: spec.source.config.dsn: expected a user before the host",
        ),
        (
            "dsn: ${MYSQL_DSN}",
            "dsn: postgres://u@h/d",
            "10:12: spec.source.config.dsn: expected a URL (`mysql://",
        ),
        (
            "dsn: ${MYSQL_DSN}",
            "dsn: [x]",
            "10:12: spec.source.config.dsn: expected a URL (`mysql://",
        ),
        (
            "      dsn: ${MYSQL_DSN}\n",
            "",
            "9:7: spec.source.config.dsn: missing key: expected a URL (`mysql://",
        ),
        (
            "id: m1",
            "id: ''",
            "9:11: spec.source.config.id: expected text that is not empty",
        ),
        (
            "\"shop.*_outbox\"",
            "a.b.c",
            "12:25: spec.source.config.outbox.tables[0]: expected a table, or schema.table",
        ),
        (
            "outbox: {tables: [\"shop.*_outbox\"]}",
            "outbox: {table: [x]}",
            "unknown key; did you mean `tables`?",
        ),
        ("type: mysql", "type: mysq", "did you mean `mysql`?"),
        (
            "type: mysql",
            "type: turso",
            "expected `postgres`, `mysql` or `mariadb`",
        ),
        (
            "    type: mysql\n",
            "",
            "source.type: missing key: expected `postgres`, `mysql` or `mariadb`",
        ),
    ] {
        let line = violation(&mysql_with(from, to));
        assert!(line.contains(expected), "{expected}:\n{line}");
    }
}

#[test]
fn what_belongs_to_the_other_database_is_refused_by_name() {
    for (line, what) in [
        ("slot: s", "slot: `slot`"),
        ("publication: p", "publication: `publication`"),
        ("create: false", "create: `create`"),
        ("failover: true", "failover: `failover`"),
        ("start: {lsn: 0/10}", "start.lsn: `start` at an lsn"),
    ] {
        let line = violation(&mysql_source_with(line));
        assert!(
            line.ends_with(&format!("spec.source.config.{what} belongs to PostgreSQL: remove it")),
            "{line}"
        );
    }
    assert_eq!(
        violation(&mysql_with("{tables: [\"shop.*_outbox\"]}", "{prefixes: [outbox]}")),
        "12:16: spec.source.config.outbox.prefixes: `outbox.prefixes` belongs to PostgreSQL: remove it"
    );
    for (line, what) in [
        ("server_id: 1", "server_id: `server_id`"),
        ("start: {gtid: 0-1-1}", "start.gtid: `start` at a gtid"),
        ("start: {file: b.000001}", "start.file: `start` at a file"),
        ("start: {pos: 4}", "start.pos: `start` at a pos"),
    ] {
        let line = violation(&source_with(line));
        assert!(
            line.ends_with(&format!("spec.source.config.{what} belongs to MySQL: remove it")),
            "{line}"
        );
    }
}

#[test]
fn a_source_with_nothing_to_publish_is_refused() {
    let none = "      tables: [shop.orders, shop.orders_outbox, shop.payments_outbox]\n      outbox: {tables: [\"shop.*_outbox\"]}\n";
    for left in [
        "",
        "      tables: []\n",
        "      outbox: {tables: []}\n",
        "      outbox: {}\n",
    ] {
        let line = violation(&mysql_with(none, left));
        assert_eq!(
            line,
            "9:7: spec.source.config: nothing to publish: expected `outbox.tables` or `tables` to name something"
        );
    }
    for left in ["      tables: [a.b]\n", "      outbox: {tables: [b]}\n"] {
        loaded(&mysql_with(none, left));
    }
}

#[test]
fn deltaforge_keys_are_those_of_every_source() {
    let theirs = |line: &str| mysql_source_with(line).replace("tailpost/v1", "deltaforge/v1");
    for line in [
        "snapshot: {mode: never, max_parallel_tables: 8}",
        "on_schema_drift: adapt",
    ] {
        let key = line.split(':').next().unwrap();
        assert_eq!(
            notes(&theirs(line)),
            [format!("10:7: spec.source.config.{key}: accepted without effect")]
        );
    }
    for (line, expected) in [
        (
            "snapshot: {mode: initial}",
            "a snapshot of the tables' rows is not supported",
        ),
        ("on_schema_drift: halt", "`on_schema_drift: halt` is not supported"),
    ] {
        assert!(violation(&theirs(line)).contains(expected), "{line}");
        assert!(violation(&mysql_source_with(line)).contains("unknown key"), "{line}");
    }
    let start = theirs("start_position: {file: b.000007}");
    assert!(matches!(mysql(&loaded(&start)).start, MysqlStart::File { .. }));
    let all = mysql_with("[shop.orders, shop.orders_outbox, shop.payments_outbox]", "[]")
        .replace("tailpost/v1", "deltaforge/v1");
    assert!(mysql(&loaded(&all)).tables[0].matches("any", "table"));
    assert_eq!(notes(&all).len(), 1);
}

#[test]
fn violations_of_a_source_are_all_reported_each_with_its_line() {
    let text = ours_mysql().replace(
        "      dsn: ${MYSQL_DSN}\n",
        r#"      dsn: mysql://u:p@h:0/d?useSSL=true
      server_id: -1
      slot: orders
      max_message_bytes: 1
      start:
        gtid: 1-2
        pos: 2
        lsn: 0/10
"#,
    );
    let text = text.replace("[\"shop.*_outbox\"]}", "[\"\"], prefixes: []}");
    let places: Vec<String> = violations(&text)
        .into_iter()
        .map(|line| line.splitn(4, ": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        places,
        [
            "10:12 spec.source.config.dsn",
            "10:12 spec.source.config.dsn",
            "11:18 spec.source.config.server_id",
            "12:7 spec.source.config.slot",
            "13:26 spec.source.config.max_message_bytes",
            "15:15 spec.source.config.start.gtid",
            "16:14 spec.source.config.start.pos",
            "17:9 spec.source.config.start.lsn",
            "19:25 spec.source.config.outbox.tables[0]",
            "19:30 spec.source.config.outbox.prefixes",
        ]
    );
}

#[test]
fn a_misspelt_type_hides_nothing_that_stands_behind_it() {
    for kind in ["mysqll", "MySQL", "maria-db", "oracle"] {
        let found = violations(&mysql_source_with("server_id: 0").replace("type: mysql", &format!("type: {kind}")));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("source.type") && found[1].contains("server_id"),
            "{found:?}"
        );
    }
}

#[test]
fn outboxes_without_a_processor_are_noted() {
    let text = ours_mysql();
    let (processors, sinks) = (text.find("  processors:").unwrap(), text.find("  sinks:").unwrap());
    let text = format!("{}{}", &text[..processors], &text[sinks..]);
    assert!(notes(&text)[0].contains("it selects outbox events"));
    let text = text.replace("      outbox: {tables: [\"shop.*_outbox\"]}\n", "");
    assert_eq!(notes(&text), Vec::<String>::new());
}

const MARK: &str = "hunter2hunter2";

#[test]
fn a_secret_is_in_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, MARK).unwrap();
    let from_file = format!("\"${{file:{}}}\"", file.display());
    let mut texts: Vec<String> = [
        &format!("mysql://u:{MARK}@h/d"),
        &format!("mysql://u:{MARK}@h/d?ssl-mode=no&foo=bar"),
        &format!("mysql://u:{MARK}@h/d?require_ssl=true"),
        &format!("mysql://u@h/d?password={MARK}"),
        &format!("mysql://u@h/d?{MARK}=x"),
        &format!("mysql://u:a/{MARK}@h"),
        &format!("mysql://u:%{MARK}@h"),
        &format!("jdbc:mysql://u:{MARK}@h"),
        &format!("u:{MARK}@tcp(h)/d"),
        &format!("[{MARK}]"),
        MARK,
        &from_file,
    ]
    .map(|dsn| mysql_with("${MYSQL_DSN}", dsn))
    .into();
    for value in [from_file.as_str(), "\"${MARK}\""] {
        for line in [
            "server_id: VALUE",
            "max_message_bytes: VALUE",
            "start: VALUE",
            "start: {gtid: VALUE}",
            "start: {file: VALUE}",
            "start: {file: b.000001, pos: VALUE}",
            "unknown: VALUE",
        ] {
            texts.push(mysql_source_with(&line.replace("VALUE", value)));
        }
        for (from, to) in [
            ("type: mysql", "type: \"VALUE\""),
            ("shop.*_outbox", "a.b.VALUE"),
            ("events.default", "\"${env:MARK} VALUE\""),
        ] {
            texts.push(mysql_with(from, &to.replace("VALUE", value.trim_matches('"'))));
        }
    }
    texts.push(ours_mysql());
    for text in texts {
        let mut variables = environment();
        variables.insert("MARK".to_owned(), MARK.to_owned());
        variables.insert("MYSQL_DSN".to_owned(), format!("mysql://u:{MARK}@h/d"));
        let output = match load_with(&text, &variables) {
            Ok(loaded) => format!("{loaded:?} {loaded:#?} {:?}", loaded.notes),
            Err(err) => format!("{err} {err:?}"),
        };
        assert!(!output.contains(MARK), "{output}\n{text}");
    }
}
