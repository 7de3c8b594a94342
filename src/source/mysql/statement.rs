//! What the text of a QUERY event does, told by its first words: it begins or ends a transaction, is a step of an XA
//! transaction, changes rows, or none of these.
//!
//! Servers write BEGIN, COMMIT and XA's steps themselves, and any other statement as the client sent it. This is no SQL
//! parser: where a change's table can't be told for certain it is not told, and what is not known counts as a change,
//! because rows that come as statements are rows that nobody relays.

mod scanner;
#[cfg(test)]
mod tests;

use std::fmt;

use self::scanner::{Scanner, Token};
use super::xid::{Xid, XidError};

/// A statement, as far as it matters to who follows rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    Begin,
    Commit,
    Rollback,
    /// Sets a savepoint. Names differ by more than case.
    Savepoint(String),
    /// What came since the savepoint is undone.
    RollbackTo(String),
    ReleaseSavepoint,
    XaStart(Xid),
    XaEnd(Xid),
    /// Servers log an event of its own instead: [`XaPrepareEvent`](super::xid::XaPrepareEvent).
    XaPrepare(Xid),
    XaCommit {
        xid: Xid,
        one_phase: bool,
    },
    XaRollback(Xid),
    /// Changes rows, or may: under binlog_format STATEMENT or MIXED no row event tells about them. A trigger's or a
    /// function's changes hide in it as well, so they can be in other tables than the target.
    Change {
        verb: Verb,
        /// None: several tables, or not to be told.
        target: Option<TableName>,
    },
    /// Empties a table; comes as a statement whatever the format of the log. `target` is None if it can't be told.
    Truncate {
        target: Option<TableName>,
    },
    /// Definitions, rights, administration, settings, and a comment alone. It can stand inside a transaction: since
    /// MySQL 8.0.21 a CREATE TABLE ... SELECT is logged as BEGIN, CREATE TABLE ... START TRANSACTION, rows, COMMIT.
    Other,
}

/// What a statement that changes rows starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Insert,
    Replace,
    Update,
    Delete,
    /// LOAD DATA and LOAD XML.
    Load,
    Call,
    Do,
    /// Logged for the functions that it calls; VALUES and TABLE too.
    Select,
    /// A common table expression before a verb.
    With,
    /// A word that is not known here, as of a later server.
    Unknown,
}

/// A table as a statement names it, in the client's spelling: upper and lower case may differ from the server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) schema: String,
    pub(super) name: String,
}

impl Statement {
    /// Parses a QUERY event's text. `schema` is the event's default schema, empty if there was none.
    ///
    /// # Errors
    /// An XA statement whose transaction can't be told.
    pub(super) fn parse(text: &[u8], schema: &str) -> Result<Self, XidError> {
        let mut scanner = Scanner::new(text);
        loop {
            let Some(word) = scanner.word() else {
                return Ok(without_verb(&mut scanner));
            };
            let (verb, target) = match Keyword::new(word).as_bytes() {
                b"BEGIN" => return Ok(Self::Begin),
                b"COMMIT" => return Ok(Self::Commit),
                b"START" if scanner.accept("TRANSACTION") => return Ok(Self::Begin),
                b"ROLLBACK" => {
                    scanner.accept("WORK");
                    if !scanner.accept("TO") {
                        return Ok(Self::Rollback);
                    }
                    scanner.accept("SAVEPOINT");
                    return Ok(Self::RollbackTo(savepoint(&mut scanner)));
                }
                b"SAVEPOINT" => return Ok(Self::Savepoint(savepoint(&mut scanner))),
                b"RELEASE" => return Ok(Self::ReleaseSavepoint),
                b"XA" => return parse_xa(scanner),
                b"TRUNCATE" => {
                    scanner.accept("TABLE");
                    let target = table_name(&mut scanner, schema);
                    return Ok(Self::Truncate { target });
                }
                // MariaDB runs the statement behind either.
                b"SET" if scanner.accept("STATEMENT") => {
                    if skip_settings(&mut scanner).is_some() {
                        continue;
                    }
                    return Ok(Self::unknown());
                }
                b"ANALYZE" if !scanner.accept_any(&["TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"]) => {
                    skip_format(&mut scanner);
                    continue;
                }
                b"INSERT" => (Verb::Insert, insert_target(&mut scanner, schema)),
                b"REPLACE" => (Verb::Replace, insert_target(&mut scanner, schema)),
                b"UPDATE" => (Verb::Update, update_target(&mut scanner, schema)),
                b"DELETE" => (Verb::Delete, delete_target(&mut scanner, schema)),
                b"LOAD" if scanner.accept_any(&["DATA", "XML"]) => (Verb::Load, load_target(&mut scanner, schema)),
                b"CALL" => (Verb::Call, None),
                b"DO" => (Verb::Do, None),
                b"SELECT" | b"VALUES" | b"TABLE" => (Verb::Select, None),
                b"WITH" => (Verb::With, None),
                word if OTHER.contains(&word) => return Ok(Self::Other),
                _ => (Verb::Unknown, None),
            };
            return Ok(Self::Change { verb, target });
        }
    }

    fn unknown() -> Self {
        Self::Change {
            verb: Verb::Unknown,
            target: None,
        }
    }
}

/// First words of statements that change no rows of a table that was there before; what EXECUTE and the like run is
/// logged by itself.
#[rustfmt::skip]
const OTHER: [&[u8]; 44] = [
    b"ALTER", b"ANALYZE", b"BACKUP", b"BINLOG", b"CACHE", b"CHANGE", b"CHECK", b"CHECKSUM", b"CLONE", b"CREATE",
    b"DEALLOCATE", b"DESC", b"DESCRIBE", b"DROP", b"EXECUTE", b"EXPLAIN", b"FLUSH", b"GET", b"GRANT", b"HANDLER",
    b"HELP", b"IMPORT", b"INSTALL", b"KILL", b"LOAD", b"LOCK", b"OPTIMIZE", b"PREPARE", b"PURGE", b"RENAME", b"REPAIR",
    b"RESET", b"RESIGNAL", b"RESTART", b"REVOKE", b"SET", b"SHOW", b"SHUTDOWN", b"SIGNAL", b"START", b"STOP",
    b"UNINSTALL", b"UNLOCK", b"USE",
];

/// A word in upper case; empty if it is longer than any that is known.
struct Keyword {
    letters: [u8; Self::MAX_LEN],
    length: usize,
}

impl Keyword {
    const MAX_LEN: usize = 16;

    fn new(word: &[u8]) -> Self {
        let mut letters = [0; Self::MAX_LEN];
        let Some(start) = letters.get_mut(..word.len()) else {
            return Self { letters, length: 0 };
        };
        start.copy_from_slice(word);
        start.make_ascii_uppercase();
        let length = word.len();
        Self { letters, length }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.letters[..self.length]
    }
}

fn without_verb(scanner: &mut Scanner<'_>) -> Statement {
    if scanner.at_end() {
        // MariaDB puts a comment in the place of an event that the reader did not say it knows.
        return Statement::Other;
    }
    if scanner.accept_symbol(b'(') {
        return Statement::Change {
            verb: Verb::Select,
            target: None,
        };
    }
    Statement::unknown()
}

fn parse_xa(mut scanner: Scanner<'_>) -> Result<Statement, XidError> {
    let Some(word) = scanner.word() else {
        return Ok(Statement::unknown());
    };
    let keyword = Keyword::new(word);
    let step = match keyword.as_bytes() {
        b"START" | b"BEGIN" => Statement::XaStart,
        b"END" => Statement::XaEnd,
        b"PREPARE" => Statement::XaPrepare,
        b"ROLLBACK" => Statement::XaRollback,
        b"COMMIT" => {
            let (xid, behind) = Xid::parse_prefix(scanner.rest())?;
            scanner.go_on_at(behind);
            let one_phase = scanner.accept("ONE");
            return Ok(Statement::XaCommit { xid, one_phase });
        }
        b"RECOVER" => return Ok(Statement::Other),
        _ => return Ok(Statement::unknown()),
    };
    let (xid, _) = Xid::parse_prefix(scanner.rest())?;
    Ok(step(xid))
}

/// `name = value, ... FOR` of SET STATEMENT. None if it does not end, or not for certain.
fn skip_settings(scanner: &mut Scanner<'_>) -> Option<()> {
    loop {
        scanner.skip_parentheses()?;
        match scanner.token()? {
            Token::Word(word) if word.eq_ignore_ascii_case(b"FOR") => return Some(()),
            _ => {}
        }
    }
}

/// `FORMAT = JSON` of ANALYZE.
fn skip_format(scanner: &mut Scanner<'_>) {
    if scanner.accept("FORMAT") {
        scanner.accept_symbol(b'=');
        scanner.word();
    }
}

/// A savepoint's name as servers compare it.
fn savepoint(scanner: &mut Scanner<'_>) -> String {
    scanner.name().unwrap_or_default().to_lowercase()
}

fn table_name(scanner: &mut Scanner<'_>, default_schema: &str) -> Option<TableName> {
    let first = scanner.name()?;
    let (schema, name) = if scanner.accept_symbol(b'.') {
        (first, scanner.name()?)
    } else {
        (default_schema.to_owned(), first)
    };
    let named = !schema.is_empty() && !name.is_empty();
    named.then_some(TableName { schema, name })
}

/// INSERT and REPLACE have one target, whatever they take their rows from.
fn insert_target(scanner: &mut Scanner<'_>, schema: &str) -> Option<TableName> {
    while scanner.accept_any(&["LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"]) {}
    table_name(scanner, schema)
}

fn update_target(scanner: &mut Scanner<'_>, schema: &str) -> Option<TableName> {
    while scanner.accept_any(&["LOW_PRIORITY", "IGNORE"]) {}
    only_table(scanner, schema, |scanner| scanner.accept("SET"))
}

fn delete_target(scanner: &mut Scanner<'_>, schema: &str) -> Option<TableName> {
    while scanner.accept_any(&["LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY"]) {}
    if !scanner.accept("FROM") {
        return None;
    }
    only_table(scanner, schema, |scanner| {
        scanner.at_end() || scanner.accept_any(&["WHERE", "ORDER", "LIMIT", "RETURNING"])
    })
}

/// The table that a statement names with nothing but its partitions and an alias before `is_behind`: no second table
/// and no join.
fn only_table(
    scanner: &mut Scanner<'_>,
    schema: &str,
    is_behind: impl Fn(&mut Scanner<'_>) -> bool,
) -> Option<TableName> {
    let table = table_name(scanner, schema)?;
    if scanner.accept("PARTITION") {
        scanner.skip_parentheses()?;
    }
    if !is_behind(scanner) {
        scanner.accept("AS");
        scanner.name()?;
        if !is_behind(scanner) {
            return None;
        }
    }
    Some(table)
}

fn load_target(scanner: &mut Scanner<'_>, schema: &str) -> Option<TableName> {
    loop {
        match scanner.token()? {
            Token::Word(word) if word.eq_ignore_ascii_case(b"INTO") && scanner.accept("TABLE") => break,
            _ => {}
        }
    }
    table_name(scanner, schema)
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Insert => "INSERT",
            Self::Replace => "REPLACE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Load => "LOAD",
            Self::Call => "CALL",
            Self::Do => "DO",
            Self::Select => "SELECT",
            Self::With => "WITH",
            Self::Unknown => "unknown statement",
        })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}
