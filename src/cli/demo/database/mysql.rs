//! MySQL and MariaDB.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::cli::demo::error::DemoError;
use crate::cli::demo::folder::Folder;
use crate::cli::demo::process::{Farewell, Process};
use crate::config::{MysqlDsn, MysqlHost, Ssl, SslMode};
use crate::position::{BinlogPlace, LogPlace};
use crate::source::mysql::{self, Client};

use super::programs::{Programs, Wanted, installed, path_folders, said_by};
use super::{Database, START, USER, command};

/// The programs of MySQL.
pub(super) static WANTED: Wanted = Wanted {
    name: "MySQL",
    programs: "mysqld",
    variable: "TAILPOST_MYSQL_BIN",
    install: "install the package (Ubuntu: apt-get install mysql-server-core-8.0; Fedora: dnf install mysql-server; \
              macOS: brew install mysql), on Debian run tools/servers.sh bin mysql",
    oldest: (8, 0),
    candidates,
    at: |folder| at(folder, "mysqld", |said| !said.contains("MariaDB")),
};

/// The programs of MariaDB.
pub(super) static WANTED_MARIADB: Wanted = Wanted {
    name: "MariaDB",
    programs: "mariadbd and mariadb-install-db",
    variable: "TAILPOST_MARIADB_BIN",
    install: "install the package (Debian, Ubuntu: apt-get install mariadb-server; Fedora: dnf install mariadb-server; \
              macOS: brew install mariadb)",
    oldest: (10, 6),
    candidates,
    at: |folder| {
        at(folder, "mariadbd", |said| said.contains("MariaDB"))
            .filter(|programs| install_db(&programs.home()).is_some())
    },
};

/// How far the server was told.
pub(super) const CONFIRMED: &str =
    "and the server need not be told: how long it keeps its binlog is a setting of its own.";

fn candidates() -> Vec<PathBuf> {
    // An ordinary user's PATH lacks most of these.
    let usual = [
        "/usr/sbin",
        "/usr/local/sbin",
        "/usr/libexec",
        "/usr/local/mysql/bin",
        "/opt/homebrew/opt/mysql/bin",
        "/opt/homebrew/opt/mariadb/bin",
        "/usr/local/opt/mysql/bin",
        "/usr/local/opt/mariadb/bin",
    ];
    let by_version = [
        ("/opt/homebrew/opt", "mysql@"),
        ("/opt/homebrew/opt", "mariadb@"),
        ("/usr/local/opt", "mysql@"),
        ("/usr/local/opt", "mariadb@"),
    ];
    let usual = usual.iter().map(PathBuf::from);
    path_folders()
        .into_iter()
        .chain(usual)
        .chain(installed(&by_version))
        .collect()
}

/// The server's program can be beside the folder of the others.
fn at(folder: &Path, name: &str, is_it: impl Fn(&str) -> bool) -> Option<Programs> {
    let folder = folder.canonicalize().ok()?;
    let home = folder.parent()?;
    let folders = [folder.clone(), home.join("sbin"), home.join("libexec")];
    folders.into_iter().find_map(|folder| {
        // Where it really is, its other files are found.
        let program = folder.join(name).canonicalize().ok()?;
        let said = said_by(Command::new(&program).arg("--no-defaults").arg("--version"))?;
        let version = version_of(&said).filter(|_| is_it(&said))?.to_owned();
        let folder = program.parent()?.to_owned();
        Some(Programs { folder, version })
    })
}

/// `mysqld  Ver 9.7.4-2 for Linux` and `mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu`.
fn version_of(said: &str) -> Option<&str> {
    let version = said.split_whitespace().skip_while(|word| *word != "Ver").nth(1)?;
    version.split("-MariaDB").next()
}

impl Programs {
    /// The server's `basedir`.
    fn home(&self) -> PathBuf {
        self.folder.parent().unwrap_or(&self.folder).to_owned()
    }
}

/// What makes MariaDB's system tables.
fn install_db(home: &Path) -> Option<PathBuf> {
    let places = ["bin", "scripts"].map(|folder| home.join(folder).join("mariadb-install-db"));
    places.into_iter().find(|program| program.is_file())
}

/// Makes an empty server and starts it. Gives the process and the socket.
pub(super) async fn start(
    database: Database,
    programs: &Programs,
    folder: &Folder,
) -> Result<(Process, PathBuf), DemoError> {
    let name = database.name();
    let log = folder.path().join("mysql.log");
    let data = folder.path().join("data");
    let home = programs.home();
    let prepared = |program: &Path| {
        let mut command = command(program, folder, &["MYSQL", "MARIADB"]);
        command.arg("--no-defaults");
        for (option, path) in [("--basedir=", &home), ("--datadir=", &data)] {
            let mut argument = std::ffi::OsString::from(option);
            argument.push(path);
            command.arg(argument);
        }
        command
    };
    let daemon = |program| prepared(&programs.folder.join(program));
    let (mut install, mut server) = match database {
        Database::Mariadb => {
            let installer = install_db(&home).ok_or(DemoError::NoPrograms {
                wanted: &WANTED_MARIADB,
            })?;
            let mut install = prepared(&installer);
            install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            let mut server = daemon("mariadbd");
            server.arg("--binlog-format=ROW");
            (install, server)
        }
        _ => {
            let mut install = daemon("mysqld");
            install.args(["--initialize-insecure", "--skip-log-bin"]);
            let mut server = daemon("mysqld");
            // The second plugin would listen on a port, and the last folder need not be there.
            server.args([
                "--gtid-mode=ON",
                "--enforce-gtid-consistency=ON",
                "--mysqlx=OFF",
                "--secure-file-priv=NULL",
            ]);
            (install, server)
        }
    };
    let mut install = Process::start(
        "the making of the system tables",
        &mut install,
        log.clone(),
        Farewell::Wait,
    )?;
    install.finish("the system tables to be made", START).await?;

    let socket = folder.path().join("mysql.sock");
    server.arg(format!("--socket={}", socket.display()));
    server.args([
        "--skip-networking",
        "--server-id=1",
        "--log-bin=binlog",
        "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL",
        // It is thrown away, and a killed process loses nothing by these; only a machine without power does.
        "--sync-binlog=0",
        "--innodb-flush-log-at-trx-commit=2",
        "--innodb-buffer-pool-size=16M",
        "--performance-schema=OFF",
    ]);
    // It has no children, and its data goes with the folder.
    let process = Process::start(name, &mut server, log, Farewell::Kill)?;
    Ok((process, socket))
}

/// Where a user connects. Accounts here have no password.
pub(super) fn dsn(socket: &Path, user: &str) -> MysqlDsn {
    MysqlDsn {
        user: user.to_owned(),
        password: None,
        hosts: vec![MysqlHost::Socket(socket.to_owned())],
        database: None,
        connect_timeout: None,
        ssl: Ssl {
            mode: SslMode::Disable,
            root_cert: None,
            client_cert: None,
            client_key: None,
        },
    }
}

/// Connects as the administrator.
pub(super) async fn connect(socket: &Path) -> Result<Client, DemoError> {
    Ok(mysql::connect(&dsn(socket, "root")).await?)
}

/// One statement after the other: the connection takes no more than one at a time.
pub(super) async fn execute(client: &mut Client, action: &'static str, sql: &str) -> Result<(), DemoError> {
    for statement in sql.split_inclusive(";\n") {
        client.query(action, statement.trim_end_matches([';', '\n'])).await?;
    }
    Ok(())
}

/// Whether somebody reads the binlog. What was killed is gone from the list as soon as more is committed, which the server
/// fails to send to it.
pub(super) async fn is_streaming(client: &mut Client) -> Result<bool, DemoError> {
    let statement =
        format!("SELECT 1 FROM information_schema.PROCESSLIST WHERE USER = '{USER}' AND COMMAND LIKE 'Binlog Dump%'");
    let rows = client.query("look for the relay's connection", &statement).await?;
    Ok(!rows.is_empty())
}

/// The end of the last of the binlog's files.
pub(super) async fn log_end(client: &mut Client) -> Result<LogPlace, DemoError> {
    let mut rows = client.query("list the binlog's files", "SHOW BINARY LOGS").await?;
    let last = rows.pop().unwrap_or_default();
    let place = match last.as_slice() {
        [Some(file), Some(size), ..] => size.parse().ok().map(|pos| BinlogPlace {
            file: Arc::from(file.as_str()),
            pos,
        }),
        _ => None,
    };
    let place = place.ok_or_else(|| DemoError::Answer {
        expected: "a binlog file and its size",
        found: format!("{last:?}"),
    })?;
    Ok(place.log_place())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        for (said, version) in [
            (
                "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))",
                Some("9.7.4-2"),
            ),
            (
                "mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))",
                Some("8.0.36-0ubuntu0.22.04.1"),
            ),
            (
                "mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
                Some("10.11.18"),
            ),
            ("some other mysqld 1", None),
        ] {
            assert_eq!(version_of(said), version, "{said}");
        }
    }

    #[test]
    fn the_dsn_of_any_socket_is_read_as_the_same() {
        let socket = Path::new("/run/a b%/käse/mysql.sock");
        let read = MysqlDsn::parse(&dsn(socket, USER).to_string()).expect("a DSN");
        let socket = MysqlHost::Socket(socket.to_owned());
        assert_eq!((read.hosts, read.user.as_str()), (vec![socket], USER));
    }
}
