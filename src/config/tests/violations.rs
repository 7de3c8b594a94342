use super::*;

#[test]
fn a_violation_is_one_line_with_place_path_and_suggestion() {
    let text = source_with("slott: x");
    let err = load_with(&text, &environment()).unwrap_err();
    assert_eq!(
        err.to_string(),
        "orders.yaml:11:7: spec.source.config.slott: unknown key; did you mean `slot`?"
    );
    assert_eq!(err.violations[0].place, Some(Place { line: 11, column: 7 }));
}

#[test]
fn thirty_violations_are_all_reported_each_with_its_line() {
    let text = r#"apiVersion: tailpost/v2
kind: Pipelin
metadata:
  name: Order Events
  tennant: acme
  labels: {version: 1}
spec:
  source:
    type: postgres
    config:
      id: ""
      dsn: ${NOT_SET}
      publication: ~
      slot: Orders-Slot
      create: yes
      max_message_bytes: 64 MiB
      tables: public.orders
      outbox:
        prefixes: [""]
        tables:
          - a.b.c
      start: ealiest
      server_id: 5
  processors:
    - type: outbox
      topic: "orders/${event_type}"
      key: "${a..b}"
      default_topic: ".."
      raw_payload: "true"
      strict: 1
      strict: true
      columns: {payloud: data}
      additional_headers: {df-event-id: id}
    - type: outbx
  sinks:
    - type: kafka
      config:
        brokers: kafka
        required: false
        exactly_once: maybe
        client_conf: {acks: 1}
  errors: {invalid: dead_letters}
  delivery: {drain_timeout: 30}
  dead_letter: {type: kafka}
"#;
    let found: Vec<(usize, usize, String)> = load_with(text, &environment())
        .unwrap_err()
        .violations
        .into_iter()
        .map(|violation| {
            let place = violation.place.unwrap();
            (place.line, place.column, violation.path)
        })
        .collect();
    let expected = [
        (1, 13, "apiVersion"),
        (2, 7, "kind"),
        (4, 9, "metadata.name"),
        (5, 3, "metadata.tennant"),
        (6, 21, "metadata.labels.version"),
        (11, 11, "spec.source.config.id"),
        (12, 12, "spec.source.config.dsn"),
        (13, 20, "spec.source.config.publication"),
        (14, 13, "spec.source.config.slot"),
        (15, 15, "spec.source.config.create"),
        (16, 26, "spec.source.config.max_message_bytes"),
        (17, 15, "spec.source.config.tables"),
        (19, 20, "spec.source.config.outbox.prefixes[0]"),
        (21, 13, "spec.source.config.outbox.tables[0]"),
        (22, 14, "spec.source.config.start"),
        (23, 7, "spec.source.config.server_id"),
        (26, 14, "spec.processors[0].topic"),
        (27, 12, "spec.processors[0].key"),
        (28, 22, "spec.processors[0].default_topic"),
        (29, 20, "spec.processors[0].raw_payload"),
        (30, 15, "spec.processors[0].strict"),
        (31, 7, "spec.processors[0].strict"),
        (32, 17, "spec.processors[0].columns.payloud"),
        (33, 28, "spec.processors[0].additional_headers.df-event-id"),
        (34, 13, "spec.processors[1].type"),
        (38, 9, "spec.sinks[0].config.id"),
        (38, 18, "spec.sinks[0].config.brokers"),
        (39, 9, "spec.sinks[0].config.required"),
        (40, 23, "spec.sinks[0].config.exactly_once"),
        (41, 23, "spec.sinks[0].config.client_conf.acks"),
        (42, 21, "spec.errors.invalid"),
        (43, 29, "spec.delivery.drain_timeout"),
        (44, 16, "spec.dead_letter.config"),
    ]
    .map(|(line, column, path)| (line, column, path.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn each_line_of_a_file_with_many_violations_says_what_was_expected() {
    for (text, line) in [
        (
            with("tailpost/v1", "tailpost/v2"),
            "1:13: apiVersion: expected `tailpost/v1` or `deltaforge/v1`, found `tailpost/v2`; did you mean `tailpost/v1`?",
        ),
        (
            with("slot: orders_slot", "slot: 42"),
            "13:13: spec.source.config.slot: expected text, found the number 42; quote it",
        ),
        (
            with("slot: orders_slot", "slot: ~"),
            "13:13: spec.source.config.slot: expected text, found null; remove the key, or give it a value",
        ),
        (
            with("slot: orders_slot", "slot: !x y"),
            "13:13: spec.source.config.slot: expected text, found a value with a tag; remove the tag",
        ),
        (
            with("      slot: orders_slot\n", ""),
            "10:7: spec.source.config.slot: missing key: expected a slot name of a-z, 0-9 and `_`, 1 to 63 characters",
        ),
        (
            with("raw_payload: true", "raw_payload: Yes"),
            "21:20: spec.processors[0].raw_payload: expected true or false, found `Yes`; did you mean `true`?",
        ),
        (
            with("kind: Pipeline", "kind: Pipeline\nkind: Pipeline"),
            "3:1: kind: duplicate key: expected it once",
        ),
        (
            with("kind: Pipeline", "kind: Pipeline\n<<: {a: 1}"),
            "3:1: merge keys are not supported: write the keys out",
        ),
        (
            with("kind: Pipeline", "kind: Pipeline\n1: 2"),
            "3:1: expected text as a key, found the number 1",
        ),
        (
            with("type: kafka", "type: kafke"),
            "23:13: spec.sinks[0].type: expected `kafka`, `http`, `file` or `stdout`, found `kafke`; did you mean `kafka`?",
        ),
        (
            with("kind: Pipeline", "kind: Pipeline\nfoo: 1"),
            "3:1: foo: unknown key; expected one of apiVersion, kind, metadata, spec",
        ),
    ] {
        assert_eq!(violation(&text), line);
    }
}

#[test]
fn each_further_occurrence_of_a_key_is_a_violation() {
    let text = source_with("slot: a\n      slot: b");
    assert_eq!(
        violations(&text),
        [
            "12:7: spec.source.config.slot: duplicate key: expected it once",
            "15:7: spec.source.config.slot: duplicate key: expected it once"
        ]
    );
}

#[test]
fn places_are_exact_in_flow_style_and_after_anything() {
    let text = with("slot: orders_slot", "slot: {slot: &s Öä, x: *s}")
        .replace("publication: orders_pub", "publication: |-\n        a\n        b");
    assert!(violation(&text).starts_with("15:13: spec.source.config.slot"));
    let text = ours().replace(
        "    config:\n      id: pg1\n",
        "    config:\n      ? id\n      : &name \"pg\n        1\"\n      # ключ\n      create: \"ключ\"\n",
    );
    assert_eq!(
        violation(&text),
        "14:15: spec.source.config.create: expected true or false, found `ключ`"
    );
    let text = ours().replace(
        "tables: [public.orders]",
        "tables: [\"é.ü\", {a: 1}, x.y.z,\n        .b]",
    );
    let places: Vec<_> = violations(&text)
        .into_iter()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        places,
        [
            "14:23 spec.source.config.tables[1]",
            "14:31 spec.source.config.tables[2]",
            "15:9 spec.source.config.tables[3]"
        ]
    );
}

#[test]
fn a_byte_order_mark_and_windows_lines_are_harmless() {
    let text = format!(
        "\u{feff}{}",
        with("raw_payload: true", "raw_payload: x").replace('\n', "\r\n")
    );
    assert!(violation(&text).starts_with("21:20: "), "{}", violation(&text));
    loaded(&format!("\u{feff}{}", ours()));
}

#[test]
fn an_aliased_value_is_complained_about_where_it_is_written() {
    let text = with("id: pg1", "id: &long AAA").replace("slot: orders_slot", "slot: *long");
    assert_eq!(violation(&text)[..6], *"10:11:");
}

#[test]
fn what_is_no_single_mapping_is_refused() {
    for (text, expected) in [
        ("", "no pipeline in it"),
        ("\n# nothing\n", "no pipeline in it"),
        ("~", "no pipeline in it"),
        ("- a\n", "1:1: expected a mapping, found a list"),
        ("text", "1:1: expected a mapping, found `text`"),
        ("a: [1\nb: 2\n", "not valid YAML"),
        ("a: *b\n", "not valid YAML: unknown anchor"),
        ("a: \"\\x\"", "not valid YAML"),
    ] {
        let line = violation(text);
        assert!(line.contains(expected), "{text:?}: {line}");
    }
    let two = format!("{}---\na: 1\n", ours());
    assert_eq!(
        violation(&two),
        "29:1: a second document: expected one pipeline in a file"
    );
    let line = violation(&with("slot: orders_slot", "slot: [a"));
    assert!(line.contains("not valid YAML") && line.starts_with("14:"), "{line}");
}

#[test]
fn too_many_violations_are_cut_and_counted() {
    let keys: String = (0..MAX_VIOLATIONS + 7).map(|index| format!("k{index}: 1\n")).collect();
    let all = violations(&format!("{}{keys}", ours()));
    assert_eq!(all.len(), MAX_VIOLATIONS + 1);
    assert!(
        all[MAX_VIOLATIONS].ends_with("7 more violations are not shown"),
        "{}",
        all[MAX_VIOLATIONS]
    );
}

#[test]
fn a_message_is_always_one_line_of_bounded_length() {
    for value in ["\"a\\nb\"", &format!("'{}'", "x".repeat(5000)), "\"\\e[31mred\""] {
        let line = violation(&with("slot: orders_slot", &format!("slot: {value}")));
        assert!(line.len() < 300 && !line.contains(['\n', '\x1b']), "{line}");
    }
    let line = violation(&with("kind: Pipeline", "kind: Pipeline\n\"a\\nb\": 1"));
    assert!(line.starts_with("3:1: ?: unknown key"), "{line}");
}

#[test]
fn a_huge_file_of_nothing_but_violations_is_refused_soon() {
    let keys: String = (0..24_000).map(|index| format!("k{index}: 1\n")).collect();
    let text = format!("{}{keys}{}", ours(), "# nothing to see here\n".repeat(30_000));
    let started = std::time::Instant::now();
    assert!((15..100).contains(&violations(&text).len()));
    // Generous: it tells seconds from hours, not one machine from another.
    assert!(started.elapsed() < std::time::Duration::from_secs(120));
}

#[test]
fn a_misspelt_type_hides_nothing_that_stands_behind_it() {
    for (from, to) in [
        ("type: postgres", "type: postgress"),
        ("type: outbox", "type: outbx"),
        ("type: kafka", "type: kafak"),
    ] {
        let text = source_with("slott: x").replace("raw_payload: true", "raw_payload: yess");
        let text = text.replace("brokers:", "brokerz:").replace(from, to);
        let found = violations(&text);
        for expected in ["slott", "raw_payload", "brokerz", "type"] {
            assert!(
                found.iter().any(|line| line.contains(expected)),
                "{expected} is not in {found:?}"
            );
        }
    }
}
