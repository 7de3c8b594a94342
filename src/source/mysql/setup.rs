//! Where to go on, decided from what the checkpoint and the server say. Pure.
//!
//! The server itself refuses some of what would be a gap, and only once the stream has begun; everything is compared
//! before, and only the operator's word accepts a gap.

use crate::config::{GtidStart, MysqlStart};
use crate::gtid::{GtidSet, MariadbGtid, MariadbGtids};
use crate::position::{BinlogPlace, ByFile, MysqlBase, MysqlPosition};
use crate::source::OperatorWord;

use super::error::MysqlError;
use super::server::{LogGtids, ServerFacts};

/// The protocol asks for a place in a file with 32 bits.
const LARGEST_OFFSET: u64 = u32::MAX as u64;

const NEVER_HAD: &str = "it never had them";
const WERE_PURGED: &str = "they come after the start and were purged; add them to it to do without them";

/// How to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) position: MysqlPosition,
    /// What the operator accepted.
    pub(super) gap: Option<String>,
}

/// Decides where to begin. `refused` is what the server said to the last such decision, which only the operator's word gets
/// over. `start_gtids` is what MariaDB says of the place that `start` names.
///
/// # Errors
/// Each names what is missing or contradicts, and the remedy.
pub(super) fn plan(
    saved: Option<&MysqlPosition>,
    server: &ServerFacts,
    start: &MysqlStart,
    start_gtids: Option<&MariadbGtids>,
    word: OperatorWord,
    refused: Option<&MysqlError>,
) -> Result<Plan, MysqlError> {
    if let Some(refused) = refused {
        return Ok(Plan {
            position: at(server, earliest(server), server.oldest()),
            gap: Some(refused.to_string()),
        });
    }
    let aside = word == OperatorWord::FromSlot && saved.is_some();
    let Some(saved) = saved.filter(|_| !aside) else {
        return Ok(Plan {
            position: first_start(server, start, start_gtids)?,
            gap: aside.then(|| "--from-slot: the checkpoint is set aside".to_owned()),
        });
    };
    match resume(saved, server) {
        Ok(position) => Ok(Plan { position, gap: None }),
        Err(Refusal {
            error,
            otherwise: Some(otherwise),
        }) if word == OperatorWord::AcceptGap => Ok(Plan {
            position: otherwise,
            gap: Some(error.to_string()),
        }),
        Err(Refusal { error, .. }) => Err(*error),
    }
}

/// Why a position cannot be gone on from, and where to go on once that is accepted; None: nowhere.
struct Refusal {
    error: Box<MysqlError>,
    otherwise: Option<MysqlPosition>,
}

fn resume(saved: &MysqlPosition, server: &ServerFacts) -> Result<MysqlPosition, Refusal> {
    let refuse = |error: MysqlError, base: MysqlBase, place: BinlogPlace| {
        Err(Refusal {
            error: Box::new(error),
            otherwise: Some(at(server, base, place)),
        })
    };
    let purged = |detail: String| MysqlError::Purged {
        saved: Box::new(saved.clone()),
        oldest: oldest_text(server),
        detail,
    };
    match (&saved.base, &server.gtids) {
        (MysqlBase::Gtids(done), LogGtids::Mysql { executed, purged: gone }) => {
            let missing = done.difference(executed);
            let mut reachable = done.difference(&missing);
            reachable.union_with(gone);
            if !missing.is_empty() {
                let error = MysqlError::Ahead {
                    saved: Box::new(saved.clone()),
                    missing: missing.to_string(),
                };
                return refuse(error, MysqlBase::Gtids(reachable), server.oldest());
            }
            let lost = gone.difference(done);
            if !lost.is_empty() {
                let error = purged(format!("the missing transactions are {lost}"));
                return refuse(error, MysqlBase::Gtids(reachable), server.oldest());
            }
        }
        (MysqlBase::Mariadb(done), LogGtids::Mariadb { oldest, .. }) => {
            let begin = match saved.begin().0 {
                MysqlBase::Mariadb(begin) => begin,
                _ => done,
            };
            let ahead = done.iter().find(|gtid| !has(&server.gtids, gtid));
            if let Some(gtid) = ahead {
                let error = MysqlError::Ahead {
                    saved: Box::new(saved.clone()),
                    missing: gtid.to_string(),
                };
                return refuse(error, MysqlBase::Mariadb(reachable(done, server)), server.oldest());
            }
            if let Some(gtid) = first_purged(begin, oldest) {
                let error = purged(format!("transactions up to {gtid} are missing"));
                return refuse(error, MysqlBase::Mariadb(reachable(done, server)), server.oldest());
            }
        }
        (MysqlBase::File(_), _) => return resume_by_file(saved, server),
        (MysqlBase::Gtids(_) | MysqlBase::Mariadb(_), found) => {
            let error = MysqlError::OtherKind {
                saved: match saved.base {
                    MysqlBase::Gtids(_) => "MySQL's GTIDs",
                    _ => "MariaDB's GTIDs",
                },
                found: kind(found),
            };
            return refuse(error, earliest(server), server.oldest());
        }
    }
    if saved.server.is_same(&server.identity) {
        return Ok(MysqlPosition {
            server: server.identity.clone(),
            ..saved.clone()
        });
    }
    tracing::warn!(
        server = %server.identity,
        saved = %saved.server,
        "another server than at the last save; it has the transactions that are done, and all that follow"
    );
    // The place was one in the other server's log.
    Ok(MysqlPosition {
        server: server.identity.clone(),
        place: server.oldest(),
        ..saved.clone()
    })
}

fn resume_by_file(saved: &MysqlPosition, server: &ServerFacts) -> Result<MysqlPosition, Refusal> {
    let (_, begin) = saved.begin();
    let error = if !saved.server.is_same(&server.identity) {
        MysqlError::OtherServer {
            found: server.identity.clone(),
            saved: saved.server.clone(),
        }
    } else if begin.log_place() < server.oldest().log_place() {
        MysqlError::Purged {
            saved: Box::new(saved.clone()),
            oldest: oldest_text(server),
            detail: format!("{} is gone", begin.file),
        }
    } else if !has_place(server, begin) {
        MysqlError::Ahead {
            saved: Box::new(saved.clone()),
            missing: format!("its binlog ends at {}", server.end()),
        }
    } else if begin.pos > LARGEST_OFFSET {
        let next = server
            .files
            .iter()
            .find(|file| file.file_number() > begin.file_number());
        let otherwise = next.map(|next| {
            let place = BinlogPlace {
                file: next.file.clone(),
                pos: BinlogPlace::FILE_START,
            };
            at(server, MysqlBase::File(ByFile), place)
        });
        return Err(Refusal {
            error: Box::new(MysqlError::BeyondProtocol { place: begin.clone() }),
            otherwise,
        });
    } else {
        return Ok(saved.clone());
    };
    Err(Refusal {
        error: Box::new(error),
        otherwise: Some(at(server, earliest(server), server.oldest())),
    })
}

/// Whether MariaDB can begin behind a transaction: it was in the log at some time, as its server's last one in the domain
/// shows, or it is the last that was replicated, and what follows is in the log.
fn has(gtids: &LogGtids, gtid: &MariadbGtid) -> bool {
    let LogGtids::Mariadb { state, replicated, .. } = gtids else {
        return false;
    };
    let last = last_of_server(state, gtid);
    last.is_some_and(|last| last.sequence >= gtid.sequence) || replicated.get(gtid.domain) == Some(*gtid)
}

/// The last transaction in the log of this one's server, in its domain.
fn last_of_server(state: &[MariadbGtid], gtid: &MariadbGtid) -> Option<MariadbGtid> {
    let of_server = |last: &&MariadbGtid| (last.domain, last.server) == (gtid.domain, gtid.server);
    state.iter().filter(of_server).max_by_key(|last| last.sequence).copied()
}

/// Of each domain as much as the server can go on from.
fn reachable(done: &MariadbGtids, server: &ServerFacts) -> MariadbGtids {
    let LogGtids::Mariadb {
        oldest, newest, state, ..
    } = &server.gtids
    else {
        return MariadbGtids::new();
    };
    let mut reachable = oldest.clone();
    for gtid in done.iter() {
        let before_log = oldest
            .get(gtid.domain)
            .is_some_and(|oldest| oldest.server == gtid.server && gtid.sequence < oldest.sequence);
        match newest.get(gtid.domain) {
            // What follows the last that both have was never seen, whoever wrote it.
            Some(newest) if !has(&server.gtids, &gtid) => {
                reachable.insert(last_of_server(state, &gtid).unwrap_or(newest));
            }
            Some(_) if !before_log => reachable.insert(gtid),
            _ => {}
        }
    }
    reachable
}

fn first_start(
    server: &ServerFacts,
    start: &MysqlStart,
    start_gtids: Option<&MariadbGtids>,
) -> Result<MysqlPosition, MysqlError> {
    match (start, &server.gtids) {
        (MysqlStart::Earliest, _) => Ok(at(server, earliest(server), server.oldest())),
        (MysqlStart::Latest, gtids) => {
            let base = match gtids {
                LogGtids::Mysql { executed, .. } => MysqlBase::Gtids(executed.clone()),
                LogGtids::Mariadb { newest, .. } => MysqlBase::Mariadb(newest.clone()),
                LogGtids::Off => MysqlBase::File(ByFile),
            };
            Ok(at(server, base, server.end()))
        }
        (MysqlStart::Gtid(GtidStart::Mysql(set)), LogGtids::Mysql { executed, purged }) => {
            gtid_start(set, executed, purged)?;
            Ok(at(server, MysqlBase::Gtids(set.clone()), server.oldest()))
        }
        // Where it lies in the log is for the server to find.
        (MysqlStart::Gtid(GtidStart::Mariadb(gtids)), LogGtids::Mariadb { oldest, .. }) => {
            mariadb_start(gtids, oldest, &server.gtids)?;
            Ok(at(server, MysqlBase::Mariadb(gtids.clone()), server.oldest()))
        }
        (MysqlStart::Gtid(given), found) => Err(MysqlError::StartKind {
            given: match given {
                GtidStart::Mysql(_) => "GTID set of MySQL",
                GtidStart::Mariadb(_) => "list of MariaDB's GTIDs",
            },
            found: kind(found),
        }),
        (MysqlStart::File { file, position }, gtids) => {
            let place = BinlogPlace {
                file: file.as_str().into(),
                pos: *position,
            };
            if place.pos > LARGEST_OFFSET {
                return Err(MysqlError::BeyondProtocol { place });
            }
            let known = match gtids {
                LogGtids::Mariadb { .. } => start_gtids.cloned().map(MysqlBase::Mariadb),
                _ => Some(MysqlBase::File(ByFile)),
            };
            match known.filter(|_| has_place(server, &place)) {
                Some(base) => Ok(at(server, base, place)),
                None => Err(MysqlError::StartPlace {
                    place,
                    oldest: server.oldest(),
                    newest: server.end(),
                }),
            }
        }
    }
}

/// A set to start from must hold what was purged, and only what there is.
fn gtid_start(set: &GtidSet, executed: &GtidSet, purged: &GtidSet) -> Result<(), MysqlError> {
    let unknown = set.difference(executed);
    if !unknown.is_empty() {
        return Err(MysqlError::StartMissing {
            start: set.to_string(),
            missing: unknown.to_string(),
            reason: NEVER_HAD,
        });
    }
    let gone = purged.difference(set);
    if !gone.is_empty() {
        return Err(MysqlError::StartMissing {
            start: set.to_string(),
            missing: gone.to_string(),
            reason: WERE_PURGED,
        });
    }
    Ok(())
}

/// The same, of each domain: its last one.
fn mariadb_start(gtids: &MariadbGtids, oldest: &MariadbGtids, log: &LogGtids) -> Result<(), MysqlError> {
    let missing = |gtid: MariadbGtid, reason| MysqlError::StartMissing {
        start: gtids.to_string(),
        missing: gtid.to_string(),
        reason,
    };
    if let Some(unknown) = gtids.iter().find(|gtid| !has(log, gtid)) {
        return Err(missing(unknown, NEVER_HAD));
    }
    match first_purged(gtids, oldest) {
        Some(gone) => Err(missing(gone, WERE_PURGED)),
        None => Ok(()),
    }
}

/// The first domain whose log begins behind what is to be read. Of two servers'
/// GTIDs the server itself knows which came first, and refuses.
fn first_purged(begin: &MariadbGtids, oldest: &MariadbGtids) -> Option<MariadbGtid> {
    oldest.iter().find(|oldest| match begin.get(oldest.domain) {
        Some(begin) => begin.server == oldest.server && begin.sequence < oldest.sequence,
        None => true,
    })
}

/// What was gone from the log before its oldest file.
fn earliest(server: &ServerFacts) -> MysqlBase {
    match &server.gtids {
        LogGtids::Mysql { purged, .. } => MysqlBase::Gtids(purged.clone()),
        LogGtids::Mariadb { oldest, .. } => MysqlBase::Mariadb(oldest.clone()),
        LogGtids::Off => MysqlBase::File(ByFile),
    }
}

fn at(server: &ServerFacts, base: MysqlBase, place: BinlogPlace) -> MysqlPosition {
    MysqlPosition {
        server: server.identity.clone(),
        base,
        place,
        partial: Vec::new(),
        reread: None,
    }
}

fn has_place(server: &ServerFacts, place: &BinlogPlace) -> bool {
    let file = server.files.iter().find(|file| file.file == place.file);
    file.is_some_and(|file| place.pos <= file.pos)
}

/// What the operator can go on from.
fn oldest_text(server: &ServerFacts) -> String {
    let oldest = server.oldest();
    match earliest(server) {
        MysqlBase::Gtids(purged) if !purged.is_empty() => format!("{oldest}, behind {purged}"),
        MysqlBase::Mariadb(gtids) if !gtids.is_empty() => format!("{oldest}, behind {gtids}"),
        _ => oldest.to_string(),
    }
}

fn kind(gtids: &LogGtids) -> &'static str {
    match gtids {
        LogGtids::Mysql { .. } => "is MySQL with GTIDs",
        LogGtids::Mariadb { .. } => "is MariaDB",
        LogGtids::Off => "is MySQL without gtid_mode = ON",
    }
}

#[cfg(test)]
mod tests;
