//! MySQL's and MariaDB's side: backlogs in the binlog, places at their beginnings, and the yardstick that is shown.

use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use mysql::prelude::Queryable;
use mysql::{Conn, Opts};

use crate::bench::Bench;
use crate::error::{BenchError, Tried};
use crate::event::Spacing;
use crate::process::{Usage, run};
use crate::servers::{Address, programs, variable};

/// Two kinds of server with one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    Mysql,
    Mariadb,
}

impl Flavor {
    /// As `tools/servers.sh` and the rows call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
        }
    }

    /// MariaDB's JSON is text.
    pub fn spacing(self) -> Spacing {
        match self {
            Self::Mysql => Spacing::Mysql,
            Self::Mariadb => Spacing::Written,
        }
    }
}

/// A server.
pub struct Mysql {
    pub flavor: Flavor,
    connector: Address,
    admin: Address,
    programs: PathBuf,
}

impl Mysql {
    pub fn from_environment(flavor: Flavor) -> Result<Self, BenchError> {
        let variable = |what| variable(&format!("TAILPOST_TEST_{}_{what}", flavor.name().to_uppercase()));
        Ok(Self {
            flavor,
            connector: Address::parse(&variable("URL")?)?,
            admin: Address::parse(&variable("ADMIN_URL")?)?,
            programs: programs(flavor.name())?,
        })
    }

    pub fn version(&self) -> Result<String, BenchError> {
        let version: Option<String> = self
            .conn("")?
            .query_first("SELECT VERSION()")
            .tried("ask for the version")?;
        Ok(version.unwrap_or_default())
    }

    fn conn(&self, database: &str) -> Result<Conn, BenchError> {
        let url = self.admin.url(database);
        let options = Opts::from_url(&url).map_err(|_| BenchError::Address { url })?;
        Conn::new(options).tried(format!("connect to {}", self.flavor.title()))
    }

    /// The connector's DSN, without TLS.
    pub fn dsn(&self) -> String {
        format!("{}?ssl-mode=disabled", self.connector.url(""))
    }

    /// A new database with an outbox that keeps nothing, and a binlog file that begins with what is written now.
    pub fn backlog(&self, name: &str) -> Result<Backlog<'_>, BenchError> {
        let mut server = self.conn("")?;
        server
            .query_drop(format!("CREATE DATABASE {name}"))
            .tried("make a database")?;
        let mut backlog = Backlog {
            mysql: self,
            conn: self.conn(name)?,
            name: name.to_owned(),
            gtids: String::new(),
            file: String::new(),
        };
        for statement in [OUTBOX, HUNDRED, FILL_HUNDRED, FILL, "FLUSH BINARY LOGS"] {
            backlog.execute(statement)?;
        }
        backlog.gtids = backlog.gtids()?;
        let files: Vec<mysql::Row> = backlog.conn.query("SHOW BINARY LOGS").tried("list binlog files")?;
        backlog.file = files.last().and_then(|file| file.get(0)).unwrap_or_default();
        Ok(backlog)
    }
}

const OUTBOX: &str = "CREATE TABLE outbox (id VARCHAR(64), aggregate_type VARCHAR(64), aggregate_id VARCHAR(64), \
                      event_type VARCHAR(64), payload JSON) ENGINE = BLACKHOLE";
const HUNDRED: &str = "CREATE TABLE hundred (n BIGINT PRIMARY KEY) ENGINE = InnoDB";
const FILL_HUNDRED: &str = "INSERT INTO hundred WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 99) \
                            SELECT n FROM s";
/// At most 100 a statement, each statement a transaction.
const FILL: &str = r#"
CREATE PROCEDURE fill(first BIGINT, past BIGINT, batch BIGINT, pad INT)
BEGIN
  DECLARE behind LONGTEXT DEFAULT CONCAT(',"pad":"', REPEAT('x', pad), '"}');
  WHILE first < past DO
    IF batch = 1 THEN
      INSERT INTO outbox VALUES (first, 'Order', first * 37 % 1000, 'Placed', CONCAT('{"n":', first, behind));
    ELSE
      INSERT INTO outbox SELECT first + n, 'Order', (first + n) * 37 % 1000, 'Placed', CONCAT('{"n":', first + n, behind)
        FROM hundred WHERE n < LEAST(batch, past - first) ORDER BY n;
    END IF;
    SET first = first + batch;
  END WHILE;
END"#;

/// Events that wait in a server's binlog; the database is gone when this is dropped.
pub struct Backlog<'a> {
    mysql: &'a Mysql,
    conn: Conn,
    name: String,
    /// What the binlog had when the backlog was made.
    pub gtids: String,
    /// Begins with the backlog.
    file: String,
}

impl Backlog<'_> {
    pub fn execute(&mut self, statement: &str) -> Result<(), BenchError> {
        self.conn
            .query_drop(statement)
            .tried(format!("run {:.60}", statement.trim()))
    }

    /// Appends these events, `batch` rows a statement.
    pub fn fill(&mut self, numbers: Range<u64>, batch: u64, pad: usize) -> Result<(), BenchError> {
        self.execute(&format!(
            "CALL fill({}, {}, {batch}, {pad})",
            numbers.start, numbers.end
        ))
    }

    /// A statement that commits rows one by one or many at a time: see [`crate::latency`].
    pub fn committer(&mut self, pad: usize) -> Result<impl FnMut(u64, u64) -> Result<(), BenchError>, BenchError> {
        let mut conn = self.mysql.conn(&self.name)?;
        let statement = format!(
            r#"INSERT INTO outbox SELECT ? + n, 'Order', (? + n) * 37 % 1000, 'Placed',
               CONCAT('{{"n":', ? + n, ',"pad":"{}"}}') FROM hundred WHERE n < ? ORDER BY n"#,
            "x".repeat(pad)
        );
        let statement = conn.prep(statement).tried("prepare an insert")?;
        Ok(move |first: u64, past: u64| {
            conn.exec_drop(&statement, (first, first, first, past - first))
                .tried("insert rows")
        })
    }

    /// What the binlog has up to now, as the connector's `start` has it.
    pub fn gtids(&mut self) -> Result<String, BenchError> {
        let statement = match self.mysql.flavor {
            Flavor::Mysql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')",
            Flavor::Mariadb => "SELECT @@GLOBAL.gtid_binlog_pos",
        };
        let gtids: Option<String> = self.conn.query_first(statement).tried("ask for GTIDs")?;
        Ok(gtids.unwrap_or_default())
    }

    /// The connector's `source`, from the backlog's beginning.
    pub fn source(&self) -> String {
        format!(
            "{{type: mysql, config: {{id: my, dsn: '{}', start: {{gtid: '{}'}}, outbox: {{tables: [{}.outbox]}}}}}}",
            self.mysql.dsn(),
            self.gtids,
            self.name
        )
    }

    /// Copies the backlog's binlog file as it is, and throws the copy away.
    pub fn binlog(&self, bench: &Bench, name: &str) -> Result<Usage, BenchError> {
        let Mysql {
            flavor,
            connector,
            programs,
            ..
        } = self.mysql;
        let folder = bench.folder.path().join(name);
        std::fs::create_dir(&folder).tried("make a folder for a binlog file")?;
        let (program, options): (_, &[_]) = match flavor {
            Flavor::Mysql => ("mysqlbinlog", &["--ssl-mode=DISABLED", "--get-server-public-key"]),
            Flavor::Mariadb => ("mariadb-binlog", &["--skip-ssl"]),
        };
        let mut command = Command::new(programs.join(program));
        command
            .arg("--no-defaults")
            .args(["--read-from-remote-server", "--raw"])
            .args(options);
        command.args([
            "--host",
            &connector.host,
            "--port",
            &connector.port,
            "--user",
            &connector.user,
        ]);
        command
            .arg(format!("--result-file={}/", folder.display()))
            .arg(&self.file);
        command.env("MYSQL_PWD", &connector.password);
        let usage = run(&mut command, &bench.log(name))?;
        std::fs::remove_dir_all(&folder).tried("remove a binlog file")?;
        Ok(usage)
    }
}

impl Drop for Backlog<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.execute(&format!("DROP DATABASE {}", self.name)) {
            eprintln!("database {} stays behind: {error}", self.name);
        }
    }
}
