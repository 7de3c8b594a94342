use super::*;

const MARK: &str = "hunter2hunter2";

/// All that a person could see of a load, whichever way it went.
fn all_output(text: &str) -> String {
    let mut variables = environment();
    variables.insert("MARK".to_owned(), MARK.to_owned());
    variables.insert("POSTGRES_DSN".to_owned(), format!("postgres://u:{MARK}@h/d"));
    match load_with(text, &variables) {
        Ok(loaded) => {
            let notes: String = loaded.notes.iter().map(|note| format!("{note} {note:?}")).collect();
            format!("{loaded:?} {loaded:#?} {notes}")
        }
        Err(err) => format!("{err} {err:?}"),
    }
}

#[test]
fn a_secret_is_in_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, MARK).unwrap();
    let from_file = format!("\"${{file:{}}}\"", file.display());
    let dsns = [
        format!("postgres://u:{MARK}@h/d"),
        format!("postgres://u:{MARK}@h/d?sslmode=no&foo=bar"),
        format!("host=h password={MARK} port=x"),
        format!("host=h password=a {MARK}=b"),
        format!("host=h passwort={MARK}"),
        format!("postgres://u:a/{MARK}@h"),
        format!("postgres://u:%{MARK}@h"),
        format!("[{MARK}]"),
        format!("{{postgres://u:{MARK}@h: 1}}"),
        MARK.to_owned(),
    ];
    let mut texts: Vec<String> = dsns.iter().map(|dsn| with("${POSTGRES_DSN}", dsn)).collect();
    texts.push(with("tenant: acme", &format!("labels: {{db_password: [{MARK}]}}")));
    texts.push(with("dsn: ${POSTGRES_DSN}", &format!("postgres://u:{MARK}@h: x")));
    texts.push(with("slot: orders_slot", &format!("slot: postgres://u:{MARK}@h/d")));
    texts.push(with("slot: orders_slot", &format!("slot: host=h password={MARK}")));
    for conf in [
        "sasl.password",
        "ssl.key.password",
        "linger.ms",
        "acks",
        "max.in.flight",
    ] {
        for value in [
            MARK,
            "${MARK}",
            &from_file,
            &format!("[{MARK}]"),
            &format!("{{{MARK}: 1}}"),
        ] {
            texts.push(sink_with(
                &format!("client_conf: {{\"{conf}\": {value}}}").replace("${MARK}", "\"${MARK}\""),
            ));
        }
    }
    // `max.in.flight` wants a number, so a literal there is a mistake that is shown, not a secret.
    texts.retain(|text| !text.contains(&format!("\"max.in.flight\": {MARK}")));
    for value in ["${MARK} !", from_file.trim_matches('"')] {
        for (from, to) in [
            ("slot: orders_slot", format!("slot: \"{value}-\"")),
            ("name: order-events", format!("name: \"{value} \"")),
            ("kind: Pipeline", format!("kind: \"{value}\"")),
            ("type: postgres", format!("type: \"{value}\"")),
            ("type: kafka", format!("type: \"{value}\"")),
            ("raw_payload: true", format!("raw_payload: \"{value}\"")),
            ("\"events.unrouted\"", format!("\"{value}/\"")),
            ("${KAFKA_BROKERS}", format!("\"{value}\"")),
            ("tables: [public.orders]", format!("tables: [\"{value}.b.c\"]")),
            ("prefixes: [outbox]", format!("prefixes: {value}")),
            (
                "\"events.fallback\"",
                format!("\"${{env:MARK}} {}\"", value.replace("${MARK}", "")),
            ),
        ] {
            texts.push(with(from, &to));
        }
        for key in [
            "create",
            "max_message_bytes",
            "start",
            "server_id",
            "start: {lsn",
            "unknown",
        ] {
            let close = if key.contains('{') { "}" } else { "" };
            texts.push(source_with(&format!("{key}: \"{value}\"{close}")));
        }
        for delivery in [
            "max_in_flight_events",
            "max_in_flight_bytes",
            "drain_timeout",
            "stall_timeout",
        ] {
            texts.push(spec_with(&format!("delivery: {{{delivery}: \"{value}\"}}")));
        }
    }
    texts.push(ours());
    for text in texts {
        let output = all_output(&text);
        assert!(!output.contains(MARK), "{output}\n{text}");
    }
}

#[test]
fn a_number_under_a_secrets_name_is_not_shown() {
    for line in ["labels: {db_password: 271828}", "annotations: {api_token: 271828}"] {
        let text = with("tenant: acme", line);
        assert!(
            violation(&text).ends_with("expected text, found a number; quote it"),
            "{}",
            violation(&text)
        );
    }
}
