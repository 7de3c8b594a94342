//! `tailpost check`: everything that a pipeline needs on the servers and on this machine's disks, looked at before it runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::output::say;
use crate::config;
use crate::preflight::{Finding, Verdict};
use crate::telemetry::logs::{self, LogFormat};
use crate::{audit, checkpoint, letters, schema_registry, sequences, sink, source};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Pipeline files, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Where checkpoints are kept, and what the files name by relative paths.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    state_dir: PathBuf,
}

pub(super) fn run(arguments: &CheckArguments) -> ExitCode {
    logs::start(LogFormat::Text);
    let loaded = match super::load(&arguments.paths) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let mut worst = Verdict::Good;
    for file in loaded {
        say(format!("{} ({})\n", file.pipeline.name, file.path.display()));
        let findings = runtime.block_on(findings(&file.pipeline, &arguments.state_dir));
        for finding in findings {
            worst = worst.max(finding.verdict);
            say(format!("  {finding}\n"));
        }
    }
    if worst == Verdict::Bad {
        ExitCode::from(super::FAILURE)
    } else {
        super::SUCCESS
    }
}

async fn findings(pipeline: &config::Pipeline, state_dir: &Path) -> Vec<Finding> {
    let mut findings = match &pipeline.source {
        config::Source::Postgres(postgres) => {
            source::postgres::preflight(postgres, checkpoint::is_first_start(pipeline, state_dir)).await
        }
        config::Source::Mysql(mysql) => source::mysql::preflight(mysql, &pipeline.name).await,
    };
    findings.extend(sink::preflight(pipeline).await);
    findings.extend(schema_registry::preflight(pipeline).await);
    findings.extend(checkpoint::preflight(pipeline, state_dir));
    findings.extend(sequences::preflight(pipeline, state_dir));
    findings.extend(letters::preflight(pipeline, state_dir));
    findings.extend(audit::preflight(pipeline, state_dir));
    findings
}
