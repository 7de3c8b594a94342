//! A private PostgreSQL in the demo's folder, reached by a Unix socket there and by nothing else.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio_postgres::{Client, Config, NoTls};

use super::error::DemoError;
use super::folder::Folder;
use super::process::{Farewell, Process};
use super::programs::Programs;
use super::wait;

/// Names the socket's file only: no port is taken.
const PORT: u16 = 5432;
const START: Duration = Duration::from_secs(60);

/// Stopped when it is dropped, by its process.
#[derive(Debug)]
pub(super) struct Server {
    programs: Programs,
    process: Process,
    socket: PathBuf,
}

impl Server {
    /// Makes a database cluster and starts its server; returns when it takes connections.
    pub(super) async fn start(programs: Programs, folder: &Folder) -> Result<Self, DemoError> {
        let data = folder.path().join("data");
        let log = folder.path().join("postgres.log");
        let mut initdb = command(&programs.program("initdb"), folder);
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ]);
        initdb.arg(&data);
        let mut initdb = Process::start("initdb", &mut initdb, log.clone(), Farewell::Wait)?;
        initdb.finish("initdb to make a database cluster", START).await?;

        let mut postgres = command(&programs.program("postgres"), folder);
        postgres.arg("-D").arg(&data);
        let sockets = format!("unix_socket_directories=\"{}\"", folder.path().display());
        for setting in [
            sockets.as_str(),
            // Auth is `trust`: the folder lets nobody in but its owner, and there is no other way.
            "listen_addresses=",
            &format!("port={PORT}"),
            "wal_level=logical",
            "max_wal_senders=4",
            "max_replication_slots=4",
            "shared_buffers=16MB",
            // It is thrown away, and a killed process loses nothing by this; only a machine without power does.
            "fsync=off",
        ] {
            postgres.args(["-c", setting]);
        }
        // SIGQUIT is its immediate shutdown. SIGKILL would leave its children and a shared memory segment behind.
        let process = Process::start("PostgreSQL", &mut postgres, log, Farewell::Signal("QUIT"))?;
        let mut server = Self {
            programs,
            process,
            socket: folder.path().to_owned(),
        };
        server.ready().await?;
        Ok(server)
    }

    async fn ready(&mut self) -> Result<(), DemoError> {
        let (process, socket) = (&mut self.process, &self.socket);
        let ready = wait::until("PostgreSQL to take connections", START, async || {
            process.expect_alive()?;
            Ok(connect(socket, "postgres", "postgres").await.ok())
        })
        .await;
        ready.map(drop).map_err(|error| self.process.explained(error))
    }

    pub(super) fn version(&self) -> &str {
        &self.programs.version
    }

    /// A session, by user and database.
    pub(super) async fn connect(&self, user: &'static str, database: &'static str) -> Result<Client, DemoError> {
        connect(&self.socket, user, database)
            .await
            .map_err(|source| DemoError::Sql {
                action: "connect",
                source,
            })
    }

    /// For a pipeline file.
    pub(super) fn dsn(&self, user: &str, database: &str) -> String {
        let folder = self.socket.to_string_lossy().replace('\\', "\\\\").replace('\'', "\\'");
        format!("host='{folder}' port={PORT} user={user} dbname={database}")
    }
}

/// A program of PostgreSQL as the user that it may run as, free of the caller's own PostgreSQL settings.
fn command(program: &Path, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C").current_dir(folder.path());
    if let Some(user) = folder.server_user() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

async fn connect(socket: &Path, user: &str, database: &str) -> Result<Client, tokio_postgres::Error> {
    let mut config = Config::new();
    config.host_path(socket).port(PORT).user(user).dbname(database);
    let (client, connection) = config.connect(NoTls).await?;
    // It ends with the client, whose calls report what goes wrong.
    tokio::spawn(connection);
    Ok(client)
}
