//! The commands of docs/operate.md, "From symptom to command": each is taken from the text and run against a pipeline that has
//! what it is for, so that none of them can be wrong for long.

use std::fs;
use std::process::Command;

use crate::support::app::App;
use crate::support::mysql::Flavor;
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::target::{Answer, Target};
use crate::support::{DEADLINE, Event, eventually};

const TEXT: &str = include_str!("../docs/operate.md");
const SECTION: &str = "\n## From symptom to command\n";

/// Of a binlog, which can be read again from any place that the server still has.
const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, raw_payload: true}]
  sinks: [{type: http, config: {id: target, url: '<url>/in', retry: {max_attempts: 1}}}]
  dead_letter: {type: sqlite, config: {path: dead.sqlite}}
";

/// The section's commands in their order, each once.
fn commands() -> Vec<String> {
    let (_, section) = TEXT.split_once(SECTION).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut commands: Vec<String> = Vec::new();
    let mut is_fenced = false;
    for line in section.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        // Each second part between backquotes is code.
        let code: Vec<&str> = match is_fenced {
            true => line.split('#').take(1).collect(),
            false => line.split('`').skip(1).step_by(2).collect(),
        };
        for command in code.into_iter().map(str::trim) {
            if command.starts_with("tailpost ") && !commands.iter().any(|known| known == command) {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

/// Whether it needs the process stopped, or starts it.
fn is_for_a_stopped_one(command: &str) -> bool {
    ["tailpost run ", "tailpost position import ", "tailpost position set "]
        .iter()
        .any(|begin| command.starts_with(begin))
}

/// The command as it is for this process: the pipeline's name, its address, its state folder, and GTIDs that its server has.
fn fitted(command: &str, bed: &MysqlBed, relay: &Relay) -> String {
    let words = command.split(' ').map(|word| match word {
        "orders" => bed.name.clone(),
        word if word.ends_with(":1-5") => format!("'{}'", bed.gtids()),
        word => word.to_owned(),
    });
    let mut fitted: Vec<String> = words.collect();
    match fitted[1].as_str() {
        "status" | "alert" | "pause" | "resume" => fitted.extend(["--http".to_owned(), relay.http()]),
        "dlq" | "position" => {
            let state = format!("--state-dir '{}'", relay.state_dir().display());
            fitted.insert(3, state);
        }
        _ => {}
    }
    fitted.join(" ")
}

/// Runs it in a shell, in the folder of the pipeline file; it must end well.
fn run(command: &str, relay: &Relay) -> String {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tailpost"));
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = binary.parent().expect("a folder").display();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(relay.pipeline_file().parent().expect("a folder"))
        .env("PATH", format!("{folder}:{path}"))
        .env_remove("TAILPOST_LOG")
        .output()
        .expect("run a shell");
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(
        output.status.success(),
        "{command}: {}\n{}",
        output.status,
        said.concat()
    );
    said.concat()
}

#[test]
fn each_command_of_the_runbook_does_what_it_is_for() {
    let commands = commands();
    let has = |begin: &str| commands.iter().any(|command| command.starts_with(begin));
    for begin in [
        "status",
        "check",
        "alert check",
        "validate",
        "pause",
        "resume",
        "dlq list",
        "dlq show",
        "dlq stats",
        "dlq replay",
        "dlq purge",
        "position show",
        "position export",
        "position import",
        "position set",
        "run",
    ] {
        assert!(
            has(&format!("tailpost {begin}")),
            "`tailpost {begin}` is not in {commands:#?}"
        );
    }

    let bed = MysqlBed::new(Flavor::Mysql);
    let target = Target::new(|_, _| Answer::Status(500));
    let mut relay = bed.relay(&PIPELINE.replace("<url>", &target.url()));
    fs::copy(
        relay.pipeline_file(),
        relay.pipeline_file().with_file_name("orders.yaml"),
    )
    .expect("copy the file");
    relay.start();
    relay.wait_ready();
    let mut app = App::Mysql(bed.app());
    app.emit(&Event::of("1").key("1"));
    // Rows of other tests' tables are received too, so what is settled is no sign of it.
    eventually(DEADLINE, "the event is parked", || {
        relay.dead_lettered("max_retries_exceeded") == 1
    });
    target.behave(|_, _| Answer::Status(200));

    let (stopped, running): (Vec<&String>, Vec<&String>) =
        commands.iter().partition(|command| is_for_a_stopped_one(command));
    for command in running {
        let said = run(&fitted(command, &bed, &relay), &relay);
        if command.contains("dlq replay") && command.contains("max_retries_exceeded") {
            let requests = target.requests();
            let replayed = requests
                .iter()
                .filter(|request| request.header("tailpost-replay-of").is_some());
            assert_eq!(replayed.count(), 1, "{said}");
        }
    }
    assert!(relay.letters("dead.sqlite").is_empty(), "the replayed one was purged");

    // What came since the place that was exported comes again when that is gone back to.
    app.emit(&Event::of("2").key("1"));
    relay.wait_published(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let came = |text: &str| {
        let requests = target.requests();
        requests.iter().filter(|request| request.text() == text).count()
    };
    assert_eq!(came("2"), 1);
    for command in stopped {
        let fitted = fitted(command, &bed, &relay);
        let Some(arguments) = fitted.strip_prefix("tailpost run orders.yaml") else {
            run(&fitted, &relay);
            if command.contains("import") {
                relay.start();
                relay.wait_published(1);
                assert_eq!(came("2"), 2, "it comes once more");
                relay.sigterm();
                assert_eq!(relay.wait_exit(DEADLINE), 0);
            }
            continue;
        };
        relay.start_with(&arguments.split_whitespace().collect::<Vec<_>>());
        relay.wait_ready();
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
    }
}
