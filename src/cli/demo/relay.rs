//! The relay, as anybody runs it: `tailpost run` in a process of its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::checkpoint::file::FileStore;
use crate::position::Position;

use super::database::{Script, Session};
use super::error::DemoError;
use super::process::{Farewell, Process};
use super::wait;

/// What the pipeline file names, whatever the database.
const PIPELINE: &str = "demo";
const SOURCE: &str = "shop";

const STREAMING: Duration = Duration::from_secs(30);
const DRAIN: Duration = Duration::from_secs(40);

/// Everything that a start of the relay needs.
#[derive(Debug)]
pub(super) struct Relay {
    folder: PathBuf,
    script: &'static Script,
    dsn: String,
    brokers: String,
}

/// A relay that runs.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
}

impl Relay {
    /// Writes the pipeline file.
    pub(super) fn new(folder: &Path, script: &'static Script, dsn: String, brokers: String) -> Result<Self, DemoError> {
        let relay = Self {
            folder: folder.to_owned(),
            script,
            dsn,
            brokers,
        };
        fs::write(relay.file(), script.pipeline).map_err(|source| DemoError::Io {
            action: "write the pipeline file",
            source,
        })?;
        Ok(relay)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("pipeline.yaml")
    }

    /// Where it would go on from, as it was saved last; None: nothing was.
    pub(super) fn saved(&self) -> Result<Option<Position>, DemoError> {
        Ok(FileStore::peek(&self.state_dir(), PIPELINE, SOURCE)?)
    }

    fn state_dir(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Starts it, and waits until it streams.
    pub(super) async fn start(&self, session: &mut Session) -> Result<Running, DemoError> {
        let program = env::current_exe().map_err(|source| DemoError::Io {
            action: "find this program's own file",
            source,
        })?;
        let mut command = Command::new(program);
        command.arg("run").arg(self.file());
        command.args(["--http", "off", "--state-dir"]).arg(self.state_dir());
        command
            .env(self.script.dsn_variable, &self.dsn)
            .env("KAFKA_BROKERS", &self.brokers);
        let mut process = Process::start("the relay", &mut command, self.folder.join("relay.log"), Farewell::Kill)?;
        let streaming = wait::until("the relay to stream", STREAMING, async || {
            process.expect_alive()?;
            Ok(session.is_streaming().await?.then_some(()))
        })
        .await;
        streaming.map_err(|error| process.explained(error))?;
        Ok(Running { process })
    }
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// `kill -9`.
    pub(super) fn kill(mut self) -> Result<(), DemoError> {
        self.process.kill()
    }

    /// SIGTERM: it drains, saves and ends.
    pub(super) async fn stop(mut self) -> Result<(), DemoError> {
        self.process.signal("TERM")?;
        self.process.finish("the relay to drain and end", DRAIN).await
    }

    /// An error when it has ended by itself; else the given one with the relay's last words.
    pub(super) fn explained(&mut self, error: DemoError) -> DemoError {
        match self.process.expect_alive() {
            Err(ended) => ended,
            Ok(()) => self.process.explained(error),
        }
    }
}
