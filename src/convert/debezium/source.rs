//! The source: slot, publication, server id, and where the stream goes on.

use super::Database;
use super::captured::Captured;
use super::connection::set_dsn;
use super::input::Platform;
use super::work::Work;
use crate::convert::yaml::{Mapping, Node};

const PATH: &str = "spec.source.config";
const DEFAULT_SLOT: &str = "debezium";

/// What of it is an outbox's, and what an ordinary table's.
pub(super) struct Chosen {
    pub(super) outboxes: Vec<String>,
    pub(super) ordinary: Vec<String>,
    pub(super) prefixes: Vec<String>,
}

pub(super) fn source(
    work: &mut Work,
    database: Database,
    id: (String, String),
    captured: &Captured,
    chosen: Chosen,
) -> Mapping {
    let mut config = Mapping::default();
    config.set("id", Node::text(id.0), id.1);
    set_dsn(work, &mut config, database);
    match database {
        Database::Postgres => set_postgres(work, &mut config),
        Database::Mysql | Database::Mariadb => set_mysql(work, &mut config),
    }
    if !chosen.ordinary.is_empty() {
        let option = match captured.tables_option.is_empty() {
            true => "table.include.list, by default",
            false => &captured.tables_option,
        };
        config.set("tables", Node::Texts(chosen.ordinary), option);
    }
    let mut outbox = Mapping::default();
    if !chosen.outboxes.is_empty() {
        outbox.set("tables", Node::Texts(chosen.outboxes), &captured.tables_option);
    }
    if !chosen.prefixes.is_empty() {
        outbox.set("prefixes", Node::Texts(chosen.prefixes), &captured.prefixes_option);
        work.taken(&captured.prefixes_option, &format!("{PATH}.outbox.prefixes"));
    }
    config.set("outbox", Node::Mapping(outbox), "");
    set_start(work, database);
    let mut source = Mapping::default();
    source.set("type", Node::text(database.source_type()), "connector.class");
    source.set("config", Node::Mapping(config), "");
    source
}

fn set_postgres(work: &mut Work, config: &mut Mapping) {
    let (slot, slot_option) = work.text_or("slot.name", DEFAULT_SLOT);
    let plugin = work.take("plugin.name");
    match &plugin {
        Some(given) if given.is("pgoutput") => {
            work.not_needed(&given.option, "always pgoutput");
            config.set("slot", Node::text(slot), &slot_option);
            work.taken(&slot_option, &format!("{PATH}.slot"));
        }
        plugin => {
            let (name, option) = match plugin {
                Some(given) => (given.value.as_str(), given.option.as_str()),
                None => ("decoderbufs", "plugin.name, by default"),
            };
            work.not_possible(
                option,
                format!(
                    "slot `{slot}` was made with {name}, and cannot be read by pgoutput: the file names a slot of its own. Start \
                     tailpost first, so that it is made, stop the connector when it is idle, and expect what came between twice"
                ),
            );
            config.set("slot", Node::text(format!("{slot}_tailpost")), &slot_option);
        }
    }
    let (publication, option) = work.text_or("publication.name", "dbz_publication");
    config.set("publication", Node::text(publication), &option);
    work.taken(&option, &format!("{PATH}.publication"));
    if let Some(given) = work.take("publication.autocreate.mode") {
        match given.is("disabled") {
            true => work.place(config, PATH, "create", Node::flag(false), &given.option),
            false => work.not_needed(
                &given.option,
                "a publication that is there is used as it is; one that is made has the tables that are read, and no others",
            ),
        }
    }
    if let Some((given, flag)) = work.settings.take_flag("slot.failover") {
        work.place(config, PATH, "failover", Node::flag(flag), &given.option);
    }
    if let Some((given, flag)) = work.settings.take_flag("slot.drop.on.stop") {
        match flag {
            true => work.different(
                &given.option,
                "a slot is never dropped: drop it when the pipeline is given up",
            ),
            false => work.not_needed(&given.option, "a slot is never dropped"),
        }
    }
}

fn set_mysql(work: &mut Work, config: &mut Mapping) {
    if let Some(given) = work.take("database.server.id") {
        match given.value.parse::<u32>() {
            Ok(id) if id > 0 => work.place(config, PATH, "server_id", Node::number(id), &given.option),
            _ => work.not_possible(
                &given.option,
                "no server id: write one that no other server and reader has",
            ),
        }
        work.different(
            &given.option,
            "one id for one reader: the connector must be stopped, or one throws the other out",
        );
    }
}

/// Where the stream goes on.
fn set_start(work: &mut Work, database: Database) {
    let snapshot = work.take("snapshot.mode");
    let (option, mode) = match &snapshot {
        Some(given) => (given.option.as_str(), given.value.as_str()),
        None => ("snapshot.mode, by default", "initial"),
    };
    let reads_rows = !["never", "no_data", "schema_only", "schema_only_recovery", "recovery"]
        .iter()
        .any(|known| mode.eq_ignore_ascii_case(known));
    match reads_rows {
        true => work.different(
            option,
            "no snapshot: rows from before the slot or the binlog are not read. Those that the connector has read already it \
             has sent",
        ),
        false => work.not_needed(option, "no snapshot is made"),
    }
    match database {
        Database::Postgres => work.not_needed(
            "the saved offset",
            "the slot has it: the stream goes on where it stands",
        ),
        Database::Mysql | Database::Mariadb => {
            let place = match work.platform {
                Platform::Connect => "the value of the connector's record in the offsets topic",
                Platform::Server => "the file of offset.storage.file.filename, such as data/offsets.dat,",
            };
            work.not_possible(
                "the saved offset",
                format!(
                    "before the first start, give {place} to `tailpost position import --debezium`; without it everything that the \
                     binlog still has is sent once more"
                ),
            );
        }
    }
}
