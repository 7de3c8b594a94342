//! Several sinks: which one leads, and which of them the position waits for.

use super::*;
use crate::config::pipeline::CommitPolicy;

/// A file with these sinks, each by its type and keys.
fn file(sinks: &[(&str, &str)], more: &str) -> String {
    let sinks: String = sinks
        .iter()
        .map(|(kind, keys)| {
            let own = match *kind {
                "kafka" => "brokers: 'h:9092'",
                "http" => "url: 'http://h/'",
                "file" => "path: events.jsonl",
                _ => "",
            };
            let keys = [own, keys].into_iter().filter(|keys| !keys.is_empty());
            format!(
                "    - {{type: {kind}, config: {{{}}}}}\n",
                keys.collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, outbox: {{tables: [outbox]}}}}}}\n  processors: [{{type: outbox}}]\n  sinks:\n{sinks}{more}"
    )
}

/// The leading sink, and the others with whether they are required.
fn sinks(text: &str) -> (String, Vec<(String, bool)>) {
    let pipeline = loaded(text).pipeline;
    let further = pipeline.further_sinks.iter();
    let further = further.map(|further| (further.sink.id().to_owned(), further.required));
    (pipeline.sink.id().to_owned(), further.collect())
}

fn id(text: &str) -> String {
    text.to_owned()
}

#[test]
fn the_first_required_sink_of_kafka_leads_or_else_the_first_required() {
    let kafka = file(
        &[
            ("http", "id: a"),
            ("kafka", "id: b, required: false"),
            ("kafka", "id: c"),
        ],
        "",
    );
    assert_eq!(sinks(&kafka), (id("c"), vec![(id("a"), true), (id("b"), false)]));
    let without = file(
        &[
            ("file", "id: a, required: false"),
            ("http", "id: b"),
            ("stdout", "id: c"),
        ],
        "",
    );
    assert_eq!(sinks(&without), (id("b"), vec![(id("a"), false), (id("c"), true)]));
    assert_eq!(loaded(&without).pipeline.commit_policy, CommitPolicy::Required);
}

#[test]
fn the_position_waits_for_what_the_policy_says() {
    let two = [("stdout", "id: a"), ("http", "id: b")];
    let policy = |more: &str| loaded(&file(&two, more)).pipeline.commit_policy;
    assert_eq!(policy("  commit_policy: {mode: all}\n"), CommitPolicy::Required);
    assert_eq!(policy("  commit_policy: {mode: required}\n"), CommitPolicy::Required);
    assert_eq!(
        policy("  commit_policy: {mode: quorum, quorum: 2}\n"),
        CommitPolicy::Quorum(2)
    );
}

#[test]
fn what_would_lose_events_or_mean_nothing_is_refused() {
    let kafka = ("kafka", "id: k, exactly_once: true");
    let letters = "  dead_letter: {type: kafka, config: {topic: dead}}\n";
    for (sinks, more, expected) in [
        (
            &[("stdout", "id: a"), ("http", "id: a")][..],
            "",
            "spec.sinks[1]: the id `a` is also that of a sink before it: expected distinct ones",
        ),
        (
            &[("file", "id: a"), ("file", "id: b")],
            "",
            "spec.sinks[1]: a sink before it writes to file `events.jsonl` too: expected one sink for it",
        ),
        (
            &[("stdout", "id: a"), ("stdout", "id: b")],
            "",
            "spec.sinks[1]: a sink before it writes to standard output too: expected one sink for it",
        ),
        (
            &[("kafka", "id: k"), ("stdout", "id: b")],
            "  dispatches: {type: stdout}\n",
            "spec.dispatches: the sink writes its records to stdout",
        ),
        (
            &[("stdout", "id: a, required: false")],
            "",
            "spec.sinks[0].config.required: no sink is required",
        ),
        (
            &[("stdout", "id: a, required: false"), ("http", "id: b")],
            "  commit_policy: {mode: all}\n",
            "spec.sinks[0].config.required: clashes with `commit_policy: {mode: all}`",
        ),
        (
            &[("stdout", "id: a, required: true"), ("http", "id: b")],
            "  commit_policy: {mode: quorum, quorum: 1}\n",
            "spec.sinks[0].config.required: has no effect with `commit_policy: {mode: quorum}`",
        ),
        (
            &[("stdout", "id: a"), ("http", "id: b")],
            "  commit_policy: {mode: quorum, quorum: 3}\n",
            "spec.commit_policy.quorum: expected at most 2, as many as there are sinks, found 3",
        ),
        (
            &[("stdout", "id: a"), ("http", "id: b")],
            "  commit_policy: {mode: quorum}\n",
            "spec.commit_policy: `mode: quorum` needs `quorum: N`: how many of the 2 sinks must have an event",
        ),
        (
            &[("stdout", "id: a"), ("http", "id: b")],
            "  commit_policy: {mode: all, quorum: 1}\n",
            "spec.commit_policy.quorum: has no effect without `mode: quorum`",
        ),
        (
            &[("stdout", "id: a")],
            "  commit_policy: {mode: all}\n",
            "spec.commit_policy: has no effect with one sink: remove it",
        ),
        (
            &[kafka, ("http", "id: b")],
            "",
            "spec.sinks[1]: clashes with `exactly_once: true` of another sink",
        ),
        (
            &[kafka, ("kafka", "id: l, exactly_once: true, required: false")],
            "",
            "spec.sinks[1]: `exactly_once: true` of a sink that does not lead",
        ),
        (
            &[kafka, ("http", "id: b")],
            "  commit_policy: {mode: quorum, quorum: 1}\n",
            "spec.sinks[0]: `exactly_once: true` clashes with `commit_policy: {mode: quorum}`",
        ),
        (
            &[("kafka", "id: k"), ("kafka", "id: l, transactional_id: t")],
            "  checkpoint: {type: kafka}\n",
            "spec.sinks[1].config.transactional_id: has no effect",
        ),
        (
            &[("kafka", "id: k"), ("http", "id: b")],
            letters,
            "spec.dead_letter: a topic of the cluster of all sinks, and not all of them are of type `kafka`",
        ),
        (
            &[("kafka", "id: k, required: false"), ("http", "id: b")],
            "  checkpoint: {type: kafka}\n",
            "spec.checkpoint.type: kept by the cluster of a sink of type `kafka` that the position waits for",
        ),
    ] {
        let text = file(sinks, more);
        let line = violation(&text);
        assert!(line.contains(expected), "{line}\nin place of\n{expected}");
    }
    for (sinks, more) in [
        (&[kafka, ("http", "id: b, required: false")][..], ""),
        (&[("kafka", "id: k"), ("kafka", "id: l")], letters),
        (
            &[("http", "id: b"), ("kafka", "id: k")],
            "  checkpoint: {type: kafka}\n",
        ),
    ] {
        loaded(&file(sinks, more));
    }
    let seventeen: Vec<String> = (0..17).map(|n| format!("id: s{n}")).collect();
    let seventeen: Vec<_> = seventeen.iter().map(|keys| ("http", keys.as_str())).collect();
    assert!(violation(&file(&seventeen, "")).ends_with("spec.sinks: expected 1 to 16 sinks, found 17 sinks"));
}

#[test]
fn a_file_of_deltaforge_may_say_the_policy_of_its_one_sink() {
    let policy = "  commit_policy: {mode: quorum, quorum: 1}\n";
    let text = file(&[("stdout", "id: a")], policy).replace("tailpost/v1", "deltaforge/v1");
    let noted = notes(&text);
    assert!(
        noted
            .iter()
            .any(|note| note.ends_with("spec.commit_policy: accepted without effect: there is one sink"))
    );
}
