//! The real binary as a child process, what it logs, and what it says over HTTP.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tailpost::letters::{Kept, LetterStore};
use tailpost::position::{MysqlPosition, Position, PostgresPosition};
use tempfile::TempDir;

use super::http::{self, Answer};
use super::{DEADLINE, eventually, found};

const FAILPOINT: &str = "TAILPOST_FAILPOINT";

/// The connector with one pipeline file and one state folder, over any number of lives. Killed at the end.
pub struct Relay {
    pipeline: String,
    folder: Arc<TempDir>,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    http: SocketAddr,
    child: Option<(Child, JoinHandle<()>)>,
    log: Arc<Mutex<Vec<String>>>,
    /// Lines before this are of former lives.
    life: usize,
    expected_errors: Vec<String>,
    secrets: Vec<String>,
}

impl Relay {
    pub(super) fn new(pipeline: &str, text: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        fs::write(folder.path().join("pipeline.yaml"), text).expect("write the pipeline file");
        Self {
            pipeline: pipeline.to_owned(),
            folder,
            arguments: Vec::new(),
            environment: Vec::new(),
            http: free_address(),
            child: None,
            log: Arc::default(),
            life: 0,
            expected_errors: Vec::new(),
            secrets: Vec::new(),
        }
    }

    /// A second process of the same pipeline file and state folder, not started yet.
    pub fn twin(&self) -> Self {
        Self {
            pipeline: self.pipeline.clone(),
            folder: Arc::clone(&self.folder),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            http: free_address(),
            child: None,
            log: Arc::default(),
            life: 0,
            expected_errors: Vec::new(),
            secrets: self.secrets.clone(),
        }
    }

    /// A text that no line of the log may have, in any life.
    pub fn keep_secret(&mut self, text: &str) {
        self.secrets.push(text.to_owned());
    }

    pub fn pipeline_file(&self) -> PathBuf {
        self.folder.path().join("pipeline.yaml")
    }

    pub fn checkpoint_file(&self) -> PathBuf {
        self.state_dir().join(format!("{}.json", self.pipeline))
    }

    /// A variable of the child's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Has the lives that follow killed at a failpoint such as `after_save:2`, or at none.
    ///
    /// # Panics
    /// Where the connector was built without them.
    pub fn arm(&mut self, failpoint: Option<&str>) {
        const { assert!(cfg!(feature = "failpoints"), "built without the feature `failpoints`") };
        self.environment.retain(|(name, _)| name != FAILPOINT);
        let armed = failpoint.map(|failpoint| (FAILPOINT.to_owned(), failpoint.to_owned()));
        self.environment.extend(armed);
    }

    /// Replaces the pipeline file, for the next life.
    pub fn rewrite(&mut self, text: &str) {
        fs::write(self.folder.path().join("pipeline.yaml"), text).expect("write the pipeline file");
    }

    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The dead letters in this file of the state folder.
    pub fn letters(&self, file: &str) -> Vec<Kept> {
        let store = LetterStore::open_existing(&self.state_dir().join(file)).expect("a file of dead letters");
        let mut all = Vec::new();
        store.each(|kept| all.push(kept)).expect("read the dead letters");
        all
    }

    /// The saved position, as it is in the checkpoint file.
    pub fn checkpoint(&self) -> Option<Value> {
        let text = fs::read(self.checkpoint_file()).ok()?;
        Some(serde_json::from_slice(&text).expect("a checkpoint is JSON"))
    }

    /// The saved position as a value; None before the first save.
    pub fn position(&self) -> Option<Position> {
        let position = self.checkpoint()?["position"].take();
        Some(serde_json::from_value(position).expect("a position"))
    }

    /// The same, of PostgreSQL.
    pub fn saved(&self) -> Option<PostgresPosition> {
        match self.position()? {
            Position::Postgres(position) => Some(position),
            other => panic!("{other} is of another database"),
        }
    }

    /// The same, of MySQL or MariaDB.
    pub fn saved_mysql(&self) -> Option<MysqlPosition> {
        match self.position()? {
            Position::Mysql(position) => Some(*position),
            other => panic!("{other} is of another database"),
        }
    }

    /// ERROR lines fail a test at its end; those with this text are what it is about.
    pub fn expect_error(&mut self, text: &str) {
        self.expected_errors.push(text.to_owned());
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts a life with more arguments, such as `--once`.
    pub fn start_with(&mut self, arguments: &[&str]) {
        assert!(self.child.is_none(), "it runs already");
        self.life = self.log.lock().unwrap().len();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tailpost"))
            .arg("run")
            .arg(self.folder.path().join("pipeline.yaml"))
            .arg("--state-dir")
            .arg(self.state_dir())
            .args(["--http", &self.http.to_string()])
            .args(&self.arguments)
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("TAILPOST_LOG")
            .env_remove(FAILPOINT)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start tailpost");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let log = Arc::clone(&self.log);
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                log.lock().unwrap().push(line);
            }
        });
        self.child = Some((child, reader));
    }

    pub fn pid(&self) -> i32 {
        let (child, _) = self.child.as_ref().expect("it runs");
        child.id().try_into().expect("a pid")
    }

    /// None: it is not running.
    pub fn running_pid(&self) -> Option<i32> {
        self.child.is_some().then(|| self.pid())
    }

    /// The log of this life.
    pub fn log(&self) -> String {
        self.log.lock().unwrap()[self.life..].join("\n")
    }

    /// Lines of all lives that meet the condition.
    pub fn count_lines(&self, condition: impl Fn(&str) -> bool) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| condition(line)).count()
    }

    /// How many lines of this life have the text.
    pub fn count_log(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Starts a life that must end by itself as a failure for good: exit code 1, one line of error that says each thing
    /// once, and no second try. Gives the line.
    pub fn fails(&mut self) -> String {
        self.start();
        let code = self.wait_exit(DEADLINE);
        let log = self.log();
        assert_eq!(code, 1, "{log}");
        assert!(!log.contains("is started again"), "{log}");
        let errors: Vec<&str> = log.lines().filter(|line| is_error(line)).collect();
        let [line] = errors[..] else {
            panic!("expected one line of error:\n{log}")
        };
        let parts: Vec<&str> = line.split(": ").collect();
        for (at, part) in parts.iter().enumerate() {
            assert!(!parts[at + 1..].contains(part), "`{part}` is said twice: {line}");
        }
        self.expect_error(line);
        line.to_owned()
    }

    /// Waits until a line of this life has the text; gives the line.
    pub fn wait_log(&mut self, text: &str) -> String {
        let what = format!("a log line with `{text}`");
        let (log, life) = (Arc::clone(&self.log), self.life);
        let search = move || {
            log.lock().unwrap()[life..]
                .iter()
                .find(|line| line.contains(text))
                .cloned()
        };
        found(DEADLINE, &what, || {
            let line = search();
            // Looked for once more: the line may be its last.
            line.or_else(|| (!self.runs()).then(|| search().unwrap_or_else(|| panic!("it ended without {what}"))))
        })
    }

    /// Waits until `/readyz` says 200.
    pub fn wait_ready(&mut self) {
        eventually(DEADLINE, "/readyz 200", || {
            assert!(self.runs(), "it ended before it was ready");
            self.get("/readyz").is_some_and(|answer| answer.code == 200)
        });
    }

    /// Waits until `/readyz` says 503 with this text among its reasons.
    pub fn wait_not_ready(&mut self, reason: &str) {
        eventually(DEADLINE, &format!("/readyz 503 with `{reason}`"), || {
            self.get("/readyz")
                .is_some_and(|answer| answer.code == 503 && answer.body.contains(reason))
        });
    }

    /// Where it answers over HTTP.
    pub fn http(&self) -> String {
        self.http.to_string()
    }

    /// Asks an endpoint; None when nobody answers.
    pub fn get(&self, path: &str) -> Option<Answer> {
        http::get(self.http, path)
    }

    pub fn status(&self) -> Value {
        let answer = self.get("/status").expect("/status answers");
        serde_json::from_str(&answer.body).expect("/status is JSON")
    }

    /// All metrics at one moment.
    pub fn metrics(&self) -> Option<Metrics> {
        self.get("/metrics").map(|answer| Metrics(answer.body))
    }

    /// The sum of a metric's samples that have these labels; 0 when there are none, or while nobody answers.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().map_or(0.0, |metrics| metrics.sum(name, labels))
    }

    pub fn published(&self) -> u64 {
        self.metric("tailpost_events_published_total", &[]) as u64
    }

    /// Waits until nothing is in flight and this many were published in this life, and checks that every event is
    /// accounted for.
    pub fn wait_published(&mut self, count: u64) {
        eventually(DEADLINE, &format!("{count} published"), || {
            assert!(self.runs(), "it ended before {count} were published");
            self.published() >= count
        });
        self.metrics().expect("/metrics answers").assert_accounted();
    }

    pub fn skipped(&self, reason: &str) -> u64 {
        self.metric("tailpost_events_skipped_total", &[("reason", reason)]) as u64
    }

    pub fn dead_lettered(&self, reason: &str) -> u64 {
        self.metric("tailpost_events_dead_lettered_total", &[("reason", reason)]) as u64
    }

    /// Waits until this many were received in this life and nothing is in flight, and checks that every event is
    /// accounted for.
    pub fn wait_settled(&mut self, received: u64) {
        eventually(DEADLINE, &format!("{received} received and settled"), || {
            assert!(self.runs(), "it ended before {received} were settled");
            self.metrics().is_some_and(|metrics| {
                metrics.assert_accounted();
                // A binlog has the rows of neighbours' tables too.
                let foreign = metrics.sum("tailpost_events_skipped_total", &[("reason", "unlisted_table")]);
                (metrics.sum("tailpost_events_received_total", &[]) - foreign) as u64 >= received
                    && metrics.sum("tailpost_in_flight_events", &[]) == 0.0
            })
        });
    }

    /// The most memory that this life had resident, in bytes.
    pub fn peak_rss(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// What is resident of files, in bytes: the program's code, which is large in a development build.
    pub fn resident_code(&self) -> u64 {
        self.memory("RssFile:")
    }

    /// How many of its threads have this name.
    pub fn threads(&self, name: &str) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        // A thread may end while they are read.
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|found| found.trim_end() == name).count()
    }

    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib: u64 = line
            .and_then(|line| line.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.parse().ok())
            .unwrap_or_else(|| panic!("{name} in kB"));
        kib * 1024
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).expect("a pid"), signal).expect("signal tailpost");
    }

    /// Asks it to stop, once it listens: right after its start that would end it as it does any process.
    pub fn sigterm(&self) {
        eventually(DEADLINE, "it listens for SIGTERM, or has ended", || {
            self.catches(Signal::TERM).unwrap_or(true)
        });
        self.signal(Signal::TERM);
    }

    /// None: it has ended, or is about to.
    fn catches(&self, signal: Signal) -> Option<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        let has_memory = status.lines().any(|line| line.starts_with("VmRSS:"));
        has_memory.then_some(caught >> (signal.as_raw() - 1) & 1 == 1)
    }

    /// Kills it and waits until it is gone, its sockets with it.
    pub fn sigkill(&mut self) {
        let (mut child, reader) = self.child.take().expect("it runs");
        child.kill().expect("kill tailpost");
        child.wait().expect("wait for tailpost");
        reader.join().expect("the log's reader");
    }

    /// Waits until it has ended by itself; gives the exit code.
    pub fn wait_exit(&mut self, deadline: Duration) -> i32 {
        let status = self.wait_end(deadline);
        status.code().unwrap_or_else(|| panic!("it ended by {status}"))
    }

    /// Waits until a failpoint has killed it.
    pub fn wait_killed(&mut self) {
        let status = self.wait_end(DEADLINE);
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it ended by {status}");
    }

    fn wait_end(&mut self, deadline: Duration) -> ExitStatus {
        eventually(deadline, "tailpost ended", || !self.runs());
        let (mut child, reader) = self.child.take().expect("it was started");
        let status = child.wait().expect("wait for tailpost");
        reader.join().expect("the log's reader");
        status
    }

    /// Waits until it has ended as a failure that a person must act on: code 1, and one ERROR line, which has these texts.
    pub fn wait_halted(&mut self, texts: &[&str]) -> String {
        let code = self.wait_exit(DEADLINE);
        let log = self.log();
        let errors: Vec<&str> = log.lines().filter(|line| is_error(line)).collect();
        assert!(code == 1 && errors.len() == 1, "it ended with {code} and\n{log}");
        for text in texts {
            assert!(errors[0].contains(text), "`{text}` is not in\n{}", errors[0]);
        }
        self.expected_errors.push(errors[0].to_owned());
        errors[0].to_owned()
    }

    pub fn runs(&mut self) -> bool {
        match &mut self.child {
            Some((child, reader)) => {
                // The log is read to its end before the process counts as ended.
                child.try_wait().expect("look at tailpost").is_none() || !reader.is_finished()
            }
            None => false,
        }
    }

    fn unexpected_errors(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter()
            .filter(|line| is_error(line))
            .filter(|line| !self.expected_errors.iter().any(|text| line.contains(text)))
            .cloned()
            .collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            eprintln!("--- log of {}\n{}", self.pipeline, self.log.lock().unwrap().join("\n"));
            return;
        }
        let log = self.log.lock().unwrap();
        let told = |line: &&String| self.secrets.iter().any(|secret| line.contains(secret));
        assert_eq!(log.iter().find(told), None, "a secret is in the log");
        drop(log);
        let errors = self.unexpected_errors();
        assert!(
            errors.is_empty(),
            "errors that the test does not expect:\n{}",
            errors.join("\n")
        );
    }
}

fn is_error(line: &str) -> bool {
    line.split_whitespace().nth(1) == Some("ERROR")
        || line.contains("\"level\":\"ERROR\"")
        || line.contains("panicked at")
}

/// The text of `/metrics`.
pub struct Metrics(String);

impl Metrics {
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, text) = series.split_once('{').unwrap_or((series, ""));
            let matches = labels
                .iter()
                .all(|(name, value)| text.contains(&format!("{name}=\"{value}\"")));
            (found == name && matches).then(|| value.parse::<f64>().expect("a number"))
        });
        samples.sum()
    }

    /// received = published + skipped + dead-lettered + in flight.
    pub fn assert_accounted(&self) {
        let received = self.sum("tailpost_events_received_total", &[]);
        let parts = [
            "tailpost_events_published_total",
            "tailpost_events_skipped_total",
            "tailpost_events_dead_lettered_total",
            "tailpost_in_flight_events",
        ];
        let settled: f64 = parts.iter().map(|name| self.sum(name, &[])).sum();
        assert_eq!(received, settled, "received, and the sum of the rest, in\n{}", self.0);
    }
}

/// An address that nobody listens on. Below the range of outgoing connections, and each only once in this process.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = (std::process::id() as u16)
            .wrapping_mul(61)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + offset % 9_000));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
