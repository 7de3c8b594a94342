//! PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use tokio_postgres::{Client, Config, NoTls, Row};

use crate::cli::demo::error::DemoError;
use crate::cli::demo::folder::Folder;
use crate::cli::demo::process::{Farewell, Process};
use crate::position::{LogPlace, Lsn};

use super::programs::{Programs, Wanted, installed, path_folders, said_by};
use super::{DATABASE, START, USER, command};

/// Names the socket's file only: no port is taken.
const PORT: u16 = 5432;
/// What the pipeline file calls it.
const SLOT: &str = "demo_slot";

/// The programs of PostgreSQL.
pub(super) static WANTED: Wanted = Wanted {
    name: "PostgreSQL",
    programs: "initdb and postgres",
    variable: "TAILPOST_PG_BIN",
    install: "install the package (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17)",
    // Logical messages came to pgoutput with it.
    oldest: (14, 0),
    candidates,
    at,
};

fn candidates() -> Vec<PathBuf> {
    let told = said_by(Command::new("pg_config").arg("--bindir")).map(PathBuf::from);
    let by_packages = [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql@"),
        ("/usr/local/opt", "postgresql@"),
    ];
    told.into_iter()
        .chain(path_folders())
        .chain(installed(&by_packages))
        .collect()
}

fn at(folder: &Path) -> Option<Programs> {
    // It may be a relative one, and the programs run elsewhere.
    let folder = folder.canonicalize().ok()?;
    if !["initdb", "postgres"].iter().all(|name| folder.join(name).is_file()) {
        return None;
    }
    let said = said_by(Command::new(folder.join("postgres")).arg("--version"))?;
    let version = version_of(&said)?.to_owned();
    Some(Programs { folder, version })
}

/// `postgres (PostgreSQL) 17.5 (Debian 17.5-1)`: the word behind the closing parenthesis.
fn version_of(said: &str) -> Option<&str> {
    said.split_once("(PostgreSQL)")?.1.split_whitespace().next()
}

/// Makes a database cluster and starts its server. Gives the process and the folder of the socket.
pub(super) async fn start(programs: &Programs, folder: &Folder) -> Result<(Process, PathBuf), DemoError> {
    let data = folder.path().join("data");
    let log = folder.path().join("postgres.log");
    let mut initdb = command(&programs.folder.join("initdb"), folder, &["PG"]);
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

    let mut postgres = command(&programs.folder.join("postgres"), folder, &["PG"]);
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
    let process = Process::start(WANTED.name, &mut postgres, log, Farewell::Signal("QUIT"))?;
    Ok((process, folder.path().to_owned()))
}

/// For a pipeline file.
pub(super) fn dsn(socket: &Path) -> String {
    let folder = socket.to_string_lossy().replace('\\', "\\\\").replace('\'', "\\'");
    format!("host='{folder}' port={PORT} user={USER} dbname={DATABASE}")
}

/// Connects as the administrator.
pub(super) async fn connect(socket: &Path, database: &str) -> Result<Client, DemoError> {
    let mut config = Config::new();
    config.host_path(socket).port(PORT).user("postgres").dbname(database);
    let (client, connection) = config.connect(NoTls).await.map_err(failed("connect"))?;
    // It ends with the client, whose calls report what goes wrong.
    tokio::spawn(connection);
    Ok(client)
}

pub(super) async fn execute(client: &Client, action: &'static str, sql: &str) -> Result<(), DemoError> {
    client.batch_execute(sql).await.map_err(failed(action))
}

/// Whether somebody reads the slot.
pub(super) async fn is_streaming(client: &Client) -> Result<bool, DemoError> {
    let active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = $1 AND active";
    let row = client.query_opt(active, &[&SLOT]).await;
    Ok(row.map_err(failed(LOOK))?.is_some())
}

pub(super) async fn log_end(client: &Client) -> Result<LogPlace, DemoError> {
    let row = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await;
    let Lsn(offset) = lsn(&row.map_err(failed("ask for the log's end"))?)?;
    Ok(LogPlace { file: 0, offset })
}

/// What the slot says, once all that is before `place` is done with.
pub(super) async fn confirmed(client: &Client, place: LogPlace) -> Result<Option<String>, DemoError> {
    let confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let row = client.query_one(confirmed, &[&SLOT]).await;
    let lsn = lsn(&row.map_err(failed(LOOK))?)?;
    Ok((lsn.0 >= place.offset).then(|| format!("and then PostgreSQL was told: slot confirmed up to {lsn}.")))
}

const LOOK: &str = "look at the slot";

fn lsn(row: &Row) -> Result<Lsn, DemoError> {
    let text: String = row.try_get(0).map_err(failed(LOOK))?;
    text.parse().map_err(|_| DemoError::Answer {
        expected: "an LSN",
        found: text,
    })
}

fn failed(action: &'static str) -> impl Fn(tokio_postgres::Error) -> DemoError {
    move |source| DemoError::Postgres { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        for (said, version) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", Some("15.18")),
            ("postgres (PostgreSQL) 17.5", Some("17.5")),
            ("postgres (PostgreSQL) 18beta1", Some("18beta1")),
            ("some other postgres 1", None),
        ] {
            assert_eq!(version_of(said), version, "{said}");
        }
    }
}
