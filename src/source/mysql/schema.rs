//! Asks information_schema what a table's columns are, where the log does not say it.
//!
//! It tells them as they are now, the log as they were: [`TablePlan`](super::rows::TablePlan) checks that the two fit.

use super::endpoint::Endpoint;
use super::error::MysqlError;
use super::rows::{DescribedColumn, DescribedTable};
use super::server::quote;

/// Describes `schema.table` over a connection of its own. None: it is not there, or hidden by the user's rights.
///
/// # Errors
/// The connection's, or the server's.
pub(super) async fn describe(endpoint: &Endpoint, table: &str) -> Result<Option<DescribedTable>, MysqlError> {
    let Some((schema, name)) = table.split_once('.') else {
        return Ok(None);
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
    Ok((!columns.is_empty()).then_some(DescribedTable { columns }))
}
