//! What a conversion makes of single options, and of what stands beside them: taken over, told of, and never lost without a word.

use crate::support::cli::{Ended, tailpost_reading};

/// A connector for PostgreSQL with these options, converted: exit code, pipeline file and report.
fn with_options(options: serde_json::Value) -> Ended {
    let mut connector = serde_json::json!({
        "name": "c",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "h",
        "database.user": "u",
        "database.password": "s3cret",
        "database.dbname": "d",
        "topic.prefix": "srv",
        "slot.name": "s",
        "publication.name": "p",
        "snapshot.mode": "no_data",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "producer.override.bootstrap.servers": "kafka:9092",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "predicates": "isOutbox",
        "predicates.isOutbox.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.isOutbox.pattern": "srv.public.outbox",
    });
    let known = connector.as_object_mut().unwrap();
    known.extend(options.as_object().unwrap().clone());
    tailpost_reading(&connector.to_string(), ["convert", "debezium", "-"])
}

/// The lines of the report under a heading.
fn told<'r>(report: &'r str, heading: &str) -> Vec<&'r str> {
    let lines = report.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

fn assert_told(ended: &Ended, heading: &str, option: &str) {
    let lines = told(&ended.stderr, heading);
    let is_told = lines.iter().any(|line| line.starts_with(&format!("{option}: ")));
    assert!(is_told, "{option} is not under `{heading}`:\n{}", ended.stderr);
}

#[test]
fn ordinary_tables_that_a_pattern_captures_are_taken_over() {
    let cases = [
        (
            "public.outbox,public.order_.*,public.customer",
            "tables: [public.order_*, public.customer]",
        ),
        (r"public\..*", "tables: [public.*]"),
        ("", "tables: ['*.*']"),
    ];
    for (tables, expected) in cases {
        let mut options = serde_json::json!({"transforms.outbox.predicate": "isOutbox"});
        if !tables.is_empty() {
            options["table.include.list"] = tables.into();
        }
        let ended = with_options(options);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains(expected), "{tables}:\n{}", ended.stdout);
        assert!(
            ended.stdout.contains("tables: [public.outbox]"),
            "{tables}:\n{}",
            ended.stdout
        );
        // TRUNCATEs are skipped by default.
        assert!(
            ended.stdout.contains("ops: [insert, update, delete]"),
            "{}",
            ended.stdout
        );
    }
    let all = with_options(serde_json::json!({
        "transforms.outbox.predicate": "isOutbox", "schema.include.list": "public"}));
    assert!(all.stdout.contains("tables: [public.*]"), "{}", all.stdout);
    assert_eq!(
        told(&all.stderr, "taken over")
            .iter()
            .filter(|line| line.starts_with("schema.include.list"))
            .count(),
        1
    );
}

#[test]
fn lists_of_schemas_and_of_excluded_tables_narrow_what_is_read() {
    let ended = with_options(serde_json::json!({"table.include.list": r".*\.outbox", "schema.include.list": "shop"}));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("tables: [shop.outbox]"), "{}", ended.stdout);
    let ended = with_options(serde_json::json!({"table.include.list": r".*\.outbox", "schema.exclude.list": "test"}));
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_told(&ended, "not possible", "schema.exclude.list");
    let ended = with_options(serde_json::json!({
        "transforms.outbox.predicate": "isOutbox", "table.exclude.list": "public.secret"}));
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_told(&ended, "not possible", "table.exclude.list");
}

#[test]
fn what_is_done_to_ordinary_tables_alone_is_told() {
    let options = serde_json::json!({
        "transforms": "outbox,unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.predicate": "isOutbox",
        "transforms.unwrap.negate": "true",
        "transforms.unwrap.add.fields": "op",
        "column.exclude.list": "public.customer.ssn",
        "message.key.columns": "public.customer:email",
        "skipped.operations": "u,t",
        "topic.delimiter": ".",
        "decimal.handling.mode": "double",
    });
    let mut beside = options.clone();
    beside["table.include.list"] = "public.outbox,public.customer".into();
    beside["transforms.outbox.predicate"] = "isOutbox".into();
    let ended = with_options(beside);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for option in [
        "transforms.unwrap.type",
        "transforms.unwrap.add.fields",
        "column.exclude.list",
        "message.key.columns",
    ] {
        assert_told(&ended, "not possible", option);
    }
    assert_told(&ended, "different", "decimal.handling.mode");
    assert_told(&ended, "taken over", "skipped.operations");
    assert!(ended.stdout.contains("ops: [insert, delete]"), "{}", ended.stdout);
    let mut alone = options;
    alone["table.include.list"] = "public.outbox".into();
    let ended = with_options(alone);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_told(&ended, "not needed", "column.exclude.list");
    assert!(!ended.stdout.contains("filter"), "{}", ended.stdout);
}

#[test]
fn what_would_be_lost_or_changed_in_silence_is_told() {
    let table = serde_json::json!({"table.include.list": "public.outbox"});
    let cases = [
        (
            serde_json::json!({"table.include.list": "PUBLIC.OutBox"}),
            "table.include.list",
        ),
        (
            serde_json::json!({"binary.handling.mode": "hex"}),
            "binary.handling.mode",
        ),
        (
            serde_json::json!({"message.prefix.include.list": "audit"}),
            "message.prefix.include.list",
        ),
        (
            serde_json::json!({"slot.stream.params": "origin=none"}),
            "slot.stream.params",
        ),
        (serde_json::json!({"skipped.operations": "c"}), "skipped.operations"),
        (serde_json::json!({"slot.name": "Bad-Slot Name"}), "slot.name"),
        (
            serde_json::json!({"transforms.outbox.route.topic.replacement": "a b.${routedByValue}"}),
            "transforms.outbox.route.topic.replacement",
        ),
        (
            serde_json::json!({"transforms.outbox.table.fields.additional.placement": "a:header:x,b:header:x"}),
            "transforms.outbox.table.fields.additional.placement",
        ),
        (
            serde_json::json!({"transforms.outbox.table.fields.additional.placement": ":header"}),
            "transforms.outbox.table.fields.additional.placement",
        ),
        (
            serde_json::json!({"producer.override.sasl.mechanism": "AWS_MSK_IAM"}),
            "producer.override.sasl.mechanism",
        ),
    ];
    for (option, told) in cases {
        let mut options = table.clone();
        options
            .as_object_mut()
            .unwrap()
            .extend(option.as_object().unwrap().clone());
        let ended = with_options(options);
        assert_eq!(ended.code, 1, "{told}: {}", ended.stderr);
        assert_told(&ended, "not possible", told);
    }
    let ended = with_options(table);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_told(&ended, "different", "table.include.list");
    assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"));
}

#[test]
fn another_s_router_is_none() {
    let ended = with_options(serde_json::json!({"transforms.outbox.type": "com.acme.kafka.EventRouter"}));
    assert_eq!(ended.code, 2);
    let ended = with_options(serde_json::json!({
        "table.include.list": "public.outbox",
        "transforms": "outbox,own",
        "transforms.own.type": "com.acme.kafka.EventRouter",
    }));
    assert_eq!(ended.code, 1);
    assert_told(&ended, "not possible", "transforms.own.type");
}

#[test]
fn options_of_the_router_by_the_names_of_other_versions_and_of_its_neighbours() {
    let ended = with_options(serde_json::json!({
        "table.include.list": "public.outbox",
        "transforms": "outbox,trace",
        "transforms.outbox.table.fields.additional.placement": "tenant:header",
        "transforms.outbox.table.fields.additional.error.on.missing": "false",
        "transforms.trace.type": "io.debezium.transforms.tracing.ActivateTracingSpan",
        "transforms.trace.tracing.with.context.field.only": "true",
        "database.sslmode": "allow",
    }));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for expected in ["on_missing: skip", "trace: tracingspancontext", "sslmode=prefer"] {
        assert!(ended.stdout.contains(expected), "{expected}:\n{}", ended.stdout);
    }
    let tombstones = with_options(serde_json::json!({
        "table.include.list": "public.outbox",
        "transforms.outbox.predicate": "isTombstone",
        "transforms.outbox.negate": "true",
        "predicates.isTombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }));
    assert_eq!(tombstones.code, 0, "{}", tombstones.stderr);
}

#[test]
fn messages_keep_nulls_and_rows_do_not() {
    let ended = with_options(serde_json::json!({
        "table.include.list": "public.outbox",
        "message.prefix.include.list": "outbox",
        "transforms": "decode,outbox",
        "transforms.decode.type": "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        "transforms.decode.fields.null.include": "true",
        "transforms.outbox.table.expand.json.payload": "true",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }));
    let drops: Vec<&str> = ended
        .stdout
        .lines()
        .filter(|line| line.contains("drop_null_members"))
        .map(str::trim)
        .collect();
    assert_eq!(
        drops,
        ["drop_null_members: false", "drop_null_members: true"],
        "{}",
        ended.stdout
    );
}

#[test]
fn placeholders_are_variables_and_defaults_of_passwords_stay_behind() {
    let ended = with_options(serde_json::json!({
        "table.include.list": "public.outbox",
        "topic.prefix": "${env:PREFIX}",
        "database.hostname": "${file:/a:host}.${file:/a:domain}",
        "transforms.outbox.route.topic.replacement": "${env:PRE}.${routedByValue}",
    }));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for expected in [
        "id: ${PREFIX}",
        "${DATABASE_HOSTNAME}.${DATABASE_HOSTNAME_2}",
        "${env:PRE}.${routedByValue}",
    ] {
        assert!(ended.stdout.contains(expected), "{expected}:\n{}", ended.stdout);
    }
    let server = "debezium.sink.type=kafka\ndebezium.sink.kafka.producer.bootstrap.servers=k:9092\n\
                  debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector\n\
                  debezium.format.schemas.enable=false\ndebezium.source.plugin.name=pgoutput\ndebezium.source.topic.prefix=srv\n\
                  debezium.source.database.hostname=${DB_HOST:localhost}\n\
                  debezium.source.database.password=${DB_PASSWORD:s3cret}\n\
                  debezium.source.table.include.list=public.outbox\ndebezium.transforms=outbox\n\
                  debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter\n\
                  debezium.transforms.outbox.route.topic.replacement=events.\\\\${routedByValue}\n";
    let ended = tailpost_reading(server, ["convert", "debezium", "-"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for expected in [
        "replacement: events.${routedByValue}",
        "${DB_HOST:-localhost}",
        "''${DB_PASSWORD}''",
    ] {
        assert!(ended.stdout.contains(expected), "{expected}:\n{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"));
}

#[test]
fn what_validate_would_refuse_is_never_said_to_be_taken_over() {
    let refused = [
        ("transforms.outbox.route.topic.regex", "(?<routedByValue>.*+)x"),
        ("transforms.outbox.route.topic.regex", "(?<routedByValue>(?=a).*)"),
        ("transforms.outbox.route.topic.replacement", "a b.${routedByValue}"),
        ("slot.name", "Bad-Slot Name"),
    ];
    for (option, value) in refused {
        let mut options = serde_json::json!({"table.include.list": "public.outbox"});
        options[option] = value.into();
        let ended = with_options(options);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        assert_told(&ended, "not possible", option);
        let taken = told(&ended.stderr, "taken over");
        assert!(
            !taken.iter().any(|line| line.starts_with(&format!("{option}: "))),
            "{}",
            ended.stderr
        );
    }
}
