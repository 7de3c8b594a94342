//! The command line: exit codes, what is said where, and several pipelines in one process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::cli::tailpost;
use crate::support::{DEADLINE, Emit, OUTBOX, TestBed, eventually};

#[test]
fn validate_reports_every_violation_with_its_line_and_ends_with_2() {
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
      dsn: ${TAILPOST_NOT_SET}
      publication: ~
      slot: Orders-Slot
      create: yes
      max_message_bytes: 64 MiB
      tables: public.orders
      outbox:
        prefixes: [outbox, ""]
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
      columns: {payloud: data}
      additional_headers: {df-event-id: id}
    - type: outbx
  sinks:
    - type: kafka
      config:
        id: k1
        brokers: kafka
        required: false
        exactly_once: maybe
        client_conf: {acks: 1}
  errors: {invalid: dead_letter}
  delivery: {drain_timeout: 30}
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.yaml");
    fs::write(&file, text).unwrap();
    let expected = [
        (1, "apiVersion"),
        (2, "kind"),
        (4, "metadata.name"),
        (5, "metadata.tennant"),
        (6, "metadata.labels.version"),
        (11, "spec.source.config.id"),
        (12, "spec.source.config.dsn"),
        (13, "spec.source.config.publication"),
        (14, "spec.source.config.slot"),
        (15, "spec.source.config.create"),
        (16, "spec.source.config.max_message_bytes"),
        (17, "spec.source.config.tables"),
        (19, "spec.source.config.outbox.prefixes[1]"),
        (21, "spec.source.config.outbox.tables[0]"),
        (22, "spec.source.config.start"),
        (23, "spec.source.config.server_id"),
        (26, "spec.processors[0].topic"),
        (27, "spec.processors[0].key"),
        (28, "spec.processors[0].default_topic"),
        (29, "spec.processors[0].raw_payload"),
        (30, "spec.processors[0].strict"),
        (31, "spec.processors[0].columns.payloud"),
        (32, "spec.processors[0].additional_headers.df-event-id"),
        (33, "spec.processors[1].type"),
        (38, "spec.sinks[0].config.brokers"),
        (39, "spec.sinks[0].config.required"),
        (40, "spec.sinks[0].config.exactly_once"),
        (41, "spec.sinks[0].config.client_conf.acks"),
        (42, "spec.errors.invalid"),
        (43, "spec.delivery.drain_timeout"),
    ];
    assert_eq!(expected.len(), 30);
    for command in ["validate", "run", "check"] {
        let ended = tailpost([command.as_ref(), file.as_os_str()]);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (2, ""),
            "{command}: {}",
            ended.stderr
        );
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.is_empty()).collect();
        for (line, path) in expected {
            let place = format!("{}:{line}:", file.display());
            let found = lines
                .iter()
                .any(|text| text.starts_with(&place) && text.contains(&format!(" {path}: ")));
            assert!(found, "{line} {path} is not in\n{}", ended.stderr);
        }
        let violations = lines
            .iter()
            .filter(|line| line.starts_with(&file.display().to_string()))
            .count();
        assert_eq!(violations, 30, "{}", ended.stderr);
    }
}

#[test]
fn validate_of_a_good_file_ends_with_0_and_names_it_on_stdout() {
    let bed = TestBed::new();
    let relay = bed.relay(OUTBOX);
    let ended = tailpost(["validate".as_ref(), relay.pipeline_file().as_os_str()]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert!(
        ended.stdout.contains(&format!("pipeline `{}` is valid", bed.name)),
        "{}",
        ended.stdout
    );
    let missing = tailpost(["validate", "/no/such/file.yaml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("/no/such/file.yaml"), "{}", missing.stderr);
}

#[test]
fn schema_prints_the_json_schema_of_pipeline_files() {
    let ended = tailpost(["schema"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let schema: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["properties"]["spec"].is_object());
}

#[test]
fn a_reader_that_goes_away_changes_no_exit_code() {
    let bed = TestBed::new();
    let relay = bed.relay(OUTBOX);
    let pipeline = relay.pipeline_file();
    let arguments: [&[&OsStr]; 5] = [
        &["schema".as_ref()],
        &["validate".as_ref(), pipeline.as_ref()],
        &["check".as_ref(), pipeline.as_ref()],
        &[
            "convert".as_ref(),
            "debezium".as_ref(),
            "tests/convert/postgres-connect.json".as_ref(),
        ],
        &["validate".as_ref(), "nowhere.yaml".as_ref()],
    ];
    for arguments in arguments {
        let heard = tailpost(arguments);
        assert!(!(heard.stdout.is_empty() && heard.stderr.is_empty()), "{arguments:?}");
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let unheard = Command::new(env!("CARGO_BIN_EXE_tailpost"))
            .args(arguments)
            .stdout(writer)
            .output()
            .expect("run tailpost");
        let said = String::from_utf8(unheard.stderr).expect("output is UTF-8");
        assert_eq!(
            (unheard.status.code(), said),
            (Some(heard.code), heard.stderr),
            "{arguments:?}"
        );
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device that is full");
        let unheard = Command::new(env!("CARGO_BIN_EXE_tailpost"))
            .args(arguments)
            .stderr(full)
            .output()
            .expect("run tailpost");
        // What `check` counts changes beside other tests.
        assert_eq!(
            (unheard.status.code(), unheard.stdout.is_empty()),
            (Some(heard.code), heard.stdout.is_empty()),
            "{arguments:?}"
        );
    }
}

#[test]
fn wrong_usage_ends_with_2_and_help_of_each_command_has_an_example() {
    for arguments in [
        &["rnu"][..],
        &["run"],
        &["run", "a.yaml", "--htp", "off"],
        &["run", "a.yaml", "--http", "nowhere"],
        &[],
    ] {
        let ended = tailpost(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(ended.stderr.contains("--help"), "{arguments:?}: {}", ended.stderr);
    }
    for command in ["run", "validate", "check", "schema", "demo"] {
        let ended = tailpost([command, "--help"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        assert!(
            ended.stdout.contains(&format!("Example:\n  tailpost {command}")),
            "{}",
            ended.stdout
        );
    }
    assert_eq!(tailpost(["--version"]).code, 0);
}

#[test]
fn check_of_what_can_run_ends_with_0_and_of_what_cannot_with_1() {
    let bed = TestBed::new();
    let mut relay = bed.relay(OUTBOX);
    let check = |relay: &crate::support::relay::Relay| {
        let ended = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(
            !said.contains(&bed.password()) && !said.contains("wrong-pw"),
            "a password is in\n{said}"
        );
        ended
    };
    let good = check(&relay);
    assert_eq!(good.code, 0, "{}", good.stdout);
    assert!(!good.stdout.contains("FAIL"), "{}", good.stdout);
    let fsync: String = bed.admin().query_one("SHOW fsync", &[]).unwrap().get(0);
    assert_eq!(
        good.stdout.contains("warn  fsync: off"),
        fsync == "off",
        "{}",
        good.stdout
    );
    assert_eq!(bed.confirmed(), None, "check makes nothing");

    bed.app().batch_execute("CREATE TABLE listed (id int)").unwrap();
    bed.admin()
        .batch_execute(&format!("CREATE PUBLICATION {}", bed.publication))
        .unwrap();
    let nobody = "127.0.0.1:1";
    for (from, to, subject) in [
        (
            "prefixes: [outbox]",
            "tables: [listed]".to_owned(),
            "FAIL  publication: ",
        ),
        (
            "brokers: '<brokers>'",
            format!("brokers: '{nobody}'"),
            "FAIL  Kafka 127.0.0.1:1: ",
        ),
        (
            "'<dsn>'",
            format!("'{}'", bed.postgres.url.replace(&bed.password(), "wrong-pw")),
            "FAIL  PostgreSQL ",
        ),
        ("'<dsn>'", format!("'{}'", bed.postgres.app_url), "FAIL  replication: "),
        ("slot: <slot>", "slot: <slot>, create: false".to_owned(), "FAIL  slot: "),
    ] {
        relay.rewrite(&bed.fill(&OUTBOX.replace(from, &to)));
        let bad = check(&relay);
        assert_eq!(bad.code, 1, "{to}: {}", bad.stdout);
        assert!(bad.stdout.contains(subject), "`{subject}` is not in\n{}", bad.stdout);
    }
}

/// All that is in a folder, with how much.
fn contents(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, metadata.len()));
        }
    }
    found.sort();
    found
}

#[test]
fn check_looks_at_each_place_that_is_written_to_and_leaves_nothing_behind() {
    let bed = TestBed::new();
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines/events.jsonl");
    let sink = format!(
        "  sinks:\n    - {{type: file, config: {{id: lines, path: '{}', required: false}}}}\n",
        lines.display()
    );
    let processor = "  processors:\n    - {type: validate, sequence: {field: payload.n}}\n";
    let text = OUTBOX
        .replace("  sinks:\n", &sink)
        .replace("  processors:\n", processor);
    let more = "  dead_letter: {type: sqlite, config: {path: letters/dead.sqlite}}
  audit: {path: audit/ledger.jsonl}
  dispatches: {type: file, config: {path: audit/dispatches.jsonl}}
";
    let mut relay = bed.relay(&format!("{text}{more}"));
    let state = relay.state_dir();
    let places = [
        (format!("file {}", lines.display()), ""),
        (format!("state folder {}", state.display()), ""),
        (
            format!(
                "sequence numbers {}",
                state.join(format!("{}.sequences.sqlite", bed.name)).display()
            ),
            "--state-dir",
        ),
        (
            format!("dead letters {}", state.join("letters/dead.sqlite").display()),
            "`path` of spec.dead_letter",
        ),
        (
            format!("audit ledger {}", state.join("audit/ledger.jsonl").display()),
            "`path` of spec.audit",
        ),
        (
            format!("dispatch records {}", state.join("audit/dispatches.jsonl").display()),
            "`path` of spec.dispatches",
        ),
    ];
    let file = relay.pipeline_file();
    let check = |code: i32| {
        let before = contents(file.parent().unwrap());
        let ended = tailpost([
            "check".as_ref(),
            file.as_os_str(),
            "--state-dir".as_ref(),
            state.as_os_str(),
        ]);
        assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
        assert_eq!(contents(file.parent().unwrap()), before, "it left something behind");
        ended.stdout
    };
    let line_of = |said: &str, subject: &str| {
        let line = said.lines().find(|line| line.contains(&format!("  {subject}: ")));
        line.unwrap_or_else(|| panic!("no `{subject}` in\n{said}"))
            .trim_start()
            .to_owned()
    };
    // The one folder that is not made.
    let said = check(1);
    assert!(line_of(&said, &places[0].0).starts_with("FAIL  file "), "{said}");
    fs::create_dir(lines.parent().unwrap()).unwrap();
    let said = check(0);
    for (subject, _) in &places {
        let line = line_of(&said, subject);
        assert!(
            line.contains(": does not exist; it is made at the start; free on its disk: "),
            "{line}"
        );
    }
    assert!(!lines.exists());
    // What a run made can be written by the next.
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let said = check(0);
    for (subject, _) in &places[..2] {
        let line = line_of(&said, subject);
        assert!(line.contains(": can be written; free on its disk: "), "{line}");
    }

    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "").unwrap();
    let said = check(1);
    let none = format!("`{}` is no folder, expected one: correct ", state.display());
    for (subject, key) in &places[2..] {
        assert_eq!(line_of(&said, subject), format!("FAIL  {subject}: {none}{key}"));
    }
    assert_eq!(
        line_of(&said, &places[1].0),
        format!("FAIL  {}: {none}--state-dir", places[1].0)
    );
}

#[test]
fn once_ends_with_0_when_it_has_caught_up() {
    let bed = TestBed::new();
    let mut relay = bed.relay(OUTBOX);
    // The first time there is nothing.
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let messages: Vec<String> = (0..5000).map(|number| format!(r#"{{"payload": {number}}}"#)).collect();
    bed.app().emit_all("outbox", &messages).unwrap();
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut reader = bed.reader(&["events"]);
    reader.exactly(5000);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    reader.exactly(5000);
}

#[test]
fn of_two_pipelines_in_one_process_one_halts_and_the_other_goes_on() {
    let bed = TestBed::new();
    let mut relay = bed.relay(OUTBOX);
    // It halts at an event without a topic; the other's names differ.
    let second = OUTBOX
        .replace("name: <name>", "name: <name>-second")
        .replace("slot: <slot>", "slot: <slot>2")
        .replace("[outbox]", "[second]")
        .replace("topic: '<topic>'", "topic: '<name>.${event_type}'");
    let file = relay.pipeline_file().with_file_name("second.yaml");
    fs::write(&file, bed.fill(&second)).unwrap();
    relay.start_with(&[file.to_str().unwrap()]);
    relay.wait_ready();
    let name = format!("{}-second", bed.name);
    let mut app = bed.app();
    app.emit("second", r#"{"event_type": "second", "payload": 1}"#);
    app.emit("second", r#"{"payload": "no topic"}"#);
    relay.wait_not_ready(&format!("{name}: failed: "));
    let answer = relay.get("/readyz").unwrap();
    assert_eq!(answer.body.lines().count(), 1, "{}", answer.body);
    assert_eq!(relay.get("/healthz").unwrap().code, 200);
    assert_eq!(relay.metric("tailpost_up", &[("pipeline", &name)]), 0.0);
    assert_eq!(relay.metric("tailpost_up", &[("pipeline", &bed.name)]), 1.0);
    app.emit("outbox", r#"{"payload": "goes on"}"#);
    let mut reader = bed.reader(&["events", "second"]);
    reader.exactly(2);
    eventually(DEADLINE, "both published", || relay.published() == 2);
    let status = relay.status();
    let states: Vec<_> = status["pipelines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["source"]["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["streaming", "failed"]);
    relay.sigterm();
    relay.wait_halted(&[&name, "unroutable"]);
}

#[test]
fn two_files_with_one_name_or_a_taken_address_end_it_before_anything_starts() {
    let bed = TestBed::new();
    let relay = bed.relay(OUTBOX);
    let file = relay.pipeline_file();
    let twin = file.with_file_name("twin.yaml");
    fs::copy(&file, &twin).unwrap();
    let ended = tailpost([
        "run".as_ref(),
        file.as_os_str(),
        twin.as_os_str(),
        "--http".as_ref(),
        "off".as_ref(),
    ]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains(&bed.name) && ended.stderr.contains("twin.yaml"),
        "{}",
        ended.stderr
    );

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = tailpost(["run".as_ref(), file.as_os_str(), "--http".as_ref(), address.as_ref()]);
    assert_eq!(ended.code, 1);
    assert!(
        ended.stderr.contains(&address) && ended.stderr.contains("--http"),
        "{}",
        ended.stderr
    );
    assert_eq!(bed.confirmed(), None, "no slot was made");
}

#[test]
fn no_secret_is_in_any_output_of_a_whole_life_at_trace() {
    let bed = TestBed::new();
    let secret = "kafka-secret-9f3";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, format!("{secret}\n")).unwrap();
    let broken = bed.postgres.url.replace(&bed.password(), "wrong-pw-77");
    let pipeline = OUTBOX.replace("'<dsn>'", "'${THE_DSN}'").replace(
        "brokers: '<brokers>'",
        &format!(
            "brokers: '<brokers>', client_conf: {{sasl.password: '${{file:{}}}', sasl.username: somebody}}",
            file.display()
        ),
    );
    for format in ["text", "json"] {
        let mut relay = bed
            .relay(&pipeline)
            .env("THE_DSN", &bed.postgres.url)
            .env("TAILPOST_LOG", "trace");
        relay.keep_secret(secret);
        relay.start_with(&["--log-format", format]);
        relay.wait_ready();
        bed.app()
            .emit("outbox", r#"{"payload": "a-cell-that-is-not-for-logs"}"#);
        relay.keep_secret("a-cell-that-is-not-for-logs");
        relay.wait_settled(1);
        for path in ["/metrics", "/status", "/readyz", "/healthz"] {
            let body = relay.get(path).unwrap().body;
            assert!(
                !body.contains(&bed.password()) && !body.contains(secret),
                "{path}: {body}"
            );
        }
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        assert!(relay.log().contains("TRACE"), "this shows nothing without trace");
        bed.admin()
            .execute("SELECT pg_drop_replication_slot($1)", &[&bed.slot])
            .unwrap();
    }
    let mut relay = bed
        .relay(&pipeline)
        .env("THE_DSN", &broken)
        .env("TAILPOST_LOG", "trace");
    relay.keep_secret("wrong-pw-77");
    relay.keep_secret(secret);
    relay.start();
    relay.wait_halted(&["28P01", "check the user and password in the DSN"]);
}
