//! A place that a person names, as a position in the server's log.

use crate::config::{self, MysqlStart};
use crate::position::{BinlogPlace, MysqlPosition};
use crate::source::OperatorWord;

use super::endpoint::Endpoint;
use super::error::MysqlError;
use super::server::{Flavor, ServerFacts, check_event_at, gtids_at};
use super::setup::plan;

/// The position at GTIDs, or at a place in a file, of the log of the DSN's server.
///
/// # Errors
/// The server cannot be asked, or has no such place in its log.
pub(crate) async fn position_at(config: &config::Mysql, start: MysqlStart) -> Result<MysqlPosition, MysqlError> {
    let (_, mut client) = Endpoint::find(&config.dsn).await?;
    let facts = ServerFacts::ask(&mut client).await?;
    let place = match &start {
        MysqlStart::File { file, position } => Some(BinlogPlace {
            file: file.as_str().into(),
            pos: *position,
        }),
        _ => None,
    };
    let gtids = match (&place, facts.flavor) {
        (Some(place), Flavor::Mariadb) => gtids_at(&mut client, place).await?,
        _ => None,
    };
    let plan = plan(None, &facts, &start, gtids.as_ref(), OperatorWord::Nothing, None)?;
    if let (Some(place), Flavor::Mysql) = (place, facts.flavor) {
        check_event_at(&mut client, place).await?;
    }
    Ok(plan.position)
}
