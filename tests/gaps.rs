//! What a start finds that does not fit what was saved: it halts and names both, and goes on only at the operator's word.

use std::fs;

use crate::support::cli::tailpost;
use crate::support::relay::Relay;
use crate::support::{DEADLINE, Emit, OUTBOX, TestBed};

/// A pipeline that has relayed one event and was stopped.
fn stopped() -> (TestBed, Relay) {
    let bed = TestBed::new();
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit("outbox", r#"{"payload": "before"}"#);
    relay.wait_settled(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    (bed, relay)
}

fn drop_slot(bed: &TestBed) {
    bed.admin()
        .execute("SELECT pg_drop_replication_slot($1)", &[&bed.slot])
        .unwrap();
}

fn make_slot(bed: &TestBed) {
    bed.admin()
        .execute(
            "SELECT pg_create_logical_replication_slot($1, 'pgoutput')",
            &[&bed.slot],
        )
        .unwrap();
}

/// Started with this word, it relays what is written from now on, and a later start needs no word.
fn goes_on_by(bed: &TestBed, relay: &mut Relay, word: &str, values: &[&str]) {
    relay.start_with(&[word]);
    relay.wait_ready();
    relay.wait_log("a gap was accepted by the operator");
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 1.0);
    bed.app().emit("outbox", r#"{"payload": "after"}"#);
    relay.wait_settled(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert!(!relay.log().contains("gap"), "{}", relay.log());
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(values.len());
    let found: Vec<_> = records.iter().map(|record| record.value_text().unwrap()).collect();
    assert_eq!(found, values);
}

#[test]
fn a_slot_that_was_dropped_and_made_again_halts_and_names_both_positions() {
    let (bed, mut relay) = stopped();
    drop_slot(&bed);
    bed.app().emit("outbox", r#"{"payload": "missed"}"#);
    make_slot(&bed);
    let saved = relay.saved().unwrap().base.to_string();
    let confirmed = bed.confirmed().unwrap().to_string();
    relay.start();
    relay.wait_halted(&[&bed.slot, &saved, &confirmed, "--accept-gap"]);
    // A second try is no operator's word.
    relay.start();
    relay.wait_halted(&[&saved, &confirmed]);
    goes_on_by(&bed, &mut relay, "--accept-gap", &[r#""before""#, r#""after""#]);
}

#[test]
fn a_slot_that_is_gone_halts_and_names_the_saved_position() {
    let (bed, mut relay) = stopped();
    drop_slot(&bed);
    let saved = relay.saved().unwrap().base.to_string();
    relay.start();
    relay.wait_halted(&[&bed.slot, "is gone", &saved, "--accept-gap"]);
    assert_eq!(bed.confirmed(), None, "no slot was made");
    goes_on_by(&bed, &mut relay, "--accept-gap", &[r#""before""#, r#""after""#]);
}

#[test]
fn from_slot_sets_the_checkpoint_aside_and_goes_on_where_the_slot_stands() {
    let (bed, mut relay) = stopped();
    drop_slot(&bed);
    make_slot(&bed);
    bed.app().emit("outbox", r#"{"payload": "in the new slot"}"#);
    goes_on_by(
        &bed,
        &mut relay,
        "--from-slot",
        &[r#""before""#, r#""in the new slot""#, r#""after""#],
    );
}

#[test]
fn a_slot_that_was_advanced_by_somebody_halts() {
    let (bed, mut relay) = stopped();
    let mut app = bed.app();
    let passed = app.emit("outbox", r#"{"payload": "passed over"}"#);
    app.emit("outbox", r#"{"payload": "after"}"#);
    bed.admin()
        .execute(
            "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)",
            &[&bed.slot, &passed.to_string()],
        )
        .unwrap();
    let saved = relay.saved().unwrap().base;
    let confirmed = bed.confirmed().unwrap();
    assert!(confirmed > saved);
    relay.start();
    relay.wait_halted(&[&saved.to_string(), &confirmed.to_string()]);
}

#[test]
fn another_servers_checkpoint_is_refused_by_both_identifiers() {
    let (bed, mut relay) = stopped();
    let own = relay.saved().unwrap().system_identifier.to_string();
    let text = fs::read_to_string(relay.checkpoint_file()).unwrap();
    fs::write(relay.checkpoint_file(), text.replace(&own, "7000000000000000001")).unwrap();
    relay.start();
    relay.wait_halted(&[&own, "7000000000000000001", "--from-slot"]);
    // No gap in one server's log is meant by that.
    relay.start_with(&["--accept-gap"]);
    relay.wait_halted(&[&own, "7000000000000000001"]);
    goes_on_by(&bed, &mut relay, "--from-slot", &[r#""before""#, r#""after""#]);
}

#[test]
fn a_damaged_or_foreign_checkpoint_is_refused_by_its_name() {
    let (_bed, mut relay) = stopped();
    let file = relay.checkpoint_file();
    let name = file.display().to_string();
    let text = fs::read_to_string(&file).unwrap();
    for (content, reason) in [
        (text[..text.len() / 2].to_owned(), "is damaged"),
        (String::new(), "is damaged"),
        (text.replace("\"base\": \"", "\"base\": \"x"), "is damaged"),
        (text.replace("\"pg1\"", "\"pg2\""), "source `pg2`"),
        (text.replace("\"version\": 1", "\"version\": 2"), "version 2"),
    ] {
        assert_ne!(content, text);
        fs::write(&file, &content).unwrap();
        relay.start();
        relay.wait_halted(&[&name, reason]);
        assert_eq!(fs::read_to_string(&file).unwrap(), content, "it was left as it was");
    }
}

#[test]
fn a_second_process_with_the_same_state_folder_is_refused_while_the_first_goes_on() {
    let bed = TestBed::new();
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    relay.wait_ready();
    let (pipeline, state) = (relay.pipeline_file(), relay.state_dir());
    let second = tailpost([
        "run".as_ref(),
        pipeline.as_os_str(),
        "--http".as_ref(),
        "off".as_ref(),
        "--state-dir".as_ref(),
        state.as_os_str(),
    ]);
    assert_eq!(second.code, 1);
    let folder = state.display().to_string();
    assert!(
        second.stderr.contains("already runs") && second.stderr.contains(&folder),
        "{second:?}"
    );
    bed.app().emit("outbox", r#"{"payload": 1}"#);
    relay.wait_settled(1);
}

#[test]
fn rows_older_than_their_publication_halt_with_what_happened_and_the_way_out() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE o (id serial PRIMARY KEY, payload text)")
        .unwrap();
    make_slot(&bed);
    app.batch_execute("INSERT INTO o (payload) VALUES ('older')").unwrap();
    bed.admin()
        .batch_execute(&format!("CREATE PUBLICATION {} FOR TABLE o", bed.publication))
        .unwrap();
    let mut relay = bed.relay(&OUTBOX.replace("prefixes: [outbox]", "tables: [o]"));
    let checked = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
    assert_eq!(checked.code, 0);
    let warning = format!(
        "`{}` may be younger than what slot `{}` must still read",
        bed.publication, bed.slot
    );
    assert!(checked.stdout.contains(&warning), "{}", checked.stdout);

    relay.start();
    relay.wait_halted(&[&bed.publication, &bed.slot, "did not exist yet", "--from-slot"]);
    assert!(
        relay
            .log()
            .contains("may be younger than what the slot must still read"),
        "{}",
        relay.log()
    );
    drop_slot(&bed);
    relay.start_with(&["--from-slot"]);
    relay.wait_ready();
    app.batch_execute("INSERT INTO o (payload) VALUES ('after')").unwrap();
    relay.wait_settled(1);
    assert_eq!(bed.reader(&["events"]).exactly(1)[0].value_text(), Some("after"));
}

#[test]
fn started_at_latest_it_leaves_out_what_the_slot_still_has() {
    let bed = TestBed::new();
    make_slot(&bed);
    let mut app = bed.app();
    app.emit("outbox", r#"{"payload": "older"}"#);
    let mut relay = bed.relay(&OUTBOX.replace("slot: <slot>", "start: latest, slot: <slot>"));
    relay.start();
    relay.wait_ready();
    app.emit("outbox", r#"{"payload": "newer"}"#);
    relay.wait_settled(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    // Only the first start is meant.
    app.emit("outbox", r#"{"payload": "while it was away"}"#);
    relay.start();
    relay.wait_settled(1);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(2)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    assert_eq!(values, [r#""newer""#, r#""while it was away""#]);
}

#[test]
fn started_at_an_lsn_it_leaves_out_what_is_before_it() {
    let bed = TestBed::new();
    make_slot(&bed);
    let mut app = bed.app();
    app.emit("outbox", r#"{"payload": "before"}"#);
    // Behind the commit, and with it a record that is no event.
    let start = app.emit("other", "");
    app.emit("outbox", r#"{"payload": "behind"}"#);
    let mut relay = bed.relay(&OUTBOX.replace("slot: <slot>", &format!("start: {{lsn: {start}}}, slot: <slot>")));
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    assert_eq!(bed.reader(&["events"]).exactly(1)[0].value_text(), Some(r#""behind""#));
}

#[test]
fn a_start_before_what_the_slot_has_halts_and_names_both() {
    let bed = TestBed::new();
    let mut app = bed.app();
    let start = app.emit("outbox", r#"{"payload": "gone"}"#);
    make_slot(&bed);
    let confirmed = bed.confirmed().unwrap();
    let mut relay = bed.relay(&OUTBOX.replace("slot: <slot>", &format!("start: {{lsn: {start}}}, slot: <slot>")));
    relay.start();
    relay.wait_halted(&[&start.to_string(), &confirmed.to_string(), &bed.slot]);
}
