//! tailpost relays transactional outbox events from the database's own log to Kafka: from PostgreSQL by logical replication,
//! from MySQL and MariaDB by the row binlog.
//!
//! # The way of an event
//!
//! ```text
//! server socket -> source task: frames -> decoded change events, in batches, with positions
//!   -> relay task: processors (pure, synchronous) -> records -> sink.send(seq, record)
//!   -> sink acks seq, in any order -> in-flight ledger -> watermark -> boundary reached
//!   -> saver task: checkpoint saved -> position confirmed to the source's server
//! ```
//!
//! Only a [`position`] flows back, and always in this order: acked, saved, confirmed. The modules follow the way:
//! [`source`], [`processor`], [`sink`], joined by [`relay`], kept by [`checkpoint`], configured by [`config`], shown by
//! [`telemetry`].

pub mod audit;
mod calendar;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod convert;
pub mod event;
mod failpoint;
pub mod gtid;
mod http_client;
pub mod letters;
mod line_end;
mod pause;
pub mod position;
pub mod preflight;
pub mod processor;
pub mod record;
pub mod relay;
pub mod row;
mod schema_registry;
pub mod sequences;
pub mod sink;
pub mod skip;
pub mod source;
pub mod telemetry;
mod tls;
