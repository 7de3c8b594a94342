//! What no waiting mends: exit code 1 at once, and one line with what was found, what was expected and what to do.

use crate::support::server::OwnServer;
use crate::support::{OUTBOX, TestBed, variable};

/// The one line that a start with this pipeline ends by, with these texts and no password in the whole log.
fn refused(bed: &TestBed, pipeline: &str, because: &[&str]) {
    let mut relay = bed.relay(pipeline);
    let line = relay.fails();
    println!("{line}");
    for text in because {
        assert!(line.contains(text), "expected `{text}` in: {line}");
    }
    for password in ["repl-pw", "app-pw", "wr0ng-pw"] {
        assert!(!relay.log().contains(password), "{}", relay.log());
    }
}

#[test]
fn a_log_in_that_postgres_refuses_ends_the_pipeline() {
    let bed = TestBed::new();
    let with = |url: &str| OUTBOX.replace("<dsn>", url);
    let url = &bed.postgres.url;
    let wrong = with(&url.replace("repl-pw", "wr0ng-pw"));
    refused(&bed, &wrong, &["28P01", "repl", "check the user and password"]);
    let nowhere = with(&url.replace(&bed.name, "no_such_database"));
    refused(
        &bed,
        &nowhere,
        &["3D000", "no_such_database", "check the database's name"],
    );
    refused(
        &bed,
        &with(&bed.postgres.app_url),
        &["42501", "replication", "ALTER ROLE"],
    );
}

#[test]
fn a_slot_that_cannot_be_read_ends_the_pipeline() {
    let bed = TestBed::new();
    let mut admin = bed.admin();
    let make = "SELECT pg_create_logical_replication_slot($1, $2, false, $3)";
    admin.execute(make, &[&bed.slot, &"test_decoding", &false]).unwrap();
    refused(
        &bed,
        OUTBOX,
        &[&bed.slot, "`test_decoding`", "expected `pgoutput`", "name another slot"],
    );
    admin
        .execute("SELECT pg_drop_replication_slot($1)", &[&bed.slot])
        .unwrap();
    admin.execute(make, &[&bed.slot, &"pgoutput", &true]).unwrap();
    refused(&bed, OUTBOX, &[&bed.slot, "two_phase", "drop it"]);
}

#[test]
fn what_may_not_be_made_and_is_missing_ends_the_pipeline() {
    let bed = TestBed::new();
    let pipeline = OUTBOX.replace("slot: <slot>", "slot: <slot>, create: false");
    refused(
        &bed,
        &pipeline,
        &[&bed.publication, "does not exist", "CREATE PUBLICATION"],
    );
    bed.admin()
        .batch_execute(&format!("CREATE PUBLICATION {}", bed.publication))
        .unwrap();
    refused(
        &bed,
        &pipeline,
        &[&bed.slot, "does not exist", "pg_create_logical_replication_slot"],
    );
}

#[test]
fn a_server_without_logical_wal_ends_the_pipeline() {
    let server = OwnServer::postgres("-c wal_level=replica");
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    refused(
        &bed,
        OUTBOX,
        &["wal_level is `replica`", "expected `logical`", "ALTER SYSTEM"],
    );
}
