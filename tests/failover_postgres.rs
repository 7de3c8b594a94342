//! A standby that is promoted: the pipeline goes on without loss where its slot came along, and says why not where it did
//! not.

use std::collections::BTreeSet;
use std::thread::{self, JoinHandle};

use postgres::Client;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::cli::tailpost;
use crate::support::postgres::connect;
use crate::support::relay::Relay;
use crate::support::server::{OwnServer, Postgres};
use crate::support::{DEADLINE, Emit, OUTBOX, TestBed, eventually, found, variable};

const STANDBY: &str = "-c hot_standby_feedback=on -c sync_replication_slots=on";

/// A primary with a standby, and a pipeline that knows both.
struct Pair {
    primary: OwnServer,
    standby: OwnServer,
    bed: TestBed,
}

impl Pair {
    /// Servers that keep slots in step, which the host's own may be too old for.
    fn in_step() -> Self {
        let kind = std::env::var("TAILPOST_TEST_PG_FAILOVER_KIND").unwrap_or_else(|_| "pg17".to_owned());
        Self::of(OwnServer::start(&kind, &[]), STANDBY)
    }

    fn of(primary: OwnServer, standby: &str) -> Self {
        let bed = TestBed::on(primary.addresses(), &variable("TAILPOST_TEST_KAFKA"));
        let standby = OwnServer::standby_of(&primary, standby);
        Self { primary, standby, bed }
    }

    /// The standby's addresses, in the bed's database.
    fn other(&self) -> Postgres {
        self.standby.addresses().in_database(&self.bed.name)
    }

    /// With both servers in the DSN, the primary first.
    fn pipeline(&self) -> String {
        let host = |url: &str| url.rsplit(['@', '/']).nth(1).expect("a host").to_owned();
        let (first, second) = (host(&self.bed.postgres.url), host(&self.other().url));
        let both = self.bed.postgres.url.replace(&first, &format!("{first},{second}"));
        OUTBOX.replace("<dsn>", &both)
    }

    fn started(&self) -> Relay {
        let mut relay = self.bed.relay(&self.pipeline());
        relay.start();
        relay.wait_ready();
        relay
    }

    /// Lets no event be relayed before the standby has it.
    fn relay_what_the_standby_has(&self) {
        let slot = self.standby.standby_slot();
        let mut admin = self.bed.admin();
        let statement = format!("ALTER SYSTEM SET synchronized_standby_slots = '{slot}'");
        admin.batch_execute(&statement).unwrap();
        admin.execute("SELECT pg_reload_conf()", &[]).unwrap();
    }

    /// Waits until the slot can be used after a promotion: when the primary's has moved past what the standby needs.
    fn wait_in_step(&self) {
        let (mut primary, mut standby) = (self.bed.admin(), connect(&self.other().admin_url));
        let ready = "SELECT synced AND NOT temporary AND invalidation_reason IS NULL FROM pg_replication_slots WHERE slot_name = $1";
        eventually(DEADLINE, "the slot in step on the standby", || {
            primary.emit("noise", "moves the slot");
            primary.execute("SELECT pg_log_standby_snapshot()", &[]).unwrap();
            let row = standby.query_opt(ready, &[&self.bed.slot]).unwrap();
            row.is_some_and(|row| row.get(0))
        });
    }

    /// Keeps the standby from what its primary writes from now on.
    fn cut_off(&self) {
        let mut standby = connect(&self.other().admin_url);
        standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
        standby.execute("SELECT pg_reload_conf()", &[]).unwrap();
        eventually(DEADLINE, "the standby cut off", || {
            let receivers = standby.query_one("SELECT count(*) FROM pg_stat_wal_receiver", &[]);
            receivers.unwrap().get::<_, i64>(0) == 0
        });
    }

    /// Ends the primary by a crash and makes the standby the primary. Gives a connection of the application to it.
    fn fail_over(&self) -> Client {
        self.primary.kill();
        let mut standby = connect(&self.other().admin_url);
        let promoted: bool = standby.query_one("SELECT pg_promote()", &[]).unwrap().get(0);
        assert!(promoted);
        connect(&self.other().app_url)
    }
}

fn payload(connection: u64, number: u64) -> String {
    format!(r#"{{"aggregate_id": "{connection}", "payload": {{"c": {connection}, "n": {number}}}}}"#)
}

/// Writes events and, in the same transactions, their numbers into a table, until the server is gone.
fn write_until_the_end(url: &str, connection: u64) -> JoinHandle<u64> {
    let mut app = connect(url);
    thread::spawn(move || {
        for number in 0.. {
            let written = app.transaction().and_then(|mut transaction| {
                let (key, counted) = (connection as i64, number as i64);
                transaction.execute("INSERT INTO written VALUES ($1, $2)", &[&key, &counted])?;
                transaction.emit_all("outbox", &[payload(connection, number)])?;
                transaction.commit()
            });
            if written.is_err() {
                return number;
            }
        }
        unreachable!("the server ends it")
    })
}

#[test]
fn a_promotion_under_load_loses_and_doubles_nothing_where_the_slot_was_kept_in_step() {
    let pair = Pair::in_step();
    let bed = &pair.bed;
    bed.app()
        .batch_execute("CREATE TABLE written (c bigint, n bigint, PRIMARY KEY (c, n))")
        .unwrap();
    bed.kafka.create_topic(&bed.events(), 3, &[]);
    let mut relay = pair.started();
    pair.relay_what_the_standby_has();
    pair.wait_in_step();
    let checked = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
    for good in [
        "keeps it in step on standbys",
        "`synchronized_standby_slots`",
        "is in step here",
    ] {
        assert!(checked.stdout.contains(good), "`{good}`: {}", checked.stdout);
    }

    let writers: Vec<_> = (0..3).map(|c| write_until_the_end(&bed.postgres.app_url, c)).collect();
    relay.wait_published(500);
    let mut app = pair.fail_over();
    let tried: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    // What is written before the pipeline is back counts as well.
    for number in 0..200 {
        app.emit("outbox", &payload(9, number));
    }
    relay.wait_ready();
    let survived = app.query("SELECT c, n FROM written", &[]).unwrap();
    let mut expected: BTreeSet<(u64, u64)> = survived
        .iter()
        .map(|row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64))
        .collect();
    assert!(expected.len() >= 500, "{} of {tried:?}", expected.len());
    expected.extend((0..200).map(|number| (9, number)));
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(expected.len());
    let found: Vec<(u64, u64)> = records
        .iter()
        .map(|record| {
            let value: Value = serde_json::from_slice(record.value.as_ref().unwrap()).unwrap();
            (value["c"].as_u64().unwrap(), value["n"].as_u64().unwrap())
        })
        .collect();
    // As many as there are, so each once.
    assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), expected);
    for connection in [0, 1, 2, 9] {
        let of_key = found.iter().filter(|(c, _)| *c == connection);
        assert!(of_key.clone().is_sorted(), "the order of key {connection}");
    }
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 0.0);

    // The old primary comes back as if nothing had been, and is the first in the DSN.
    pair.primary.up();
    let mut old = bed.app();
    old.emit("outbox", &payload(99, 0));
    let mut admin = connect(&pair.other().admin_url);
    let end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
    admin.execute(end, &[&bed.slot]).unwrap();
    app.emit("outbox", &payload(9, 200));
    reader.exactly(expected.len() + 1);
    assert_eq!(relay.saved().map(|saved| saved.timeline), Some(2));
    // Alone it is no server to go on from, whatever the operator accepts.
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.rewrite(&bed.fill(OUTBOX));
    for word in [&[][..], &["--accept-gap"]] {
        relay.start_with(word);
        relay.wait_halted(&["timeline 1, older than", "of timeline 2"]);
    }
    reader.exactly(expected.len() + 1);
}

#[test]
fn a_slot_that_was_not_kept_in_step_halts_after_a_promotion_and_an_accepted_gap_goes_on() {
    let pair = Pair::of(OwnServer::postgres(""), "");
    let mut relay = pair.bed.relay(
        &pair
            .pipeline()
            .replace("<publication>", "<publication>, failover: false"),
    );
    relay.start();
    relay.wait_ready();
    pair.bed.app().emit("outbox", r#"{"payload": "before"}"#);
    relay.wait_settled(1);
    pair.bed.wait_confirmed_to_the_end();
    let checked = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
    assert!(checked.stdout.contains("warn  failover"), "{}", checked.stdout);

    let mut app = pair.fail_over();
    relay.wait_halted(&[
        &pair.bed.slot,
        "does not exist on the server that was promoted to timeline 2",
        "not kept in step",
        "--accept-gap",
        "17",
    ]);
    app.emit("outbox", r#"{"payload": "missed"}"#);
    relay.start_with(&["--accept-gap"]);
    relay.wait_ready();
    relay.wait_log("a gap was accepted by the operator");
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 1.0);
    app.emit("outbox", r#"{"payload": "after"}"#);
    relay.wait_settled(1);
    let mut reader = pair.bed.reader(&["events"]);
    let values: Vec<_> = reader.exactly(2).iter().map(|record| record.value_text()).collect();
    assert_eq!(values, [Some(r#""before""#), Some(r#""after""#)]);
}

#[test]
fn events_that_the_new_primary_never_had_halt_and_an_accepted_gap_goes_on_from_where_it_was_promoted() {
    let pair = Pair::in_step();
    let mut relay = pair.started();
    pair.wait_in_step();
    pair.cut_off();
    pair.bed.app().emit("outbox", r#"{"payload": "ahead"}"#);
    let mut reader = pair.bed.reader(&["events"]);
    reader.exactly(1);
    let ahead = found(DEADLINE, "the event saved", || {
        let end = relay.saved()?.last_event_end;
        (end.0 > 0).then_some(end)
    });

    let mut app = pair.fail_over();
    app.emit("outbox", r#"{"payload": "on the new primary"}"#);
    let error = relay.wait_halted(&[
        "timeline 1 were relayed",
        "to timeline 2 at",
        "synchronized_standby_slots",
    ]);
    assert!(error.contains(&ahead.to_string()), "{error}");
    relay.start_with(&["--accept-gap"]);
    relay.wait_ready();
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 1.0);
    let values: Vec<_> = reader.exactly(2).iter().map(|record| record.value_text()).collect();
    assert_eq!(values, [Some(r#""ahead""#), Some(r#""on the new primary""#)]);
}

#[test]
fn idle_progress_that_the_new_primary_never_had_is_taken_back() {
    let pair = Pair::in_step();
    let mut relay = pair.started();
    pair.bed.app().emit("outbox", r#"{"payload": "before"}"#);
    relay.wait_settled(1);
    pair.wait_in_step();
    pair.cut_off();
    let noise = "SELECT pg_logical_emit_message(true, 'noise', repeat('x', 1000000))";
    for _ in 0..5 {
        pair.bed.admin().execute(noise, &[]).unwrap();
    }
    pair.bed.wait_confirmed_to_the_end();
    let idle = relay.saved().unwrap().base;

    let mut app = pair.fail_over();
    let written = app.emit("outbox", r#"{"payload": "in the place of the noise"}"#);
    assert!(written < idle, "{written} lies before {idle}");
    let mut reader = pair.bed.reader(&["events"]);
    let values: Vec<_> = reader.exactly(2).iter().map(|record| record.value_text()).collect();
    assert_eq!(values, [Some(r#""before""#), Some(r#""in the place of the noise""#)]);
    relay.wait_ready();
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 0.0);
}

#[test]
fn a_server_that_waits_for_a_standby_is_named_as_the_reason_and_its_connection_kept() {
    let kind = std::env::var("TAILPOST_TEST_PG_FAILOVER_KIND").unwrap_or_else(|_| "pg17".to_owned());
    let server = OwnServer::start(&kind, &[]);
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    let mut relay = bed.relay(&format!("{OUTBOX}  delivery: {{progress_timeout: 5s}}\n"));
    relay.start();
    relay.wait_ready();
    let reading = bed.active_pid();
    let mut admin = bed.admin();
    admin
        .execute("SELECT pg_create_physical_replication_slot('absent', true)", &[])
        .unwrap();
    let set = |admin: &mut Client, statement: &str| {
        admin.batch_execute(statement).unwrap();
        admin.execute("SELECT pg_reload_conf()", &[]).unwrap();
    };
    set(&mut admin, "ALTER SYSTEM SET synchronized_standby_slots = 'absent'");
    bed.app().emit("outbox", r#"{"payload": 1}"#);
    relay.wait_not_ready("standbys of synchronized_standby_slots (absent) have it");
    // It looks each second, says so once, and stays.
    let before: f64 = relay.metric("tailpost_source_lag_bytes", &[]);
    bed.app().emit("outbox", r#"{"payload": 2}"#);
    eventually(DEADLINE, "the monitor has looked again", || {
        relay.metric("tailpost_source_lag_bytes", &[]) > before
    });
    assert_eq!(relay.count_log("nothing comes though"), 1, "{}", relay.log());
    assert_eq!(bed.active_pid(), reading);
    set(&mut admin, "ALTER SYSTEM RESET synchronized_standby_slots");
    relay.wait_settled(2);
    relay.wait_ready();
    assert_eq!(bed.active_pid(), reading);
}

#[test]
fn a_server_process_that_stands_still_for_no_reason_costs_its_connection_and_is_shown() {
    let server = OwnServer::postgres("");
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    let mut relay = bed.relay(&format!("{OUTBOX}  delivery: {{progress_timeout: 5s}}\n"));
    relay.start();
    relay.wait_ready();
    bed.wait_confirmed_to_the_end();
    let walsender = bed.active_pid().unwrap();
    let still = rustix::process::Pid::from_raw(walsender).unwrap();
    rustix::process::kill_process(still, Signal::STOP).unwrap();
    bed.app().emit("outbox", r#"{"payload": 1}"#);
    relay.wait_log("nothing shows why");
    // The slot is still that process's.
    relay.wait_not_ready(&format!("active for pid {walsender}"));
    rustix::process::kill_process(still, Signal::CONT).unwrap();
    relay.wait_settled(1);
    relay.wait_ready();
    bed.reader(&["events"]).exactly(1);
}
