//! `tailpost dlq purge`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use clap::Args;

use crate::calendar::rfc3339;
use crate::config::{Kafka, Pipeline};
use crate::letters::{LetterId, Parked};
use crate::sink::kafka::Admin;

use super::error::DlqError;
use super::filter::FilterArguments;
use super::stored::Stored;
use super::{Target, print};

#[derive(Debug, Args)]
pub(super) struct PurgeArguments {
    #[command(flatten)]
    pub(super) target: Target,
    /// All letters: of the pipeline where they are in a file, of the topic where they are in one.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Say what would be taken away, and take nothing away.
    #[arg(long)]
    dry_run: bool,
    // Last: the heading of its options would hold for those behind it.
    #[command(flatten)]
    filter: FilterArguments,
}

pub(super) async fn run(
    pipeline: &Pipeline,
    stored: &mut Stored<'_>,
    arguments: &PurgeArguments,
) -> Result<(), DlqError> {
    if arguments.filter.is_empty() && !arguments.all {
        return Err(DlqError::NothingChosen);
    }
    if let Stored::Topic { cluster, name, .. } = stored {
        let (cluster, name) = (*cluster, *name);
        return of_topic(stored, cluster, name, arguments).await;
    }
    let mut filter = arguments.filter.clone();
    filter.pipeline.get_or_insert_with(|| pipeline.name.clone());
    let letters = stored.matching(&filter).await?;
    if !confirmed(letters.len(), &stored.place(), arguments)? {
        return Ok(());
    }
    if let Stored::File { store, .. } = stored {
        let row = |parked: &Parked| match parked.id {
            LetterId::Row(id) => Some(id),
            LetterId::Record { .. } => None,
        };
        store.remove(&letters.iter().filter_map(row).collect::<Vec<_>>())?;
    }
    print(format!("{} purged\n", letters.len()).as_bytes())
}

/// A topic loses all that stands before an offset, whosever it is.
async fn of_topic(
    stored: &mut Stored<'_>,
    cluster: &Kafka,
    topic: &str,
    arguments: &PurgeArguments,
) -> Result<(), DlqError> {
    if !arguments.filter.is_until_alone() {
        return Err(DlqError::SingleRecords);
    }
    let held = stored.read(|_, _| true).await?;
    let (count, cuts) = cuts(&held.letters, held.ends, arguments.filter.until);
    if !confirmed(count, &stored.place(), arguments)? {
        return Ok(());
    }
    let failed = |source| DlqError::Delete {
        topic: topic.to_owned(),
        source,
    };
    let admin = Admin::new(cluster).map_err(failed)?;
    admin.delete_before(topic, &cuts).await.map_err(failed)?;
    print(format!("{count} purged\n").as_bytes())
}

/// The offset of each partition before which everything goes, and how many letters go with that: up to the first that was
/// parked at `until` or later.
fn cuts(letters: &[Parked], mut ends: BTreeMap<i32, i64>, until: Option<SystemTime>) -> (usize, BTreeMap<i32, i64>) {
    let until = until.map(rfc3339);
    let places = || {
        letters.iter().filter_map(|parked| match parked.id {
            LetterId::Record { partition, offset } => Some((partition, offset, &parked.letter.parked_at)),
            LetterId::Row(_) => None,
        })
    };
    for (partition, offset, parked_at) in places() {
        if until.as_ref().is_some_and(|until| parked_at >= until) {
            ends.entry(partition).and_modify(|end| *end = offset.min(*end));
        }
    }
    let goes = |(partition, offset, _): &(i32, i64, &String)| ends.get(partition).is_some_and(|end| offset < end);
    (places().filter(goes).count(), ends)
}

/// Whether letters are to be taken away. Says so where there is none, or where nothing is to be done.
fn confirmed(count: usize, place: &str, arguments: &PurgeArguments) -> Result<bool, DlqError> {
    if arguments.dry_run || count == 0 {
        let would = if arguments.dry_run { "would be " } else { "" };
        print(format!("{count} {would}purged\n").as_bytes())?;
        return Ok(false);
    }
    if arguments.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(DlqError::WithoutWord);
    }
    eprint!("purge {count} dead letters of {place}? [y/N] ");
    io::stderr().flush().map_err(DlqError::Output)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(DlqError::Input)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(true),
        _ => Err(DlqError::Declined),
    }
}
