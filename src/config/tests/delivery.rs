//! Dead letters, error policies, delivery's bounds and waits between tries.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::*;
use crate::config::pipeline::{DeadLetterPlace, ErrorPolicy, OversizedDeadLetter, Restart};

const DEAD_LETTER: &str = "dead_letter: {type: kafka, config: {topic: dead}}";

fn policies(text: &str) -> [ErrorPolicy; 3] {
    let errors = loaded(text).pipeline.errors;
    [errors.invalid, errors.unroutable, errors.rejected]
}

#[test]
fn with_a_place_for_dead_letters_they_are_the_default() {
    let pipeline = loaded(&spec_with(DEAD_LETTER)).pipeline;
    let dead_letter = pipeline.dead_letter.unwrap();
    assert_eq!(dead_letter.place, DeadLetterPlace::Topic("dead".to_owned()));
    assert_eq!(dead_letter.oversized, OversizedDeadLetter::Halt);
    assert!(dead_letter.notify.is_none());
    let text = |errors: &str| spec_with(&format!("{DEAD_LETTER}\n  errors: {errors}"));
    assert_eq!(policies(&spec_with(DEAD_LETTER)), [ErrorPolicy::DeadLetter; 3]);
    assert_eq!(
        policies(&text("{invalid: halt, rejected: skip}")),
        [ErrorPolicy::Halt, ErrorPolicy::DeadLetter, ErrorPolicy::Skip]
    );
    assert_eq!(policies(&text("{invalid: dead_letter}")), [ErrorPolicy::DeadLetter; 3]);
    assert_eq!(
        notes(&text("{invalid: halt, unroutable: skip, rejected: skip}")),
        ["7:3: spec.dead_letter: no event goes there: no policy of `errors` is `dead_letter`"]
    );
}

#[test]
fn a_dead_letter_without_a_place_is_refused_with_the_remedy() {
    for policy in ["invalid", "unroutable", "rejected"] {
        let line = violation(&spec_with(&format!("errors: {{{policy}: dead_letter}}")));
        assert!(
            line.contains(&format!(
                "spec.errors.{policy}: `dead_letter` has no place to go to: add `spec.dead_letter:"
            )),
            "{line}"
        );
    }
    // One that is there and wrong is said once.
    let text = spec_with("dead_letter: {type: kafka}\n  errors: {invalid: dead_letter}");
    assert!(violation(&text).contains("spec.dead_letter.config: missing key"));
}

#[test]
fn a_place_for_dead_letters_follows_its_rules() {
    for (dead_letter, expected) in [
        (
            "{type: kafka, config: {}}",
            "topic: missing key: expected the topic that dead letters go to",
        ),
        ("{type: kafka, config: {topic: 'a/b'}}", "topic: expected a topic of"),
        (
            "{type: kafka, config: {topic: a, oversized: skip}}",
            "oversized: expected `halt` or `stub`, found `skip`",
        ),
        ("{type: kafka, config: {topic: a, brokers: x}}", "brokers: unknown key"),
        (
            "{type: redis, config: {topic: a}}",
            "type: expected `kafka` or `sqlite`, found `redis`",
        ),
        (
            "{type: sqlite, config: {}}",
            "path: missing key: expected the file that dead letters are kept in",
        ),
        (
            "{type: sqlite, config: {path: a, retention: 5m}}",
            "retention: expected 1h to 87600h, found `5m`",
        ),
        ("{config: {topic: a}}", "type: missing key"),
        ("~", "expected a mapping, found null"),
    ] {
        let line = violation(&spec_with(&format!("dead_letter: {dead_letter}")));
        assert!(line.contains(expected), "{line}");
    }
    let text = spec_with("dead_letter: {type: kafka, config: {topic: \"${DEAD:-d}\", oversized: stub}}");
    let dead_letter = loaded(&text).pipeline.dead_letter.unwrap();
    assert_eq!(
        (dead_letter.topic().unwrap(), dead_letter.oversized),
        ("d", OversizedDeadLetter::Stub)
    );
}

#[test]
fn whoever_is_told_of_dead_letters_is_named_by_a_url() {
    let with = |notify: &str| {
        spec_with(&format!(
            "dead_letter: {{type: kafka, config: {{topic: dead}}, notify: {notify}}}"
        ))
    };
    let notify = |text: &str| loaded(&with(text)).pipeline.dead_letter.unwrap().notify.unwrap();
    let least = notify("{webhook: 'https://hooks.example/T0/secret'}");
    assert_eq!(least.webhook.expose_secret(), "https://hooks.example/T0/secret");
    assert_eq!((least.headers.len(), least.interval), (0, Duration::from_secs(60)));
    assert!(!format!("{least:?}").contains("T0"));
    let full = notify("{webhook: \"${HOOK:-http://h/x}\", headers: {X-Token: t}, interval: 5m}");
    assert_eq!(full.webhook.expose_secret(), "http://h/x");
    assert_eq!(
        (full.headers[0].0.as_str(), full.interval),
        ("x-token", Duration::from_secs(300))
    );
    for (text, expected) in [
        ("{}", "notify.webhook: missing key: expected an http or https URL"),
        (
            "{webhook: hooks.example}",
            "webhook: no URL that can be asked: expected an http or https URL",
        ),
        ("{webhook: 'ftp://h/secret'}", "webhook: no URL that can be asked"),
        ("{webhook: 7}", "webhook: expected an http or https URL, found"),
        (
            "{webhook: 'http://h', interval: 10ms}",
            "interval: expected 1s to 1h, found `10ms`",
        ),
        (
            "{webhook: 'http://h', headers: {Host: h}}",
            "headers.Host: a header that each request sets by itself",
        ),
        ("{webhook: 'http://h', every: 1m}", "notify.every: unknown key"),
        ("'http://h'", "notify: expected a mapping, found"),
    ] {
        let line = violation(&with(text));
        assert!(line.contains(expected) && !line.contains("secret"), "{line}");
    }
}

#[test]
fn how_long_a_source_may_hand_over_nothing_is_bounded() {
    let progress = |text: &str| spec_with(&format!("delivery: {{progress_timeout: {text}}}"));
    for (text, seconds) in [("5s", 5), ("24h", 86_400)] {
        let delivery = loaded(&progress(text)).pipeline.delivery;
        assert_eq!(delivery.progress_timeout, Duration::from_secs(seconds));
    }
    for text in ["4999ms", "25h"] {
        let line = violation(&progress(text));
        assert!(line.contains("progress_timeout: expected 5s to 24h"), "{line}");
    }
}

#[test]
fn waits_between_tries_take_any_number_in_their_bounds() {
    let restart = |text: &str| spec_with(&format!("restart: {text}"));
    let default = Restart {
        base_delay: Duration::from_millis(200),
        max_delay: Duration::from_secs(30),
        multiplier: 2.0,
        jitter: (0.5, 1.0),
    };
    for (text, expected) in [
        ("{}", default),
        (
            "{base_delay: 30s}",
            Restart {
                base_delay: Duration::from_secs(30),
                ..default
            },
        ),
        (
            "{max_delay: 200ms}",
            Restart {
                max_delay: Duration::from_millis(200),
                ..default
            },
        ),
        (
            "{multiplier: 1.25}",
            Restart {
                multiplier: 1.25,
                ..default
            },
        ),
        (
            "{multiplier: 100}",
            Restart {
                multiplier: 100.0,
                ..default
            },
        ),
        (
            "{multiplier: \"${FACTOR:-1.5}\"}",
            Restart {
                multiplier: 1.5,
                ..default
            },
        ),
        (
            "{jitter: [1, 1]}",
            Restart {
                jitter: (1.0, 1.0),
                ..default
            },
        ),
        (
            "{jitter: [1e-3, 10]}",
            Restart {
                jitter: (0.001, 10.0),
                ..default
            },
        ),
    ] {
        assert_eq!(loaded(&restart(text)).pipeline.restart, expected, "{text}");
    }
    for (text, expected) in [
        ("{base_delay: 0ms}", "base_delay: expected 1ms to 1h"),
        ("{base_delay: 2h, max_delay: 3h}", "base_delay: expected 1ms to 1h"),
        ("{max_delay: 25h}", "max_delay: expected 1ms to 24h"),
        (
            "{base_delay: 31s}",
            "base_delay: expected a `base_delay` of at most `max_delay`, found 31s and 30s",
        ),
        (
            "{max_delay: 100ms}",
            "max_delay: expected a `base_delay` of at most `max_delay`, found 200ms and 100ms",
        ),
        (
            "{multiplier: 0.99}",
            "multiplier: expected a number from 1 to 100, found 0.99",
        ),
        ("{multiplier: 101}", "expected a number from 1 to 100, found 101"),
        ("{multiplier: .nan}", "expected a number from 1 to 100, found NaN"),
        ("{multiplier: .inf}", "expected a number from 1 to 100, found inf"),
        (
            "{multiplier: 99999999999999999999999999999999999999999}",
            "expected a number from 1 to 100",
        ),
        ("{multiplier: '2'}", "found `2`; remove the quotes"),
        ("{multiplier: two}", "expected a number from 1 to 100, found `two`"),
        (
            "{multiplier: \"${KAFKA_BROKERS}\"}",
            "found the value of `${KAFKA_BROKERS}`",
        ),
        ("{multiplier: true}", "expected a number from 1 to 100, found true"),
        (
            "{jitter: [0, 1]}",
            "jitter[0]: expected a number above 0, 10 at most, found 0",
        ),
        ("{jitter: [-0.5, 1]}", "jitter[0]: expected a number above 0"),
        (
            "{jitter: [0.5, 10.1]}",
            "jitter[1]: expected a number above 0, 10 at most, found 10.1",
        ),
        (
            "{jitter: [1, 0.5]}",
            "jitter: expected two factors, the least and the largest, such as [0.5, 1.0], found [1, 0.5]",
        ),
        ("{jitter: [1]}", "found [1]"),
        ("{jitter: [1, 2, 3]}", "found [1, 2, 3]"),
        ("{jitter: []}", "found []"),
        ("{jitter: 0.5}", "jitter: expected a list, found a number"),
        ("{delay: 1s}", "restart.delay: unknown key"),
    ] {
        let line = violation(&restart(text));
        assert!(line.contains(expected), "{line}");
    }
}
