//! What is shown, act by act.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::interval;

use super::broker::{Arrival, Broker};
use super::count::Count;
use super::database::{Database, Script, Server, Session};
use super::error::DemoError;
use super::folder::Folder;
use super::page::{Page, grouped};
use super::relay::{Relay, Running};
use super::wait;

const PLACED: &str = "Order.OrderPlaced";
const PAID: &str = "Order.OrderPaid";
const MOVED: &str = "Stock.Moved";
const TOPICS: [&str; 3] = [PLACED, PAID, MOVED];

/// Of the order that is rolled back, in every script.
const ROLLED_BACK_KEY: &str = "1002";

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
const SAVED: Duration = Duration::from_secs(30);
const CONFIRMED: Duration = Duration::from_secs(30);

/// All that the demo starts. Ended in this order, from the relay down to the folder.
#[derive(Debug)]
pub(super) struct Stage {
    running: Option<Running>,
    broker: Broker,
    server: Server,
    script: &'static Script,
    relay: Relay,
    folder: Folder,
}

impl Stage {
    /// Starts the servers and says what stands where.
    pub(super) async fn set(page: &Page, database: Database) -> Result<Self, DemoError> {
        page.title(&format!(
            "tailpost demo: from a commit in {} to Kafka, all on this machine",
            database.name()
        ))?;
        page.blank()?;
        let folder = Folder::new()?;
        let server = Server::start(database, &folder).await?;
        let broker = Broker::start(&TOPICS)?;
        let script = database.script();
        let relay = Relay::new(folder.path(), script, server.dsn(), broker.address())?;
        page.entry(
            "database",
            &format!("{}, a private server in {}", server.title(), folder.path().display()),
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
            script,
            relay,
            folder,
        })
    }

    /// Plays the acts.
    pub(super) async fn play(&mut self, page: &Page) -> Result<(), DemoError> {
        let mut application = self.server.application().await?;
        self.prepare(page, &mut application).await?;
        self.orders(page, &mut application).await?;
        self.crash(page, &mut application).await
    }

    /// Ends everything, and says that nothing is left.
    pub(super) fn strike(self, page: &Page) -> Result<(), DemoError> {
        let Self {
            running,
            broker,
            server,
            script: _,
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

    async fn prepare(&mut self, page: &Page, application: &mut Session) -> Result<(), DemoError> {
        page.heading("1. A pipeline")?;
        for (why, sql) in self.script.preparations {
            page.say(why)?;
            page.code(sql)?;
            application.execute("prepare the database", sql).await?;
        }
        page.say("A pipeline file, pipeline.yaml:")?;
        page.code(self.script.pipeline)?;
        let running = self.relay.start(application).await?;
        page.say(&format!("$ tailpost run pipeline.yaml     (pid {})", running.pid()))?;
        page.say(self.script.started)?;
        self.running = Some(running);
        Ok(())
    }

    async fn orders(&mut self, page: &Page, application: &mut Session) -> Result<(), DemoError> {
        page.heading("2. Orders are committed, one is rolled back")?;
        page.code(self.script.committed)?;
        application.execute("commit an order", self.script.committed).await?;
        show(page, &self.arrival(PLACED).await?)?;
        page.code(self.script.rolled_back)?;
        application
            .execute("roll an order back", self.script.rolled_back)
            .await?;
        page.say("Nothing arrives. The next record is that of the next commit:")?;
        page.blank()?;
        page.code(self.script.payment)?;
        application.execute("commit a payment", self.script.payment).await?;
        show(page, &self.arrival(PAID).await?)?;
        page.say("The payload is byte for byte what the application wrote.")?;
        let confirmed = self.confirmed(application).await?;
        page.say(&format!("Kafka has both, the checkpoint is saved, {confirmed}"))?;
        Ok(())
    }

    /// Waits until all that was committed so far is saved as done, and the server knows.
    async fn confirmed(&mut self, application: &mut Session) -> Result<String, DemoError> {
        let end = application.log_end().await?;
        let saved = wait::until("the checkpoint to be saved", SAVED, async || {
            Ok(self.relay.saved()?.filter(|position| position.log_place() >= end))
        })
        .await;
        saved.map_err(|error| self.explained(error))?;
        let confirmed = wait::until("the server to be told", CONFIRMED, async || {
            application.confirmed(end).await
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

    async fn crash(&mut self, page: &Page, application: &mut Session) -> Result<(), DemoError> {
        page.heading("3. kill -9 in the middle of 20,000 messages")?;
        page.say(&format!(
            "{} messages for {KEYS} keys, in {} transactions like this one, one every {} ms:",
            grouped(MESSAGES),
            MESSAGES / PER_TRANSACTION,
            PACE.as_millis()
        ))?;
        page.code(&transaction(self.script, 0))?;
        let mut count = Count::new(MESSAGES as usize);
        let (committed, killed) = (Cell::new(0), Cell::new(false));
        let script = self.script;
        let write = async {
            let mut pace = interval(PACE);
            // A commit is never cut off: nobody could tell whether it was one.
            while committed.get() < BEFORE_THE_KILL && !killed.get() {
                pace.tick().await;
                commit(application, script, &committed).await?;
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
            commit(application, script, &committed).await?;
        }
        page.say("The application does not notice, and commits the rest.")?;
        page.blank()?;
        let saved = self.relay.saved()?;
        let saved = saved.map_or_else(|| script.beginning.to_owned(), |position| position.to_string());
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
fn transaction(script: &Script, done: u64) -> String {
    (script.messages)(done + 1, done + PER_TRANSACTION, KEYS)
}

async fn commit(application: &mut Session, script: &Script, committed: &Cell<u64>) -> Result<(), DemoError> {
    let transaction = transaction(script, committed.get());
    application.execute("commit messages", &transaction).await?;
    committed.set(committed.get() + PER_TRANSACTION);
    Ok(())
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
