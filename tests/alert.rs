//! `tailpost alert check`: what it finds, its exit codes, and the webhook, which is a real HTTP server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use serde_json::Value;

use crate::support::cli::{Ended, tailpost};
use crate::support::relay::free_address;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, eventually, over_each};

fn check(http: &str, more: &[&str]) -> Ended {
    tailpost(["alert", "check", "--http", http].iter().chain(more))
}

/// Takes one POST, answers with this code, and gives what was sent.
fn webhook(answer: &'static str) -> (String, JoinHandle<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hooks/secret", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody asks");
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "POST /hooks/secret HTTP/1.1\r\n");
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        reader.get_mut().write_all(head.as_bytes()).unwrap();
        serde_json::from_slice(&body).expect("JSON")
    });
    (url, server)
}

over_each!(alerts_are_printed_sent_in_one_post_and_fail_where_asked_to: postgres, mysql);
fn alerts_are_printed_sent_in_one_post_and_fail_where_asked_to(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let http = relay.http();
    let quiet = check(&http, &["--fail-on-alert"]);
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (0, "", ""));

    assert_eq!(tailpost(["pause", "--http", &http]).code, 0);
    bed.app().emit_all(&[Event::of("1"), Event::of("2")]).expect("written");
    let limits = ["--oldest-unpublished", "1s", "--stalled", "1s"];
    let name = &bed.name;
    eventually(DEADLINE, "the events are a second old", || {
        let found = check(&http, &limits);
        assert_eq!(found.code, 0, "without --fail-on-alert: {}", found.stderr);
        let alerts = ["oldest_unpublished", "stalled"];
        alerts
            .iter()
            .all(|alert| found.stdout.contains(&format!("{name}: {alert}: ")))
    });
    let failing = [&limits[..], &["--fail-on-alert"]].concat();
    assert_eq!(check(&http, &failing).code, 3);

    let (url, server) = webhook("204 No Content");
    let sent = check(&http, &[&limits[..], &["--webhook", &url]].concat());
    assert_eq!((sent.code, sent.stderr.as_str()), (0, ""));
    let body = server.join().expect("a server");
    let alerts = body["alerts"].as_array().expect("a list");
    assert_eq!(alerts.len(), sent.stdout.lines().count());
    assert!(
        alerts.iter().all(|alert| alert["pipeline"] == name.as_str()),
        "{body:#}"
    );
    assert_eq!(body["text"], sent.stdout.trim_end());

    let (url, server) = webhook("500 Internal Server Error");
    let refused = check(&http, &[&limits[..], &["--webhook", &url]].concat());
    server.join().expect("a server");
    assert_eq!(refused.code, 1, "nobody was told");
    assert_eq!(refused.stderr, "error: the webhook answered 500\n");

    assert_eq!(tailpost(["resume", "--http", &http]).code, 0);
    relay.wait_published(2);
    relay.wait_ready();
    assert_eq!(check(&http, &failing).code, 0, "it is over");
}

#[test]
fn a_process_that_does_not_answer_is_an_alert_and_a_file_sets_limits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alerts.yaml");
    let http = free_address().to_string();
    let (url, server) = webhook("200 OK");
    fs::write(&file, format!("dead_letters: off\nwebhook: {url}\n")).unwrap();
    let found = check(&http, &["--config", file.to_str().unwrap(), "--fail-on-alert"]);
    assert_eq!((found.code, found.stderr.as_str()), (3, ""));
    assert!(
        found
            .stdout
            .starts_with(&format!("tailpost: unreachable: no answer from http://{http}/status"))
    );
    let body = server.join().expect("a server");
    assert_eq!(
        (&body["alerts"][0]["alert"], &body["alerts"][0]["pipeline"]),
        (&"unreachable".into(), &Value::Null)
    );
    assert_eq!(check(&http, &[]).code, 0);

    fs::write(&file, "dead_letter: 1\nstalled: 10\n").unwrap();
    let refused = check(&http, &["--config", file.to_str().unwrap()]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    for place in [":1:1: dead_letter: unknown key", ":2:10: stalled: expected a duration"] {
        assert!(refused.stderr.contains(place), "{}", refused.stderr);
    }
    let refused = check(&http, &["--webhook", "hooks.example/secret"]);
    assert_eq!(refused.code, 2);
    assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
}
