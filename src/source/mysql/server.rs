//! What the server says of itself and of its binlog.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use crate::gtid::{GtidSet, MariadbGtid, MariadbGtids};
use crate::position::{BinlogPlace, ServerIdentity};

use super::client::Client;
use super::error::MysqlError;

/// Which of the two it is: MariaDB went its own way in GTIDs and in some of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    Mysql,
    Mariadb,
}

impl Flavor {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
        }
    }
}

/// A server that this source can read.
#[derive(Debug, Clone)]
pub(super) struct ServerFacts {
    pub(super) flavor: Flavor,
    pub(super) identity: ServerIdentity,
    pub(super) variables: Variables,
    pub(super) gtids: LogGtids,
    /// The binlog's files with their sizes in bytes, oldest first; never empty.
    pub(super) files: Vec<BinlogPlace>,
}

/// How far the binlog reaches, in GTIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogGtids {
    Mysql {
        executed: GtidSet,
        purged: GtidSet,
    },
    Mariadb {
        /// Before the oldest file.
        oldest: MariadbGtids,
        /// At the end.
        newest: MariadbGtids,
        /// The last of each domain and server (`gtid_binlog_state`): in one domain another server's can come later.
        state: Vec<MariadbGtid>,
        /// The last of each domain that it had of another server (`gtid_slave_pos`). Its binlog need not have them: it may
        /// have begun as a copy of that server, or log nothing of what it replicates.
        replicated: MariadbGtids,
    },
    /// MySQL without `gtid_mode = ON`, which is the mode that lets a reader begin at a GTID set.
    Off,
}

impl ServerFacts {
    /// Asks for everything that a start is decided by.
    ///
    /// # Errors
    /// Also where the server is too old or writes no binlog.
    pub(super) async fn ask(client: &mut Client) -> Result<Self, MysqlError> {
        let flavor = flavor(client.version())?;
        let variables = Variables::ask(client).await?;
        if !variables.is_on("log_bin") {
            return Err(MysqlError::BinlogOff);
        }
        let files = binlog_files(client).await?;
        let Some(oldest) = files.first() else {
            return Err(MysqlError::BinlogOff);
        };
        let identity = ServerIdentity {
            uuid: variables.get("server_uuid").map(Arc::from),
            id: variables.parse("server_id", "a number")?,
        };
        let gtids = match flavor {
            Flavor::Mysql if variables.get("gtid_mode") == Some("ON") => {
                let rows = client
                    .query(
                        "ask for the GTIDs",
                        "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged",
                    )
                    .await?;
                LogGtids::Mysql {
                    executed: cell(&rows, 0, "gtid_executed", "a GTID set")?,
                    purged: cell(&rows, 1, "gtid_purged", "a GTID set")?,
                }
            }
            Flavor::Mysql => LogGtids::Off,
            Flavor::Mariadb => {
                let statement = format!(
                    "SELECT BINLOG_GTID_POS({}, {}), @@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_binlog_state, \
                     @@GLOBAL.gtid_slave_pos",
                    quote(&oldest.file),
                    BinlogPlace::FILE_START
                );
                let rows = client.query("ask for the GTIDs", &statement).await?;
                LogGtids::Mariadb {
                    oldest: cell(&rows, 0, "BINLOG_GTID_POS", "GTIDs")?,
                    newest: cell(&rows, 1, "gtid_binlog_pos", "GTIDs")?,
                    state: cell::<GtidState>(&rows, 2, "gtid_binlog_state", "GTIDs")?.0,
                    replicated: cell(&rows, 3, "gtid_slave_pos", "GTIDs")?,
                }
            }
        };
        Ok(Self {
            flavor,
            identity,
            variables,
            gtids,
            files,
        })
    }

    /// Whether names of tables are kept in lower case and taken in any.
    pub(super) fn folds_names(&self) -> bool {
        self.variables
            .get("lower_case_table_names")
            .is_some_and(|value| value != "0")
    }

    /// Whether its binlog has what it replicates, so that a reader can go on with it.
    pub(super) fn logs_what_it_replicates(&self) -> bool {
        self.variables.is_on("log_replica_updates") || self.variables.is_on("log_slave_updates")
    }

    /// Where the oldest file begins.
    pub(super) fn oldest(&self) -> BinlogPlace {
        BinlogPlace {
            file: self
                .files
                .first()
                .map_or_else(|| Arc::from(""), |file| Arc::clone(&file.file)),
            pos: BinlogPlace::FILE_START,
        }
    }

    /// Where the newest file ends.
    pub(super) fn end(&self) -> BinlogPlace {
        self.files.last().cloned().unwrap_or_else(|| self.oldest())
    }
}

/// The binlog's files, oldest first, each with its size.
pub(super) async fn binlog_files(client: &mut Client) -> Result<Vec<BinlogPlace>, MysqlError> {
    let rows = client.query("list the binlog's files", "SHOW BINARY LOGS").await?;
    let file = |row: &[Option<String>]| {
        let [Some(file), Some(size), ..] = row else {
            return None;
        };
        Some(BinlogPlace {
            file: Arc::from(file.as_str()),
            pos: size.parse().ok()?,
        })
    };
    rows.iter()
        .map(|row| {
            file(row).ok_or_else(|| MysqlError::Answer {
                what: "SHOW BINARY LOGS",
                found: format!("{row:?}"),
                expected: "a file and its size",
            })
        })
        .collect()
}

/// Where MariaDB's GTIDs stand at a place; None: it is no place of the binlog.
pub(super) async fn gtids_at(client: &mut Client, place: &BinlogPlace) -> Result<Option<MariadbGtids>, MysqlError> {
    let statement = format!("SELECT BINLOG_GTID_POS({}, {})", quote(&place.file), place.pos);
    let rows = client.query("ask for the GTIDs of a place", &statement).await?;
    match rows.first().and_then(|row| row.first()) {
        Some(Some(_)) => cell(&rows, 0, "BINLOG_GTID_POS", "GTIDs").map(Some),
        _ => Ok(None),
    }
}

/// ER_ERROR_WHEN_EXECUTING_COMMAND
const WRONG_OFFSET: u16 = 1220;

/// Refuses a place of MySQL's binlog at which no event begins, of which the stream itself says so only once it runs.
pub(super) async fn check_event_at(client: &mut Client, place: BinlogPlace) -> Result<(), MysqlError> {
    let statement = format!(
        "SHOW BINLOG EVENTS IN {} FROM {} LIMIT 1",
        quote(&place.file),
        place.pos
    );
    match client.query("look for an event at a place", &statement).await {
        Err(MysqlError::Server { source, .. }) if source.code == WRONG_OFFSET => Err(MysqlError::StartInside {
            place,
            code: source.code,
            message: source.message,
        }),
        other => other.map(drop),
    }
}

/// The server's settings, as text. Names that it does not have are missing.
#[derive(Debug, Clone)]
pub(super) struct Variables(HashMap<String, String>);

#[cfg(test)]
impl From<HashMap<String, String>> for Variables {
    fn from(variables: HashMap<String, String>) -> Self {
        Self(variables)
    }
}

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'server_id', 'server_uuid', \
     'gtid_mode', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', \
     'binlog_expire_logs_seconds', 'expire_logs_days', 'sync_binlog', 'log_bin_compress', \
     'binlog_transaction_compression', 'binlog_row_event_max_size', 'lower_case_table_names', 'log_replica_updates', 'log_slave_updates')";

impl Variables {
    async fn ask(client: &mut Client) -> Result<Self, MysqlError> {
        let rows = client.query("read the server's settings", VARIABLES).await?;
        let pairs = rows.into_iter().filter_map(|row| {
            let mut cells = row.into_iter();
            Some((cells.next()??.to_ascii_lowercase(), cells.next()??))
        });
        Ok(Self(pairs.collect()))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("ON") || value == "1")
    }

    fn parse<T: FromStr>(&self, name: &'static str, expected: &'static str) -> Result<T, MysqlError> {
        let found = self.get(name).unwrap_or_default();
        found.parse().map_err(|_| MysqlError::Answer {
            what: name,
            found: found.to_owned(),
            expected,
        })
    }
}

/// The oldest versions whose binlog this source reads.
fn flavor(version: &str) -> Result<Flavor, MysqlError> {
    let mariadb = version.contains("MariaDB");
    let text = plain_version(version);
    let mut numbers = text
        .split(|character: char| !character.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (flavor, oldest) = if mariadb {
        (Flavor::Mariadb, (10, 6))
    } else {
        (Flavor::Mysql, (8, 0))
    };
    if found < oldest {
        return Err(MysqlError::Version {
            found: format!("{} {version}", flavor.name()),
        });
    }
    Ok(flavor)
}

/// The server's version without the 5.5.5- that MariaDB before 11 puts in front, for replicas that know no version above it.
pub(super) fn plain_version(version: &str) -> &str {
    let plain = version.strip_prefix("5.5.5-");
    plain.filter(|plain| plain.contains("MariaDB")).unwrap_or(version)
}

/// A list of GTIDs in which a domain comes once for each server.
struct GtidState(Vec<MariadbGtid>);

impl FromStr for GtidState {
    type Err = <MariadbGtid as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let gtids = text.split(',').map(str::trim).filter(|gtid| !gtid.is_empty());
        gtids.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

fn cell<T>(
    rows: &[Vec<Option<String>>],
    column: usize,
    what: &'static str,
    expected: &'static str,
) -> Result<T, MysqlError>
where
    T: FromStr,
{
    let text = rows.first().and_then(|row| row.get(column)).and_then(Option::as_deref);
    let value = text.and_then(|text| text.parse().ok());
    value.ok_or_else(|| MysqlError::Answer {
        what,
        found: text.unwrap_or("NULL").to_owned(),
        expected,
    })
}

/// A string literal, whatever sql_mode says of backslashes.
pub(super) fn quote(text: &str) -> String {
    if text.contains('\\') {
        let digits: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
        return format!("CONVERT(X'{digits}' USING utf8mb4)");
    }
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_servers() {
        for (version, expected) in [
            ("8.0.36", Flavor::Mysql),
            ("9.7.4-2", Flavor::Mysql),
            ("8.4.3-log", Flavor::Mysql),
            ("10.11.18-MariaDB-0+deb12u1-log", Flavor::Mariadb),
            ("5.5.5-10.6.12-MariaDB", Flavor::Mariadb),
            ("11.8.9-MariaDB", Flavor::Mariadb),
        ] {
            assert_eq!(flavor(version).unwrap(), expected, "{version}");
        }
        for version in ["5.7.44-log", "5.5.5-10.5.2-MariaDB", "", "MariaDB"] {
            let error = flavor(version).unwrap_err().to_string();
            assert!(error.contains(version) && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn literals_hold_whatever_the_text() {
        assert_eq!(quote("it's"), "'it''s'");
        assert_eq!(quote("a\\'"), "CONVERT(X'615C27' USING utf8mb4)");
    }
}
