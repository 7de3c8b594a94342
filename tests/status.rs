//! What an operator sees of a running process: `tailpost status`, `/status`, the page, the metrics' prefix, readiness.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use crate::support::cli::{Ended, tailpost};
use crate::support::relay::{Relay, free_address};
use crate::support::server::OwnServer;
use crate::support::target::{Answer, Target};
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, eventually, found, over_each};

/// `tailpost status` of this relay.
fn status(relay: &Relay, more: &[&str]) -> Ended {
    let http = relay.http();
    tailpost(["status", "--http", &http].iter().chain(more))
}

/// What a pipeline's line says about something; None: it has no such line.
fn said<'a>(text: &'a str, about: &str) -> Option<&'a str> {
    let rests = text
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.strip_prefix(about));
    let mut rests = rests.filter(|rest| rest.starts_with("  "));
    rests.next().map(str::trim)
}

/// The one pipeline of `/status`.
fn pipeline(relay: &Relay) -> Value {
    relay.status()["pipelines"][0].take()
}

over_each!(a_pipeline_that_streams_shows_its_events_places_and_what_the_server_keeps);
fn a_pipeline_that_streams_shows_its_events_places_and_what_the_server_keeps(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let events: Vec<Event> = (0..20).map(|number| Event::of(number.to_string())).collect();
    bed.app().emit_all(&events).expect("written");
    relay.wait_published(20);
    bed.wait_done_to_the_end(&relay);
    let shown = found(DEADLINE, "the server was asked, and nothing is behind", || {
        let shown = pipeline(&relay);
        (!shown["server_keeps"].is_null() && shown["lag_bytes"] == 0).then_some(shown)
    });
    assert_eq!(shown["source"]["state"], "streaming");
    assert_eq!(shown["states"]["pending"]["bytes"], 0, "{shown:#}");
    for (state, count) in [("claimed", 0), ("published", 20), ("dead", 0)] {
        assert_eq!(shown["states"][state], count, "{shown:#}");
    }
    assert!(shown["published_per_second"].as_f64().unwrap() > 0.0, "{shown:#}");
    assert_eq!((&shown["retry"], &shown["paused"]), (&Value::Null, &Value::Bool(false)));
    let places = shown["positions"].clone();
    for place in ["read", "acked", "saved"] {
        assert!(places[place].is_string(), "{shown:#}");
    }
    let kept = &shown["server_keeps"];
    match db {
        Db::Postgres => {
            assert_eq!(
                (kept["kind"].as_str(), kept["wal_status"].as_str()),
                (Some("slot"), Some("reserved"))
            );
            assert!(places["confirmed"].is_string(), "{shown:#}");
        }
        Db::Mysql | Db::Mariadb => {
            assert_eq!(kept["kind"], "binlog");
            assert!(kept["bytes"].as_u64().unwrap() > 0, "{shown:#}");
            assert!(places["confirmed"].is_null(), "it is told nothing");
        }
    }

    let text = status(&relay, &[]);
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    assert!(
        text.stdout.starts_with(&format!("{}: streaming since ", bed.name)),
        "{}",
        text.stdout
    );
    assert_eq!(said(&text.stdout, "ready"), Some("yes"));
    assert!(
        said(&text.stdout, "published").is_some_and(|said| said.starts_with("20, ")),
        "{}",
        text.stdout
    );
    assert_eq!(said(&text.stdout, "dead"), Some("0"));
    assert_eq!(said(&text.stdout, "next retry"), None);
    let acked = said(&text.stdout, "acked").expect("a place");
    assert!(!acked.is_empty(), "{}", text.stdout);
    let json = status(&relay, &["--json"]);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["pipelines"][0]["states"]["published"], 20);
}

over_each!(a_server_that_is_away_shows_the_next_retry: postgres, mysql);
fn a_server_that_is_away_shows_the_next_retry(db: Db) {
    let server = OwnServer::of(db, "");
    let bed = Bed::on(db, &server);
    server.down();
    let slow = format!("{ANY_OUTBOX}  restart: {{base_delay: 1s, max_delay: 30s}}\n");
    let mut relay = bed.relay(&slow);
    relay.start();
    relay.wait_not_ready("waiting: ");
    let (shown, text) = found(DEADLINE, "a second try is waited for", || {
        let (shown, text) = (pipeline(&relay), status(&relay, &[]));
        (shown["retry"]["attempt"].as_u64()? >= 2).then_some((shown, text))
    });
    assert_eq!(shown["retry"]["part"], "source");
    assert!(
        shown["retry"]["next_at"].as_u64() >= shown["last_error_at"].as_u64(),
        "{shown:#}"
    );
    assert_eq!(shown["not_ready"][0]["part"], "source");
    assert_eq!(text.code, 1, "it is not ready");
    let retry = said(&text.stdout, "next retry").expect("a line");
    assert!(
        retry.starts_with("attempt ") && retry.contains(" of the source in "),
        "{retry}"
    );
    let error = said(&text.stdout, "last error").expect("a line");
    assert!(error.contains(" UTC: connect to "), "{error}");
    server.up();
    relay.wait_ready();
    assert_eq!(pipeline(&relay)["retry"], Value::Null);
}

#[test]
fn a_broker_that_is_away_shows_what_waits_for_it() {
    let broker = OwnServer::kafka("");
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("1"));
    relay.wait_published(1);
    broker.down();
    bed.app().emit(&Event::of("2"));
    relay.wait_not_ready("no Kafka broker answers");
    let shown = found(DEADLINE, "the event is read", || {
        let shown = pipeline(&relay);
        (shown["states"]["claimed"] == 1).then_some(shown)
    });
    assert!(shown["oldest_unpublished_seconds"].as_f64().unwrap() > 0.0);
    let parts = shown["not_ready"].as_array().unwrap().iter();
    assert!(parts.map(|part| &part["part"]).any(|part| part == "sink"), "{shown:#}");
    let text = status(&relay, &[]);
    assert_eq!(text.code, 1);
    let retry = said(&text.stdout, "next retry");
    assert_eq!(
        retry,
        Some("the sink's client connects again by itself, every few seconds")
    );
    assert!(
        said(&text.stdout, "oldest unpublished").is_some_and(|said| said.ends_with(" old")),
        "{}",
        text.stdout
    );
    broker.up();
    relay.wait_published(2);
    relay.wait_ready();
    assert_eq!(status(&relay, &[]).code, 0);
}

#[test]
fn a_process_that_does_not_answer_is_named_with_what_to_do() {
    let address = free_address().to_string();
    for command in ["status", "pause", "resume"] {
        let ended = tailpost([command, "--http", &address]);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
        for part in [
            "error: no answer from http://",
            &address,
            "Remedy: see whether tailpost run is up",
            "refused",
        ] {
            assert!(ended.stderr.contains(part), "{part} is not in {}", ended.stderr);
        }
    }
    let wrong = tailpost(["status", "--http", "ftp://x"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[test]
fn the_prefix_of_metrics_and_the_lag_of_readiness_are_as_asked_for() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start_with(&["--metrics-prefix", "shop_relay", "--ready-max-lag", "1s"]);
    relay.wait_ready();
    let metrics = relay.get("/metrics").expect("/metrics answers").body;
    assert!(metrics.contains("\nshop_relay_up{"), "{metrics}");
    assert!(!metrics.contains("tailpost_"), "{metrics}");
    let hold = tailpost(["pause", "--http", &relay.http()]);
    assert_eq!(hold.code, 0, "{}", hold.stderr);
    bed.app().emit(&Event::of("1"));
    relay.wait_not_ready("s behind, more than --ready-max-lag of 1 s");
    tailpost(["resume", "--http", &relay.http()]);
    relay.wait_ready();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    for (arguments, expected) in [
        (["--metrics-prefix", "a-b"], "expected a name of"),
        (["--ready-max-lag", "much"], "expected a size"),
        (["--ready-max-attempts", "much"], "--ready-max-attempts"),
        (["--ready-max-dead-letters", "10"], "expected a count and a time"),
        (["--http-token", ""], "expected a token"),
    ] {
        let file = relay.pipeline_file();
        let ended = tailpost(["run", file.to_str().unwrap()].iter().chain(&arguments));
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

/// A target that takes one event, and refuses all others until it is told otherwise; with a sink to it.
fn refusing(retry: &str) -> (Target, String) {
    let target = Target::new(|request, _| Answer::Status(if request.text() == "9" { 200 } else { 500 }));
    let sink = format!(
        "{{type: http, config: {{id: hook, url: '{}/in', retry: {{max_attempts: unlimited, {retry}}}}}}}",
        target.url()
    );
    (target, sink)
}

const TO_SINKS: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, raw_payload: true}]
  sinks: [<sinks>]
";

over_each!(deliveries_that_are_tried_again_show_how_often_and_when: postgres, mysql);
fn deliveries_that_are_tried_again_show_how_often_and_when(db: Db) {
    let bed = Bed::new(db);
    let (target, sink) = refusing("base_delay: 200ms, max_delay: 2s");
    let mut relay = bed.relay(&TO_SINKS.replace("<sinks>", &sink));
    relay.start();
    relay.wait_ready();
    for (key, payload) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "9")] {
        bed.app().emit(&Event::of(payload).key(key));
    }
    let (shown, text) = found(DEADLINE, "both keys wait for a third try", || {
        let (shown, text) = (pipeline(&relay), status(&relay, &[]));
        let waits = shown["retry"]["next_in_seconds"].as_f64()? > 0.0 && shown["retry"]["keys"] == 2;
        (waits && shown["retry"]["attempt"].as_u64()? >= 2).then_some((shown, text))
    });
    let retry = &shown["retry"];
    assert_eq!((&retry["part"], &retry["sink"]), (&"sink".into(), &"hook".into()));
    assert!(
        retry["next_at"].as_u64() >= shown["last_error_at"].as_u64(),
        "{shown:#}"
    );
    for field in ["attempt", "next_at", "keys"] {
        assert_eq!(shown["sinks"][0]["retry"][field], retry[field], "{shown:#}");
    }
    let line = said(&text.stdout, "next retry").expect("a line");
    assert!(
        line.starts_with("sink hook: tried ") && line.ends_with("keys that wait for it: 2"),
        "{line}"
    );
    let page = relay.get("/").expect("the page").body;
    assert!(page.contains("sink hook: tried "), "{page}");

    target.behave(|_, _| Answer::Status(200));
    relay.wait_published(4);
    eventually(DEADLINE, "it is forgotten", || {
        let shown = pipeline(&relay);
        shown["retry"].is_null() && shown["sinks"][0]["retry"].is_null()
    });
    assert_eq!(said(&status(&relay, &[]).stdout, "next retry"), None);
}

#[test]
fn a_delivery_may_be_tried_so_often_before_its_pipeline_is_not_ready() {
    let bed = Bed::new(Db::Postgres);
    let (target, sink) = refusing("base_delay: 100ms, max_delay: 300ms");
    let mut relay = bed.relay(&TO_SINKS.replace("<sinks>", &sink));
    relay.start_with(&["--ready-max-attempts", "3"]);
    relay.wait_ready();
    bed.app().emit(&Event::of("1").key("a"));
    let shown = found(DEADLINE, "a fourth try in vain", || {
        let shown = pipeline(&relay);
        let attempt = shown["retry"]["attempt"].as_u64()?;
        assert_eq!(shown["ready"], attempt <= 3, "{shown:#}");
        (attempt > 3).then_some(shown)
    });
    let reason = shown["not_ready_because"].as_str().expect("a reason");
    assert!(reason.contains("answers 500"), "{reason}");
    let over = "; sink `hook`: a delivery was tried ";
    assert!(
        reason.contains(over) && reason.ends_with(" times, more than --ready-max-attempts of 3"),
        "{reason}"
    );
    target.behave(|_, _| Answer::Status(200));
    relay.wait_ready();
}

#[test]
fn a_target_that_cannot_be_reached_keeps_its_pipeline_from_being_ready_at_once() {
    let bed = Bed::new(Db::Postgres);
    let address = free_address();
    let retry = "{max_attempts: unlimited, base_delay: 10ms, max_delay: 100ms}";
    let sink = format!("{{type: http, config: {{id: hook, url: 'http://{address}/in', retry: {retry}}}}}");
    let mut relay = bed.relay(&TO_SINKS.replace("<sinks>", &sink));
    relay.start_with(&["--ready-max-attempts", &u32::MAX.to_string()]);
    relay.wait_ready();
    bed.app().emit(&Event::of("1").key("a"));
    relay.wait_not_ready("expected a connection");
    let _target = Target::at(address, |_, _| Answer::Status(200));
    relay.wait_published(1);
    relay.wait_ready();
}

#[test]
fn a_delivery_of_a_sink_that_nothing_waits_for_counts_where_it_is_asked_for() {
    let bed = Bed::new(Db::Postgres);
    let (target, sink) = refusing("base_delay: 10ms, max_delay: 50ms");
    let further = sink.replace("id: hook", "id: hook, required: false");
    let sinks = format!("{{type: file, config: {{id: lines, path: events.jsonl}}}}, {further}");
    let text = TO_SINKS.replace("raw_payload", "topic: events, raw_payload");
    let mut relay = bed.relay(&text.replace("<sinks>", &sinks));
    relay.start_with(&["--ready-max-attempts", "2"]);
    relay.wait_ready();
    bed.app().emit(&Event::of("1").key("a"));
    relay.wait_not_ready("sink `hook`: a delivery was tried ");
    let shown = pipeline(&relay);
    assert_eq!(
        (&shown["sinks"][0]["retry"], &shown["retry"]["sink"]),
        (&Value::Null, &"hook".into())
    );
    let text = status(&relay, &[]).stdout;
    let line = text.lines().find(|line| line.contains("hook: published 0"));
    assert!(line.is_some_and(|line| line.contains("; tried ")), "{text}");
    target.behave(|_, _| Answer::Status(200));
    relay.wait_ready();
}

#[test]
fn a_pipeline_is_not_ready_after_more_dead_letters_of_late_than_it_may_have() {
    let bed = Bed::new(Db::Postgres);
    let letters = "  dead_letter: {type: sqlite, config: {path: dead.sqlite}}\n";
    let mut relay = bed.relay(&format!("{ANY_OUTBOX}{letters}"));
    relay.start_with(&["--ready-max-dead-letters", "1/10s"]);
    relay.wait_ready();
    bed.app().emit(&Event::default().key("1"));
    relay.wait_settled(1);
    assert_eq!(pipeline(&relay)["ready"], true, "so many it may have");
    bed.app().emit(&Event::default().key("1"));
    relay.wait_not_ready("2 dead letters within 10s, more than --ready-max-dead-letters of 1/10s");
    relay.wait_ready();
    assert_eq!(pipeline(&relay)["states"]["dead"], 2, "they are there still");
}

/// What a browser makes of a page. It reads the document by a script of its own, so that scripts cannot be switched off; that
/// none of the page's runs is the page's own policy.
fn page(url: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", folder.path().display());
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .args([&profile, "--dump-dom", url])
        .output()
        .expect("run chromium: tools/setup.sh installs it");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {log}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A header of the page.
fn header(http: &str, name: &str) -> Option<String> {
    let mut stream = TcpStream::connect(http).expect("it listens");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("asked");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        (found == name).then(|| value.to_owned())
    })
}

/// The text between two marks behind a third.
fn between<'a>(text: &'a str, behind: &str, marks: [&str; 2]) -> Option<&'a str> {
    let (_, rest) = text.split_once(behind)?;
    let (_, rest) = rest.split_once(marks[0])?;
    rest.split_once(marks[1]).map(|(found, _)| found)
}

#[test]
fn the_page_says_in_a_browser_what_the_command_says_and_lets_no_script_run() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit_all(&[Event::of("1"), Event::of("2")]).expect("written");
    relay.wait_published(2);
    let policy = header(&relay.http(), "content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("script-src"), "{policy}");
    let dom = page(&format!("http://{}/", relay.http()));
    let cell = |about: &str| between(&dom, &format!(">{about}</th>"), ["<td>", "</td>"]).map(str::to_owned);
    assert!(dom.contains("<title>tailpost: 1 of 1 ready</title>"), "{dom}");
    let headline = between(&dom, &format!("<h2>{} ", bed.name), [">", "</span>"]);
    assert!(
        headline.is_some_and(|text| text.starts_with("streaming since ")),
        "{dom}"
    );
    assert_eq!(cell("ready").as_deref(), Some("yes"), "{dom}");
    assert!(cell("published").is_some_and(|text| text.starts_with("2, ")), "{dom}");
    // The style is in it, and let in by the policy that lets nothing else in.
    assert!(dom.contains("<meta http-equiv=\"refresh\" content=\"5\">"), "{dom}");
    assert!(
        !dom.contains("<script") && dom.contains("prefers-color-scheme"),
        "{dom}"
    );

    // What comes from a pipeline is text and no markup.
    tailpost(["pause", "--http", &relay.http()]);
    let dom = page(&format!("http://{}/", relay.http()));
    assert!(dom.contains("class=\"waits\">paused since "), "{dom}");
    eventually(DEADLINE, "it goes on", || {
        tailpost(["resume", "--http", &relay.http()]).code == 0
    });
}
