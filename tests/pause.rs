//! Pipelines that an operator holds back: nothing more is published, nothing is lost or doubled, and who may do it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::cli::{Ended, tailpost};
use crate::support::load::{Load, Plan};
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, eventually, heavy, over_each};

const PLAN: Plan = Plan {
    connections: 4,
    keys: 100,
    messages: 10_000,
    batch: 20,
};

fn hold(relay: &Relay, command: &str, more: &[&str]) -> Ended {
    let http = relay.http();
    tailpost([command, "--http", &http].iter().chain(more))
}

fn pause(relay: &Relay, bed: &Bed) {
    let ended = hold(relay, "pause", &[]);
    assert_eq!(
        (ended.code, ended.stdout),
        (0, format!("{}: paused\n", bed.name)),
        "{}",
        ended.stderr
    );
}

fn resume(relay: &Relay, bed: &Bed) {
    let ended = hold(relay, "resume", &[&bed.name]);
    assert_eq!(
        (ended.code, ended.stdout),
        (0, format!("{}: resumed\n", bed.name)),
        "{}",
        ended.stderr
    );
}

/// Waits until nothing is on its way to the broker, and what was published is saved.
fn wait_at_rest(relay: &Relay) {
    eventually(DEADLINE, "nothing is on its way, and what was acked is saved", || {
        let pipeline = &relay.status()["pipelines"][0];
        let places = &pipeline["positions"];
        pipeline["at_rest"] == true && !places["saved"].is_null() && places["saved"] == places["acked"]
    });
}

fn held_back_under_load(bed: &Bed, text: &str) {
    let _alone = heavy();
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(text);
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(bed, PLAN);
    for part in 1..=2 {
        load.allow(PLAN.messages / 4);
        eventually(DEADLINE, "the load is under way", || {
            relay.published() >= part * PLAN.messages / 8
        });
        pause(&relay, bed);
        relay.wait_not_ready("paused");
        assert_eq!(relay.metric("tailpost_paused", &[]), 1.0);
        assert_eq!(relay.metric("tailpost_state", &[("state", "paused")]), 1.0);
        wait_at_rest(&relay);
        let published = relay.published();
        load.allow(PLAN.messages / 4);
        eventually(DEADLINE, "more is written", || {
            load.committed() >= part * PLAN.messages / 2
        });
        assert_eq!(relay.published(), published, "something was published in a pause");
        resume(&relay, bed);
        relay.wait_ready();
    }
    let committed = load.finish();
    relay.wait_published(committed.count());
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0, "{}", relay.log());
    committed
        .account(bed.committed_reader(&["events"]).all())
        .assert_exact();
}

over_each!(a_pipeline_that_is_paused_and_resumed_under_load_loses_and_doubles_nothing);
fn a_pipeline_that_is_paused_and_resumed_under_load_loses_and_doubles_nothing(db: Db) {
    held_back_under_load(&Bed::new(db), ANY_OUTBOX);
}

over_each!(one_that_delivers_exactly_once_is_paused_and_resumed_as_well: postgres, mysql);
fn one_that_delivers_exactly_once_is_paused_and_resumed_as_well(db: Db) {
    let positions = "  checkpoint: {type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}\n";
    let text = ANY_OUTBOX.replace("id: k1", "id: k1, exactly_once: true") + positions;
    held_back_under_load(&Bed::new(db), &text);
}

over_each!(a_stop_in_a_pause_ends_cleanly_and_the_next_start_publishes_the_rest: postgres, mysql);
fn a_stop_in_a_pause_ends_cleanly_and_the_next_start_publishes_the_rest(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of("1"));
    relay.wait_published(1);
    pause(&relay, &bed);
    app.emit_all(&[Event::of("2"), Event::of("3")]).expect("written");
    eventually(DEADLINE, "they are read", || {
        relay.metric("tailpost_in_flight_events", &[]) >= 2.0
    });
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert!(!relay.log().contains("drain_timeout"), "{}", relay.log());
    // A pause ends with its process.
    relay.start();
    relay.wait_published(2);
    let mut reader = bed.reader(&["events"]);
    let payloads: Vec<&str> = reader
        .exactly(3)
        .iter()
        .filter_map(|record| record.value_text())
        .collect();
    assert_eq!(payloads, ["1", "2", "3"]);
}

over_each!(a_pause_beyond_stall_timeout_gives_the_connection_back_until_it_goes_on: postgres, mysql);
fn a_pause_beyond_stall_timeout_gives_the_connection_back_until_it_goes_on(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&format!("{ANY_OUTBOX}  delivery: {{stall_timeout: 1s}}\n"));
    relay.start();
    relay.wait_ready();
    pause(&relay, &bed);
    // More than the way to the relay holds, so that the source finds no room.
    let large = vec![Event::of(format!("\"{}\"", "x".repeat(20_000))); 100];
    let mut app = bed.app();
    for _ in 0..10 {
        app.emit_all(&large).expect("written");
    }
    relay.wait_log("connection closed until there is room");
    relay.wait_not_ready("paused; waiting: ");
    eventually(DEADLINE, "the server reads no log for it", || {
        bed.reader_of(&relay).is_none()
    });
    resume(&relay, &bed);
    relay.wait_published(1000);
    relay.wait_ready();
    bed.reader(&["events"]).exactly(1000);
}

/// Sends a pause with these headers; gives the answer's code and text.
fn post(relay: &Relay, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(relay.http()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    (code.expect("a code"), body.to_owned())
}

#[test]
fn only_this_machine_or_the_token_may_pause() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let path = format!("/pipelines/{}/pause", bed.name);
    for (headers, code, text) in [
        ("Host: localhost\r\n", 403, "Tailpost-Request"),
        (
            "Host: localhost\r\nContent-Type: text/plain\r\nOrigin: http://evil.example\r\n",
            403,
            "Tailpost-Request",
        ),
        ("Host: evil.example\r\nTailpost-Request: 1\r\n", 403, "`Host`"),
        (
            "Host: localhost\r\nTailpost-Request: 1\r\nX-Forwarded-For: 10.0.0.7\r\n",
            403,
            "--http-token or TAILPOST_HTTP_TOKEN",
        ),
        ("Host: localhost\r\nAuthorization: Bearer x\r\n", 403, "--http-token"),
    ] {
        let (found, body) = post(&relay, &path, headers);
        assert!(found == code && body.contains(text), "{headers}: {found} {body}");
    }
    assert_eq!(relay.metric("tailpost_paused", &[]), 0.0);
    let here = "Host: localhost\r\nTailpost-Request: 1\r\n";
    let (code, body) = post(&relay, "/pipelines/nobody/pause", here);
    assert!(
        code == 404 && body.contains(&format!("there are: {}", bed.name)),
        "{code} {body}"
    );
    assert_eq!(post(&relay, &path, here).0, 200);
    relay.wait_not_ready("paused");
    assert_eq!(
        relay.get(&path).expect("an answer").code,
        405,
        "reading changes nothing"
    );
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);

    let mut relay = bed.relay(ANY_OUTBOX).env("TAILPOST_HTTP_TOKEN", "open-sesame");
    relay.keep_secret("open-sesame");
    relay.start();
    relay.wait_ready();
    let passed_on = "Host: ops.example\r\nX-Forwarded-For: 10.0.0.7\r\n";
    let with = |token: &str| format!("{passed_on}Authorization: Bearer {token}\r\n");
    assert_eq!(post(&relay, &path, passed_on).0, 401);
    assert_eq!(post(&relay, &path, &with("open-sesam")).0, 401);
    assert_eq!(post(&relay, &path, &with("open-sesame")).0, 200);
    relay.wait_not_ready("paused");
    let wrong = hold(&relay, "resume", &["--http-token", "wrong"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("answered 401"), "{wrong:?}");
    let right = hold(&relay, "resume", &["--http-token", "open-sesame", &bed.name, "nobody"]);
    assert_eq!(
        (right.code, right.stdout),
        (1, format!("{}: resumed\n", bed.name)),
        "the other one is none"
    );
    relay.wait_ready();
}
