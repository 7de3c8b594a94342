//! Where to go on, decided from what the checkpoint, the slot and the server say. Pure.
//!
//! The server says nothing of its own when a slot was lost, made anew or moved: START_REPLICATION takes any place, and
//! what lies between would be gone in silence. So everything is compared first, and only the operator's word accepts a
//! gap.

use crate::config::Start;
use crate::position::{Lsn, PostgresPosition};
use crate::source::OperatorWord;

use super::control::SlotFacts;
use super::error::PostgresError;

/// The cluster, from `IDENTIFY_SYSTEM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerFacts {
    pub(super) system_identifier: u64,
    pub(super) timeline: u32,
    /// End of the flushed log.
    pub(super) log_end: Lsn,
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
}

/// # Errors
/// Each names what is missing or contradicts, and the remedy.
pub(super) fn plan(
    saved: Option<&PostgresPosition>,
    server: ServerFacts,
    slot: Option<&SlotFacts>,
    wanted: Wanted<'_>,
) -> Result<Plan, PostgresError> {
    if let Some(slot) = slot {
        check_kind(slot, wanted)?;
    }
    let accept = wanted.word == OperatorWord::AcceptGap;
    let saved = saved.filter(|_| wanted.word != OperatorWord::FromSlot);
    // An error is the answer, unless the operator accepted what it says.
    let unless_accepted = |error: PostgresError| {
        if accept {
            Ok(Some(error.to_string()))
        } else {
            Err(error)
        }
    };
    let mut gap = None;
    if let Some(saved) = saved {
        if saved.system_identifier != server.system_identifier {
            return Err(PostgresError::OtherServer {
                found: server.system_identifier,
                saved: saved.system_identifier,
            });
        }
        if saved.timeline != server.timeline {
            gap = unless_accepted(PostgresError::Timeline {
                found: server.timeline,
                timeline: saved.timeline,
                saved: saved.base,
                reason: "the server was promoted or restored since then".to_owned(),
            })?;
        }
    }
    let Some(slot) = slot else {
        if let Some(saved) = saved {
            gap = unless_accepted(PostgresError::SlotLost {
                slot: wanted.slot.to_owned(),
                saved: saved.clone(),
            })?;
        }
        if !wanted.create {
            return Err(PostgresError::SlotMissing {
                slot: wanted.slot.to_owned(),
            });
        }
        return Ok(Plan::MakeSlot {
            drop_first: false,
            from: new_start(saved, server, wanted)?,
            gap,
        });
    };
    if let Some(reason) = invalidation(slot) {
        let error = PostgresError::SlotInvalidated {
            slot: wanted.slot.to_owned(),
            reason,
        };
        let gap = unless_accepted(error)?;
        return Ok(Plan::MakeSlot {
            drop_first: true,
            from: new_start(saved, server, wanted)?,
            gap,
        });
    }
    let confirmed = slot.confirmed.unwrap_or(Lsn::ZERO);
    let at = |base| PostgresPosition {
        system_identifier: server.system_identifier,
        timeline: server.timeline,
        base,
        partial: None,
        last_event_end: Lsn::ZERO,
    };
    let position = match saved {
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
        Some(saved) if confirmed > saved.base => {
            let error = PostgresError::SlotAhead {
                slot: wanted.slot.to_owned(),
                confirmed,
                saved: saved.base,
            };
            gap = unless_accepted(error)?;
            at(confirmed)
        }
        // On a new timeline our place means nothing: what was written below it there would be passed over.
        Some(_) if gap.is_some() => at(confirmed),
        Some(saved) if saved.base > server.log_end => {
            gap = unless_accepted(PostgresError::BeyondLog {
                saved: saved.base,
                end: server.log_end,
            })?;
            at(confirmed)
        }
        Some(saved) => PostgresPosition {
            timeline: server.timeline,
            ..saved.clone()
        },
    };
    Ok(Plan::Resume { position, gap })
}

/// Where a slot that is yet to be made is to be read from: it has nothing that is older than itself.
fn new_start(saved: Option<&PostgresPosition>, server: ServerFacts, wanted: Wanted<'_>) -> Result<Lsn, PostgresError> {
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

fn invalidation(slot: &SlotFacts) -> Option<String> {
    match (&slot.invalidation_reason, slot.wal_status.as_deref()) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Some("lost")) => Some("wal_status is lost".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> SlotFacts {
        SlotFacts {
            plugin: Some("pgoutput".to_owned()),
            database: Some("shop".to_owned()),
            active_pid: None,
            confirmed: Some(Lsn(100)),
            wal_status: Some("reserved".to_owned()),
            invalidation_reason: None,
            two_phase: false,
            temporary: false,
            catalog_xmin_age: Some(1),
        }
    }

    fn saved(base: u64) -> PostgresPosition {
        PostgresPosition {
            system_identifier: 7,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn::ZERO,
        }
    }

    const SERVER: ServerFacts = ServerFacts {
        system_identifier: 7,
        timeline: 1,
        log_end: Lsn(1000),
    };

    fn wanted(word: OperatorWord) -> Wanted<'static> {
        Wanted {
            slot: "s",
            database: "shop",
            create: true,
            start: Start::Earliest,
            word,
        }
    }

    fn base_of(plan: Result<Plan, PostgresError>) -> (u64, bool) {
        match plan.expect("a plan") {
            Plan::Resume { position, gap } => (position.base.0, gap.is_some()),
            Plan::MakeSlot { .. } => panic!("the slot is there"),
        }
    }

    #[test]
    fn the_checkpoint_wins_over_a_slot_that_is_behind_it() {
        assert_eq!(
            base_of(plan(
                Some(&saved(150)),
                SERVER,
                Some(&slot()),
                wanted(OperatorWord::Nothing)
            )),
            (150, false)
        );
    }

    #[test]
    fn without_a_checkpoint_the_slot_says_where_to_go_on() {
        assert_eq!(
            base_of(plan(None, SERVER, Some(&slot()), wanted(OperatorWord::Nothing))),
            (100, false)
        );
    }

    #[test]
    fn a_slot_ahead_of_the_checkpoint_halts_until_the_gap_is_accepted() {
        let error = plan(Some(&saved(99)), SERVER, Some(&slot()), wanted(OperatorWord::Nothing)).expect_err("a gap");
        let text = error.to_string();
        assert!(
            text.contains("0/64") && text.contains("0/63") && text.contains("--accept-gap"),
            "{text}"
        );
        assert_eq!(
            base_of(plan(
                Some(&saved(99)),
                SERVER,
                Some(&slot()),
                wanted(OperatorWord::AcceptGap)
            )),
            (100, true)
        );
    }

    #[test]
    fn a_lost_slot_halts_and_a_missing_one_is_made() {
        assert!(matches!(
            plan(Some(&saved(99)), SERVER, None, wanted(OperatorWord::Nothing)),
            Err(PostgresError::SlotLost { .. })
        ));
        assert_eq!(
            plan(None, SERVER, None, wanted(OperatorWord::Nothing)).expect("a plan"),
            Plan::MakeSlot {
                drop_first: false,
                from: Lsn::ZERO,
                gap: None
            }
        );
    }

    #[test]
    fn another_server_is_never_accepted_as_a_gap() {
        let other = ServerFacts {
            system_identifier: 8,
            ..SERVER
        };
        for word in [OperatorWord::Nothing, OperatorWord::AcceptGap] {
            let error = plan(Some(&saved(150)), other, Some(&slot()), wanted(word)).expect_err("another server");
            assert!(error.to_string().contains("--from-slot"), "{error}");
        }
        assert_eq!(
            base_of(plan(
                Some(&saved(150)),
                other,
                Some(&slot()),
                wanted(OperatorWord::FromSlot)
            )),
            (100, false)
        );
    }

    #[test]
    fn a_slot_of_another_kind_is_refused_with_its_remedy() {
        let of = |change: fn(&mut SlotFacts)| {
            let mut slot = slot();
            change(&mut slot);
            plan(None, SERVER, Some(&slot), wanted(OperatorWord::AcceptGap))
                .expect_err("another kind")
                .to_string()
        };
        assert!(of(|slot| slot.plugin = Some("wal2json".to_owned())).contains("wal2json"));
        assert!(of(|slot| slot.plugin = None).contains("physical"));
        assert!(of(|slot| slot.database = Some("other".to_owned())).contains("`other`"));
        assert!(of(|slot| slot.two_phase = true).contains("two_phase"));
        assert!(of(|slot| slot.temporary = true).contains("temporary"));
    }

    #[test]
    fn an_invalidated_slot_names_the_reason() {
        let lost = SlotFacts {
            wal_status: Some("lost".to_owned()),
            ..slot()
        };
        let error = plan(Some(&saved(150)), SERVER, Some(&lost), wanted(OperatorWord::Nothing)).expect_err("lost");
        assert!(error.to_string().contains("wal_status is lost"), "{error}");
        let reason = SlotFacts {
            invalidation_reason: Some("idle_timeout".to_owned()),
            ..slot()
        };
        let error = plan(None, SERVER, Some(&reason), wanted(OperatorWord::Nothing)).expect_err("lost");
        assert!(error.to_string().contains("idle_timeout"), "{error}");
    }

    #[test]
    fn a_position_beyond_the_log_halts() {
        assert!(matches!(
            plan(Some(&saved(2000)), SERVER, Some(&slot()), wanted(OperatorWord::Nothing)),
            Err(PostgresError::BeyondLog { .. })
        ));
    }

    #[test]
    fn a_start_is_heeded_only_without_a_checkpoint() {
        let at = |start| Wanted {
            start,
            ..wanted(OperatorWord::Nothing)
        };
        assert_eq!(
            base_of(plan(None, SERVER, Some(&slot()), at(Start::Latest))),
            (1000, false)
        );
        assert_eq!(
            base_of(plan(None, SERVER, Some(&slot()), at(Start::Lsn(Lsn(500))))),
            (500, false)
        );
        assert_eq!(
            base_of(plan(Some(&saved(150)), SERVER, Some(&slot()), at(Start::Latest))),
            (150, false)
        );
        assert!(matches!(
            plan(None, SERVER, Some(&slot()), at(Start::Lsn(Lsn(50)))),
            Err(PostgresError::StartTooEarly { .. })
        ));
    }
}
