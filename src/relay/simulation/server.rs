//! The simulated source's server: its lock, its connections, and the log that it may forget.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

use super::world::{Event, ProcessId, World};
use crate::position::{Lsn, Position};
use crate::source::PostgresError;

const SLOT: &str = "s";

#[derive(Debug)]
struct Connection {
    process: ProcessId,
    open: bool,
    locked: bool,
    gone: Arc<Notify>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Server {
    connections: BTreeMap<u64, Connection>,
    opened: u64,
    /// The connection that reads the log; no other one may.
    holder: Option<u64>,
    /// Whole units that were confirmed, and may be forgotten.
    confirmed: usize,
}

impl Server {
    pub(super) fn confirmed(&self) -> usize {
        self.confirmed
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether a connection of a process had the lock, among those behind the first so many.
    pub(super) fn had_lock(&self, process: ProcessId, behind: u64) -> bool {
        let mut later = self.connections.range(behind + 1..);
        later.any(|(_, connection)| connection.process == process && connection.locked)
    }

    pub(super) fn is_open(&self, connection: u64) -> bool {
        self.connections
            .get(&connection)
            .is_some_and(|connection| connection.open)
    }
}

impl World {
    pub(super) fn connect(&mut self, process: ProcessId) -> (u64, Arc<Notify>) {
        let gone = Arc::new(Notify::new());
        self.server.opened += 1;
        let number = self.server.opened;
        let connection = Connection {
            process,
            open: true,
            locked: false,
            gone: Arc::clone(&gone),
        };
        self.server.connections.insert(number, connection);
        (number, gone)
    }

    /// Takes the source's lock.
    pub(super) fn lock_source(&mut self, connection: u64) -> Result<(), PostgresError> {
        if !self.server.is_open(connection) {
            return Err(PostgresError::Closed);
        }
        match self.server.holder {
            Some(holder) if holder != connection => Err(PostgresError::SlotActive {
                slot: SLOT.to_owned(),
                pid: i32::try_from(holder).unwrap(),
            }),
            _ => {
                self.server.holder = Some(connection);
                if let Some(state) = self.server.connections.get_mut(&connection) {
                    state.locked = true;
                }
                self.note(format_args!("connection {connection} has the lock"));
                Ok(())
            }
        }
    }

    /// Begins to stream from a position: only what was not confirmed is there.
    pub(super) fn start_streaming(&mut self, connection: u64, from: Option<&Position>) -> Result<(), PostgresError> {
        if self.server.holder != Some(connection) {
            return Err(PostgresError::Closed);
        }
        let base = from.map_or(0, |from| self.log.base(from));
        let confirmed = self.server.confirmed;
        if base < confirmed {
            return Err(PostgresError::SlotAhead {
                slot: SLOT.to_owned(),
                confirmed: Lsn(confirmed as u64),
                saved: Lsn(base as u64),
            });
        }
        Ok(())
    }

    /// Takes a confirmation, by which the log before it may be forgotten.
    pub(super) fn confirm(&mut self, connection: u64, position: &Position, read: usize) -> Result<(), PostgresError> {
        if self.server.holder != Some(connection) || !self.server.is_open(connection) {
            return Err(PostgresError::Closed);
        }
        let process = self.server.connections[&connection].process;
        let units = self.log.base(position).min(read);
        if units <= self.server.confirmed {
            return Ok(());
        }
        if !self.step(process, format_args!("confirm {units} units")) {
            return Err(PostgresError::Closed);
        }
        let saved = self.saved.position.as_ref().map_or(0, |saved| self.log.base(saved));
        if units > saved {
            self.violate(format!("{units} units are confirmed and {saved} are saved"));
        }
        // Where the next unit begins is where the confirmed ones end.
        let done = self.log.done_units(units);
        self.check_settled(done, "confirmed");
        self.server.confirmed = units;
        Ok(())
    }

    /// Breaks a connection; the server frees its lock when it notices.
    pub(super) fn disconnect(&mut self, connection: u64) {
        let Some(state) = self.server.connections.get_mut(&connection).filter(|state| state.open) else {
            return;
        };
        state.open = false;
        state.gone.notify_one();
        self.note(format_args!("connection {connection} ends"));
        if self.server.holder == Some(connection) {
            let after = if self.calm || self.rng.chance(700) {
                0
            } else {
                self.rng.within(1..=4000)
            };
            self.schedule(after, Event::LockFreed { connection });
        }
    }

    pub(super) fn free_lock(&mut self, connection: u64) {
        if self.server.holder == Some(connection) {
            self.server.holder = None;
            self.note(format_args!("connection {connection} has no lock any more"));
        }
    }

    /// Ends what a process has open, whose end the server may notice late.
    pub(super) fn server_loses(&mut self, process: ProcessId) {
        let open = self.server.connections.iter();
        let open: Vec<u64> = open
            .filter(|(_, connection)| connection.process == process && connection.open)
            .map(|(number, _)| *number)
            .collect();
        open.into_iter().for_each(|connection| self.disconnect(connection));
    }
}
