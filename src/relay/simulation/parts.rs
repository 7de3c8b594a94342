//! The parts of a process that touch the world: checkpoint store, sink and source.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::log::Cursor;
use super::scenario::Mode;
use super::world::{Millis, ProcessId, Shared, World};
use crate::checkpoint::{CheckpointError, CheckpointStore, FileStoreError, KafkaStoreError};
use crate::position::Position;
use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};
use crate::relay::parts::Parts;
use crate::relay::reach::Lane;
use crate::sink::{KafkaSinkError, SendError, Sink, SinkError};
use crate::source::{LogChannel, PostgresError, SourceError, SourceOptions};

/// How long records may wait for a commit.
const COMMITS_WITHIN: Duration = Duration::from_secs(30);

/// What each part of a process knows: who it is, and what time it is in the world.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) shared: Shared,
    pub(super) process: ProcessId,
    pub(super) began: Instant,
    pub(super) began_at: Millis,
}

impl Place {
    /// The world, at the process's own time.
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        let mut world = self.shared.lock();
        let elapsed = self.began.elapsed().as_millis();
        world.now = self.began_at + Millis::try_from(elapsed).unwrap();
        world
    }

    async fn delay(&self) {
        let millis = self.world().delay();
        sleep(Duration::from_millis(millis)).await;
    }

    /// Takes a step, or dies before it.
    async fn step(&self, what: &str) {
        let alive = self.world().step(self.process, format_args!("{what}"));
        if !alive {
            dead().await;
        }
    }
}

/// A process that is dead does nothing more.
async fn dead() {
    std::future::pending().await
}

pub(super) struct SimulatedParts {
    pub(super) place: Place,
    pub(super) mode: Mode,
}

impl Parts for SimulatedParts {
    type Store = SimulatedStore;
    type Sink = SimulatedSink;

    fn store(&self) -> Result<SimulatedStore, CheckpointError> {
        Ok(SimulatedStore {
            place: self.place.clone(),
            mode: self.mode,
            epoch: 0,
        })
    }

    fn sink(&self, _lane: Lane, acks: Acks) -> Result<SimulatedSink, SinkError> {
        let (producer, ready) = self.place.world().new_producer(self.place.process, acks);
        Ok(SimulatedSink {
            place: self.place.clone(),
            producer,
            ready,
            commits: self.mode == Mode::ExactlyOnce,
        })
    }

    async fn source(&self, options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
        Connection::run(self.place.clone(), options, log).await
    }
}

/// Keeps the checkpoint in the world.
pub(super) struct SimulatedStore {
    place: Place,
    mode: Mode,
    epoch: u64,
}

impl SimulatedStore {
    fn unwell(action: &str) -> CheckpointError {
        CheckpointError::File(FileStoreError::Save {
            path: PathBuf::from(action),
            source: io::Error::other("simulated"),
        })
    }
}

impl CheckpointStore for SimulatedStore {
    fn is_shared(&self) -> bool {
        self.mode.is_shared()
    }

    async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
        self.place.delay().await;
        self.place.step("load").await;
        if self.is_shared() && self.place.world().fault(|odds| odds.load) {
            return Err(Self::unwell("load"));
        }
        {
            let mut world = self.place.world();
            world.saved.epoch += 1;
            self.epoch = world.saved.epoch;
        }
        self.place.delay().await;
        Ok(self.place.world().load(self.place.process))
    }

    async fn save(&mut self, position: &Position) -> Result<(), CheckpointError> {
        if self.mode == Mode::ExactlyOnce {
            return Ok(());
        }
        {
            let mut world = self.place.world();
            let done = world.log.done(position);
            world.note(format_args!("to be saved: {position}"));
            world.check_settled(done, "to be saved");
        }
        self.place.step("begin to save").await;
        self.place.delay().await;
        if self.place.world().fault(|odds| odds.save) {
            return Err(Self::unwell("save"));
        }
        self.place.step("save").await;
        let lost = {
            let mut world = self.place.world();
            if self.is_shared() && world.saved.epoch != self.epoch {
                world.note(format_args!("the save is fenced"));
                return Err(CheckpointError::Kafka(KafkaStoreError::Fenced {
                    topic: "c".to_owned(),
                    reason: "simulated".to_owned(),
                }));
            }
            world.make_saved(position);
            world.fault(|odds| odds.save)
        };
        self.place.delay().await;
        self.place.step("save answered").await;
        match lost {
            true => Err(Self::unwell("hear of the save")),
            false => Ok(()),
        }
    }
}

/// A producer's owner.
pub(super) struct SimulatedSink {
    place: Place,
    producer: u64,
    ready: Arc<Notify>,
    commits: bool,
}

impl Sink for SimulatedSink {
    async fn claim(&mut self) -> Result<(), SinkError> {
        if !self.commits {
            return Ok(());
        }
        self.place.delay().await;
        self.place.step("claim").await;
        {
            let mut world = self.place.world();
            if world.fault(|odds| odds.load) {
                let reason = "simulated".to_owned();
                let action = "claim";
                return Err(KafkaSinkError::Transaction { action, reason }.into());
            }
            world.claim(self.producer);
        }
        self.place.delay().await;
        Ok(())
    }

    fn commits_within(&self) -> Option<Duration> {
        self.commits.then_some(COMMITS_WITHIN)
    }

    fn commit(&mut self, seq: Seq, position: &Position) {
        self.place.world().begin_commit(self.producer, seq, position);
    }

    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        self.place.world().send(self.producer, seq, record)
    }

    async fn ready(&mut self) -> Result<(), SinkError> {
        loop {
            let told = self.place.world().broker.ready(self.producer);
            match told {
                Some(told) => return told,
                None => self.ready.notified().await,
            }
        }
    }

    async fn close(self, _deadline: Instant) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Drop for SimulatedSink {
    fn drop(&mut self) {
        self.place.shared.lock().close(self.producer);
    }
}

/// One connection of the source; ends in the world when it is dropped.
struct Connection {
    place: Place,
    number: u64,
    gone: Arc<Notify>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.place.shared.lock().disconnect(self.number);
    }
}

impl Connection {
    async fn run(place: Place, options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
        place.delay().await;
        place.step("connect").await;
        if place.world().fault(|odds| odds.connect) {
            return Err(PostgresError::Closed.into());
        }
        let (number, gone) = place.world().connect(place.process);
        let connection = Self { place, number, gone };
        let claimed = log.is_claimed();
        let from = if claimed {
            let from = log.begin().await?;
            connection.lock().await?;
            from
        } else {
            connection.lock().await?;
            tokio::select! {
                biased; // without the lock an answer is worth nothing
                () = connection.gone.notified() => return Err(PostgresError::Closed.into()),
                from = log.begin() => from?,
            }
        };
        connection.place.delay().await;
        let cursor = {
            let mut world = connection.place.world();
            match world.start_streaming(number, from.as_ref()) {
                // Lost since it was asked where to begin.
                Err(error @ PostgresError::Closed) if !claimed => {
                    return Err(SourceError::TakenOver(Box::new(error.into())));
                }
                started => started?,
            }
            world.note(format_args!("connection {number} streams from {from:?}"));
            world.log.cursor(from.as_ref())
        };
        log.view.streaming();
        connection.stream(cursor, options, log).await
    }

    async fn lock(&self) -> Result<(), PostgresError> {
        self.place.delay().await;
        self.place.step("lock").await;
        self.place.world().lock_source(self.number)
    }

    async fn stream(self, mut cursor: Cursor, options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
        // A connection before this one may have broken over it.
        self.confirm(log, &cursor)?;
        loop {
            let pause = self.pause(&cursor);
            tokio::select! {
                biased; // the stop, then what is asked of the connection, then the log
                () = log.stop.cancelled() => break,
                () = self.gone.notified() => return Err(PostgresError::Closed.into()),
                Ok(()) = log.confirmed.changed() => {
                    self.confirm(log, &cursor)?;
                    continue;
                }
                () = sleep(pause) => {}
            }
            let mut batch = {
                let mut world = self.place.world();
                if world.fault(|odds| odds.disconnect) {
                    return Err(PostgresError::Closed.into());
                }
                let most = world.scenario.batch;
                let limit = world.rng.within(1..=most) as usize;
                let (now, read) = (world.now, Arc::clone(&world.log));
                read.read(&mut cursor, now, limit)
            };
            if let Some(batch) = &batch {
                let (count, end) = (batch.events.len(), &batch.end);
                self.place.world().note(format_args!("a batch of {count} up to {end}"));
            }
            let since = Instant::now();
            while batch.is_some() {
                tokio::select! {
                    biased; // the stop, then room, which ends the wait
                    () = log.stop.cancelled() => break,
                    () = log.batches.hand_over(&mut batch) => {}
                    () = self.gone.notified() => return Err(PostgresError::Closed.into()),
                    Ok(()) = log.confirmed.changed() => self.confirm(log, &cursor)?,
                    () = tokio::time::sleep_until(since + options.stall_timeout) => {
                        drop(self);
                        tokio::select! {
                            biased; // a stop ends the wait
                            () = log.stop.cancelled() => {}
                            () = log.batches.hand_over(&mut batch) => {}
                        }
                        let stalled = since.elapsed();
                        return Err(PostgresError::Stalled { stalled }.into());
                    }
                }
            }
        }
        log.batches.close();
        self.leave(cursor, log).await
    }

    /// Keeps the connection until the last position was saved and confirmed.
    async fn leave(self, cursor: Cursor, log: &mut LogChannel) -> Result<(), SourceError> {
        loop {
            tokio::select! {
                biased; // what was saved is confirmed, while there is a connection
                changed = log.confirmed.changed() => match changed {
                    Ok(()) => self.confirm(log, &cursor)?,
                    Err(_) => return Ok(()),
                },
                () = self.gone.notified() => return Err(PostgresError::Closed.into()),
            }
        }
    }

    /// Until the log is looked at again.
    fn pause(&self, cursor: &Cursor) -> Duration {
        let mut world = self.place.world();
        let now = world.now;
        let pause = match world.log.next_at(cursor) {
            Some(at) if at <= now => world.delay(),
            Some(at) => (at - now).min(1000),
            None => 1000,
        };
        Duration::from_millis(pause)
    }

    /// Tells the server what was saved, as far as whole units go that this connection was sent.
    fn confirm(&self, log: &mut LogChannel, cursor: &Cursor) -> Result<(), SourceError> {
        let confirmed = log.confirmed.borrow_and_update().clone();
        if let Some(position) = confirmed {
            self.place.world().confirm(self.number, &position, cursor.units())?;
        }
        Ok(())
    }
}
