//! `tailpost position set`: a place in the server's log that a person names.

use clap::Args;

use crate::config::{GtidStart, MysqlStart, Source};
use crate::position::{Lsn, Position, PostgresPosition};
use crate::source::{self, SourceError};

use super::error::PositionError;
use super::stored::{Saved, Stored};
use super::{Target, print_change, show};

#[derive(Debug, Args)]
pub(super) struct SetArguments {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(flatten)]
    place: Place,
    /// Your word that events between the old position and this one may be missing, or come once more.
    #[arg(long)]
    accept_gap: bool,
}

#[derive(Debug, Args)]
#[group(required = true)]
struct Place {
    /// Of PostgreSQL: the end of the last transaction that is done, such as 16/B374D848.
    #[arg(long, conflicts_with_all = ["gtid", "file"])]
    lsn: Option<Lsn>,
    /// Of MySQL: all transactions that are done, as a GTID set. Of MariaDB: the last one of each domain.
    #[arg(long, value_name = "SET", conflicts_with = "file")]
    gtid: Option<GtidStart>,
    /// Of MySQL and MariaDB: a binlog file.
    #[arg(long, requires = "pos")]
    file: Option<String>,
    /// Where in the file an event begins.
    #[arg(long, value_name = "N", requires = "file")]
    pos: Option<u64>,
}

pub(super) async fn run(stored: &Stored<'_>, arguments: &SetArguments) -> Result<(), PositionError> {
    if !arguments.accept_gap {
        return Err(PositionError::WithoutWord);
    }
    // The server first: what it refuses must not have shut out a pipeline that runs.
    let position = resolve(&stored.pipeline.source, &arguments.place).await?;
    let chosen = |saved: &Saved| Ok(keep_last_event(position.clone(), saved));
    let (saved, position) = stored.replace(chosen, true).await?;
    print_change(stored, &saved, &position)
}

/// The place as a position in the server's log, of which only the server knows whose it is.
async fn resolve(source: &Source, place: &Place) -> Result<Position, PositionError> {
    let other = |found, database, expected| {
        Err(PositionError::OtherLog {
            found,
            database,
            expected,
        })
    };
    let found = match place {
        Place { lsn: Some(_), .. } => "--lsn",
        Place { gtid: Some(_), .. } => "--gtid",
        _ => "--file",
    };
    match (source, place) {
        (Source::Postgres(config), Place { lsn: Some(lsn), .. }) => {
            let end = source::postgres::log_end(config).await.map_err(SourceError::from)?;
            if *lsn > end.base {
                return Err(PositionError::BeyondLog {
                    lsn: *lsn,
                    end: end.base,
                });
            }
            Ok(Position::Postgres(PostgresPosition {
                base: *lsn,
                // What lies before counts as published.
                last_event_end: *lsn,
                ..end
            }))
        }
        (Source::Postgres(_), _) => other(found, show::POSTGRES, "--lsn"),
        (Source::Mysql(_), Place { lsn: Some(_), .. }) => other(found, show::MYSQL, "--gtid, or --file and --pos"),
        (Source::Mysql(config), place) => {
            let start = match (&place.gtid, &place.file) {
                (Some(gtid), _) => MysqlStart::Gtid(gtid.clone()),
                (None, file) => MysqlStart::File {
                    file: file.clone().unwrap_or_default(),
                    position: place.pos.unwrap_or_default(),
                },
            };
            let position = source::mysql::position_at(config, start).await;
            Ok(Position::Mysql(Box::new(position.map_err(SourceError::from)?)))
        }
    }
}

/// After a fail-over of PostgreSQL the new server's log must reach the last event that was published. Of the same log that is
/// known still, as far as it lies before the new position.
fn keep_last_event(position: Position, saved: &Saved) -> Position {
    let Position::Postgres(mut position) = position else {
        return position;
    };
    if let Saved::Position(saved) = saved
        && let Position::Postgres(saved) = saved.as_ref()
        && (saved.system_identifier, saved.timeline) == (position.system_identifier, position.timeline)
    {
        position.last_event_end = position.last_event_end.min(saved.last_event_end);
    }
    Position::Postgres(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(timeline: u32, base: u64, last_event_end: u64) -> PostgresPosition {
        PostgresPosition {
            system_identifier: 7,
            timeline,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn(last_event_end),
        }
    }

    #[test]
    fn the_last_event_is_the_saved_one_of_the_same_log_up_to_the_new_place() {
        let last_event = |saved: Saved| match keep_last_event(Position::Postgres(at(1, 100, 100)), &saved) {
            Position::Postgres(position) => (position.base.0, position.last_event_end.0),
            Position::Mysql(position) => panic!("{position}"),
        };
        let saved = |position| Saved::Position(Box::new(Position::Postgres(position)));
        assert_eq!(last_event(saved(at(1, 90, 60))), (100, 60));
        assert_eq!(last_event(saved(at(1, 200, 150))), (100, 100));
        assert_eq!(last_event(saved(at(2, 90, 60))), (100, 100));
        assert_eq!(last_event(Saved::Nothing), (100, 100));
    }
}
