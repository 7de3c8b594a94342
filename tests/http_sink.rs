//! Events as requests: what a target is sent, in which order, how often, and what becomes of events that it does not take.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::relay::Relay;
use crate::support::target::{Answer, Request, Target};
use crate::support::{Bed, DEADLINE, Db, Event, eventually, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, raw_payload: true}]
  sinks: [{type: http, config: {id: target, url: '<url>/in/${event_type}', <http>}}]
";

const LETTERS: &str = "  dead_letter: {type: sqlite, config: {path: dead.sqlite}}\n";

fn relay(bed: &Bed, target: &Target, http: &str, more: &str) -> Relay {
    let pipeline = format!("{PIPELINE}{more}")
        .replace("<url>", &target.url())
        .replace("<http>", http);
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    relay
}

fn event(key: &str, payload: &str) -> Event {
    Event::of(payload).key(key).event_type("placed").aggregate_type("Order")
}

/// Bodies in the order in which they came.
fn bodies(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(Request::text).collect()
}

over_each!(an_event_is_a_request_with_its_own_headers_and_bytes);
fn an_event_is_a_request_with_its_own_headers_and_bytes(db: Db) {
    let bed = Bed::new(db);
    let target = Target::new(|_, _| Answer::Status(200));
    let http = "headers: {x-from: tailpost}, auth: {type: bearer, token: s3cret}, signature: {secrets: [sixteen-bytes-at-least]}";
    let mut relay = relay(&bed, &target, http, "");
    relay.keep_secret("s3cret");
    bed.app()
        .emit(&event("7", r#"{"a": [1, 2]}"#).event_type("a/b é").id("e1"));
    relay.wait_published(1);
    let requests = target.requests();
    let request = &requests[0];
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/in/a%2Fb%20%C3%A9")
    );
    assert_eq!(request.text(), r#"{"a": [1, 2]}"#);
    for (name, value) in [
        ("df-event-id", "e1"),
        ("df-aggregate-type", "Order"),
        ("df-aggregate-id", "7"),
        ("df-event-type", "a/b %C3%A9"),
        ("x-from", "tailpost"),
        ("authorization", "Bearer s3cret"),
        ("content-type", "application/json"),
        ("webhook-id", "e1"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert!(
        request
            .header("webhook-signature")
            .is_some_and(|signature| signature.starts_with("v1,"))
    );
}

over_each!(a_retry_holds_back_its_own_key_and_no_other);
fn a_retry_holds_back_its_own_key_and_no_other(db: Db) {
    let bed = Bed::new(db);
    // Key 1 is refused once, and until the last event of key 2 is there, which can come first.
    let (seen, was_refused) = (AtomicBool::new(false), AtomicBool::new(false));
    let target = Target::new(move |request, _| {
        if request.text() == "22" {
            seen.store(true, Ordering::Release);
        }
        let is_due = seen.load(Ordering::Acquire);
        let is_refused = request.text().starts_with('1') && !(was_refused.swap(true, Ordering::AcqRel) && is_due);
        Answer::Status(if is_refused { 503 } else { 200 })
    });
    let retry = "retry: {max_attempts: unlimited, base_delay: 10ms, max_delay: 50ms}";
    let mut relay = relay(&bed, &target, retry, "");
    let mut app = bed.app();
    for (key, payload) in [("1", "11"), ("2", "21"), ("1", "12"), ("2", "22")] {
        app.emit(&event(key, payload));
    }
    relay.wait_published(4);
    let requests = target.requests();
    let bodies = bodies(&requests);
    let of = |key: char| bodies.iter().filter(|body| body.starts_with(key)).collect::<Vec<_>>();
    assert_eq!(of('2'), [&"21", &"22"]);
    let ones = of('1');
    assert!(ones.len() > 2, "{ones:?}");
    let (last, before) = ones.split_last().unwrap();
    assert!(**last == "12" && before.iter().all(|body| **body == "11"), "{ones:?}");
    let place = |body: &str| bodies.iter().rposition(|found| *found == body);
    assert!(place("22") < place("12"), "{bodies:?}");
    assert!(relay.metric("tailpost_events_failed_total", &[]) >= 1.0);
}

#[test]
fn a_target_that_misbehaves_gets_it_again_until_it_has_it() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, count| match count {
        0 => Answer::Cut,
        1 => Answer::Broken(200),
        2 => Answer::Status(500),
        3 => Answer::Full(429, "retry-after: 1\r\n".to_owned(), "slow down".to_owned()),
        _ => Answer::Full(200, String::new(), "x".repeat(1 << 20)),
    });
    let retry = "retry: {max_attempts: 5, base_delay: 1ms, max_delay: 1ms}";
    let mut relay = relay(&bed, &target, retry, LETTERS);
    bed.app().emit(&event("1", "1"));
    relay.wait_published(1);
    assert_eq!(bodies(&target.requests()), ["1"; 5]);
    let line = relay.wait_log("answers 429");
    assert!(line.contains("attempts=4") && line.contains("wait_ms=1000"), "{line}");
    assert!(line.contains(&format!("pipeline{{name=\"{}\"", bed.name)), "{line}");
    relay.wait_ready();
}

over_each!(what_the_target_does_not_take_is_parked_with_why_and_the_rest_goes_on);
fn what_the_target_does_not_take_is_parked_with_why_and_the_rest_goes_on(db: Db) {
    let bed = Bed::new(db);
    let target = Target::new(|request, _| match request.text() {
        "1" => Answer::Full(422, String::new(), "no such field".to_owned()),
        "2" => Answer::Status(503),
        "3" => Answer::Hold,
        "4" => Answer::Full(301, "location: http://elsewhere/\r\n".to_owned(), String::new()),
        _ => Answer::Status(200),
    });
    let retry = "retry: {max_attempts: 2, base_delay: 1ms, max_delay: 1ms, attempt_timeout: 300ms}";
    let mut relay = relay(&bed, &target, retry, LETTERS);
    let mut app = bed.app();
    for payload in ["1", "2", "3", "4", "5"] {
        app.emit(&event("same", payload).id(payload));
    }
    relay.wait_published(1);
    for (reason, count) in [
        ("permanent_failure", 2),
        ("max_retries_exceeded", 1),
        ("processing_timeout", 1),
    ] {
        assert_eq!(relay.dead_lettered(reason), count, "{reason}");
    }
    // In their order, and each only behind the one before it.
    assert_eq!(bodies(&target.requests()), ["1", "2", "2", "3", "3", "4", "5"]);
    let kept = relay.letters("dead.sqlite");
    let of = |id: &str| {
        kept.iter()
            .map(|kept| &kept.letter)
            .find(|letter| letter.event_id == id)
            .unwrap()
    };
    for (id, reason, attempts, error) in [
        ("1", "permanent_failure", 1, "(no such field)"),
        ("2", "max_retries_exceeded", 2, "answers 503; it was tried 2 times"),
        ("3", "processing_timeout", 2, "`retry.attempt_timeout`"),
        ("4", "permanent_failure", 1, "(location: http://elsewhere/)"),
    ] {
        let letter = of(id);
        assert_eq!((letter.reason.as_str(), letter.attempts), (reason, attempts), "{id}");
        assert!(letter.error.contains(error), "{}", letter.error);
        assert_eq!(
            letter.target.as_deref(),
            Some(format!("{}/in/placed", target.url()).as_str())
        );
        assert_eq!(
            (letter.event_type.as_deref(), letter.aggregate_type.as_deref()),
            (Some("placed"), Some("Order"))
        );
        assert_eq!(letter.value.as_deref(), Some(id.as_bytes()));
        assert_eq!(letter.pipeline, bed.name);
    }
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    assert_eq!(target.requests().len(), 7, "nothing comes again");
}

over_each!(without_a_place_for_it_an_event_that_is_refused_stops_the_pipeline_before_it);
fn without_a_place_for_it_an_event_that_is_refused_stops_the_pipeline_before_it(db: Db) {
    let bed = Bed::new(db);
    let target = Target::new(|request, _| Answer::Status(if request.text() == "2" { 400 } else { 200 }));
    let mut relay = relay(&bed, &target, "ordering: source", "");
    let mut app = bed.app();
    for payload in ["1", "2", "3"] {
        app.emit(&event("k", payload));
    }
    relay.wait_halted(&["answers 400", "policy errors.rejected: halt"]);
    target.behave(|_, _| Answer::Status(200));
    relay.start();
    relay.wait_published(2);
    let requests = target.requests();
    let bodies = bodies(&requests);
    // What was done before it comes again as far as it was not saved; nothing behind it came before it was accepted.
    assert!(
        bodies.starts_with(&["1", "2"]) && bodies.ends_with(&["2", "3"]),
        "{bodies:?}"
    );
    assert_eq!(bodies.iter().filter(|body| **body == "3").count(), 1, "{bodies:?}");
}

#[test]
fn a_target_that_forbids_everything_ends_the_pipeline_and_says_what_to_correct() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Status(401));
    let mut relay = relay(&bed, &target, "ordering: none", LETTERS);
    bed.app().emit(&event("1", "1"));
    relay.wait_halted(&["answers 401", "correct `auth`, `tls` or `headers` of the sink"]);
}

over_each!(what_was_under_way_at_a_crash_is_sent_again);
fn what_was_under_way_at_a_crash_is_sent_again(db: Db) {
    let bed = Bed::new(db);
    let target = Target::new(|request, _| match request.text() {
        "2" => Answer::Hold,
        _ => Answer::Status(200),
    });
    let mut relay = relay(&bed, &target, "concurrency: 4", "");
    let mut app = bed.app();
    for number in 1..=6 {
        app.emit(&event(&number.to_string(), &number.to_string()));
    }
    target.wait(5);
    relay.sigkill();
    target.behave(|_, _| Answer::Status(200));
    relay.start();
    relay.wait_published(5);
    let requests = target.requests();
    let all: HashSet<&str> = bodies(&requests).into_iter().collect();
    assert_eq!(all.len(), 6, "{all:?}");
    // What was before the held one was saved, or comes once more.
    let held = requests.iter().filter(|request| request.text() == "2").count();
    assert_eq!(held, 2);
}

#[test]
fn what_is_not_there_is_waited_for_however_often_it_was_tried() {
    let bed = Bed::new(Db::Postgres);
    let away = Target::new(|_, _| Answer::Status(200));
    let address = away.address();
    let http = "retry: {max_attempts: 1, base_delay: 1ms, max_delay: 20ms}";
    let mut relay = relay(&bed, &away, http, LETTERS);
    drop(away);
    bed.app().emit(&event("1", "1"));
    relay.wait_not_ready("Connection refused");
    eventually(DEADLINE, "many tries", || {
        relay.metric("tailpost_events_failed_total", &[]) >= 5.0
    });
    let target = Target::at(address, |_, _| Answer::Status(200));
    relay.wait_published(1);
    assert_eq!(bodies(&target.requests()), ["1"]);
    relay.wait_ready();
}

#[test]
fn a_batch_is_what_was_ready_and_one_bad_event_does_not_condemn_it() {
    for (status, reason, tries) in [(400, "permanent_failure", 1), (500, "max_retries_exceeded", 2)] {
        one_bad_event(status, reason, tries);
    }
}

/// `tries`: how often the batch, and then the bad event alone, is sent.
fn one_bad_event(status: u16, reason: &str, tries: usize) {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(move |request, count| match request.text() {
        _ if count == 0 => Answer::Hold,
        text if text.contains("bad") => Answer::Status(status),
        _ => Answer::Status(200),
    });
    let http = "batch: {max_events: 100, as: ndjson}, concurrency: 1, retry: {max_attempts: 2, base_delay: 1ms, max_delay: 1ms}";
    let mut relay = relay(&bed, &target, http, LETTERS);
    let mut app = bed.app();
    app.emit(&event("0", "0"));
    target.wait(1);
    for number in 1..=9 {
        let payload = if number == 5 {
            "\"bad\"".to_owned()
        } else {
            number.to_string()
        };
        app.emit(&event(&(number % 3).to_string(), &payload));
    }
    eventually(DEADLINE, "all are in flight", || {
        relay.metric("tailpost_in_flight_events", &[]) == 10.0
    });
    target.let_go();
    relay.wait_settled(10);
    assert_eq!((relay.published(), relay.dead_lettered(reason)), (9, 1));
    let requests = target.requests();
    assert_eq!(requests[0].text(), "0\n");
    assert_eq!(requests[0].header("content-type"), Some("application/x-ndjson"));
    let batch: Vec<&str> = requests[1].text().lines().collect();
    assert_eq!(batch.len(), 9, "{batch:?}");
    let singles = &requests[1 + tries..];
    assert_eq!(singles.len(), 8 + tries);
    for key in 0..3 {
        let of_key = |body: &&str| match body.trim_matches(['"', '\n']) {
            "bad" => key == 2,
            number => number.parse::<u32>().unwrap() % 3 == key,
        };
        let mut sent = bodies(singles);
        sent.retain(of_key);
        sent.dedup();
        assert_eq!(sent.len(), 3, "{sent:?}");
        let mut expected = sent.clone();
        expected.sort_by_key(|body| body.trim().parse::<u32>().unwrap_or(5));
        assert_eq!(sent, expected);
    }
    assert_eq!(
        relay.letters("dead.sqlite")[0].letter.value.as_deref(),
        Some(&b"\"bad\""[..])
    );
}
