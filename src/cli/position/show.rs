//! `tailpost position show`.

use serde_json::json;

use crate::position::{MysqlBase, MysqlPosition, Position, PostgresPosition};

use super::error::PositionError;
use super::stored::{Place, Stored};

pub(super) const POSTGRES: &str = "PostgreSQL";
pub(super) const MYSQL: &str = "MySQL or MariaDB";

pub(super) async fn run(stored: &Stored<'_>, as_json: bool) -> Result<(), PositionError> {
    let position = stored.peek().await?;
    let text = match as_json {
        true => json_text(stored, position.as_ref())?,
        false => lines(stored, position.as_ref()),
    };
    super::super::output::print(text + "\n").map_err(PositionError::Output)
}

fn json_text(stored: &Stored<'_>, position: Option<&Position>) -> Result<String, PositionError> {
    let store = match stored.store() {
        Place::File => json!({"type": "file", "path": stored.file()}),
        Place::Topic(_, topic) => json!({"type": "kafka", "topic": topic.name}),
    };
    let shown = json!({
        "pipeline": stored.pipeline.name,
        "source": stored.pipeline.source.id(),
        "store": store,
        "position": position,
    });
    serde_json::to_string_pretty(&shown).map_err(PositionError::Json)
}

fn lines(stored: &Stored<'_>, position: Option<&Position>) -> String {
    let mut lines = vec![
        ("pipeline", stored.pipeline.name.clone()),
        ("source", stored.pipeline.source.id().to_owned()),
        ("store", stored.place()),
    ];
    match position {
        None => lines.push(("position", "none is saved".to_owned())),
        Some(Position::Postgres(position)) => lines.extend(of_postgres(position)),
        Some(Position::Mysql(position)) => lines.extend(of_mysql(position)),
    }
    let lines: Vec<String> = lines
        .into_iter()
        .map(|(what, text)| format!("{what:<13}{text}"))
        .collect();
    lines.join("\n")
}

fn of_postgres(position: &PostgresPosition) -> Vec<(&'static str, String)> {
    let mut lines = vec![("done up to", position.base.to_string())];
    if let Some(partial) = &position.partial {
        let (change, index, commit) = (partial.change, partial.index, partial.commit);
        let text = format!("up to the change at {change}, number {index}, of the transaction that commits at {commit}");
        lines.push(("in progress", text));
    }
    lines.push((
        "last event",
        format!("in the transaction that ends at {}", position.last_event_end),
    ));
    let server = format!(
        "system identifier {}, timeline {}",
        position.system_identifier, position.timeline
    );
    lines.push(("server", server));
    lines
}

fn of_mysql(position: &MysqlPosition) -> Vec<(&'static str, String)> {
    let (nothing, place) = ("nothing".to_owned(), position.place.to_string());
    let mut lines = match &position.base {
        MysqlBase::Gtids(set) if set.is_empty() => vec![("done", nothing), ("place", place)],
        MysqlBase::Gtids(set) => vec![("done", set.to_string()), ("place", place)],
        MysqlBase::Mariadb(gtids) if gtids.is_empty() => vec![("done", nothing), ("place", place)],
        MysqlBase::Mariadb(gtids) => vec![("done", format!("up to {gtids}")), ("place", place)],
        MysqlBase::File(_) => vec![("done up to", place)],
    };
    for partial in &position.partial {
        let text = format!("{} of transaction {}", partial.rows, partial.transaction);
        lines.push(("in progress", text));
    }
    if let Some(from) = &position.reread {
        let text = format!(
            "from {}, for XA transactions that were prepared and undecided",
            from.place
        );
        lines.push(("read again", text));
    }
    let uuid = position.server.uuid.as_deref().map(|uuid| format!(", uuid {uuid}"));
    let server = format!("server_id {}{}", position.server.id, uuid.unwrap_or_default());
    lines.push(("server", server));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{BinlogPlace, ByFile, Lsn, Partial, ServerIdentity};

    fn text(lines: Vec<(&'static str, String)>) -> String {
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        lines.join("\n")
    }

    #[test]
    fn a_place_inside_a_transaction_is_said_in_full() {
        let position = PostgresPosition {
            system_identifier: 7,
            timeline: 2,
            base: Lsn(0x1_0000_0010),
            partial: Some(Partial {
                commit: Lsn(0x1_0000_0100),
                change: Lsn(0x1_0000_0050),
                index: 3,
            }),
            last_event_end: Lsn(0x1_0000_0008),
        };
        assert_eq!(
            text(of_postgres(&position)),
            "done up to: 1/10\n\
             in progress: up to the change at 1/50, number 3, of the transaction that commits at 1/100\n\
             last event: in the transaction that ends at 1/8\n\
             server: system identifier 7, timeline 2"
        );
    }

    #[test]
    fn a_binlog_is_shown_by_what_counts_in_it() {
        let position = |base| MysqlPosition {
            server: ServerIdentity { uuid: None, id: 5 },
            base,
            place: BinlogPlace {
                file: "binlog.000002".into(),
                pos: 157,
            },
            partial: Vec::new(),
            reread: None,
        };
        let gtids = "0-1-100,1-2-5".parse().unwrap();
        assert_eq!(
            text(of_mysql(&position(MysqlBase::Mariadb(gtids)))),
            "done: up to 0-1-100,1-2-5\nplace: binlog.000002:157\nserver: server_id 5"
        );
        assert_eq!(
            text(of_mysql(&position(MysqlBase::File(ByFile)))),
            "done up to: binlog.000002:157\nserver: server_id 5"
        );
        assert!(text(of_mysql(&position(MysqlBase::Gtids("".parse().unwrap())))).starts_with("done: nothing\n"));
    }
}
