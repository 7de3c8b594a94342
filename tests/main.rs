//! Behaviour over real servers: one binary, a module a behaviour.
//!
//! `make test` starts the servers and runs everything. By hand, with servers that stay up:
//!
//! ```sh
//! make up && eval "$(tools/servers.sh env)" && cargo test --test main
//! ```
//!
//! Tests run at the same time: each has a database, topics and the like of its own, and those that ruin a server have that
//! to themselves ([`support::server::OwnServer`]). Heavy ones wait for one another ([`support::heavy`]), so that on a small
//! machine none waits for its deadline in vain.
//!
//! What is the same over all databases is one body in a [`support::Bed`], run over each ([`support::over_each`]); what is of
//! one kind of server only is in its own bed ([`support::TestBed`], [`support::mysql_bed::MysqlBed`]).

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and the line says which step it was"
)]
#![allow(unreachable_pub, reason = "one binary: nothing is reached from outside")]

mod support;

mod alert;
mod audit;
mod chaos;
mod checkpoint_stores;
mod cli;
mod connection;
mod convert;
mod convert_options;
mod crash;
mod dead_letters;
mod debezium;
mod delivery;
mod dlq;
mod envelopes;
mod exactly_once;
mod examples;
mod failover_mysql;
mod failover_postgres;
mod failpoints;
mod filters;
mod gaps;
mod http_sink;
mod letter_notices;
mod line_sinks;
mod lock_postgres;
mod masking;
mod memory;
mod migration;
mod mysql_check;
mod mysql_compressed;
mod mysql_connection;
mod mysql_gaps;
mod mysql_lock;
mod mysql_positions;
mod mysql_progress;
mod mysql_rows;
mod mysql_servers;
mod mysql_statement;
mod mysql_xa;
mod on_update;
mod ordering;
mod otlp;
mod outage;
mod outbox;
mod pause;
mod policies;
mod position;
mod publication;
mod rdf4j;
mod refusal;
mod resume;
mod resume_postgres;
mod row_keys;
mod rows;
mod runbook;
mod schema_registry;
mod sequences;
mod several_sinks;
mod shutdown;
mod slot;
mod solr;
mod staged_faults;
mod standby;
mod status;
mod stuck;
mod tail;
mod takeover;
mod unknown_topics;
