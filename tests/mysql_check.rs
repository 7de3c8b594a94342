//! Settings of a server that lose events, or would: `check` names each with its remedy, and a start refuses what cannot go
//! well.

use crate::support::binlog::{Binlog, insert};
use crate::support::cli::tailpost;
use crate::support::mysql::{Flavor, Script};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, DEADLINE, Db, over_each};

/// What `check` says of a pipeline, which must end with this code.
fn check(bed: &MysqlBed, relay: &Relay, code: i32) -> String {
    let ended = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, code, "{said}");
    assert_eq!(said.contains("FAIL"), code != 0, "{said}");
    assert!(!said.contains(&bed.password()), "{said}");
    said
}

fn assert_says(said: &str, line: &str, texts: &[&str]) {
    let found = said.lines().find(|found| found.trim_start().starts_with(line));
    let found = found.unwrap_or_else(|| panic!("no `{line}` in\n{said}"));
    for text in texts {
        assert!(found.contains(text), "`{text}` is not in\n{found}");
    }
}

fn binlog_of(db: Db) -> Binlog {
    match db.flavor() {
        Some(Flavor::Mariadb) => Binlog::Mariadb,
        _ => Binlog::Gtids,
    }
}

fn each_setting_that_loses_events_is_named_with_its_remedy(db: Db) {
    let (bed, _server) = binlog_of(db).own();
    let mut admin = bed.admin();
    let relay = bed.relay(ANY_OUTBOX);
    let outbox = format!("outbox {}.outbox: ", bed.name);
    let good = check(&bed, &relay, 0);
    for line in [
        "ok    binlog_format: ROW",
        "ok    binlog_row_image: FULL",
        "ok    binlog_row_metadata: FULL",
    ] {
        assert_says(&good, line, &[]);
    }
    assert_says(&good, "ok    replication: ", &["server_id "]);
    assert_says(
        &good,
        &format!("warn  {outbox}"),
        &["BLACKHOLE", "AUTO_INCREMENT column `number`", "event_id"],
    );
    assert_says(&good, "warn  sync_binlog: 0", &["set sync_binlog = 1"]);

    for (setting, line, texts) in [
        ("sync_binlog = 1", "ok    sync_binlog: 1", vec![]),
        (
            "binlog_row_metadata = MINIMAL",
            "warn  binlog_row_metadata: MINIMAL",
            vec!["information_schema", "'FULL'"],
        ),
        ("binlog_row_metadata = FULL", "ok    binlog_row_metadata: FULL", vec![]),
        (
            "binlog_expire_logs_seconds = 0",
            "warn  binlog_expire_logs_seconds: 0",
            vec!["never removes"],
        ),
        (
            "binlog_expire_logs_seconds = 3600",
            "warn  binlog_expire_logs_seconds: 3600",
            vec!["events are lost"],
        ),
        (
            "binlog_expire_logs_seconds = 864000",
            "ok    binlog_expire_logs_seconds: 864000",
            vec![],
        ),
    ] {
        admin.run(&format!("SET GLOBAL {setting}")).unwrap();
        assert_says(&check(&bed, &relay, 0), line, &texts);
    }
    for (setting, line, texts) in [
        (
            "binlog_format = MIXED",
            "FAIL  binlog_format: ",
            vec!["`MIXED`", "`ROW`", "SET GLOBAL"],
        ),
        (
            "binlog_format = STATEMENT",
            "FAIL  binlog_format: ",
            vec!["`STATEMENT`", "`ROW`", "SET GLOBAL"],
        ),
        (
            "binlog_format = ROW, GLOBAL binlog_row_image = MINIMAL",
            "FAIL  binlog_row_image: ",
            vec!["`MINIMAL`", "`FULL`"],
        ),
        (
            "binlog_row_image = NOBLOB",
            "FAIL  binlog_row_image: ",
            vec!["`NOBLOB`", "`FULL`"],
        ),
    ] {
        admin.run(&format!("SET GLOBAL {setting}")).unwrap();
        assert_says(&check(&bed, &relay, 1), line, &texts);
        // A start refuses it in the same words.
        let refused = bed.relay(ANY_OUTBOX).fails();
        assert!(texts.iter().all(|text| refused.contains(text)), "{refused}");
    }
    // Without an outbox whole rows are not needed.
    let tables = ANY_OUTBOX
        .replace("outbox: {<outbox>}", "tables: [<name>.outbox]")
        .replace("brokers: '<brokers>'", "brokers: '<brokers>', topic: '<topic>'")
        .replace(
            "  processors:\n    - {type: outbox, topic: '<topic>', raw_payload: true}\n",
            "",
        );
    let ordinary = bed.relay(&tables);
    assert_says(
        &check(&bed, &ordinary, 0),
        "warn  binlog_row_image: NOBLOB",
        &["'FULL'"],
    );
    admin.run("SET GLOBAL binlog_row_image = FULL").unwrap();

    admin.run("ALTER TABLE outbox DROP COLUMN number").unwrap();
    assert_says(&check(&bed, &relay, 0), &format!("ok    {outbox}"), &["binlog only"]);
    admin.run("ALTER TABLE outbox ENGINE = InnoDB").unwrap();
    assert_says(
        &check(&bed, &relay, 0),
        &format!("ok    {outbox}"),
        &["InnoDB", "deletes"],
    );
    if db == Db::Mariadb {
        // Another kind of table to the server, whose rows are in the log all the same.
        admin.run("ALTER TABLE outbox ADD SYSTEM VERSIONING").unwrap();
        assert_says(&check(&bed, &relay, 0), &format!("ok    {outbox}"), &["InnoDB"]);
    }
    admin.run("DROP TABLE outbox").unwrap();
    let missing = format!("`{}.outbox` matches no table", bed.name);
    assert_says(&check(&bed, &relay, 0), "warn  tables: ", &[&missing, "GRANT SELECT"]);

    let user = bed
        .database
        .mysql
        .url
        .replace("tailpost:tailpost-pw", "reader_user:reader-pw");
    let reader = bed.relay(&ANY_OUTBOX.replace("<source>", &format!("id: src1, dsn: '{user}', start: <start>")));
    assert_says(&check(&bed, &reader, 1), "FAIL  ", &["1227", "GRANT "]);
}
over_each!(each_setting_that_loses_events_is_named_with_its_remedy: mysql, mariadb);

#[test]
fn mysql_without_gtids_is_warned_of_and_partial_json_where_it_matters() {
    let (bed, _server) = Binlog::Files.own();
    let relay = bed.relay(ANY_OUTBOX);
    assert_says(&check(&bed, &relay, 0), "warn  gtid_mode: OFF", &["gtid_mode = ON"]);
    let mut admin = bed.admin();
    admin
        .run("SET GLOBAL binlog_row_value_options = PARTIAL_JSON, GLOBAL binlog_transaction_compression = ON")
        .unwrap();
    let said = check(&bed, &relay, 0);
    assert_says(&said, "warn  binlog_row_value_options: PARTIAL_JSON", &["SET GLOBAL"]);
    assert_says(&said, "ok    binlog_transaction_compression: ON", &[]);
    let tables = ANY_OUTBOX
        .replace("<outbox>}", "<outbox>}, tables: [orders]")
        .replace("brokers: '<brokers>'", "brokers: '<brokers>', topic: '<topic>'");
    assert_says(
        &check(&bed, &bed.relay(&tables), 1),
        "FAIL  binlog_row_value_options: ",
        &["halts"],
    );
}

fn a_server_without_a_binlog_is_refused(db: Db) {
    let (bed, _server) = binlog_of(db).own_with("--skip-log-bin");
    let mut relay = bed.relay(ANY_OUTBOX);
    let said = check(&bed, &relay, 1);
    assert_says(&said, "FAIL  ", &["log_bin is off", "restart"]);
    let refused = relay.fails();
    assert!(refused.contains("log_bin is off"), "{refused}");
}
over_each!(a_server_without_a_binlog_is_refused: mysql, mariadb);

/// Applications keep what they connected with, and what the server is told later is for the next.
fn a_setting_that_is_changed_while_it_runs_does_not_end_it(db: Db) {
    let (bed, _server) = binlog_of(db).own();
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let mut admin = bed.admin();
    admin.run("SET GLOBAL binlog_format = MIXED").unwrap();
    let dump = bed.dump_of(&relay).expect("it reads");
    admin.run(&format!("KILL {dump}")).unwrap();
    crate::support::eventually(DEADLINE, "it reads again", || {
        bed.dump_of(&relay).is_some_and(|again| again != dump)
    });
    admin.run("SET GLOBAL binlog_format = ROW").unwrap();
    insert(&bed, 1);
    relay.wait_published(1);
}
over_each!(a_setting_that_is_changed_while_it_runs_does_not_end_it: mysql, mariadb);
