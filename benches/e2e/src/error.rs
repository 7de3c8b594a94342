//! What can go wrong while measuring. Nothing is measured past an error: a figure of a run that failed is none.

use std::path::PathBuf;

/// See each variant's text.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{name} is not set: run `make bench`, or eval the output of `tools/servers.sh env` first")]
    Variable { name: String },
    #[error("setting {name} is `{found}`: expected {expected}")]
    Setting {
        name: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("`{url}` is no address of a database")]
    Address { url: String },
    #[error("{what}")]
    Io { what: String, source: std::io::Error },
    #[error("PostgreSQL: {what}")]
    Postgres { what: String, source: postgres::Error },
    #[error("MySQL or MariaDB: {what}")]
    Mysql { what: String, source: mysql::Error },
    #[error("Kafka: {what}")]
    Kafka {
        what: String,
        source: rdkafka::error::KafkaError,
    },
    #[error("`{program}` ended with {status}, its output: {output}")]
    Program {
        program: String,
        status: String,
        output: String,
    },
    #[error("topic `{topic}`: {found}, expected {expected}")]
    Wrong {
        topic: String,
        found: String,
        expected: String,
    },
    #[error("{what} within {seconds} s")]
    Late { what: String, seconds: u64 },
    #[error("write the results to `{}`", path.display())]
    Results { path: PathBuf, source: std::io::Error },
    #[error("the results as JSON")]
    Json(#[from] serde_json::Error),
}

/// Says what was tried.
pub trait Tried<T> {
    fn tried(self, what: impl Into<String>) -> Result<T, BenchError>;
}

impl<T> Tried<T> for Result<T, std::io::Error> {
    fn tried(self, what: impl Into<String>) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::Io {
            what: what.into(),
            source,
        })
    }
}

impl<T> Tried<T> for Result<T, postgres::Error> {
    fn tried(self, what: impl Into<String>) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::Postgres {
            what: what.into(),
            source,
        })
    }
}

impl<T> Tried<T> for Result<T, mysql::Error> {
    fn tried(self, what: impl Into<String>) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::Mysql {
            what: what.into(),
            source,
        })
    }
}

impl<T> Tried<T> for Result<T, rdkafka::error::KafkaError> {
    fn tried(self, what: impl Into<String>) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::Kafka {
            what: what.into(),
            source,
        })
    }
}
