//! What is looked at all the time while faults happen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};
use tailpost::position::{Lsn, Position};

use crate::support::Bed;

use super::Mode;
use super::world::{Rewind, World, now_ms};

const POLL: Duration = Duration::from_millis(100);
/// A save takes some milliseconds.
const POLL_SLOT: Duration = Duration::from_millis(10);

/// What PostgreSQL's slot had confirmed at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Confirmed {
    /// Milliseconds since 1970; not later.
    pub at: i64,
    pub lsn: Lsn,
}

/// Watches the connector: whether it ends by itself, and when it begins anew. Ends when everything is drained.
pub fn watch_relay(world: &World, mode: Mode, drained: &AtomicBool) {
    let begins_anew = |line: &str| match mode {
        // A process that is started again is known to who started it. A source that is connected again goes on where it was.
        Mode::File => line.contains(" is started again") && !line.contains("source is started again"),
        Mode::Topic | Mode::ExactlyOnce => line.contains("checkpoint read"),
    };
    let (mut rewinds, mut after, mut saved) = (0, now_ms(), None);
    while !drained.load(Ordering::Relaxed) && !world.is_over() {
        let look = now_ms();
        let mut now = 0;
        for mut instance in world.instances() {
            if instance.gave_up() {
                let log = instance.relay.log();
                return world.give_up(format!("the connector ended by itself:\n{log}"));
            }
            now += instance.relay.count_lines(begins_anew);
            if mode == Mode::File {
                for _ in rewinds..now {
                    // What was saved at the look before: it is the least that was saved by then.
                    let (at, saved) = (now_ms(), saved.clone());
                    world.happened().rewinds.push(Rewind { after, at, saved });
                }
                saved = instance.relay.position();
            }
        }
        if mode != Mode::File {
            for _ in rewinds..now {
                let (at, saved) = (now_ms(), None);
                world.happened().rewinds.push(Rewind { after, at, saved });
            }
        }
        (rewinds, after) = (now, look);
        thread::sleep(POLL);
    }
}

/// Watches PostgreSQL's slot: nothing may be confirmed that is not saved. Gives what it saw.
pub fn watch_slot(world: &World, mode: Mode, drained: &AtomicBool) -> Vec<Confirmed> {
    let Bed::Postgres(bed) = &world.bed else {
        return Vec::new();
    };
    let mut seen = Vec::new();
    let mut admin = None;
    while !drained.load(Ordering::Relaxed) && !world.is_over() {
        if admin.is_none() {
            admin = Client::connect(&bed.postgres.admin_url, NoTls).ok();
        }
        match admin.as_mut().map(|admin| confirmed(admin, &bed.slot)) {
            Some(Ok(Some(lsn))) => {
                seen.push(Confirmed { at: now_ms(), lsn });
                // Read behind it: what is saved only grows.
                if mode == Mode::File
                    && let Some(Position::Postgres(saved)) = world.saved()
                    && lsn > saved.base
                {
                    world.give_up(format!("{lsn} is confirmed, and {} is saved", saved.base));
                }
            }
            Some(Ok(None)) | None => {}
            // It is away.
            Some(Err(_)) => admin = None,
        }
        thread::sleep(POLL_SLOT);
    }
    seen
}

fn confirmed(admin: &mut Client, slot: &str) -> Result<Option<Lsn>, postgres::Error> {
    let statement = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let row = admin.query_opt(statement, &[&slot])?;
    Ok(row.and_then(|row| row.get::<_, Option<&str>>(0)?.parse().ok()))
}
