//! Pipeline files, and the binary that runs them: its command line and its files are all that is known of it here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{BenchError, Tried};
use crate::process::{self, Running, Usage};

/// What a pipeline file says, as far as it differs.
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub name: String,
    /// Its `source`, as YAML in one line.
    pub source: String,
    pub topic: String,
    /// More keys of its processor, `, key: value` each.
    pub processor: String,
    pub delivery: Delivery,
}

/// How surely it delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    AtLeastOnce,
    ExactlyOnce,
}

impl Pipeline {
    fn text(&self, brokers: &str) -> String {
        let Self {
            name,
            source,
            topic,
            processor,
            delivery,
        } = self;
        let exactly_once = *delivery == Delivery::ExactlyOnce;
        format!(
            "apiVersion: tailpost/v1\n\
             kind: Pipeline\n\
             metadata: {{name: {name}}}\n\
             spec:\n\
             \x20 source: {source}\n\
             \x20 processors: [{{type: outbox, topic: '{topic}', raw_payload: true{processor}}}]\n\
             \x20 sinks: [{{type: kafka, config: {{id: kafka, brokers: '{brokers}', exactly_once: {exactly_once}}}}}]\n"
        )
    }
}

/// The binary, and a folder for all that its runs need.
pub struct Tailpost {
    pub binary: PathBuf,
    pub folder: PathBuf,
    pub brokers: String,
}

impl Tailpost {
    /// Runs pipelines in one process from nothing to the log's end: from the start of the process to its exit.
    pub fn drain(&self, pipelines: &[Pipeline]) -> Result<Usage, BenchError> {
        let run = self.prepare(pipelines)?;
        process::run(&mut self.command(&run, &["--once"]), &run.join("log"))
    }

    /// What the run of these pipelines said.
    pub fn log(&self, pipelines: &[Pipeline]) -> String {
        fs::read_to_string(self.run_folder(pipelines).join("log")).unwrap_or_default()
    }

    /// Removes all that the run of these pipelines left.
    pub fn clear(&self, pipelines: &[Pipeline]) -> Result<(), BenchError> {
        fs::remove_dir_all(self.run_folder(pipelines)).tried("remove a run's folder")
    }

    fn run_folder(&self, pipelines: &[Pipeline]) -> PathBuf {
        let name = pipelines.first().map_or("none", |pipeline| &pipeline.name);
        self.folder.join(name)
    }

    /// Runs pipelines in one process until that is stopped.
    pub fn start(&self, pipelines: &[Pipeline]) -> Result<Running, BenchError> {
        let run = self.prepare(pipelines)?;
        Running::start(&mut self.command(&run, &[]), &run.join("log"))
    }

    pub fn version(&self) -> Result<String, BenchError> {
        let output = Command::new(&self.binary)
            .arg("--version")
            .output()
            .tried("ask for tailpost's version")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Stripped of nothing.
    pub fn size(&self) -> Result<u64, BenchError> {
        Ok(fs::metadata(&self.binary).tried("look at the binary")?.len())
    }

    /// A folder of a run with its files in `pipelines`.
    fn prepare(&self, pipelines: &[Pipeline]) -> Result<PathBuf, BenchError> {
        let run = self.run_folder(pipelines);
        let files = run.join("pipelines");
        fs::create_dir_all(&files).tried(format!("make {}", files.display()))?;
        for pipeline in pipelines {
            let file = files.join(format!("{}.yaml", pipeline.name));
            fs::write(&file, pipeline.text(&self.brokers)).tried(format!("write {}", file.display()))?;
        }
        Ok(run)
    }

    fn command(&self, run: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg("run")
            .arg(run.join("pipelines"))
            .arg("--state-dir")
            .arg(run.join("state"));
        command.args(["--http", "off"]).args(more);
        // Nobody's settings but the files'.
        command.env_clear().current_dir(run);
        command
    }
}
