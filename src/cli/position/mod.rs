//! `tailpost position`: what is saved of a pipeline's position, moved to another store, or set by hand.
//!
//! Showing and exporting only read, beside a running pipeline. Importing and setting shut out whatever else saves there first:
//! by the file's lock, or in Kafka by the transactional id.

mod debezium;
mod error;
mod set;
mod show;
mod stored;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use crate::checkpoint::file::FileStore;
use crate::checkpoint::{CheckpointError, Document};
use crate::config::{Pipeline, Source};
use crate::position::Position;
use crate::source::{self, SourceError};
use crate::telemetry::error_chain;
use crate::telemetry::logs::{self, LogFormat};

use super::output;

use error::PositionError;
use set::SetArguments;
use stored::{Place, Saved, Stored};

/// A checkpoint is a few hundred bytes, and a large GTID set some kilobytes.
const MAX_DOCUMENT_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct PositionArguments {
    #[command(subcommand)]
    command: PositionCommand,
}

#[derive(Debug, Subcommand)]
enum PositionCommand {
    /// Show what is saved, also while the pipeline runs.
    #[command(
        after_help = "Example:\n  tailpost position show pipelines/orders-postgres.yaml --state-dir /var/lib/tailpost"
    )]
    Show(ShowArguments),
    /// Write the saved position to stdout, as JSON for `import`.
    #[command(
        after_help = "Example:\n  tailpost position export pipelines/orders-postgres.yaml --store file > position.json"
    )]
    Export(ExportArguments),
    /// Save the position that stdin has, as `export` wrote it. The pipeline must not run.
    #[command(
        after_help = "Example:\n  tailpost position import pipelines/orders-postgres.yaml --store kafka < position.json\n  tailpost position import pipelines/shop-mysql.yaml --debezium < offset.json\n\nWith a position in Kafka, a checkpoint file of the pipeline in the state folder is set aside (.moved): `run` refuses two."
    )]
    Import(ImportArguments),
    /// Save a position of your own. Events between it and the old one are not published, or once more. The pipeline must not run.
    #[command(
        after_help = "Example:\n  tailpost position set pipelines/orders-postgres.yaml --lsn 16/B374D848 --accept-gap\n  tailpost position set pipelines/shop-mysql.yaml --gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 --accept-gap\n\nThe server is asked whether its log has the position, and whose log it is."
    )]
    Set(SetArguments),
}

/// Whose position, and where it is kept.
#[derive(Debug, Args)]
struct Target {
    /// The pipeline file.
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Another store than the one that the file names.
    #[arg(long, value_enum)]
    store: Option<StoreKind>,
    /// Where checkpoint files are kept.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    state_dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    File,
    Kafka,
}

#[derive(Debug, Args)]
struct ShowArguments {
    #[command(flatten)]
    target: Target,
    /// One JSON object in place of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArguments {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct ImportArguments {
    #[command(flatten)]
    target: Target,
    /// Take the position though it is of another pipeline or source, as after a change of name.
    #[arg(long)]
    as_this: bool,
    /// stdin has the offset of a Debezium connector for MySQL or MariaDB. The server is asked whether its log has it.
    #[arg(long)]
    debezium: bool,
    /// Do without a position that is saved and differs: in the store, or in a checkpoint file that is set aside.
    #[arg(long)]
    replace: bool,
}

pub(super) fn run(arguments: PositionArguments) -> ExitCode {
    logs::start(LogFormat::Text);
    let target = match &arguments.command {
        PositionCommand::Show(arguments) => &arguments.target,
        PositionCommand::Export(arguments) => &arguments.target,
        PositionCommand::Import(arguments) => &arguments.target,
        PositionCommand::Set(arguments) => &arguments.target,
    };
    let pipeline = match super::load_one(&target.path) {
        Ok(pipeline) => pipeline,
        Err(code) => return code,
    };
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let result = runtime.block_on(async {
        let stored = Stored::new(&pipeline, target)?;
        match &arguments.command {
            PositionCommand::Show(arguments) => show::run(&stored, arguments.json).await,
            PositionCommand::Export(_) => export(&stored).await,
            PositionCommand::Import(arguments) => import(&stored, arguments).await,
            PositionCommand::Set(arguments) => set::run(&stored, arguments).await,
        }
    });
    // Threads that still wait for a broker's answer are not waited for.
    runtime.shutdown_background();
    match result {
        Ok(()) => super::SUCCESS,
        Err(error) => {
            complain!("{}", error_chain(&error));
            ExitCode::from(if error.is_usage() {
                super::BAD_CONFIG
            } else {
                super::FAILURE
            })
        }
    }
}

async fn export(stored: &Stored<'_>) -> Result<(), PositionError> {
    let Some(position) = stored.peek().await? else {
        return Err(PositionError::NothingSaved {
            pipeline: stored.pipeline.name.clone(),
            place: stored.place(),
        });
    };
    let text = stored.document(&position).to_text().map_err(PositionError::Json)?;
    output::print(&text).map_err(PositionError::Output)
}

async fn import(stored: &Stored<'_>, arguments: &ImportArguments) -> Result<(), PositionError> {
    let mut text = Vec::new();
    let mut stdin = std::io::stdin().lock().take(MAX_DOCUMENT_BYTES);
    stdin.read_to_end(&mut text).map_err(PositionError::Input)?;
    let position = match arguments.debezium {
        true => read_offset(stored.pipeline, &text, arguments.as_this).await?,
        false => read_document(stored.pipeline, &text, arguments.as_this)?,
    };
    let free = |saved: &Saved, place: String| match arguments.replace || saved.is_nothing_beside(&position) {
        true => Ok(()),
        false => Err(PositionError::Occupied {
            place,
            saved: saved.to_string(),
        }),
    };
    // Held until the end: a process that keeps its checkpoint in the file must not save there meanwhile.
    let mut leftover = match stored.store() {
        Place::File => None,
        Place::Topic(..) => stored.leftover()?,
    };
    if let Some(file) = &mut leftover {
        // It may have gone on since the export.
        free(&Saved::load(file).await?, stored.file_place())?;
    }
    let chosen = |saved: &Saved| free(saved, stored.place()).map(|()| position.clone());
    let (saved, position) = stored.replace(chosen, false).await?;
    print_change(stored, &saved, &position)?;
    if let Some(path) = leftover
        .map(FileStore::set_aside)
        .transpose()
        .map_err(CheckpointError::from)?
    {
        let said = format!("the checkpoint file is now {}\n", path.display());
        output::print(said).map_err(PositionError::Output)?;
    }
    Ok(())
}

/// The position of a Debezium connector's offset, which only the server can make whole.
async fn read_offset(pipeline: &Pipeline, text: &[u8], as_this: bool) -> Result<Position, PositionError> {
    let Source::Mysql(config) = &pipeline.source else {
        return Err(debezium::OffsetError::Postgres.into());
    };
    let start = debezium::read(text, &config.id, as_this)?;
    let position = source::mysql::position_at(config, start).await;
    Ok(Position::Mysql(Box::new(position.map_err(SourceError::from)?)))
}

/// The position of an exported document, if it is one of this pipeline.
fn read_document(pipeline: &Pipeline, text: &[u8], as_this: bool) -> Result<Position, PositionError> {
    let document = Document::read(text).map_err(PositionError::Document)?;
    let name = |pipeline: &str, source: &str| format!("pipeline `{pipeline}` with source `{source}`");
    let found = name(&document.pipeline, &document.source);
    let expected = name(&pipeline.name, pipeline.source.id());
    if found != expected && !as_this {
        return Err(PositionError::Foreign { found, expected });
    }
    match (&document.position, &pipeline.source) {
        (Position::Postgres(_), Source::Postgres(_)) | (Position::Mysql(_), Source::Mysql(_)) => Ok(document.position),
        (position, source) => Err(PositionError::OtherDatabase {
            found: match position {
                Position::Postgres(_) => show::POSTGRES,
                Position::Mysql(_) => show::MYSQL,
            },
            expected: match source {
                Source::Postgres(_) => show::POSTGRES,
                Source::Mysql(_) => show::MYSQL,
            },
        }),
    }
}

/// Says what was saved before, and what is now.
fn print_change(stored: &Stored<'_>, before: &Saved, now: &Position) -> Result<(), PositionError> {
    let (name, place) = (&stored.pipeline.name, stored.place());
    let said = format!("pipeline `{name}` in {place}\nbefore: {before}\nnow: {now}\n");
    output::print(said).map_err(PositionError::Output)
}
