//! The publication: made when missing and allowed, and compared with what the pipeline lists.
//!
//! A table that the pipeline lists and the publication leaves out would be a silent gap, so it is an error at the start
//! and a warning later.

use crate::config;

use super::control::{Control, PublicationFacts, TableFacts, quote_identifier};
use super::error::PostgresError;
use crate::source::select::Selector;

/// Makes the publication where it is missing.
///
/// `again` says that this process was connected before. The publication comes before the slot: the server looks it up as
/// of the log's place that it decodes, and does not find one that was made later.
pub(super) async fn ensure(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
    first_start: bool,
    again: bool,
) -> Result<(), PostgresError> {
    let name = &config.publication;
    if control.publication(name).await?.is_none() {
        let tables = listed(control, selector).await?;
        let statement = create_statement(name, selector, &tables)?;
        if !config.create {
            return Err(PostgresError::PublicationMissing {
                publication: name.clone(),
                remedy: statement,
            });
        }
        if !first_start {
            return Err(PostgresError::PublicationLost {
                publication: name.clone(),
                remedy: statement,
            });
        }
        // Whoever made it, it is compared below.
        if control.create_publication(name, &statement).await? {
            tracing::info!(publication = name, statement, "publication made");
        }
    }
    let known = if selector.has_tables() {
        control.tables().await?
    } else {
        Vec::new()
    };
    for pattern in selector.table_patterns().filter(|pattern| pattern.is_literal()) {
        if !known.iter().any(|table| pattern.matches(&table.schema, &table.name)) {
            tracing::warn!(
                table = pattern.as_str(),
                "a listed table does not exist; nothing is published for it"
            );
        }
    }
    if let Some(reason) = sees_no_updates(control, config, selector).await? {
        tracing::warn!(reason, "`on_update` has no effect");
    }
    match compare(control, config, selector).await {
        // A table that came while the pipeline ran; the stream of the others goes on.
        Err(error @ PostgresError::PublicationLacksTables { .. }) if again => {
            tracing::warn!(error = %error, "the publication no longer fits the pipeline");
            Ok(())
        }
        result => result,
    }
}

/// Checks that the publication has every existing table that the pipeline lists.
///
/// # Errors
/// [`PostgresError::PublicationLacksTables`] with the statement that mends it.
pub(super) async fn compare(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
) -> Result<(), PostgresError> {
    let name = &config.publication;
    let Some(publication) = control.publication(name).await? else {
        return Err(PostgresError::PublicationMissing {
            publication: name.clone(),
            remedy: "it was dropped while in use; rows written since then are lost to this slot".to_owned(),
        });
    };
    if !selector.has_tables() {
        return Ok(());
    }
    if !publication.inserts {
        return Err(PostgresError::PublicationLacksInserts {
            publication: name.clone(),
        });
    }
    let published = control.published_tables(name).await?;
    let missing: Vec<TableFacts> = listed(control, selector)
        .await?
        .into_iter()
        .filter(|table| {
            !published
                .iter()
                .any(|(schema, name)| *schema == table.schema && *name == table.name)
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let tables = names(&missing);
    let remedy = if missing.iter().any(|table| table.partitioned && !publication.all_tables) {
        format!(
            "ALTER PUBLICATION {} SET (publish_via_partition_root = true), or ADD TABLE {tables}",
            quote_identifier(name)
        )
    } else {
        format!("ALTER PUBLICATION {} ADD TABLE {tables}", quote_identifier(name))
    };
    Err(PostgresError::PublicationLacksTables {
        publication: name.clone(),
        tables,
        remedy,
    })
}

/// Why UPDATEs of outboxes do not arrive, where the pipeline asks for them and the publication leaves them out.
pub(super) async fn sees_no_updates(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
) -> Result<Option<String>, PostgresError> {
    let name = &config.publication;
    let publication = control.publication(name).await?;
    let is_blind = selector.sees_updates() && publication.is_some_and(|publication| !publication.updates);
    Ok(is_blind.then(|| {
        format!(
            "publication `{name}` does not publish UPDATE: once each of its tables has a primary key or another replica \
             identity, ALTER PUBLICATION {} SET (publish = 'insert, update')",
            quote_identifier(name)
        )
    }))
}

/// The database's tables that a pattern names. Partitions count through their root.
async fn listed(control: &Control, selector: &Selector) -> Result<Vec<TableFacts>, PostgresError> {
    if !selector.has_tables() {
        return Ok(Vec::new());
    }
    let mut tables = control.tables().await?;
    tables.retain(|table| !table.partition && selector.table(&table.schema, &table.name).is_some());
    Ok(tables)
}

fn create_statement(name: &str, selector: &Selector, tables: &[TableFacts]) -> Result<String, PostgresError> {
    let mut statement = format!("CREATE PUBLICATION {}", quote_identifier(name));
    if tables.is_empty() {
        return Ok(statement);
    }
    let publish = match (selector.has_ordinary_tables(), selector.sees_updates()) {
        (true, _) => "insert, update, delete, truncate",
        (false, true) => "insert, update",
        // Nothing but INSERTs is an event of an outbox, and publishing more asks a replica identity of the table.
        (false, false) => "insert",
    };
    if publish != "insert" {
        let unidentified: Vec<_> = tables.iter().filter(|table| !table.identified).cloned().collect();
        if !unidentified.is_empty() {
            return Err(PostgresError::NoReplicaIdentity {
                publication: name.to_owned(),
                tables: names(&unidentified),
                alternative: match selector.has_ordinary_tables() {
                    true => "",
                    false => ", or leave `on_update` of the outbox processors at skip",
                },
            });
        }
    }
    statement.push_str(&format!(
        " FOR TABLE {} WITH (publish = '{publish}', publish_via_partition_root = true)",
        names(tables)
    ));
    Ok(statement)
}

fn names(tables: &[TableFacts]) -> String {
    tables.iter().map(TableFacts::quoted).collect::<Vec<_>>().join(", ")
}

/// Whether the publication may be younger than what the slot must still read: both ages count transactions back from now.
pub(super) fn may_be_younger(publication: &PublicationFacts, catalog_xmin_age: Option<i32>) -> bool {
    catalog_xmin_age.is_some_and(|slot| publication.age < slot)
}
