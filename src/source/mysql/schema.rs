//! Asks information_schema what a table's columns are, where the log does not say it, and which tables there are.
//!
//! It tells columns as they are now, the log as they were: [`TablePlan`](super::rows::TablePlan) checks that the two fit.

use super::client::Client;
use super::endpoint::Endpoint;
use super::error::MysqlError;
use super::rows::{DescribedColumn, DescribedTable};
use super::server::quote;
use super::tables::{Answer, SYSTEM_SCHEMAS, TABLE_TYPES};
use crate::source::select::Selector;

/// Describes `schema.table` over a connection of its own.
///
/// # Errors
/// The connection's, or the server's.
pub(super) async fn describe(endpoint: &Endpoint, table: &str) -> Result<Answer, MysqlError> {
    let Some((schema, name)) = table.split_once('.') else {
        return Ok(Answer::Gone);
    };
    let statement = format!(
        "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLUMN_KEY = 'PRI' FROM information_schema.COLUMNS \
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION",
        quote(schema),
        quote(name)
    );
    let mut client = endpoint.connect().await?;
    let rows = client
        .query("ask information_schema for a table's columns", &statement)
        .await?;
    let columns: Vec<DescribedColumn> = rows
        .into_iter()
        .filter_map(|row| {
            let mut cells = row.into_iter();
            Some(DescribedColumn {
                name: cells.next()??,
                column_type: cells.next()??,
                charset: cells.next()?,
                key: cells.next()??.as_str() == "1",
            })
        })
        .collect();
    if !columns.is_empty() {
        return Ok(Answer::Table(DescribedTable { columns }));
    }
    // A table that is gone looks there as one that the user may not see. A question to itself is refused for its lack, or for
    // that of a right.
    let statement = format!("SELECT 1 FROM {}.{} LIMIT 0", quote_name(schema), quote_name(name));
    match client.query("ask whether a table is there", &statement).await {
        Err(MysqlError::Server { source, .. }) if NOT_THERE.contains(&source.code) => Ok(Answer::Gone),
        Err(MysqlError::Server { source, .. }) if source.heals() => {
            Err(MysqlError::server("ask whether a table is there", *source))
        }
        Ok(_) | Err(MysqlError::Server { .. }) => Ok(Answer::Hidden),
        Err(error) => Err(error),
    }
}

/// `ER_BAD_DB_ERROR`, `ER_NO_SUCH_TABLE`
const NOT_THERE: [u16; 2] = [1049, 1146];

fn quote_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The patterns without wildcards for which there is no table, as far as the user can see.
///
/// # Errors
/// The connection's, or the server's.
pub(super) async fn unmatched(client: &mut Client, selector: &Selector) -> Result<Vec<String>, MysqlError> {
    let system = SYSTEM_SCHEMAS.map(quote).join(", ");
    let statement = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES \
         WHERE TABLE_TYPE IN ({TABLE_TYPES}) AND TABLE_SCHEMA NOT IN ({system})"
    );
    let rows = client.query("list the tables", &statement).await?;
    let tables = rows.into_iter().filter_map(|row| {
        let mut cells = row.into_iter();
        Some((cells.next()??, cells.next()??))
    });
    let tables: Vec<(String, String)> = tables.collect();
    let patterns = selector.table_patterns().filter(|pattern| pattern.names_one());
    let unmatched = patterns.filter(|pattern| !tables.iter().any(|(schema, name)| pattern.matches(schema, name)));
    Ok(unmatched.map(|pattern| pattern.as_str().to_owned()).collect())
}
