//! Columns that a router places beside key and payload: in headers, in the value, or as the number of the partition.

use super::Database;
use super::router::{Choice, PROCESSOR, put, setting};
use super::settings::list;
use super::transforms::Transform;
use super::work::Work;
use crate::convert::yaml::{Mapping, Node};

/// Columns that the router places beside what it always has.
#[derive(Default)]
pub(super) struct Placements {
    option: String,
    headers: Vec<(String, String)>,
    pub(super) members: Vec<(String, String)>,
    pub(super) partition: Option<(String, String)>,
    /// Whether a column gives the partition or the time.
    pub(super) by_column: bool,
}

/// `column:header`, `column:envelope:name`, `column:partition`.
pub(super) fn placements(work: &mut Work, router: &mut Transform) -> Placements {
    let mut placements = Placements::default();
    let Some(given) = router.settings.take("table.fields.additional.placement") else {
        return placements;
    };
    placements.option.clone_from(&given.option);
    for placement in list(&given.value) {
        let parts: Vec<&str> = placement.split(':').map(str::trim).collect();
        let (column, place, name) = match parts[..] {
            [column, place] => (column, place, column),
            [column, place, name] => (column, place, name),
            _ => ("", "", ""),
        };
        let named = (name.to_owned(), column.to_owned());
        let place = place.to_ascii_lowercase();
        let is_there = |placed: &[(String, String)]| placed.iter().any(|(known, _)| known == name);
        let refused = match place.as_str() {
            _ if column.is_empty() || name.is_empty() => Some("is no placement: place it by hand"),
            "header" if name == "id" => Some("the event's id is there by this name; place it by another"),
            "envelope" if name == "payload" => Some("the payload is there by this name; place it by another"),
            "header" if is_there(&placements.headers) => {
                Some("another column is there by this name, and a header is there once; place it by another")
            }
            "envelope" if is_there(&placements.members) => {
                Some("another column is there by this name; place it by another")
            }
            "header" | "envelope" | "partition" => None,
            _ => Some("is no placement: place it by hand"),
        };
        match (refused, place.as_str()) {
            (Some(why), _) => work.not_possible(&given.option, format!("`{placement}`: {why}")),
            (None, "header") => placements.headers.push(named),
            (None, "envelope") => placements.members.push(named),
            (None, _) => placements.partition = Some((column.to_owned(), given.option.clone())),
        }
    }
    work.taken(
        &given.option,
        &format!("{PROCESSOR}.additional_headers, .envelope_fields and .columns.partition"),
    );
    placements
}

pub(super) fn set_placed(work: &mut Work, processor: &mut Mapping, router: &mut Transform, placements: &Placements) {
    for (key, placed) in [
        ("additional_headers", &placements.headers),
        ("envelope_fields", &placements.members),
    ] {
        if placed.is_empty() {
            continue;
        }
        let mut mapping = Mapping::default();
        for (name, column) in placed {
            mapping.set(name, Node::text(column.clone()), "");
        }
        processor.set(key, Node::Mapping(mapping), &placements.option);
    }
    // By this name since 3.6, and before as a flag.
    let missing = match router.settings.take("table.fields.additional.error.on.missing") {
        Some(given) => Choice {
            value: if given.is("false") { "ignore" } else { "error" }.to_owned(),
            option: given.option,
            is_given: true,
        },
        None => setting(router, "table.field.additional.missing", "error"),
    };
    let is_placed = !placements.headers.is_empty() || !placements.members.is_empty();
    if is_placed || placements.by_column {
        let word = if missing.value.eq_ignore_ascii_case("ignore") {
            "skip"
        } else {
            "reject"
        };
        put(work, processor, PROCESSOR, "on_missing", Node::text(word), &missing);
        if is_placed {
            processor.set(
                "on_null",
                Node::text("keep"),
                "placed columns that are NULL are there, too",
            );
        }
    } else if missing.is_given {
        work.not_needed(&missing.option, "no column is placed");
    }
}

/// A placed JSON column is a text there, whatever it holds.
pub(super) fn set_json(work: &mut Work, processor: &mut Mapping, placements: &Placements, database: Database) {
    if placements.headers.is_empty() && placements.members.is_empty() {
        return;
    }
    match database {
        Database::Postgres => processor.set("json_as", Node::text("text"), "JSON columns are text there"),
        Database::Mysql => processor.set(
            "json_as",
            Node::text("compact"),
            "JSON columns are text without blanks there",
        ),
        // Text by itself.
        Database::Mariadb => {}
    }
    work.different(
        &placements.option,
        "columns of dates, times, bytes and arrays, and exact numbers beside the payload, are as the server prints them, whatever \
         decimal.handling.mode and time.precision.mode say: see \"Differences\" of docs/migrate-from-debezium.md",
    );
}
