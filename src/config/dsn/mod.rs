//! Data source names: where and how to connect, one module a database.
//!
//! An error here never holds a piece of the DSN: in a malformed one, any piece can be part of the password. Errors name
//! options from the known vocabulary only.

mod mysql;
mod postgres;
mod syntax;
mod written;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::suggest::nearest;

pub use mysql::{MysqlDsn, MysqlHost};
pub use postgres::PostgresDsn;
pub(crate) use syntax::percent_encode;
pub(crate) use written::written_settings;

/// What is wrong with a DSN.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DsnError {
    #[error("expected {expected}")]
    Shape { expected: &'static str },
    #[error("value without its closing quote")]
    Quote,
    #[error("the {part} holds a % that is no percent-encoding: write %25 for the character itself")]
    Percent { part: &'static str },
    #[error(
        "the {part} holds an unencoded `@`, `:` or `/`: percent-encode the password's special characters (@ is %40, : is %3A, / is %2F)"
    )]
    Unencoded { part: &'static str },
    #[error("a zero byte, which {server} cannot take")]
    Zero { server: &'static str },
    #[error("option {number} is not known{}", suggest(*.suggestion))]
    UnknownOption {
        number: usize,
        suggestion: Option<&'static str>,
    },
    #[error("option `{option}` is not supported: remove it")]
    Unsupported { option: &'static str },
    #[error("option `{option}` is another client's: {remedy}")]
    Foreign { option: &'static str, remedy: &'static str },
    #[error("option `{option}`: expected {expected}{}", suggest(*.suggestion))]
    Value {
        option: &'static str,
        expected: &'static str,
        suggestion: Option<&'static str>,
    },
    #[error("option `{option}` is given more than once")]
    Repeated { option: &'static str },
    #[error("expected a host: a name, an address, or {socket}")]
    NoHost { socket: &'static str },
    #[error("expected a user before the host (`mysql://user:password@host`)")]
    NoUser,
    #[error("`socket` beside a host: expected one of the two, or `localhost` as the host")]
    HostAndSocket,
    #[error("{what} for {hosts} hosts: expected one for all or one for each")]
    Uneven { what: &'static str, hosts: usize },
    #[error("the file of `{option}` cannot be read: {kind}")]
    File { option: &'static str, kind: io::ErrorKind },
    #[error("`{present}` without `{missing}`: expected both or none")]
    Pair {
        present: &'static str,
        missing: &'static str,
    },
    #[error("`{given}` needs `{needed}`: the system's authorities vouch for any host")]
    WeakSystemRoots { given: &'static str, needed: &'static str },
    #[error("`{option}` has no effect with `ssl-mode={mode}`: expected {expected}")]
    NoEffect {
        option: &'static str,
        mode: &'static str,
        expected: &'static str,
    },
    #[error("`ssl-mode={mode}` over a unix socket, which has no TLS: expected disabled or preferred")]
    SocketTls { mode: &'static str },
}

fn suggest(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

fn filled<'v>(option: &'static str, value: &'v str) -> Result<&'v str, DsnError> {
    let wrong = DsnError::Value {
        option,
        expected: "a value that is not empty",
        suggestion: None,
    };
    if value.is_empty() { Err(wrong) } else { Ok(value) }
}

fn word<T: Copy>(
    option: &'static str,
    value: &str,
    words: &[(&'static str, T)],
    expected: &'static str,
) -> Result<T, DsnError> {
    words
        .iter()
        .find(|(word, _)| *word == value)
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| {
            let suggestion = nearest(value, words.iter().map(|(word, _)| *word));
            DsnError::Value {
                option,
                expected,
                suggestion,
            }
        })
}

fn readable(option: &'static str, value: &str) -> Result<PathBuf, DsnError> {
    let failed = |kind| DsnError::File { option, kind };
    let path = Path::new(value);
    let metadata = std::fs::File::open(path)
        .and_then(|file| file.metadata())
        .map_err(|err| failed(err.kind()))?;
    if metadata.is_dir() {
        Err(failed(io::ErrorKind::IsADirectory))
    } else {
        Ok(path.to_owned())
    }
}
