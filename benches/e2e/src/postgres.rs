//! PostgreSQL's side: backlogs in a database's log, slots at their beginnings, and the yardstick.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::types::ToSql;
use postgres::{Client, NoTls};

use crate::error::{BenchError, Tried};
use crate::pipeline::Pipeline;
use crate::process::{Usage, run};
use crate::servers::{Address, programs, variable};

/// The one publication of each database.
pub const PUBLICATION: &str = "bench";

/// A server.
pub struct Postgres {
    connector: Address,
    admin: Address,
    socket: String,
    programs: PathBuf,
}

/// How a reader comes in. Both without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Tcp,
    Socket,
}

impl Postgres {
    pub fn from_environment() -> Result<Self, BenchError> {
        Ok(Self {
            connector: Address::parse(&variable("TAILPOST_TEST_PG_URL")?)?,
            admin: Address::parse(&variable("TAILPOST_TEST_PG_ADMIN_URL")?)?,
            socket: variable("TAILPOST_TEST_PG_SOCKET_DIR")?,
            programs: programs("pg")?,
        })
    }

    pub fn version(&self) -> Result<String, BenchError> {
        let row = self
            .client("postgres")?
            .query_one("SHOW server_version", &[])
            .tried("ask for the version")?;
        row.try_get(0).tried("the version")
    }

    fn client(&self, database: &str) -> Result<Client, BenchError> {
        let url = self.admin.url(database);
        Client::connect(&url, NoTls).tried(format!("connect to database {database}"))
    }

    /// A new database with an empty publication.
    pub fn backlog(&self, name: &str) -> Result<Backlog<'_>, BenchError> {
        let mut server = self.client("postgres")?;
        server
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .tried("make a database")?;
        let mut backlog = Backlog {
            postgres: self,
            client: self.client(name)?,
            name: name.to_owned(),
            columns: 0,
        };
        backlog.execute(FILL)?;
        backlog.execute(&format!("CREATE PUBLICATION {PUBLICATION} WITH (publish = 'insert')"))?;
        Ok(backlog)
    }
}

/// Whole transactions only: `count` is a multiple of `batch`, or the last one is larger.
const FILL: &str = r#"
CREATE PROCEDURE fill(first bigint, past bigint, batch bigint, pad int) LANGUAGE plpgsql AS $$
DECLARE
  behind text := '","event_type":"Placed","payload":{"n":';
  close text := ',"pad":"' || repeat('x', pad) || '"}}';
BEGIN
  WHILE first < past LOOP
    PERFORM pg_logical_emit_message(true, 'outbox', '{"id":"' || n || '","aggregate_type":"Order","aggregate_id":"'
      || (n * 37 % 1000) || behind || n || close)
      FROM generate_series(first, least(first + batch, past) - 1) n;
    COMMIT;
    first := first + batch;
  END LOOP;
END $$"#;

/// Events that wait in a database's log; gone when this is dropped.
pub struct Backlog<'a> {
    postgres: &'a Postgres,
    client: Client,
    name: String,
    /// Of its table, if it has one.
    columns: usize,
}

/// Of a table's columns.
fn names(count: u64) -> impl Iterator<Item = String> {
    let own = ["payload", "id", "aggregate_type", "aggregate_id", "event_type"]
        .into_iter()
        .map(str::to_owned);
    let more = (0..count).map(|at| format!("c{at}"));
    own.chain(more).take(usize::try_from(count).unwrap_or(usize::MAX))
}

/// PostgreSQL has no unsigned numbers; no backlog comes near the difference.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Backlog<'_> {
    pub fn execute(&mut self, statement: &str) -> Result<(), BenchError> {
        self.client
            .batch_execute(statement)
            .tried(format!("run {:.60}", statement.trim()))
    }

    /// Appends these events, as messages.
    pub fn fill(&mut self, numbers: Range<u64>, batch: u64, pad: usize) -> Result<(), BenchError> {
        self.execute(&format!(
            "CALL fill({}, {}, {batch}, {pad})",
            numbers.start, numbers.end
        ))
    }

    /// A slot whose backlog begins here.
    pub fn slot(&mut self, name: &str) -> Result<(), BenchError> {
        self.execute(&format!(
            "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
            self.slot_name(name)
        ))
    }

    fn slot_name(&self, name: &str) -> String {
        format!("{}_{name}", self.name)
    }

    /// One more slot in the same state, for one reader.
    pub fn twin(&mut self, of: &str, name: &str) -> Result<String, BenchError> {
        let (of, twin) = (self.slot_name(of), self.slot_name(name));
        self.execute(&format!("SELECT pg_copy_logical_replication_slot('{of}', '{twin}')"))?;
        Ok(twin)
    }

    pub fn drop_slot(&mut self, slot: &str) -> Result<(), BenchError> {
        self.execute(&format!("SELECT pg_drop_replication_slot('{slot}')"))
    }

    /// Those of these pipelines.
    pub fn drop_slots_of(&mut self, pipelines: &[Pipeline]) -> Result<(), BenchError> {
        for pipeline in pipelines {
            self.drop_own_slot(&pipeline.name)?;
        }
        Ok(())
    }

    /// One of [`Self::slot`] or [`Self::twin`], by the name given there.
    pub fn drop_own_slot(&mut self, name: &str) -> Result<(), BenchError> {
        self.drop_slot(&self.slot_name(name))
    }

    /// Makes and publishes a table `outbox` of so many columns: the payload, from the fifth on all of an outbox's own, then more.
    pub fn outbox_table(&mut self, columns: u64) -> Result<(), BenchError> {
        let columns: Vec<String> = names(columns).map(|name| format!("{name} text")).collect();
        self.execute(&format!("CREATE TABLE outbox ({})", columns.join(", ")))?;
        self.execute(&format!("ALTER PUBLICATION {PUBLICATION} ADD TABLE outbox"))?;
        self.columns = columns.len();
        Ok(())
    }

    /// Appends these events as rows of that table.
    pub fn fill_table(&mut self, numbers: Range<u64>, batch: u64, pad: usize) -> Result<(), BenchError> {
        let own = ["n", "'Order'", "n * 37 % 1000", "'Placed'"].into_iter();
        let values: Vec<&str> = own
            .chain(std::iter::repeat("'some value'"))
            .take(self.columns - 1)
            .collect();
        let values: String = values.iter().map(|value| format!(", {value}")).collect();
        let statement = format!(
            r#"INSERT INTO outbox SELECT '{{"n":' || n || ',"pad":"' || repeat('x', {pad}) || '"}}'{values}
               FROM generate_series($1::int8, $2::int8 - 1) n"#
        );
        let statement = self.client.prepare(&statement).tried("prepare an insert")?;
        for first in numbers.clone().step_by(usize::try_from(batch).unwrap_or(usize::MAX)) {
            let past = (first + batch).min(numbers.end);
            self.client
                .execute(&statement, &[&signed(first), &signed(past)])
                .tried("insert rows")?;
        }
        Ok(())
    }

    /// A statement that commits messages one by one or many at a time: see [`crate::latency`].
    pub fn committer(&mut self, pad: usize) -> Result<impl FnMut(u64, u64) -> Result<(), BenchError>, BenchError> {
        let mut client = self.postgres.client(&self.name)?;
        let statement = format!(
            r#"SELECT pg_logical_emit_message(true, 'outbox', '{{"id":"' || n
               || '","aggregate_type":"Order","aggregate_id":"' || (n * 37 % 1000)
               || '","event_type":"Placed","payload":{{"n":' || n || ',"pad":"' || repeat('x', {pad}) || '"}}}}')
               FROM generate_series($1::int8, $2::int8 - 1) n"#
        );
        let statement = client.prepare(&statement).tried("prepare a message")?;
        Ok(move |first, past| {
            let numbers: [&(dyn ToSql + Sync); 2] = [&signed(first), &signed(past)];
            client.execute(&statement, &numbers).map(drop).tried("write a message")
        })
    }

    /// How many readers stream.
    pub fn readers(&mut self) -> Result<usize, BenchError> {
        let statement = "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()";
        let row = self.client.query_one(statement, &[]).tried("count readers")?;
        let count: i64 = row.try_get(0).tried("count readers")?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// The connector's DSN.
    pub fn dsn(&self, way: Way) -> String {
        let Postgres { connector, socket, .. } = self.postgres;
        match way {
            Way::Tcp => format!("{}?sslmode=disable", connector.url(&self.name)),
            Way::Socket => self.keywords(socket),
        }
    }

    fn keywords(&self, host: &str) -> String {
        let Address {
            user, password, port, ..
        } = &self.postgres.connector;
        format!(
            "host={host} port={port} user={user} password={password} dbname={} sslmode=disable",
            self.name
        )
    }

    /// Reads a slot's backlog to the log's end of now and throws it away.
    pub fn recvlogical(&mut self, slot: &str, way: Way, log: &Path) -> Result<Usage, BenchError> {
        let row = self
            .client
            .query_one("SELECT pg_current_wal_flush_lsn()::text", &[])
            .tried("ask for the end")?;
        let end: String = row.try_get(0).tried("the log's end")?;
        let host = match way {
            Way::Tcp => &self.postgres.connector.host,
            Way::Socket => &self.postgres.socket,
        };
        let mut command = Command::new(self.postgres.programs.join("pg_recvlogical"));
        command.args([
            "--start",
            "--no-loop",
            "-f",
            "/dev/null",
            "--slot",
            slot,
            "--endpos",
            &end,
        ]);
        command.args(["-o", "proto_version=1", "-o", "messages=true"]);
        command.args([
            "-o",
            &format!("publication_names={PUBLICATION}"),
            "-d",
            &self.keywords(host),
        ]);
        run(&mut command, log)
    }

    fn clean(&mut self) -> Result<(), BenchError> {
        self.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
             WHERE database = current_database() AND active",
        )?;
        self.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
        )?;
        let mut server = self.postgres.client("postgres")?;
        let statement = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        server.batch_execute(&statement).tried("drop a database")?;
        // So that what comes next does not meet the writing of this one.
        server.batch_execute("CHECKPOINT").tried("checkpoint")
    }
}

impl Drop for Backlog<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.clean() {
            eprintln!("database {} stays behind: {error}", self.name);
        }
    }
}
