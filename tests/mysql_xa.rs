//! XA transactions: their rows are in the binlog before it is known what becomes of them.

use mysql::Conn;
use mysql::prelude::Queryable;

use crate::support::binlog::{Binlog, insert, over_each_binlog, values, wait_saved_to_the_end};
use crate::support::mysql::Script;
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, DEADLINE, found};

/// Prepares a transaction with these payloads and leaves it.
fn prepare(bed: &MysqlBed, table: &str, xid: &str, payloads: &[u32]) {
    let mut app = bed.admin();
    app.run(&format!("XA START {xid}")).unwrap();
    for payload in payloads {
        app.run(&format!("INSERT INTO {table} (payload) VALUES ({payload})"))
            .unwrap();
    }
    app.run(&format!("XA END {xid}; XA PREPARE {xid}")).unwrap();
}

/// Ends a prepared one from another connection, which can take it once its own is gone.
fn decide(admin: &mut Conn, outcome: &str, xid: &str) {
    let statement = format!("XA {outcome} {xid}");
    found(DEADLINE, &statement, || admin.run(&statement).ok());
}

/// With a table that is kept besides the one that is not.
fn with_tables(bed: &MysqlBed) -> Relay {
    bed.app()
        .run("CREATE TABLE kept_outbox LIKE outbox; ALTER TABLE kept_outbox ENGINE = InnoDB")
        .unwrap();
    bed.relay(&ANY_OUTBOX.replace("<outbox>", "tables: ['<name>.*outbox']"))
}

fn rows_wait_from_prepare_to_commit_and_are_dropped_at_rollback(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    let mut relay = with_tables(&bed);
    relay.start();
    relay.wait_ready();
    let mut admin = bed.admin();
    // Several at once, named in each way.
    prepare(&bed, "kept_outbox", "'a'", &[5, 6]);
    prepare(&bed, "kept_outbox", "'a', 'b'", &[101, 102]);
    prepare(&bed, "outbox", "X'00ff27', X'5c', 7", &[4]);
    prepare(&bed, "kept_outbox", "'it''s', '', 2147483647", &[8]);
    insert(&bed, 1);
    admin
        .run("XA START 'one'; INSERT INTO outbox (payload) VALUES (2); INSERT INTO kept_outbox (payload) VALUES (3); XA END 'one'; XA COMMIT 'one' ONE PHASE")
        .unwrap();
    relay.wait_published(3);
    assert_eq!(values(&bed, 3), ["1", "2", "3"]);
    decide(&mut admin, "COMMIT", "X'00ff27', X'5c', 7");
    decide(&mut admin, "ROLLBACK", "'a', 'b'");
    decide(&mut admin, "COMMIT", "'a'");
    insert(&bed, 7);
    decide(&mut admin, "COMMIT", "'it''s', '', 2147483647");
    // Prepared by nobody who writes events, and never prepared.
    admin
        .run("CREATE TABLE other (i INT); XA START 'o'; INSERT INTO other VALUES (1); XA END 'o'; XA PREPARE 'o'; XA COMMIT 'o'; \
              XA START 'n'; INSERT INTO kept_outbox (payload) VALUES (103); XA END 'n'; XA ROLLBACK 'n'; \
              XA START 'empty'; XA END 'empty'; XA PREPARE 'empty'; XA COMMIT 'empty'")
        .unwrap();
    insert(&bed, 9);
    relay.wait_published(9);
    assert_eq!(values(&bed, 9), ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    // Nothing waits any more, so a restart reads nothing again.
    wait_saved_to_the_end(&bed, &relay);
    let saved = relay.saved_mysql().unwrap();
    assert!(saved.reread.is_none() && saved.partial.is_empty(), "{saved:?}");
    relay.sigkill();
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert_eq!(values(&bed, 9).len(), 9);
}
over_each_binlog!(rows_wait_from_prepare_to_commit_and_are_dropped_at_rollback);

/// Stopped in each state of four transactions; what is published in between comes once, and so do they.
fn a_restart_between_prepare_and_outcome_loses_and_doubles_nothing(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    let mut relay = with_tables(&bed);
    let mut admin = bed.admin();
    let stop_in_order = |relay: &mut Relay| {
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
    };
    relay.start();
    relay.wait_ready();
    insert(&bed, 1);
    prepare(&bed, "kept_outbox", "'later'", &[8, 9]);
    insert(&bed, 2);
    prepare(&bed, "kept_outbox", "'while stopped'", &[4]);
    prepare(&bed, "kept_outbox", "'undone'", &[101]);
    prepare(&bed, "kept_outbox", "'undone while stopped'", &[102]);
    insert(&bed, 3);
    relay.wait_published(3);
    wait_saved_to_the_end(&bed, &relay);
    relay.sigkill();
    decide(&mut admin, "COMMIT", "'while stopped'");
    decide(&mut admin, "ROLLBACK", "'undone while stopped'");
    insert(&bed, 5);

    relay.start();
    relay.wait_published(2);
    insert(&bed, 6);
    relay.wait_published(3);
    wait_saved_to_the_end(&bed, &relay);
    assert_eq!(values(&bed, 6), ["1", "2", "3", "4", "5", "6"]);
    stop_in_order(&mut relay);

    // Another life that sees nothing decided.
    relay.start();
    insert(&bed, 7);
    relay.wait_published(1);
    wait_saved_to_the_end(&bed, &relay);
    relay.sigkill();

    relay.start();
    relay.wait_ready();
    decide(&mut admin, "COMMIT", "'later'");
    decide(&mut admin, "ROLLBACK", "'undone'");
    insert(&bed, 10);
    relay.wait_published(3);
    let all: Vec<String> = (1..=10).map(|number| number.to_string()).collect();
    assert_eq!(values(&bed, 10), all);
    stop_in_order(&mut relay);
    let saved = relay.saved_mysql().unwrap();
    assert!(saved.reread.is_none() && saved.partial.is_empty(), "{saved:?}");
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert_eq!(values(&bed, 10), all);
}
over_each_binlog!(a_restart_between_prepare_and_outcome_loses_and_doubles_nothing);

fn a_servers_restart_between_prepare_and_outcome_loses_and_doubles_nothing(binlog: Binlog) {
    let (bed, server) = binlog.own();
    let mut relay = with_tables(&bed);
    relay.start();
    relay.wait_ready();
    prepare(&bed, "kept_outbox", "'kept'", &[3]);
    prepare(&bed, "kept_outbox", "'undone'", &[101]);
    insert(&bed, 1);
    relay.wait_published(1);
    server.kill();
    server.up();
    insert(&bed, 2);
    relay.wait_published(2);
    server.down();
    server.up();
    let mut admin = bed.admin();
    let recovered: Vec<mysql::Row> = admin.query("XA RECOVER").unwrap();
    assert_eq!(recovered.len(), 2);
    decide(&mut admin, "ROLLBACK", "'undone'");
    decide(&mut admin, "COMMIT", "'kept'");
    insert(&bed, 4);
    relay.wait_published(4);
    assert_eq!(values(&bed, 4), ["1", "2", "3", "4"]);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert_eq!(values(&bed, 4).len(), 4);
}
over_each_binlog!(a_servers_restart_between_prepare_and_outcome_loses_and_doubles_nothing);
