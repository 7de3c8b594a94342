//! The publication: made when missing and allowed, and compared with what the pipeline lists.
//!
//! A table that the pipeline lists and the publication leaves out would be a silent gap, so it is an error at the start
//! and a warning later. What it leaves out of a table on purpose is told.

mod catalog;

use crate::config;
use crate::config::NamePattern;
use crate::source::select::Selector;

use self::catalog::{Catalog, GENERATED_COLUMNS, PublicationFacts, Published, TableFacts, UNLOGGED, arrives_as};
use super::control::{Control, quote_identifier};
use super::error::PostgresError;

/// Makes the publication where it is missing.
///
/// `again` says that this process was connected before. The publication comes before the slot: the server looks it up as
/// of the log's place that it decodes, and does not find one that was made later.
///
/// Gives what it lacks or leaves out, which it has told.
pub(super) async fn ensure(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
    first_start: bool,
    again: bool,
) -> Result<String, PostgresError> {
    let name = &config.publication;
    let mut publication = PublicationFacts::read(control, name).await?;
    let catalog = Catalog::read(control, selector).await?;
    // Who only looks on loses nothing.
    let begins = !again && !config.temporary;
    for gap in gaps(config, selector, &catalog, publication.as_ref()) {
        match gap {
            Gap::Unlogged(error) | Gap::Missing(error) if begins && first_start => return Err(error),
            Gap::Unlogged(error) | Gap::Missing(error) | Gap::Awaited(error) => {
                tracing::warn!(error = %error, "nothing is published for what the pipeline lists");
            }
        }
    }
    if publication.is_none() {
        let statement = create_statement(control, name, selector, &catalog.listed(selector))?;
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
        publication = PublicationFacts::read(control, name).await?;
    }
    if let Some(reason) = publication
        .as_ref()
        .and_then(|publication| blindness(name, publication, selector))
    {
        tracing::warn!(reason, "`on_update` has no effect");
    }
    match compare_with(control, name, publication, selector, &catalog).await {
        Ok(left_out) => {
            for what in &left_out {
                tracing::warn!(publication = name, "the publication leaves out a part: {what}");
            }
            Ok(left_out.join("; "))
        }
        // A table that came while the pipeline ran; the stream of the others goes on.
        Err(error @ PostgresError::PublicationLacksTables { .. }) if again => {
            let text = error.to_string();
            tracing::warn!(error = text, "the publication no longer fits the pipeline");
            Ok(text)
        }
        Err(error) => Err(error),
    }
}

/// A pattern of tables of which no row can arrive.
pub(super) enum Gap {
    /// It names a relation whose rows are never in the log.
    Unlogged(PostgresError),
    /// It names no table. What one that is made later holds before it is in the publication is lost.
    Missing(PostgresError),
    /// The same, where the publication will have the table as soon as it is made, or the pattern stands for tables to come.
    Awaited(PostgresError),
}

/// The patterns of which no row can arrive.
pub(super) async fn look_for_gaps(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
) -> Result<Vec<Gap>, PostgresError> {
    let publication = PublicationFacts::read(control, &config.publication).await?;
    let catalog = Catalog::read(control, selector).await?;
    Ok(gaps(config, selector, &catalog, publication.as_ref()))
}

fn gaps(
    config: &config::Postgres,
    selector: &Selector,
    catalog: &Catalog,
    publication: Option<&PublicationFacts>,
) -> Vec<Gap> {
    let is_empty = selector.has_tables() && !selector.has_prefixes() && catalog.listed(selector).is_empty();
    let gap = |(pattern, unlogged): (&NamePattern, Option<&TableFacts>)| {
        if let Some(table) = unlogged.filter(|_| pattern.names_one()) {
            let (name, what) = (table.quoted(), table.unlogged.clone().unwrap_or_default());
            let remedy = match what == UNLOGGED {
                true => format!("ALTER TABLE {name} SET LOGGED"),
                false => "list the tables that are written to in its place".to_owned(),
            };
            return Gap::Unlogged(PostgresError::NotLogged {
                table: name,
                what,
                remedy,
            });
        }
        let error = PostgresError::ListedTableMissing {
            pattern: pattern.as_str().to_owned(),
            publication: config.publication.clone(),
        };
        match publication.is_some_and(|publication| publication.awaits(pattern)) {
            false if pattern.names_one() || is_empty => Gap::Missing(error),
            _ => Gap::Awaited(error),
        }
    };
    catalog.unmatched(selector).into_iter().map(gap).collect()
}

/// Checks that the publication has every existing table that the pipeline lists, and tells what it leaves out of them.
///
/// # Errors
/// [`PostgresError::PublicationLacksTables`] with the statement that mends it.
pub(super) async fn compare(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
) -> Result<Vec<String>, PostgresError> {
    let publication = PublicationFacts::read(control, &config.publication).await?;
    let catalog = Catalog::read(control, selector).await?;
    compare_with(control, &config.publication, publication, selector, &catalog).await
}

async fn compare_with(
    control: &Control,
    name: &str,
    publication: Option<PublicationFacts>,
    selector: &Selector,
    catalog: &Catalog,
) -> Result<Vec<String>, PostgresError> {
    let Some(publication) = publication else {
        return Err(PostgresError::PublicationMissing {
            publication: name.to_owned(),
            remedy: "it was dropped while in use; rows written since then are lost to this slot".to_owned(),
        });
    };
    if !selector.has_tables() {
        return Ok(Vec::new());
    }
    if !publication.inserts {
        return Err(PostgresError::PublicationLacksInserts {
            publication: name.to_owned(),
            remedy: set_publish(name, &publication, &["insert"]),
        });
    }
    let published = Published::read(control, name).await?;
    let listed = catalog.listed(selector);
    let is_published = |table: &TableFacts| published.iter().find(|found| found.is(&table.schema, &table.name));
    let missing: Vec<TableFacts> = listed
        .iter()
        .filter(|table| is_published(table).is_none() && !catalog.arrives_in_parts(table, &published, selector))
        .cloned()
        .collect();
    if !missing.is_empty() {
        return Err(PostgresError::PublicationLacksTables {
            publication: name.to_owned(),
            tables: names(&missing),
            remedy: remedy(name, &publication, &missing, catalog, &published),
        });
    }
    let mut left_out = Vec::new();
    left_out.extend(operations_left_out(name, &publication, selector));
    for (table, found) in listed.iter().filter_map(|table| Some((table, is_published(table)?))) {
        if let Some(condition) = &found.row_filter {
            left_out.push(format!("rows of {} without {condition} never arrive", table.quoted()));
        }
        if !found.left_out.is_empty() {
            left_out.push(format!(
                "rows of {} come without the columns {}",
                table.quoted(),
                found.left_out.join(", ")
            ));
        }
    }
    Ok(left_out)
}

/// What is to be done about tables that the publication lacks.
fn remedy(
    name: &str,
    publication: &PublicationFacts,
    missing: &[TableFacts],
    catalog: &Catalog,
    published: &[Published],
) -> String {
    let mut steps = Vec::new();
    let mut added = Vec::new();
    let mut asks_root = false;
    for table in missing {
        if let Some(above) = arrives_as(table, published) {
            steps.push(format!(
                "rows of {} arrive under the name of {above}: list that in its place",
                table.quoted()
            ));
            continue;
        }
        asks_root |= table.partitioned && !publication.via_root;
        if !publication.all_tables && catalog.published_parts(table, published).next().is_none() {
            added.push(table.clone());
        }
    }
    let alter = format!("ALTER PUBLICATION {}", quote_identifier(name));
    if !added.is_empty() {
        steps.push(format!("{alter} ADD TABLE {}", names(&added)));
    }
    if asks_root {
        steps.push(format!("{alter} SET (publish_via_partition_root = true)"));
    }
    let is_lost = asks_root || !added.is_empty();
    let lost = if is_lost {
        ". What was written there before that is not in the stream"
    } else {
        ""
    };
    steps.join("; ") + lost
}

/// Which operations on ordinary tables do not arrive.
fn operations_left_out(name: &str, publication: &PublicationFacts, selector: &Selector) -> Option<String> {
    let operations = publication.operations();
    let left_out: Vec<&str> = operations
        .iter()
        .filter_map(|(operation, is_there)| (!is_there).then_some(*operation))
        .collect();
    (selector.has_ordinary_tables() && !left_out.is_empty()).then(|| {
        format!(
            "{} of ordinary tables never arrive: once each of its tables has a primary key or another replica identity, {}",
            left_out.join(", "),
            set_publish(name, publication, &left_out)
        )
    })
}

/// The statement by which it publishes these operations too.
fn set_publish(name: &str, publication: &PublicationFacts, more: &[&str]) -> String {
    let operations = publication.operations();
    let wanted: Vec<&str> = operations
        .iter()
        .filter_map(|(operation, is_there)| (*is_there || more.contains(operation)).then_some(*operation))
        .collect();
    format!(
        "ALTER PUBLICATION {} SET (publish = '{}')",
        quote_identifier(name),
        wanted.join(", ")
    )
}

/// Why UPDATEs of outboxes do not arrive, where the pipeline asks for them and the publication leaves them out.
pub(super) async fn sees_no_updates(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
) -> Result<Option<String>, PostgresError> {
    let publication = PublicationFacts::read(control, &config.publication).await?;
    Ok(publication.and_then(|publication| blindness(&config.publication, &publication, selector)))
}

fn blindness(name: &str, publication: &PublicationFacts, selector: &Selector) -> Option<String> {
    (selector.sees_updates() && !publication.updates).then(|| {
        format!(
            "publication `{name}` does not publish UPDATE: once each of its tables has a primary key or another replica \
             identity, {}",
            set_publish(name, publication, &["update"])
        )
    })
}

pub(super) async fn exists(control: &Control, config: &config::Postgres) -> Result<bool, PostgresError> {
    Ok(PublicationFacts::read(control, &config.publication).await?.is_some())
}

/// Whether a first start can make the publication.
///
/// # Errors
/// What keeps it from that.
pub(super) async fn could_be_made(
    control: &Control,
    config: &config::Postgres,
    selector: &Selector,
) -> Result<(), PostgresError> {
    let name = &config.publication;
    let listed = Catalog::read(control, selector).await?.listed(selector);
    create_statement(control, name, selector, &listed)?;
    let foreign: Vec<TableFacts> = listed.into_iter().filter(|table| !table.owned).collect();
    let can_create = control.may_create_in_database().await?;
    if can_create && foreign.is_empty() {
        return Ok(());
    }
    Err(PostgresError::MayNotPublish {
        publication: name.clone(),
        what: match can_create {
            true => format!("is not the owner of {}", names(&foreign)),
            false => "has no right to CREATE in this database".to_owned(),
        },
    })
}

fn create_statement(
    control: &Control,
    name: &str,
    selector: &Selector,
    tables: &[TableFacts],
) -> Result<String, PostgresError> {
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
    // Without them the server refuses an UPDATE where one is part of the primary key.
    let generated = match control.version() >= GENERATED_COLUMNS {
        true => ", publish_generated_columns = stored",
        false => "",
    };
    statement.push_str(&format!(
        " FOR TABLE {} WITH (publish = '{publish}', publish_via_partition_root = true{generated})",
        names(tables)
    ));
    Ok(statement)
}

fn names(tables: &[TableFacts]) -> String {
    tables.iter().map(TableFacts::quoted).collect::<Vec<_>>().join(", ")
}

/// The publication's age against that of what the slot must still read, if it may be the younger one: both count
/// transactions back from now.
///
/// A slot that was made beside older ones keeps their catalog, so it can look older than it is.
pub(super) async fn may_be_younger(
    control: &Control,
    config: &config::Postgres,
    catalog_xmin_age: Option<i32>,
) -> Result<bool, PostgresError> {
    let publication = PublicationFacts::read(control, &config.publication).await?;
    let ages = publication.map(|publication| publication.age).zip(catalog_xmin_age);
    Ok(ages.is_some_and(|(publication, slot)| publication < slot))
}
