//! Connectors as teams have them, converted: what the pipeline file and the report say, and what the pipeline does.
//!
//! The connectors are in `tests/convert`, each with the pipeline file and the report that it gives: `NAME.pipeline.yaml`,
//! `NAME.report.txt`. After a change that is meant, `TAILPOST_TEST_ACCEPT=1` writes these anew, to be read before they are
//! committed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use mysql::prelude::Queryable;

use crate::support::TestBed;
use crate::support::cli::{Ended, tailpost, tailpost_reading};
use crate::support::mysql::Flavor;
use crate::support::mysql_bed::MysqlBed;
use crate::support::plot::Plot;
use crate::support::relay::Relay;

/// A connector of `tests/convert`.
struct Sample {
    file: &'static str,
    worker: Option<&'static str>,
    /// 0, or 1 where something is left to do by hand.
    code: i32,
    /// Its database, or the schema of its tables.
    home: &'static str,
    ddl: &'static [&'static str],
    inserts: &'static [&'static str],
    records: &'static [Expected],
}

/// A record that its pipeline publishes.
struct Expected {
    topic: &'static str,
    key: Option<&'static str>,
    /// With `…` at its end, how it begins.
    value: Option<&'static str>,
    headers: &'static [(&'static str, &'static str)],
}

const ID: &str = "00000000-0000-4000-8000-000000000001";

/// Variables that the files ask for.
const VARIABLES: [&str; 9] = [
    "DATABASE_PASSWORD",
    "DATABASE_USER",
    "DB_PASSWORD",
    "DB_USER",
    "MYSQL_PASSWORD",
    "KAFKA_BROKERS",
    "KAFKA_API_SECRET",
    "SASL_JAAS_CONFIG_PASSWORD",
    "OUTBOX_TABLE",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert")
}

/// Converts it, and holds what comes against what is kept. Gives the pipeline file's text.
fn converted(sample: &Sample) -> String {
    let path = |name: &str| folder().join(name);
    let mut arguments = vec!["convert".into(), "debezium".into(), path(sample.file)];
    if let Some(worker) = sample.worker {
        arguments.extend(["--worker".into(), path(worker)]);
    }
    let Ended {
        code,
        stdout: pipeline,
        stderr: report,
    } = tailpost(arguments);
    let stem = sample.file.split('.').next().unwrap();
    for (end, text) in [("pipeline.yaml", &pipeline), ("report.txt", &report)] {
        let kept = path(&format!("{stem}.{end}"));
        if env::var_os("TAILPOST_TEST_ACCEPT").is_some() {
            fs::write(&kept, text).unwrap();
        }
        let expected = fs::read_to_string(&kept).unwrap_or_default();
        assert_eq!(*text, expected, "{}", kept.display());
    }
    assert_eq!(code, sample.code, "{report}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pipeline.yaml");
    fs::write(&file, &pipeline).unwrap();
    let validated = VARIABLES
        .iter()
        .fold(
            assert_cmd::Command::new(env!("CARGO_BIN_EXE_tailpost")),
            |mut command, name| {
                command.env(
                    name,
                    if name.ends_with("BROKERS") {
                        "kafka:9092"
                    } else {
                        "public.x"
                    },
                );
                command
            },
        )
        .arg("validate")
        .arg(&file)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&validated.stderr);
    assert!(validated.status.success(), "{told}\n{pipeline}");
    pipeline
}

/// The file on the test's servers: other addresses and names, all else as it is.
fn moved(sample: &Sample, pipeline: &str) -> String {
    let mut text = String::new();
    for line in pipeline.lines() {
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        let (key, value) = trimmed.split_once(':').unwrap_or((trimmed, ""));
        let value = value.split("  # ").next().unwrap_or_default().trim();
        let own = match key {
            "dsn" => "'<dsn>'".to_owned(),
            "slot" => "<slot>".to_owned(),
            "publication" => "<publication>".to_owned(),
            "brokers" => "'<brokers>'".to_owned(),
            "server_id" => continue,
            "replacement" | "topic" => format!("'<name>.{}'", value.trim_matches('\'')),
            "tables" => value.replace(&format!("{}.", sample.home), "<schema>."),
            // The broker asks for no name.
            "client_conf" => break,
            _ => {
                text.extend([line, "\n"]);
                continue;
            }
        };
        text.push_str(&format!("{indent}{key}: {own}\n"));
    }
    text
}

fn assert_published(plot: &Plot, mut relay: Relay, sample: &Sample, write: impl FnOnce()) {
    let mut topics: Vec<&str> = sample.records.iter().map(|record| record.topic).collect();
    topics.dedup();
    for topic in &topics {
        plot.kafka.create_topic(&plot.topic(topic), 4, &[]);
    }
    relay.start();
    relay.wait_ready();
    write();
    relay.wait_published(sample.records.len() as u64);
    let mut reader = plot.reader(&topics);
    let records = reader.exactly(sample.records.len());
    for expected in sample.records {
        let topic = plot.topic(expected.topic);
        let found = records
            .iter()
            .find(|record| record.topic == topic && record.key_text() == expected.key)
            .unwrap_or_else(|| panic!("{topic}, key {:?}: {records:?}", expected.key));
        match expected.value.and_then(|value| value.strip_suffix('…')) {
            Some(beginning) => {
                let value = found.value_text().unwrap_or_default();
                assert!(value.starts_with(beginning), "{topic}: {value}");
            }
            None => assert_eq!(found.value_text(), expected.value, "{topic}"),
        }
        for (name, value) in expected.headers {
            assert_eq!(found.header(name), Some(*value), "{topic}: {name}");
        }
    }
}

fn runs_on_postgres(sample: &Sample) {
    let pipeline = moved(sample, &converted(sample)).replace("<schema>.", &format!("{}.", sample.home));
    let bed = TestBed::new();
    let run = |statements: &[&str]| {
        let mut app = bed.app();
        for statement in statements {
            app.batch_execute(&statement.replace("<id>", ID))
                .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    };
    if sample.home != "public" {
        run(&[&format!("CREATE SCHEMA {}", sample.home)]);
    }
    run(sample.ddl);
    let relay = bed.relay(&pipeline);
    assert_published(&bed, relay, sample, || run(sample.inserts));
}

fn runs_on_mysql(flavor: Flavor, sample: &Sample) {
    let bed = MysqlBed::new(flavor);
    // Only what comes from now on: the shared server's log is long.
    let pipeline =
        moved(sample, &converted(sample)).replacen("      outbox:\n", "      start: <start>\n      outbox:\n", 1);
    let run = |statements: &[&str]| {
        let mut app = bed.app();
        for statement in statements {
            app.query_drop(statement.replace("<id>", ID))
                .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    };
    run(sample.ddl);
    let relay = bed.relay(&pipeline);
    assert_published(&bed, relay, sample, || run(sample.inserts));
}

#[test]
fn a_table_with_placed_headers() {
    runs_on_postgres(&Sample {
        file: "postgres-connect.json",
        worker: Some("worker.properties"),
        code: 0,
        home: "public",
        ddl: &["CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb, tenant text,
                created_at timestamp)"],
        inserts: &[
            r#"INSERT INTO outbox VALUES ('<id>', 'order', '42', 'Created', '{"a": 1}', NULL, '2026-01-02 03:04:05')"#,
            "DELETE FROM outbox",
        ],
        records: &[Expected {
            topic: "outbox.event.order",
            key: Some("42"),
            value: Some(r#"{"a": 1}"#),
            headers: &[("id", ID), ("eventType", "Created")],
        }],
    });
}

#[test]
fn messages_by_predicate() {
    runs_on_postgres(&Sample {
        file: "postgres-messages.json",
        worker: None,
        code: 1,
        home: "public",
        ddl: &[],
        inserts: &[r#"SELECT pg_logical_emit_message(true, 'outbox',
                '{"id": "<id>", "aggregate_type": "order", "aggregate_id": 42, "type": "Created", "payload": "{\"a\": 1}"}')"#],
        records: &[Expected {
            topic: "events.order",
            key: Some("42"),
            value: Some(r#"{"a": 1}"#),
            headers: &[("id", ID)],
        }],
    });
}

#[test]
fn an_expanded_payload_with_names_of_its_own() {
    runs_on_postgres(&Sample {
        file: "postgres-expanded.json",
        worker: Some("worker.properties"),
        code: 0,
        home: "billing",
        ddl: &[
            "CREATE TABLE billing.event_outbox (event_id uuid PRIMARY KEY, kind text, customer_id bigint, body text)",
        ],
        inserts: &[
            r#"INSERT INTO billing.event_outbox VALUES ('<id>', 'invoice.paid', 7, '{"a": null, "n": 1.50, "e": []}')"#,
        ],
        records: &[Expected {
            topic: "billing.invoice.paid.v1",
            key: Some("7"),
            value: Some(r#"{"a":null,"n":1.5}"#),
            headers: &[("id", ID)],
        }],
    });
}

#[test]
fn a_managed_connector_with_re2_syntax() {
    runs_on_postgres(&Sample {
        file: "postgres-cloud.json",
        worker: None,
        code: 1,
        home: "public",
        ddl: &[
            "CREATE TABLE outbox_orders (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)",
            "CREATE TABLE outbox_payments (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)",
        ],
        inserts: &[
            "INSERT INTO outbox_orders VALUES ('<id>', 'order', '1', 'T', 'x')",
            "INSERT INTO outbox_payments VALUES ('<id>', 'payment', '2', 'T', ' ')",
        ],
        records: &[
            Expected {
                topic: "order.events",
                key: Some("1"),
                value: Some("x"),
                headers: &[("id", ID)],
            },
            Expected {
                topic: "payment.events",
                key: Some("2"),
                value: None,
                headers: &[("id", ID)],
            },
        ],
    });
}

#[test]
fn the_server_with_json_headers() {
    runs_on_postgres(&Sample {
        file: "postgres-server.properties",
        worker: None,
        code: 0,
        home: "stock",
        ddl: &["CREATE TABLE stock.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb,
                tenant text, part int, created_at timestamp)"],
        inserts: &[r#"INSERT INTO stock.outbox VALUES ('<id>', 'item', '9', 'T', '{"a": 1}', 'acme', 3, now())"#],
        records: &[Expected {
            topic: "outbox.event.item",
            key: Some("9"),
            value: Some(r#""{\"a\": 1}""#),
            headers: &[("id", "\"00000000-0000-4000-8000-000000000001\""), ("tenant", "\"acme\"")],
        }],
    });
}

#[test]
fn an_ordinary_table_beside_the_outbox() {
    runs_on_postgres(&Sample {
        file: "postgres-strimzi.yaml",
        worker: None,
        code: 1,
        home: "public",
        ddl: &[
            "CREATE TABLE customer (id int PRIMARY KEY, name text)",
            "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)",
        ],
        inserts: &[
            // Skipped by default.
            "TRUNCATE customer",
            "INSERT INTO customer VALUES (5, 'x')",
            r#"INSERT INTO outbox VALUES ('<id>', 'customer', '5', 'Named', '{"n": "x"}')"#,
        ],
        records: &[
            Expected {
                topic: "outbox.event.customer",
                key: Some("\"5\""),
                value: Some(r#"{"payload":"{\"n\": \"x\"}","eventType":"Named"}"#),
                headers: &[("id", ID)],
            },
            Expected {
                topic: "crm.public.customer",
                key: Some(r#"{"id":5}"#),
                value: Some(r#"{"before":null,"after":{"id":5,"name":"x"},…"#),
                headers: &[],
            },
        ],
    });
}

#[test]
fn mysql_with_unknown_options() {
    runs_on_mysql(
        Flavor::Mysql,
        &Sample {
            file: "mysql-connect.json",
            worker: Some("worker.properties"),
            code: 1,
            home: "shop",
            ddl: &["CREATE TABLE outbox_event (id char(36) PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255),
                    type varchar(255), payload json, shard int, occurred_at datetime(3)) ENGINE = BLACKHOLE"],
            inserts: &[r#"INSERT INTO outbox_event VALUES ('<id>', 'cart', '3', 'Paid', '{"b": 1, "a": [1, 2]}', 2, now(3))"#],
            records: &[Expected {
                topic: "shop.events.cart",
                key: Some("3"),
                value: Some(r#"{"a":[1,2],"b":1}"#),
                headers: &[("id", ID), ("eventType", "Paid")],
            }],
        },
    );
}

#[test]
fn a_standalone_worker_s_properties_of_old() {
    runs_on_mysql(
        Flavor::Mysql,
        &Sample {
            file: "mysql-standalone.properties",
            worker: None,
            code: 1,
            home: "inventory",
            ddl: &[
                "CREATE TABLE outbox_table (id int)",
                "DROP TABLE outbox",
                "CREATE TABLE outbox (id char(36) PRIMARY KEY,
                    aggregate_type varchar(255), aggregate_id varchar(255), payload varchar(255))",
            ],
            inserts: &["INSERT INTO outbox VALUES ('<id>', 'item', 'a', '{}')"],
            records: &[Expected {
                topic: "inventory.item",
                key: Some(r#"{"schema":{"type":"string","optional":true},"payload":"a"}"#),
                value: Some(
                    r#"{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":"{}"}"#,
                ),
                headers: &[("id", ID)],
            }],
        },
    );
}

#[test]
fn two_routers_of_mariadb_with_layouts_of_their_own() {
    runs_on_mysql(
        Flavor::Mariadb,
        &Sample {
            file: "mariadb-connect.json",
            worker: None,
            code: 1,
            home: "ledger",
            ddl: &[
                "CREATE TABLE entry_outbox (id char(36) PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255),
                 type varchar(255), payload blob, shard int)",
                "CREATE TABLE audit_outbox (id char(36) PRIMARY KEY, area varchar(255), subject bigint, data blob)",
            ],
            inserts: &[
                "INSERT INTO entry_outbox VALUES ('<id>', 'debit', 'k', 'T', 'one', 3)",
                "INSERT INTO audit_outbox VALUES ('<id>', 'any', 12, 'two')",
            ],
            records: &[
                Expected {
                    topic: "ledger.entry.debit",
                    key: Some("\"k\""),
                    value: Some("one"),
                    headers: &[("id", ID)],
                },
                Expected {
                    topic: "ledger.audit",
                    key: Some("12"),
                    value: Some("two"),
                    headers: &[("id", ID)],
                },
            ],
        },
    );
}

#[test]
fn the_server_with_a_trace_and_a_regular_expression() {
    runs_on_mysql(
        Flavor::Mysql,
        &Sample {
            file: "mysql-server.properties",
            worker: None,
            code: 1,
            home: "fleet",
            ddl: &[
                "DROP TABLE outbox",
                "CREATE TABLE outbox_trips (id char(36) PRIMARY KEY, aggregatetype varchar(255),
                    aggregateid varchar(255), type varchar(255), payload text, tracingspancontext varchar(255))",
            ],
            inserts: &[
                r#"INSERT INTO outbox_trips VALUES ('<id>', 'trip_started', '8', 'T', '{"n": 1, "x": null}',
                        'traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n')"#,
            ],
            records: &[Expected {
                topic: "fleet.trip",
                key: Some("\"8\""),
                value: Some(r#"{"n":1}"#),
                headers: &[(
                    "traceparent",
                    "\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"",
                )],
            }],
        },
    );
}

#[test]
fn what_cannot_be_taken_over_is_told_and_ends_with_2() {
    let cases = [
        ("{", "JSON"),
        ("{}", "`connector.class`"),
        (
            r#"{"connector.class": "io.debezium.connector.oracle.OracleConnector"}"#,
            "OracleConnector",
        ),
        (
            r#"{"connector.class": "io.debezium.connector.mysql.MySqlConnector"}"#,
            "event router",
        ),
        (r#"{"connector.class": ["a"]}"#, "`connector.class`"),
    ];
    for (text, told) in cases {
        let ended = tailpost_reading(text, ["convert", "debezium", "-"]);
        assert_eq!(ended.code, 2, "{text}");
        assert!(ended.stderr.contains(told), "{text}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{text}");
    }
    assert_eq!(tailpost(["convert", "debezium", "no-such-file"]).code, 2);
}

#[test]
fn a_file_that_is_too_large_is_refused_and_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("connector.properties");
    let comment = format!("#{}\n", "x".repeat(16 * 1024 * 1024));
    fs::write(&file, comment + "transforms.outbox.route.by.field=late\n").unwrap();
    let ended = tailpost(["convert".as_ref(), "debezium".as_ref(), file.as_path()]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("more than 16777216 bytes"), "{}", ended.stderr);
}

#[test]
fn a_file_is_written_once_and_compared_ever_after() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.yaml");
    let connector = self::folder().join("postgres-connect.json");
    let worker = self::folder().join("worker.properties");
    let run = |more: [&Path; 2]| {
        let first: [&Path; 5] = [
            "convert".as_ref(),
            "debezium".as_ref(),
            &connector,
            "--worker".as_ref(),
            &worker,
        ];
        tailpost(first.into_iter().chain(more))
    };
    assert_eq!(run(["--output".as_ref(), &file]).code, 0);
    let again = run(["--output".as_ref(), &file]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("it is there already"), "{}", again.stderr);
    let nowhere = run(["--output".as_ref(), "/nonexistent/x.yaml".as_ref()]);
    assert_eq!(nowhere.code, 2, "{}", nowhere.stderr);
    assert!(!nowhere.stderr.contains("there already"), "{}", nowhere.stderr);
    assert_eq!(run(["--check".as_ref(), &file]).code, 0);
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("slot: orders_outbox", "slot: other");
    fs::write(&file, text).unwrap();
    let checked = run(["--check".as_ref(), &file]);
    assert_eq!(checked.code, 1, "{}", checked.stderr);
    assert!(
        checked
            .stdout
            .contains(r#"spec.source.config.slot: "other", expected "orders_outbox""#),
        "{}",
        checked.stdout
    );
}
