//! A change-over from a Debezium connector that runs, under load. `make test-debezium` fetches it and runs these.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use mysql::prelude::Queryable;
use serde_json::{Value, json};

use crate::support::cli::{tailpost, tailpost_reading};
use crate::support::connect::Connect;
use crate::support::kafka::Record;
use crate::support::mysql::Flavor;
use crate::support::mysql_bed::MysqlBed;
use crate::support::plot::Plot;
use crate::support::relay::Relay;
use crate::support::{DEADLINE, TestBed, eventually};

const DDL: &str =
    "id char(36) PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255), type varchar(255), payload text";
const KEYS: u64 = 8;
/// Events before the switch, and after it.
const SOME: u64 = 500;

/// Inserts one event a transaction, with its number as the payload, until it is stopped.
struct Load {
    committed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(mut insert: impl FnMut(&str) + Send + 'static) -> Self {
        let (committed, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (Arc::clone(&committed), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed);
                let key = number % KEYS;
                insert(&format!(
                    "INSERT INTO outbox VALUES ('00000000-0000-4000-8000-{number:012}', 'order', '{key}', 'T', '{number}')"
                ));
                count.store(number + 1, Ordering::Relaxed);
            }
        });
        Self {
            committed,
            stop,
            thread,
        }
    }

    fn count(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// How many were committed.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load");
        self.committed.load(Ordering::Relaxed)
    }
}

/// The router's options that keep its topics in the plot.
fn config(plot: &Plot, own: Value) -> Value {
    let mut config = json!({
        "tasks.max": "1",
        "topic.prefix": plot.name,
        "snapshot.mode": "no_data",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": format!("{}.${{routedByValue}}", plot.name),
        "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
    });
    let own = own.as_object().expect("options").clone();
    config.as_object_mut().expect("options").extend(own);
    config
}

fn number(record: &Record) -> u64 {
    record.value_text().expect("a value").parse().expect("a number")
}

/// Each event at least once, and of each key the first copies in order. Gives how many came again.
fn assert_none_lost(records: &[Record], committed: u64) -> usize {
    let mut seen = vec![false; usize::try_from(committed).expect("a count")];
    let mut next: Vec<u64> = (0..KEYS).collect();
    for record in records {
        let number = number(record);
        let seen = &mut seen[usize::try_from(number).expect("a number")];
        if !*seen {
            let key = usize::try_from(number % KEYS).expect("a key");
            assert_eq!(number, next[key], "the next event of key {key}");
            next[key] += KEYS;
        }
        *seen = true;
        assert_eq!(record.header("eventType"), Some("T"));
        let id = format!("00000000-0000-4000-8000-{number:012}");
        assert_eq!(record.header("id"), Some(id.as_str()));
    }
    let lost: Vec<usize> = (0..seen.len()).filter(|at| !seen[*at]).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    records.len() - seen.len()
}

/// The connector, converted: the pipeline file's text, with the database's password in it.
fn converted(connect: &Connect, password: &str) -> String {
    let worker = connect.worker_file();
    let ended = tailpost([
        "convert".as_ref(),
        "debezium".as_ref(),
        connect.connector_file().as_os_str(),
        "--worker".as_ref(),
        worker.as_os_str(),
    ]);
    assert!(ended.stdout.contains("apiVersion"), "{}", ended.stderr);
    ended.stdout.replace("${DATABASE_PASSWORD}", password)
}

fn wait_sent(plot: &Plot, count: u64) {
    let mut reader = plot.reader(&["order"]);
    reader.until("events of Debezium's", |records| records.len() as u64 >= count);
}

/// Goes on with tailpost under the same load, and holds both sides' records against what was committed.
fn go_on(plot: &Plot, mut relay: Relay, load: Load) {
    relay.start();
    relay.wait_ready();
    let switched = load.count();
    eventually(DEADLINE, "more events", || load.count() >= switched + SOME);
    let committed = load.stop();
    let mut reader = plot.reader(&["order"]);
    let last = committed - 1;
    reader.until("the last event", |records| {
        records.iter().any(|record| number(record) == last)
    });
    let repeated = assert_none_lost(reader.all(), committed);
    println!("{committed} events, {repeated} of them again");
}

/// PostgreSQL's slot is taken over where it stands, even of a worker that was killed.
#[test]
#[ignore = "fetches Debezium: make test-debezium"]
fn a_slot_is_taken_over_under_load() {
    let bed = TestBed::new();
    bed.app()
        .batch_execute(&format!("CREATE TABLE outbox ({DDL})"))
        .unwrap();
    bed.kafka.create_topic(&bed.topic("order"), 3, &[]);
    let url: postgres::Config = bed.postgres.url.parse().unwrap();
    let postgres::config::Host::Tcp(host) = &url.get_hosts()[0] else {
        panic!("a host")
    };
    let own = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": host,
        "database.port": url.get_ports()[0].to_string(),
        "database.user": url.get_user(),
        "database.password": bed.password(),
        "database.dbname": bed.name,
        "slot.name": bed.slot,
        "publication.name": bed.publication,
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.outbox",
    });
    let mut connect = Connect::start(&bed.kafka.brokers, &bed.name, &config(&bed, own));
    let mut app = bed.app();
    eventually(DEADLINE, "the slot read", || bed.active_pid().is_some());
    let load = Load::start(move |statement| app.batch_execute(statement).unwrap());
    wait_sent(&bed, SOME);
    let pipeline = converted(&connect, &bed.password());
    connect.kill();
    let relay = bed.relay(&pipeline);
    go_on(&bed, relay, load);
}

/// MySQL's offset is imported from what the worker answers.
#[test]
#[ignore = "fetches Debezium: make test-debezium"]
fn an_offset_is_taken_over_under_load() {
    let bed = MysqlBed::new(Flavor::Mysql);
    let mut app = bed.app();
    app.query_drop("DROP TABLE outbox").unwrap();
    app.query_drop(format!("CREATE TABLE outbox ({DDL}) ENGINE = BLACKHOLE"))
        .unwrap();
    bed.kafka.create_topic(&bed.topic("order"), 3, &[]);
    let admin = mysql::Opts::from_url(&bed.database.mysql.admin_url).unwrap();
    let user = mysql::Opts::from_url(&bed.database.mysql.url).unwrap();
    let own = json!({
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": admin.get_ip_or_hostname(),
        "database.port": admin.get_tcp_port().to_string(),
        "database.user": admin.get_user(),
        "database.password": admin.get_pass(),
        "database.server.id": "700700",
        "database.include.list": bed.name,
        "table.include.list": format!("{}.outbox", bed.name),
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": "history.dat",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
    });
    let connect = Connect::start(&bed.kafka.brokers, &bed.name, &config(&bed, own));
    let mut observer = bed.admin();
    // No other reader is the administrator's.
    let readers = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}' AND command LIKE 'Binlog Dump%'",
        admin.get_user().unwrap()
    );
    eventually(DEADLINE, "the binlog read", || {
        observer.query_first::<u64, _>(&readers).unwrap() > Some(0)
    });
    let load = Load::start(move |statement| app.query_drop(statement).unwrap());
    wait_sent(&bed, SOME);
    let offsets = connect.stop();
    let dsn = format!("dsn: '{}'", bed.database.mysql.url);
    let pipeline = converted(&connect, user.get_pass().unwrap());
    let lines: Vec<&str> = pipeline
        .lines()
        .map(|line| match line.trim_start().starts_with("dsn:") {
            true => "      <own dsn>",
            false => line,
        })
        .collect();
    let relay = bed.relay(&lines.join("\n").replace("<own dsn>", &dsn));
    let file = relay.pipeline_file();
    let state = relay.state_dir();
    let imported = tailpost_reading(
        &offsets,
        [
            "position".as_ref(),
            "import".as_ref(),
            file.as_os_str(),
            "--debezium".as_ref(),
            "--state-dir".as_ref(),
            state.as_os_str(),
        ],
    );
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    go_on(&bed, relay, load);
}
