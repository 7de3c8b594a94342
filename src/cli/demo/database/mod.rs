//! The database that the story is told with: a private server, sessions in it, and the texts that are its own.
//!
//! What differs between databases is in a module each, behind the enums here.

mod mysql;
mod postgres;
mod programs;
mod script;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use tokio_postgres::Client as PostgresClient;

use crate::position::LogPlace;
use crate::source::mysql::Client as MysqlClient;

use super::error::DemoError;
use super::folder::Folder;
use super::process::Process;
use super::wait;

pub(super) use programs::Wanted;
pub(super) use script::Script;

/// Every session is in it.
const DATABASE: &str = "shop";
/// Whom the relay connects as.
const USER: &str = "tailpost";
const START: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Database {
    Postgres,
    Mysql,
    Mariadb,
}

impl Database {
    pub(super) fn name(self) -> &'static str {
        self.wanted().name
    }

    pub(super) fn script(self) -> &'static Script {
        match self {
            Self::Postgres => &script::POSTGRES,
            Self::Mysql => &script::MYSQL,
            Self::Mariadb => &script::MARIADB,
        }
    }

    fn wanted(self) -> &'static Wanted {
        match self {
            Self::Postgres => &postgres::WANTED,
            Self::Mysql => &mysql::WANTED,
            Self::Mariadb => &mysql::WANTED_MARIADB,
        }
    }
}

/// A private server in the demo's folder, reached by a Unix socket there and by nothing else: the folder lets nobody in
/// but the server's user and root, so no session needs a password. Stopped when it is dropped, by its process.
#[derive(Debug)]
pub(super) struct Server {
    database: Database,
    version: String,
    process: Process,
    /// PostgreSQL's folder of sockets, MySQL's socket itself.
    socket: PathBuf,
}

impl Server {
    /// Finds the programs, makes an empty server and starts it; returns when it takes connections.
    pub(super) async fn start(database: Database, folder: &Folder) -> Result<Self, DemoError> {
        let programs = database.wanted().find()?;
        let (process, socket) = match database {
            Database::Postgres => postgres::start(&programs, folder).await?,
            Database::Mysql | Database::Mariadb => mysql::start(database, &programs, folder).await?,
        };
        let mut server = Self {
            database,
            version: programs.version,
            process,
            socket,
        };
        let ready = wait::until("the server to take connections", START, async || {
            server.process.expect_alive()?;
            Ok(server.administrator().await.ok())
        })
        .await;
        match ready {
            Ok(_) => Ok(server),
            Err(error) => Err(server.process.explained(error)),
        }
    }

    /// Name and version.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.database.name(), self.version)
    }

    /// For the pipeline file's `dsn`.
    pub(super) fn dsn(&self) -> String {
        match self.database {
            Database::Postgres => postgres::dsn(&self.socket),
            Database::Mysql | Database::Mariadb => mysql::dsn(&self.socket, USER).to_string(),
        }
    }

    /// Makes the application's database, and a session in it that may do anything.
    pub(super) async fn application(&self) -> Result<Session, DemoError> {
        let mut administrator = self.administrator().await?;
        administrator.execute("make a database", "CREATE DATABASE shop").await?;
        match self.database {
            Database::Postgres => Ok(Session::Postgres(postgres::connect(&self.socket, DATABASE).await?)),
            Database::Mysql | Database::Mariadb => {
                administrator.execute("go into the database", "USE shop").await?;
                Ok(administrator)
            }
        }
    }

    async fn administrator(&self) -> Result<Session, DemoError> {
        Ok(match self.database {
            Database::Postgres => Session::Postgres(postgres::connect(&self.socket, "postgres").await?),
            Database::Mysql | Database::Mariadb => Session::Mysql(Box::new(mysql::connect(&self.socket).await?)),
        })
    }
}

/// Connected to the server.
#[derive(Debug)]
pub(super) enum Session {
    Postgres(PostgresClient),
    Mysql(Box<MysqlClient>),
}

impl Session {
    /// Runs statements, each with a `;` at the end of its last line.
    pub(super) async fn execute(&mut self, action: &'static str, sql: &str) -> Result<(), DemoError> {
        match self {
            Self::Postgres(client) => postgres::execute(client, action, sql).await,
            Self::Mysql(client) => mysql::execute(client, action, sql).await,
        }
    }

    /// Whether the relay reads the log.
    pub(super) async fn is_streaming(&mut self) -> Result<bool, DemoError> {
        match self {
            Self::Postgres(client) => postgres::is_streaming(client).await,
            Self::Mysql(client) => mysql::is_streaming(client).await,
        }
    }

    /// Where the log ends now.
    pub(super) async fn log_end(&mut self) -> Result<LogPlace, DemoError> {
        match self {
            Self::Postgres(client) => postgres::log_end(client).await,
            Self::Mysql(client) => mysql::log_end(client).await,
        }
    }

    /// How far the server was told that its log is done with, for a person; None: not so far yet.
    pub(super) async fn confirmed(&mut self, place: LogPlace) -> Result<Option<String>, DemoError> {
        match self {
            Self::Postgres(client) => postgres::confirmed(client, place).await,
            Self::Mysql(_) => Ok(Some(mysql::CONFIRMED.to_owned())),
        }
    }
}

/// A server's program as the user that it may run as, free of the caller's own settings: variables that begin so.
fn command(program: &Path, folder: &Folder, settings: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let name_begins = |with: &&str| name.as_encoded_bytes().starts_with(with.as_bytes());
        if settings.iter().any(name_begins) {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C").current_dir(folder.path());
    if let Some(user) = folder.server_user() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}
