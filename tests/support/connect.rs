//! Kafka Connect with Debezium, as a team has it that changes over: a standalone worker in a process of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::relay::free_address;
use super::{DEADLINE, eventually, found, http, variable};

/// A worker with one connector. Killed at the end.
pub struct Connect {
    child: Child,
    rest: SocketAddr,
    folder: TempDir,
    connector: String,
}

impl Connect {
    /// Starts a worker, and on it this connector. Its jars are in the folder that `TAILPOST_TEST_DEBEZIUM` names.
    pub fn start(brokers: &str, connector: &str, config: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let rest = free_address();
        let jars = variable("TAILPOST_TEST_DEBEZIUM");
        let worker = format!(
            "bootstrap.servers={brokers}\n\
             key.converter=org.apache.kafka.connect.storage.StringConverter\n\
             value.converter=org.apache.kafka.connect.storage.StringConverter\n\
             offset.storage.file.filename={}\n\
             offset.flush.interval.ms=1000\n\
             listeners=http://{rest}\n",
            folder.path().join("offsets").display()
        );
        fs::write(folder.path().join("worker.properties"), worker).expect("write the worker's properties");
        let log = File::create(folder.path().join("log")).expect("a log");
        let child = Command::new("java")
            .args(["-XX:+UseSerialGC", "-Xmx512m", "-cp", &format!("{jars}/*")])
            .arg("org.apache.kafka.connect.cli.ConnectStandalone")
            .arg(folder.path().join("worker.properties"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log twice"))
            .stderr(log)
            .spawn()
            .expect("start java");
        let connect = Self {
            child,
            rest,
            folder,
            connector: connector.to_owned(),
        };
        eventually(DEADLINE, "the worker answers", || {
            http::get(rest, "/connectors").is_some_and(|answer| answer.code == 200)
        });
        let request = json!({"name": connector, "config": config}).to_string();
        let answer = http::request(rest, "POST", "/connectors", &request).expect("the worker answers");
        assert_eq!(answer.code, 201, "{}", answer.body);
        connect
    }

    /// The properties of the worker.
    pub fn worker_file(&self) -> PathBuf {
        self.folder.path().join("worker.properties")
    }

    /// What the worker answers about the connector: what a team has in hand.
    pub fn connector_file(&self) -> PathBuf {
        let path = self.folder.path().join("connector.json");
        fs::write(&path, self.ask("")).expect("write the connector's file");
        path
    }

    /// Stops the connector. Gives its saved offsets.
    pub fn stop(&self) -> String {
        let path = format!("/connectors/{}/stop", self.connector);
        let answer = http::request(self.rest, "PUT", &path, "").expect("the worker answers");
        assert!(answer.code < 300, "{}", answer.body);
        eventually(DEADLINE, "the connector stopped", || {
            self.ask("/status").contains("\"STOPPED\"")
        });
        found(DEADLINE, "an offset", || {
            let offsets = self.ask("/offsets");
            let parsed: Value = serde_json::from_str(&offsets).ok()?;
            (!parsed["offsets"].as_array()?.is_empty()).then_some(offsets)
        })
    }

    /// Ends the worker as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill the worker");
        self.child.wait().expect("its end");
    }

    fn ask(&self, path: &str) -> String {
        let path = format!("/connectors/{}{path}", self.connector);
        http::get(self.rest, &path)
            .map(|answer| answer.body)
            .unwrap_or_default()
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("ERROR") || line.contains("Caused"))
                .collect();
            eprintln!("{}", lines.join("\n"));
        }
    }
}
