//! `tailpost check`: everything on the servers that a pipeline needs, looked at before it runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::config;
use crate::preflight::{Finding, Verdict};
use crate::telemetry::logs::{self, LogFormat};
use crate::{schema_registry, sink, source};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Pipeline files, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
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
        println!("{} ({})", file.pipeline.name, file.path.display());
        let findings = runtime.block_on(findings(&file.pipeline));
        for finding in findings {
            worst = worst.max(finding.verdict);
            println!("  {finding}");
        }
    }
    if worst == Verdict::Bad {
        ExitCode::from(super::FAILURE)
    } else {
        super::SUCCESS
    }
}

async fn findings(pipeline: &config::Pipeline) -> Vec<Finding> {
    let mut findings = match &pipeline.source {
        config::Source::Postgres(postgres) => source::postgres::preflight(postgres).await,
        config::Source::Mysql(mysql) => source::mysql::preflight(mysql, &pipeline.name).await,
    };
    findings.extend(sink::preflight(pipeline).await);
    findings.extend(schema_registry::preflight(pipeline).await);
    findings
}
