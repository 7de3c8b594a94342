//! Sinks of the types `http`, `file` and `stdout`, and what of the file is for a cluster alone.

use std::time::Duration;

use super::*;
use crate::config::pipeline::{Http, Ordering, Sink};

/// A file whose processor has these keys, and whose sink is this one.
fn file(processor: &str, sink: &str, more: &str) -> String {
    format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, outbox: {{tables: [outbox]}}}}}}\n  processors: [{{type: outbox{processor}}}]\n  \
         sinks: [{sink}]\n{more}"
    )
}

fn http_with(keys: &str) -> String {
    file(
        "",
        &format!("{{type: http, config: {{id: h, url: 'http://h/'{keys}}}}}"),
        "",
    )
}

fn http(text: &str) -> Http {
    match loaded(text).pipeline.sink {
        Sink::Http(http) => *http,
        _ => panic!("a sink of type http"),
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let sink = http(&http_with(""));
    assert_eq!((sink.concurrency, sink.batch, sink.ordering), (8, None, Ordering::Key));
    assert!(sink.success.contains(204) && !sink.success.contains(302));
    assert!(sink.retry_on.contains(503) && sink.retry_on.contains(429) && !sink.retry_on.contains(400));
    assert!(sink.halt_on.contains(401) && sink.halt_on.contains(403));
    assert_eq!(sink.retry.attempt_timeout, Duration::from_secs(30));
}

#[test]
fn attempts_have_an_end_only_where_an_event_has_a_place_to_go() {
    let attempts = |keys: &str, more: &str| {
        let sink = format!("{{type: http, config: {{id: h, url: 'http://h/'{keys}}}}}");
        http(&file("", &sink, more)).retry.max_attempts
    };
    let letters = "  dead_letter: {type: sqlite, config: {path: d}}\n";
    assert_eq!(attempts("", ""), None);
    assert_eq!(attempts("", letters), Some(5));
    assert_eq!(attempts("", "  errors: {rejected: skip}\n"), Some(5));
    assert_eq!(attempts(", retry: {max_attempts: 3}", ""), Some(3));
    assert_eq!(attempts(", retry: {max_attempts: unlimited}", letters), None);
}

#[test]
fn an_events_fields_never_say_which_host_it_goes_to() {
    let url = |url: &str| file("", &format!("{{type: http, config: {{id: h, url: '{url}'}}}}"), "");
    for sound in [
        "http://h",
        "https://h:8080/a?b=c",
        "http://h/${a}",
        "http://h/?a=${a}",
        "http://[::1]:80/${a.b}",
    ] {
        http(&url(sound));
    }
    for unsound in [
        "",
        "h/in",
        "ftp://h/",
        "http:///in",
        "${a}",
        "http://${host}/in",
        "http://h${port}/in",
        "http://h:${port}/in",
        "http://h/#a",
    ] {
        let line = violation(&url(unsound));
        assert!(
            line.contains("url: expected an http or https URL whose host is the same"),
            "{unsound}: {line}"
        );
    }
    let line = violation(&url("http://ann:secret@h/"));
    assert!(
        line.contains("write `auth` instead") && !line.contains("secret"),
        "{line}"
    );
}

#[test]
fn values_out_of_their_rules_are_refused() {
    for (keys, expected) in [
        ("method: GET", "method: expected `POST`, `PUT` or `PATCH`, found `GET`"),
        (
            "headers: {host: a}",
            "headers.host: a header that each request sets by itself: remove it",
        ),
        ("headers: {'a b': a}", "its name is none of an HTTP header"),
        ("headers: {a: \"x\\ny\"}", "its value is none of an HTTP header"),
        ("auth: {type: digest}", "authentication `digest` is not supported"),
        ("auth: {type: basic, username: a}", "password: missing key"),
        (
            "auth: {type: basic, username: 'a:b', password: c}",
            "username: expected text without a colon",
        ),
        ("tls: {cert: a.pem}", "`cert` and `key` go together"),
        ("batch: {max_bytes: 1MiB}", "max_events: missing key"),
        (
            "concurrency: 0",
            "concurrency: expected a whole number from 1 to 1000, found 0",
        ),
        ("retry_on: [204]", "retry_on: 204 is also in `success`"),
        ("halt_on: [500]", "halt_on: 500 is also in `retry_on`"),
        (
            "success: [99]",
            "success[0]: expected a whole number from 100 to 599, found 99",
        ),
        ("success: [6xx]", "success[0]: expected a status from 100 to 599"),
        ("signature: {secrets: []}", "expected at least one secret"),
        ("signature: {secrets: [short]}", "too short for a secret"),
        ("signature: {secrets: ['whsec_!']}", "is not base64"),
        (
            "batch: {max_events: 5}, signature: {secrets: [sixteen-bytes-and-more]}",
            "clashes with `batch`",
        ),
        (
            "ordering: none, ordering_key: '${a}'",
            "ordering_key: has no effect without `ordering: key`",
        ),
        (
            "retry: {max_attempts: 0}",
            "max_attempts: expected a whole number from 1",
        ),
        (
            "retry: {max_attempts: many}",
            "max_attempts: expected a whole number, 1 or more, or `unlimited`",
        ),
        (
            "retry: {base_delay: 2m}",
            "expected a `base_delay` of at most `max_delay`",
        ),
    ] {
        let found = violations(&http_with(&format!(", {keys}")));
        assert!(found.len() == 1 && found[0].contains(expected), "{keys}: {found:#?}");
    }
}

#[test]
fn secrets_are_in_no_message() {
    for keys in [
        "auth: {type: bearer, token: \"s3cret\\n\"}",
        "headers: {authorization: \"s3cret\\n\"}",
        "signature: {secrets: [s3cret]}",
    ] {
        let line = violation(&http_with(&format!(", {keys}")));
        assert!(!line.contains("s3cret"), "{line}");
    }
    let sink = http(&http_with(
        ", auth: {type: bearer, token: s3cret}, headers: {a: s3cret}",
    ));
    assert!(!format!("{sink:?}").contains("s3cret"), "{sink:?}");
}

#[test]
fn what_only_a_cluster_has_is_refused_without_one() {
    let stdout = "{type: stdout, config: {id: x}}";
    for sink in [stdout, "{type: http, config: {id: h, url: 'http://h/'}}"] {
        for (more, expected) in [
            (
                "  checkpoint: {type: kafka}\n",
                "checkpoint.type: kept by the cluster of a sink of type `kafka`",
            ),
            (
                "  dead_letter: {type: kafka, config: {topic: dead}}\n",
                "dead_letter: a topic of the sink's own cluster, and the sink has none",
            ),
            (
                "  delivery: {transaction_interval: 1s}\n",
                "has no effect without `exactly_once: true`",
            ),
        ] {
            let line = violation(&file("", sink, more));
            assert!(line.contains(expected), "{line}");
        }
    }
}

#[test]
fn a_file_of_dead_letters_is_no_part_of_a_transaction() {
    let file = |exactly_once| {
        let sink = format!("{{type: kafka, config: {{id: k, brokers: 'h:1', exactly_once: {exactly_once}}}}}");
        file("", &sink, "  dead_letter: {type: sqlite, config: {path: d}}\n")
    };
    loaded(&file(false));
    let line = violation(&file(true));
    assert!(
        line.contains("dead_letter: a file is not part of the sink's transactions"),
        "{line}"
    );
}

#[test]
fn a_topic_means_nothing_to_a_sink_that_has_none() {
    let http = "{type: http, config: {id: h, url: 'http://h/'}}";
    for (keys, path) in [
        ("topic: a", "topic"),
        ("default_topic: a", "default_topic"),
        ("route: {by: a, regex: b, replacement: c}", "route"),
        ("columns: {topic: a}", "columns.topic"),
        ("columns: {partition: a}", "columns.partition"),
    ] {
        let line = violation(&file(&format!(", {keys}"), http, ""));
        assert!(
            line.contains(&format!("processors[0].{path}: has no effect: a sink of type `http`")),
            "{line}"
        );
        loaded(&file(&format!(", {keys}"), "{type: stdout, config: {id: x}}", ""));
    }
}

/// A table may have a JSON column `source`; most likely a fact is meant.
#[test]
fn a_member_of_source_that_no_change_has_is_noted() {
    let file = |sink: &str, condition: &str| {
        format!(
            "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, \
             dsn: host=h, slot: s, publication: p, tables: [orders]}}}}\n  processors: [{{type: filter, where: \
             {{{condition}: {{exists: true}}}}}}]\n  sinks: [{sink}]\n"
        )
    };
    let kafka = |topic: &str, key: &str| {
        format!("{{type: kafka, config: {{id: k, brokers: 'h:1', topic: '{topic}', key: '{key}'}}}}")
    };
    let known = kafka(
        "${source.name}.${source.db}.${source.schema}.${source.table}.${op}",
        "${source}-${a.source.b}",
    );
    assert_eq!(notes(&file(&known, "source.table")), Vec::<String>::new());

    let http = "{type: http, config: {id: h, url: 'http://h/${source.lsn}', ordering_key: '${source.lsn}'}}";
    let lines = "{type: stdout, config: {id: o, topic: '${source.lsn}', key: '${source.lsn}'}}";
    for (sink, count) in [
        (kafka("${source.lsn}", "${source.lsn}").as_str(), 2),
        (http, 2),
        (lines, 2),
    ] {
        let notes = notes(&file(sink, "op"));
        assert_eq!(notes.len(), count, "{notes:?}");
        for note in notes {
            assert!(
                note.contains("`source.lsn` is looked for in a field `source`"),
                "{note}"
            );
        }
    }
    let misspelt = notes(&file(&kafka("${source.tabel}", "k"), "source.schma"));
    assert_eq!(misspelt.len(), 2, "{misspelt:?}");
    for meant in ["did you mean `source.table`?", "did you mean `source.schema`?"] {
        assert!(misspelt.iter().any(|note| note.ends_with(meant)), "{misspelt:?}");
    }
}
