use proptest::prelude::*;

use super::*;

/// Files with most kinds of values, for mutations to bite.
fn rich() -> [String; 2] {
    let postgres = source_with("create: true\n      max_message_bytes: 64MiB\n      start: {lsn: 0/10}")
        .replace(
            "        id: k1\n",
            "        id: k1\n        envelope:\n          type: cloudevents\n          mode: binary\n          type_prefix: a.b\n        create_topics: {partitions: 1}\n        client_conf: {linger.ms: 5, transaction.timeout.ms: 90000}\n        exactly_once: true\n        on_fenced: stop\n        transactional_id: tx\n",
        )
        .replace(
            "  processors:\n",
            "  processors:\n    - type: filter\n      ops: [insert]\n      where: {status: {eq: placed, regex: 'p.*'}}\n",
        )
        .replace(
            "spec:\n",
            "spec:\n  delivery: {drain_timeout: 30s}\n  errors: {invalid: skip}\n  checkpoint:\n    type: kafka\n    config:\n      topic: positions\n      replication_factor: 1\n  dead_letter:\n    type: kafka\n    config:\n      topic: dead\n      oversized: stub\n  restart:\n    multiplier: 1.5\n    jitter: [0.5, 1]\n    max_delay: 1m\n",
        );
    let mysql = mysql::ours_mysql().replace(
        "      id: m1\n",
        "      id: m1\n      server_id: 7\n      start:\n        file: binlog.000123\n        pos: 157\n",
    );
    [postgres, mysql]
}

fn check(text: &str) {
    match load_with(text, &environment()) {
        Ok(loaded) => drop(format!("{loaded:?}")),
        Err(err) => {
            assert!(!err.violations.is_empty());
            for violation in &err.violations {
                let line = violation.to_string();
                assert!(!line.contains('\n'), "{line}");
                if let Some(place) = violation.place {
                    assert!(
                        place.line <= text.split(['\n', '\r']).count().max(1) + 1,
                        "{line}\n{text}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn loading_never_panics_on_any_text(text in "\\PC{0,200}") {
        check(&text);
    }

    #[test]
    fn loading_never_panics_on_a_mutated_file(
        which in 0..2_usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..12_usize, "[-a-z:&*!|>{}\\[\\],'\"# \n?%<~0-9$.é\t]{0,4}"), 1..6)
    ) {
        let mut text: Vec<char> = rich()[which].chars().collect();
        for (at, removed, inserted) in edits {
            let start = at.index(text.len().max(1)).min(text.len());
            let end = (start + removed).min(text.len());
            text.splice(start..end, inserted.chars());
        }
        check(&text.into_iter().collect::<String>());
    }

    #[test]
    fn any_value_under_any_key_is_taken_or_refused(which in 0..2_usize, at in any::<prop::sample::Index>(), value in prop::sample::select(vec![
        "~", "1", "1.5", "true", "x", "''", "[]", "{}", "[~]", "{a: ~}", "!t x", "\"${A}\"", "\"${\"", "-1", "1e400", "99999999999999999999999999999999999999999",
    ])) {
        let text = &rich()[which];
        let lines: Vec<&str> = text.lines().collect();
        let valued: Vec<usize> = (0..lines.len()).filter(|&index| lines[index].contains(": ")).collect();
        let index = valued[at.index(valued.len())];
        let replaced = format!("{}: {value}", lines[index].split(": ").next().unwrap());
        let text = lines.iter().enumerate().map(|(line, text)| if line == index { replaced.as_str() } else { text }).collect::<Vec<_>>().join("\n");
        check(&text);
    }

    /// An unknown key put anywhere into a mapping is reported exactly there.
    #[test]
    fn an_unknown_key_is_placed_exactly(which in 0..2_usize, at in any::<prop::sample::Index>(), note in "(# [a-zé]{0,9}\n){0,3}") {
        let text = &rich()[which];
        let lines: Vec<&str> = text.lines().collect();
        let keys: Vec<usize> = (1..lines.len())
            .filter(|&index| !lines[index].trim_start().starts_with('-') && !lines[index - 1].ends_with("columns:"))
            .collect();
        let index = keys[at.index(keys.len())];
        let indent = lines[index].len() - lines[index].trim_start().len();
        let mut changed: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        changed.insert(index, format!("{note}{}zzzzzzzz: 1", " ".repeat(indent)));
        let err = load_with(&changed.join("\n"), &environment()).unwrap_err();
        prop_assert_eq!(err.violations.len(), 1);
        let expected = Place { line: index + 1 + note.matches('\n').count(), column: indent + 1 };
        prop_assert_eq!(err.violations[0].place, Some(expected));
    }
}
