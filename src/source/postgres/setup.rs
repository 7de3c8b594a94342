//! Where to go on, decided from what the checkpoint, the slot and the server say. Pure.
//!
//! The server says nothing of its own when a slot was lost, made anew or moved: START_REPLICATION takes any place, and
//! what lies between would be gone in silence. So everything is compared first, and only the operator's word accepts a
//! gap.

use crate::config::Start;
use crate::position::{Lsn, PostgresPosition};
use crate::source::OperatorWord;

use super::control::{SLOTS_FOLLOW, SlotFacts};
use super::error::PostgresError;
use super::timeline::{History, carry_over};

/// The cluster, from `IDENTIFY_SYSTEM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerFacts {
    pub(super) system_identifier: u64,
    pub(super) timeline: u32,
    /// End of the flushed log.
    pub(super) log_end: Lsn,
    /// Where its timeline came from, or why that could not be read.
    pub(super) history: Result<History, String>,
}

/// How to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// The slot is there: start at this position. `gap` names what was accepted.
    Resume {
        position: PostgresPosition,
        gap: Option<String>,
    },
    /// Make the slot, after dropping what is left of an unusable one.
    /// Nothing before `from` is wanted.
    MakeSlot {
        drop_first: bool,
        from: Lsn,
        gap: Option<String>,
    },
}

/// Settings of the pipeline that the decision needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) slot: &'a str,
    pub(super) database: &'a str,
    pub(super) create: bool,
    pub(super) start: Start,
    pub(super) word: OperatorWord,
    /// What an administrator does for a slot to be there after a promotion; depends on the server's version.
    pub(super) how_to_keep_slots: &'static str,
}

/// # Errors
/// Each names what is missing or contradicts, and the remedy.
pub(super) fn plan(
    saved: Option<&PostgresPosition>,
    server: &ServerFacts,
    slot: Option<&SlotFacts>,
    wanted: Wanted<'_>,
) -> Result<Plan, PostgresError> {
    let saved = saved.filter(|_| wanted.word != OperatorWord::FromSlot);
    // A gap's text is the error that would have ended the start.
    let unless_accepted = |error: PostgresError| match wanted.word {
        OperatorWord::AcceptGap => Ok(Some(error.to_string())),
        _ => Err(error),
    };
    let mut gap = None;
    // Where an accepted gap ends at the earliest: what lies before is done.
    let mut done = Lsn::ZERO;
    let mut carried = None;
    if let Some(saved) = saved {
        if saved.system_identifier != server.system_identifier {
            return Err(PostgresError::OtherServer {
                found: server.system_identifier,
                saved: saved.system_identifier,
            });
        }
        match carry_over(saved, server) {
            Ok(position) => carried = Some(position),
            // The primary that was replaced may go on writing; what it writes is nobody's gap.
            Err(error @ PostgresError::OlderTimeline { .. }) => return Err(error),
            Err(error) => {
                if let PostgresError::PastSwitchPoint { resume, .. } = error {
                    done = resume;
                }
                gap = unless_accepted(error)?;
            }
        }
    }
    let promoted = saved.filter(|saved| saved.timeline != server.timeline);
    if let Some(error) = promoted.and_then(|saved| not_synchronised(saved, server, slot, wanted)) {
        let drop_first = slot.is_some();
        let gap = unless_accepted(error)?;
        return make(saved, server, wanted, drop_first, gap);
    }
    if let Some(slot) = slot {
        check_kind(slot, wanted)?;
    }
    let Some(slot) = slot else {
        if let Some(saved) = saved {
            gap = unless_accepted(PostgresError::SlotLost {
                slot: wanted.slot.to_owned(),
                saved: saved.clone(),
            })?;
        }
        return make(saved, server, wanted, false, gap);
    };
    if let Some(reason) = slot.invalidation() {
        let error = PostgresError::SlotInvalidated {
            slot: wanted.slot.to_owned(),
            reason,
        };
        let gap = unless_accepted(error)?;
        return make(saved, server, wanted, true, gap);
    }
    let confirmed = slot.confirmed.unwrap_or(Lsn::ZERO);
    let at = |base| PostgresPosition {
        system_identifier: server.system_identifier,
        timeline: server.timeline,
        base,
        partial: None,
        last_event_end: Lsn::ZERO,
    };
    let position = match carried {
        // The timelines do not fit, and that was accepted.
        None if saved.is_some() => at(confirmed.max(done)),
        // The word means the slot, whatever the file says of a first start.
        None if wanted.word == OperatorWord::FromSlot => at(confirmed),
        None => match wanted.start {
            Start::Earliest => at(confirmed),
            Start::Latest => at(confirmed.max(server.log_end)),
            Start::Lsn(start) if start < confirmed => {
                return Err(PostgresError::StartTooEarly {
                    slot: wanted.slot.to_owned(),
                    start,
                    confirmed,
                });
            }
            Start::Lsn(start) => at(start),
        },
        // We save before we confirm, so the slot can never be ahead of us by our own doing.
        Some(carried) if confirmed > carried.base => {
            let error = PostgresError::SlotAhead {
                slot: wanted.slot.to_owned(),
                confirmed,
                saved: carried.base,
            };
            gap = unless_accepted(error)?;
            at(confirmed)
        }
        Some(carried) if carried.base > server.log_end => {
            gap = unless_accepted(PostgresError::BeyondLog {
                saved: carried.base,
                end: server.log_end,
            })?;
            at(confirmed)
        }
        Some(carried) => carried,
    };
    Ok(Plan::Resume { position, gap })
}

fn make(
    saved: Option<&PostgresPosition>,
    server: &ServerFacts,
    wanted: Wanted<'_>,
    drop_first: bool,
    gap: Option<String>,
) -> Result<Plan, PostgresError> {
    if !wanted.create && !drop_first {
        return Err(PostgresError::SlotMissing {
            slot: wanted.slot.to_owned(),
        });
    }
    Ok(Plan::MakeSlot {
        drop_first,
        from: new_start(saved, server, wanted)?,
        gap,
    })
}

/// What an administrator does for a slot to be there after a promotion.
pub(super) fn how_to_keep_slots(version: u32) -> &'static str {
    if version >= SLOTS_FOLLOW {
        "let the slot be one with failover (ALTER_REPLICATION_SLOT ... (FAILOVER true)), and set sync_replication_slots = on, hot_standby_feedback = on and a dbname in primary_conninfo on the standby"
    } else {
        "upgrade: from PostgreSQL 17 on a standby can keep slots in step"
    }
}

/// Why the slot did not come through the promotion, where it did not.
fn not_synchronised(
    saved: &PostgresPosition,
    server: &ServerFacts,
    slot: Option<&SlotFacts>,
    wanted: Wanted<'_>,
) -> Option<PostgresError> {
    let found = match slot {
        None => "does not exist".to_owned(),
        // The server drops such a slot with the worker that made it, or is about to.
        Some(slot) if slot.synced && slot.temporary => "is only temporary".to_owned(),
        Some(slot) if slot.synced => format!("is invalid ({})", slot.invalidation()?),
        Some(_) => return None,
    };
    Some(PostgresError::SlotNotSynchronised {
        slot: wanted.slot.to_owned(),
        found,
        timeline: server.timeline,
        saved: saved.base,
        how: wanted.how_to_keep_slots,
    })
}

/// Where a slot that is yet to be made is to be read from: it has nothing that is older than itself.
fn new_start(saved: Option<&PostgresPosition>, server: &ServerFacts, wanted: Wanted<'_>) -> Result<Lsn, PostgresError> {
    match wanted.start {
        Start::Lsn(start) if saved.is_none() && wanted.word == OperatorWord::Nothing => {
            if start < server.log_end {
                return Err(PostgresError::StartTooEarly {
                    slot: wanted.slot.to_owned(),
                    start,
                    confirmed: server.log_end,
                });
            }
            Ok(start)
        }
        _ => Ok(Lsn::ZERO),
    }
}

/// Checks that the slot is one that this source can read.
pub(super) fn check_kind(slot: &SlotFacts, wanted: Wanted<'_>) -> Result<(), PostgresError> {
    let wrong = |found: String, expected, remedy| {
        Err(PostgresError::SlotKind {
            slot: wanted.slot.to_owned(),
            found,
            expected,
            remedy,
        })
    };
    match (&slot.plugin, &slot.database) {
        (None, _) => wrong(
            "a physical slot".to_owned(),
            "a logical one",
            "name another slot in the pipeline file",
        ),
        (Some(plugin), _) if plugin != "pgoutput" => wrong(
            format!("of plugin `{plugin}`"),
            "`pgoutput`",
            "name another slot in the pipeline file, or drop this one if nobody reads it",
        ),
        (_, Some(database)) if database != wanted.database => wrong(
            format!("of database `{database}`"),
            "one of the DSN's database",
            "name another slot in the pipeline file, or the slot's database in the DSN",
        ),
        _ if slot.two_phase => wrong(
            "made with two_phase".to_owned(),
            "one without",
            "it would show prepared transactions before they commit: drop it and let a new one be made",
        ),
        _ if slot.temporary => wrong(
            "temporary".to_owned(),
            "a permanent one",
            "it is being synchronised from a primary or belongs to a session: name another slot",
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
