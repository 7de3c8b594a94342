//! A test's own place on the shared servers: database, slot, publication and topics, gone at the end.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use postgres::Client;
use tailpost::position::Lsn;

use super::app::Door;
use super::plot::Plot;
use super::postgres::connect;
use super::relay::Relay;
use super::server::Postgres;
use super::{DEADLINE, Db, eventually, found, unique_name, variable};

/// Messages with the prefix `outbox`, as they are, to the bed's topic.
pub const OUTBOX: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source:
    type: postgres
    config: {id: pg1, dsn: '<dsn>', slot: <slot>, publication: <publication>, outbox: {prefixes: [outbox]}}
  processors:
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'}}
";

/// See the module's text.
pub struct TestBed {
    /// The server, in the bed's own database.
    pub postgres: Postgres,
    pub slot: String,
    pub publication: String,
    server: Postgres,
    plot: Plot,
}

impl Deref for TestBed {
    type Target = Plot;

    fn deref(&self) -> &Plot {
        &self.plot
    }
}

impl TestBed {
    /// On the shared servers.
    pub fn new() -> Self {
        Self::on(Postgres::shared(), &variable("TAILPOST_TEST_KAFKA"))
    }

    /// On these servers.
    pub fn on(server: Postgres, brokers: &str) -> Self {
        let name = unique_name();
        let mut admin = connect(&server.admin_url);
        let role = role_of(&server.url);
        for statement in [
            format!("CREATE DATABASE {name} OWNER {}", role_of(&server.app_url)),
            format!("GRANT CREATE ON DATABASE {name} TO {role}"),
        ] {
            admin
                .batch_execute(&statement)
                .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
        let postgres = server.in_database(&name);
        Self {
            plot: Plot::new(&name, brokers, Door::new(Db::Postgres, &postgres.app_url)),
            postgres,
            slot: format!("{name}_slot"),
            publication: format!("{name}_pub"),
            server,
        }
    }

    /// Puts the bed's own names into a text.
    pub fn fill(&self, template: &str) -> String {
        let template = template
            .replace("<type>", "postgres")
            .replace(
                "<source>",
                "id: src1, dsn: '<dsn>', slot: <slot>, publication: <publication>",
            )
            .replace("<outbox>", "prefixes: [outbox]")
            .replace("<schema>", "public")
            .replace("<dsn>", &self.postgres.url)
            .replace("<slot>", &self.slot)
            .replace("<publication>", &self.publication);
        self.plot.fill(&template)
    }

    /// The connector with a pipeline file of this text (`fill`ed), not started yet. Each call gives one with its own state.
    pub fn relay(&self, pipeline: &str) -> Relay {
        let mut relay = Relay::new(&self.name, &self.fill(pipeline));
        relay.keep_secret(&self.password());
        relay
    }

    /// The password in the connector's DSN.
    pub fn password(&self) -> String {
        let config: postgres::Config = self.postgres.url.parse().expect("a PostgreSQL URL");
        let password = config.get_password().expect("a URL with a password");
        String::from_utf8(password.to_vec()).expect("a text password")
    }

    /// A connection of the application.
    pub fn app(&self) -> Client {
        connect(&self.postgres.app_url)
    }

    /// A connection of the administrator.
    pub fn admin(&self) -> Client {
        connect(&self.postgres.admin_url)
    }

    /// What the slot has confirmed.
    pub fn confirmed(&self) -> Option<Lsn> {
        let statement = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
        let row = self
            .admin()
            .query_opt(statement, &[&self.slot])
            .expect("read the slot")?;
        Some(row.get::<_, Option<&str>>(0)?.parse().expect("an LSN"))
    }

    /// Where the server's log ends now.
    pub fn log_end(&self) -> Lsn {
        let end: String = self
            .admin()
            .query_one("SELECT pg_current_wal_flush_lsn()::text", &[])
            .expect("the log's end")
            .get(0);
        end.parse().expect("an LSN")
    }

    /// Waits until the slot has confirmed all that was written up to now.
    pub fn wait_confirmed_to_the_end(&self) {
        let end = self.log_end();
        eventually(DEADLINE, &format!("the slot confirmed up to {end}"), || {
            self.confirmed() >= Some(end)
        });
    }

    /// The slot's `wal_status`.
    pub fn wal_status(&self) -> Option<String> {
        let statement = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1";
        let row = self
            .admin()
            .query_opt(statement, &[&self.slot])
            .expect("read the slot")?;
        row.get(0)
    }

    /// The pid of the server's process that has the slot.
    pub fn active_pid(&self) -> Option<i32> {
        let statement = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1";
        let row = self
            .admin()
            .query_opt(statement, &[&self.slot])
            .expect("read the slot")?;
        row.get(0)
    }

    fn clean(&self) -> Result<(), postgres::Error> {
        let mut admin = Client::connect(&self.server.admin_url, postgres::NoTls)?;
        let slots = "SELECT slot_name::text FROM pg_replication_slots WHERE database = $1";
        for row in admin.query(slots, &[&self.name])? {
            let slot: &str = row.get(0);
            // The walsender first; it takes a moment to let go.
            found(DEADLINE, &format!("slot {slot} dropped"), || {
                let end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
                admin.query(end, &[&slot]).ok()?;
                admin.query("SELECT pg_drop_replication_slot($1)", &[&slot]).ok()
            });
        }
        admin.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // A server of the test's own may be gone by now, and is wiped anyway. A panic on top of the test's own would end
        // the other tests too.
        match catch_unwind(AssertUnwindSafe(|| self.clean())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("{} stays behind in PostgreSQL: {error}", self.name),
            Err(panic) if thread::panicking() => drop(panic),
            Err(panic) => resume_unwind(panic),
        }
    }
}

fn role_of(url: &str) -> String {
    let config: postgres::Config = url.parse().expect("a PostgreSQL URL");
    config.get_user().expect("a URL with a user").to_owned()
}
