use super::*;

#[test]
fn a_variable_is_read_as_its_keys_type() {
    let variables = {
        let mut all = environment();
        all.extend(variables(&[
            ("N", "7"),
            ("FLAG", "false"),
            ("TIME", "45s"),
            ("SIZE", "128KiB"),
            ("WORD", "latest"),
            ("UNIT", "ms"),
        ]));
        all
    };
    let text = source_with("create: ${FLAG}\n      start: ${WORD}\n      max_message_bytes: ${SIZE}")
        .replace("spec:\n", "spec:\n  delivery: {max_in_flight_events: \"${N}000\", drain_timeout: \"${TIME}\", stall_timeout: \"20000${UNIT}\"}\n");
    let loaded = load_with(&text, &variables).unwrap();
    assert!(!postgres(&loaded).create);
    assert_eq!(postgres(&loaded).max_message_bytes, 128 << 10);
    assert_eq!(loaded.pipeline.delivery.max_in_flight_events, 7000);
    assert_eq!(loaded.pipeline.delivery.drain_timeout.as_secs(), 45);
    assert_eq!(loaded.pipeline.delivery.stall_timeout.as_secs(), 20);
}

#[test]
fn a_value_never_becomes_yaml_nor_a_template() {
    let mut variables = environment();
    variables.insert("ID".to_owned(), "a: [b] # ${X}".to_owned());
    variables.insert("TOPIC".to_owned(), "x-${event_type}".to_owned());
    let text = with("id: pg1", "id: ${ID}").replace("${aggregate_type}.${event_type}", "${event_type}.y");
    let loaded = load_with(&text, &variables).unwrap();
    assert_eq!(postgres(&loaded).id, "a: [b] # ${X}");
    let text = processor_with("key: \"${env:TOPIC}\"");
    let key = load_with(&text, &variables).unwrap().pipeline;
    let Processor::Outbox(outbox) = &key.processors[0] else {
        panic!("an outbox processor")
    };
    assert!(outbox.key.as_ref().unwrap().is_constant());
    assert_eq!(outbox.key.as_ref().unwrap().to_string(), "x-$${event_type}");
}

#[test]
fn dollars_and_defaults() {
    let text = with("id: pg1", "id: \"$$${NONE:-a}$ $${B}\"");
    assert_eq!(postgres(&loaded(&text)).id, "$a$ ${B}");
    let text = processor_with("key: \"${env:NONE:-k}.${a.b}$$\"");
    assert_eq!(outbox(&loaded(&text)).key.as_ref().unwrap().to_string(), "k.${a.b}$$");
}

#[test]
fn missing_variables_and_malformed_placeholders_are_violations() {
    for (id, expected) in [
        (
            "${NONE}",
            "environment variable `NONE` is not set, and has no default (`${NONE:-default}`)",
        ),
        ("${env:NONE}", "environment variable `NONE` is not set"),
        ("a ${", "without a closing `}`"),
        ("${}", "empty placeholder"),
        ("${a b}", "expected `${NAME}`"),
        ("${A:-${B}}", "a placeholder inside a placeholder"),
        (
            "${file:/nowhere/x}",
            "file `/nowhere/x` cannot be read: entity not found",
        ),
    ] {
        let line = violation(&with("id: pg1", &format!("id: \"{id}\"")));
        assert!(
            line.starts_with("10:11: spec.source.config.id: ") && line.contains(expected),
            "{line}"
        );
    }
    assert_eq!(violations(&with("id: pg1", "id: \"${A}${B}\"")).len(), 2);
    for (topic, expected) in [
        ("${}", "empty placeholder"),
        ("${a", "without a closing"),
        ("${a..b}", "empty name in a field's path"),
        ("${a:-b}", "only a variable has a default"),
        ("${env:NONE}", "`NONE` is not set"),
        ("${file:/nowhere/x}", "cannot be read"),
        ("~", ""),
    ] {
        let line = violation(&with("\"${aggregate_type}.${event_type}\"", &format!("\"{topic}\"")));
        assert!(
            line.starts_with("19:14: spec.processors[0].topic: ") && line.contains(expected),
            "{line}"
        );
    }
}

#[test]
fn a_file_fills_a_text_and_a_template() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "from.file\n").unwrap();
    let placeholder = format!("\"${{file:{}}}\"", file.display());
    let text = with("\"events.unrouted\"", &placeholder).replace("\"events.fallback\"", &placeholder);
    let loaded = loaded(&text);
    assert_eq!(outbox(&loaded).default_topic.as_deref(), Some("from.file"));
    assert_eq!(kafka(&loaded).topic.as_ref().unwrap().to_string(), "from.file");
}

#[test]
fn a_set_variable_in_capitals_stays_a_field_in_tailpost_files() {
    let mut variables = environment();
    variables.insert("REGION".to_owned(), "eu".to_owned());
    let text = with("${aggregate_type}", "${REGION}");
    let loaded = load_with(&text, &variables).unwrap();
    assert_eq!(topic(&loaded), "${REGION}.${event_type}");
    assert_eq!(loaded.notes, []);
}
