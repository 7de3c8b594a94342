//! What is shown, act by act.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::interval;
use tokio_postgres::Client;

use crate::checkpoint::CheckpointStore;
use crate::checkpoint::file::FileStore;

use super::broker::{Arrival, Broker};
use super::count::Count;
use super::error::DemoError;
use super::folder::Folder;
use super::page::{Page, grouped};
use super::programs::Programs;
use super::relay::{PIPELINE, PIPELINE_NAME, Relay, Running, SLOT, SOURCE_ID};
use super::server::Server;
use super::wait;

const DATABASE: &str = "shop";
const ROLE: &str = "tailpost";
const PLACED: &str = "Order.OrderPlaced";
const PAID: &str = "Order.OrderPaid";
const MOVED: &str = "Stock.Moved";
const TOPICS: [&str; 3] = [PLACED, PAID, MOVED];

const PREPARE: &str = "\
CREATE ROLE tailpost LOGIN REPLICATION;
GRANT CREATE ON DATABASE shop TO tailpost;  -- it makes the publication itself";

const TABLE: &str = "\
CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, paid boolean NOT NULL DEFAULT false);";

const COMMITTED: &str = r#"BEGIN;
INSERT INTO orders (id, customer) VALUES (1001, 'ada');
SELECT pg_logical_emit_message(true, 'outbox',
  '{"id": "a1", "aggregate_type": "Order", "aggregate_id": 1001, "event_type": "OrderPlaced",
    "payload": {"order": 1001, "customer": "ada", "total": 42.00}}');
COMMIT;"#;

const ROLLED_BACK: &str = r#"BEGIN;
INSERT INTO orders (id, customer) VALUES (1002, 'bob');
SELECT pg_logical_emit_message(true, 'outbox',
  '{"id": "b1", "aggregate_type": "Order", "aggregate_id": 1002, "event_type": "OrderPlaced",
    "payload": {"order": 1002, "customer": "bob", "total": 10.50}}');
ROLLBACK;"#;
const ROLLED_BACK_KEY: &str = "1002";

const PAYMENT: &str = r#"BEGIN;
UPDATE orders SET paid = true WHERE id = 1001;
SELECT pg_logical_emit_message(true, 'outbox',
  '{"id": "a2", "aggregate_type": "Order", "aggregate_id": 1001, "event_type": "OrderPaid",
    "payload": {"order": 1001, "method": "card"}}');
COMMIT;"#;

const MESSAGES: u64 = 20_000;
const KEYS: u64 = 500;
const PER_TRANSACTION: u64 = 1_000;
/// The application's pace: all of them take four seconds, so that checkpoints are saved on the way.
const PACE: Duration = Duration::from_millis(200);
/// The relay is killed once so many have arrived: at the beginning of a transaction, with the rest of it on its way.
const KILLED_AT: u64 = 10_100;
/// So many are committed while it may still run; the rest come when it is dead, so that the kill is in the middle.
const BEFORE_THE_KILL: u64 = 18_000;

const ARRIVES: Duration = Duration::from_secs(30);
const CONFIRMED: Duration = Duration::from_secs(30);

/// All that the demo starts. Ended in this order, from the relay down to the folder.
#[derive(Debug)]
pub(super) struct Stage {
    running: Option<Running>,
    broker: Broker,
    server: Server,
    relay: Relay,
    folder: Folder,
}

impl Stage {
    /// Starts the servers and says what stands where.
    pub(super) async fn set(page: &Page) -> Result<Self, DemoError> {
        page.title("tailpost demo: from a commit in PostgreSQL to Kafka, all on this machine")?;
        page.blank()?;
        let programs = Programs::find()?;
        let folder = Folder::new()?;
        let server = Server::start(programs, &folder).await?;
        let broker = Broker::start(&TOPICS)?;
        let relay = Relay::new(folder.path(), server.dsn(ROLE, DATABASE), broker.address())?;
        page.entry(
            "PostgreSQL",
            &format!("{}, a private server in {}", server.version(), folder.path().display()),
        )?;
        page.entry(
            "Kafka",
            "librdkafka's test broker inside this process: no Kafka is needed, nothing is kept",
        )?;
        page.entry(
            "tailpost",
            &format!("{}, in a process of its own", env!("CARGO_PKG_VERSION")),
        )?;
        Ok(Self {
            running: None,
            broker,
            server,
            relay,
            folder,
        })
    }

    /// Plays the acts.
    pub(super) async fn play(&mut self, page: &Page) -> Result<(), DemoError> {
        let postgres = self.server.connect("postgres", "postgres").await?;
        execute(&postgres, "make a database", "CREATE DATABASE shop").await?;
        let application = self.server.connect("postgres", DATABASE).await?;
        self.prepare(page, &application).await?;
        self.orders(page, &application).await?;
        self.crash(page, &application).await
    }

    /// Ends everything, and says that nothing is left.
    pub(super) fn strike(self, page: &Page) -> Result<(), DemoError> {
        let Self {
            running,
            broker,
            server,
            relay: _,
            folder,
        } = self;
        drop(running);
        drop(broker);
        drop(server);
        let path = folder.path().to_owned();
        folder.remove()?;
        page.blank()?;
        page.say(&format!(
            "All processes are stopped, and {} is removed.",
            path.display()
        ))?;
        Ok(())
    }

    async fn prepare(&mut self, page: &Page, application: &Client) -> Result<(), DemoError> {
        page.heading("1. A pipeline")?;
        page.say("The application has a table, and needs none for its events:")?;
        page.code(TABLE)?;
        page.say("tailpost gets a role:")?;
        page.code(PREPARE)?;
        execute(application, "make the table", TABLE).await?;
        execute(application, "make the role", PREPARE).await?;
        page.say("and a pipeline file, pipeline.yaml:")?;
        page.code(PIPELINE)?;
        let running = self.relay.start(application).await?;
        page.say(&format!("$ tailpost run pipeline.yaml     (pid {})", running.pid()))?;
        page.say("It made the publication and the slot, and streams.")?;
        self.running = Some(running);
        Ok(())
    }

    async fn orders(&mut self, page: &Page, application: &Client) -> Result<(), DemoError> {
        page.heading("2. Orders are committed, one is rolled back")?;
        page.code(COMMITTED)?;
        execute(application, "commit an order", COMMITTED).await?;
        show(page, &self.arrival(PLACED).await?)?;
        page.code(ROLLED_BACK)?;
        execute(application, "roll an order back", ROLLED_BACK).await?;
        page.say("Nothing arrives. The next record is that of the next commit:")?;
        page.blank()?;
        page.code(PAYMENT)?;
        execute(application, "commit a payment", PAYMENT).await?;
        show(page, &self.arrival(PAID).await?)?;
        page.say("The payload is byte for byte what the application wrote.")?;
        let confirmed = self.confirmed(application).await?;
        page.say(&format!(
            "Kafka has both, the checkpoint is saved, and then PostgreSQL was told: slot confirmed up to {confirmed}."
        ))?;
        Ok(())
    }

    /// Waits until the slot says that all that was committed so far is done with.
    async fn confirmed(&mut self, application: &Client) -> Result<String, DemoError> {
        let failed = |source| DemoError::Sql {
            action: "look at the slot",
            source,
        };
        let row = application
            .query_one("SELECT pg_current_wal_insert_lsn()::text", &[])
            .await
            .map_err(failed)?;
        let end: String = row.try_get(0).map_err(failed)?;
        let confirmed = wait::until("the slot to be confirmed", CONFIRMED, async || {
            let row = application
                .query_opt(
                    "SELECT confirmed_flush_lsn::text FROM pg_replication_slots \
                     WHERE slot_name = $1 AND confirmed_flush_lsn >= $2::text::pg_lsn",
                    &[&SLOT, &end],
                )
                .await
                .map_err(failed)?;
            row.map(|row| row.try_get(0)).transpose().map_err(failed)
        })
        .await;
        confirmed.map_err(|error| self.explained(error))
    }

    /// What the relay has to say about a failure.
    fn explained(&mut self, error: DemoError) -> DemoError {
        match &mut self.running {
            Some(running) => running.explained(error),
            None => error,
        }
    }

    async fn arrival(&mut self, topic: &str) -> Result<Arrival, DemoError> {
        let arrival = self.next("the record to arrive").await?;
        if arrival.topic == topic {
            Ok(arrival)
        } else {
            Err(stranger(&arrival))
        }
    }

    async fn next(&mut self, what: &'static str) -> Result<Arrival, DemoError> {
        match self.broker.next(what, ARRIVES).await {
            Ok(arrival) if arrival.key == ROLLED_BACK_KEY => Err(DemoError::RolledBackArrived),
            Ok(arrival) => Ok(arrival),
            Err(error) => Err(self.explained(error)),
        }
    }

    async fn crash(&mut self, page: &Page, application: &Client) -> Result<(), DemoError> {
        page.heading("3. kill -9 in the middle of 20,000 messages")?;
        page.say(&format!(
            "{} messages for {KEYS} keys, in {} transactions like this one, one every {} ms:",
            grouped(MESSAGES),
            MESSAGES / PER_TRANSACTION,
            PACE.as_millis()
        ))?;
        page.code(&transaction(0))?;
        let mut count = Count::new(MESSAGES as usize);
        let (committed, killed) = (Cell::new(0), Cell::new(false));
        let write = async {
            let mut pace = interval(PACE);
            // A commit is never cut off: nobody could tell whether it was one.
            while committed.get() < BEFORE_THE_KILL && !killed.get() {
                pace.tick().await;
                commit(application, &committed).await?;
            }
            Ok(())
        };
        let kill = async {
            while count.distinct() < KILLED_AT {
                let arrival = self.next("the first of the 20,000 messages to arrive").await?;
                take(&mut count, &arrival)?;
            }
            let running = self.running.take();
            let pid = running.as_ref().map(Running::pid).unwrap_or_default();
            running.map(Running::kill).transpose()?;
            killed.set(true);
            page.say(&format!("$ kill -9 {pid}"))?;
            page.say(&format!(
                "The relay is dead: {} of {} messages were committed, {} had been read from Kafka.",
                grouped(committed.get()),
                grouped(MESSAGES),
                grouped(count.distinct())
            ))?;
            Ok::<(), DemoError>(())
        };
        tokio::try_join!(write, kill)?;
        while committed.get() < MESSAGES {
            commit(application, &committed).await?;
        }
        page.say("The application does not notice, and commits the rest.")?;
        page.blank()?;
        let saved = self.saved().await?;
        let running = self.relay.start(application).await?;
        page.say(&format!("$ tailpost run pipeline.yaml     (pid {})", running.pid()))?;
        page.say(&format!("It goes on from its checkpoint, {saved}."))?;
        self.running = Some(running);
        while !count.is_complete() {
            let arrival = self.next("the rest of the 20,000 messages to arrive").await?;
            take(&mut count, &arrival)?;
        }
        // Stopped first, so that the count is a final one.
        if let Some(running) = self.running.take() {
            running.stop().await?;
        }
        while !self.broker.is_drained().await? {
            let arrival = self.next("the last records to be read").await?;
            take(&mut count, &arrival)?;
        }
        tell(page, &count)
    }

    /// Where the dead relay's checkpoint stands.
    async fn saved(&self) -> Result<String, DemoError> {
        let mut store = FileStore::open(&self.relay.state_dir(), PIPELINE_NAME, SOURCE_ID)
            .map_err(crate::checkpoint::CheckpointError::from)?;
        let position = store.load().await?;
        Ok(position.map_or_else(|| "the slot's own place".to_owned(), |position| position.to_string()))
    }
}

fn tell(page: &Page, count: &Count) -> Result<(), DemoError> {
    let verdict = count.verdict();
    page.heading("The count")?;
    page.number("committed", MESSAGES, None, "")?;
    page.number("arrived", verdict.arrived, None, "")?;
    page.number("lost", verdict.lost, Some(verdict.lost == 0), "")?;
    page.number(
        "out of order",
        verdict.out_of_order,
        Some(verdict.out_of_order == 0),
        "per key",
    )?;
    page.number("doubled", verdict.doubled, None, "")?;
    page.blank()?;
    page.say("Doubled: what Kafka had got since the last save of the checkpoint, one a second, is sent again (at least once).")?;
    page.say("It has the same df-event-id as before, by which a consumer can tell.")?;
    if verdict.is_good() {
        return Ok(());
    }
    Err(DemoError::Bad {
        lost: verdict.lost,
        out_of_order: verdict.out_of_order,
        changed_ids: verdict.changed_ids,
    })
}

/// The messages behind the first `done`.
fn transaction(done: u64) -> String {
    format!(
        r#"BEGIN;
SELECT pg_logical_emit_message(true, 'outbox', format(
  '{{"aggregate_type": "Stock", "aggregate_id": "item-%s", "event_type": "Moved", "payload": {{"n": %s}}}}',
  n % {KEYS}, n))
FROM generate_series({}, {}) AS n;
COMMIT;"#,
        done + 1,
        done + PER_TRANSACTION
    )
}

async fn commit(application: &Client, committed: &Cell<u64>) -> Result<(), DemoError> {
    execute(application, "commit messages", &transaction(committed.get())).await?;
    committed.set(committed.get() + PER_TRANSACTION);
    Ok(())
}

async fn execute(client: &Client, action: &'static str, sql: &str) -> Result<(), DemoError> {
    client
        .batch_execute(sql)
        .await
        .map_err(|source| DemoError::Sql { action, source })
}

/// Counts one of the many.
fn take(count: &mut Count, arrival: &Arrival) -> Result<(), DemoError> {
    #[derive(serde::Deserialize)]
    struct Payload {
        n: u64,
    }
    let payload: Result<Payload, _> = serde_json::from_str(&arrival.payload);
    let id = arrival.header("df-event-id");
    let (Ok(Payload { n }), Some(id), MOVED) = (payload, id, arrival.topic.as_str()) else {
        return Err(stranger(arrival));
    };
    count.arrived(&arrival.key, n, id).map_err(|_| stranger(arrival))
}

fn stranger(arrival: &Arrival) -> DemoError {
    DemoError::Stranger {
        topic: arrival.topic.clone(),
        what: format!("key `{}`, payload `{}`", arrival.key, arrival.payload),
    }
}

fn show(page: &Page, arrival: &Arrival) -> Result<(), DemoError> {
    page.say("A record arrives:")?;
    page.entry("topic", &arrival.topic)?;
    page.entry("key", &arrival.key)?;
    for (index, (name, value)) in arrival.headers.iter().enumerate() {
        page.entry(if index == 0 { "headers" } else { "" }, &format!("{name}: {value}"))?;
    }
    page.entry("payload", &arrival.payload)?;
    page.blank()?;
    Ok(())
}
