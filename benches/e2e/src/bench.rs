//! What every row needs: the settings, the binary and the broker.

use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::error::{BenchError, Tried};
use crate::event::Expected;
use crate::kafka::Broker;
use crate::pipeline::{Pipeline, Tailpost};
use crate::process::Usage;
use crate::servers::variable;
use crate::settings::Settings;

/// See the module's text.
pub struct Bench {
    pub settings: Settings,
    pub tailpost: Tailpost,
    pub broker: Broker,
    pub folder: TempDir,
    names: AtomicU64,
}

impl Bench {
    pub fn new(settings: Settings) -> Result<Self, BenchError> {
        let address = variable("TAILPOST_TEST_KAFKA")?;
        let folder = tempfile::tempdir().tried("make a folder")?;
        Ok(Self {
            tailpost: Tailpost {
                binary: settings.tailpost.clone(),
                folder: folder.path().to_owned(),
                brokers: address.clone(),
            },
            broker: Broker::connect(&address)?,
            settings,
            folder,
            names: AtomicU64::new(0),
        })
    }

    /// Letters and digits; another process on the same servers has others.
    pub fn unique_name(&self) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("b{}n{number}", std::process::id())
    }

    /// Where a program's output goes, to be quoted if it fails.
    pub fn log(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// One drain to topics of its own, then the look at what is in them, off the clock.
    pub fn verified_drain(&self, pipelines: &[Pipeline], partitions: i32, all: &Expected) -> Result<Usage, BenchError> {
        let names = pipelines.iter().map(|pipeline| pipeline.topic.clone()).collect();
        let topics = self.broker.topics(names, partitions)?;
        let usage = self.tailpost.drain(pipelines)?;
        let mut last = 0;
        for topic in &topics.names {
            let verified = self.broker.verify(topic, all);
            if verified.is_err() {
                eprintln!("the log of the run that is wrong:\n{}", self.tailpost.log(pipelines));
            }
            last = verified?.max(last);
        }
        self.tailpost.clear(pipelines)?;
        Ok(usage.until(last))
    }
}
