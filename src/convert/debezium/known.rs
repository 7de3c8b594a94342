//! Options that need nothing here, each with the reason.

use super::work::Work;

const BOUNDED: &str = "the log is streamed, and `spec.delivery` bounds what waits";
const RETRIED: &str = "what can heal is tried again, by `spec.restart`; what cannot ends the pipeline";
const SNAPSHOTS: &str = "there are no snapshots";
const HISTORY: &str = "no history of schemas: each row in the binlog comes with its table's own";
const VALUES: &str = "columns become text as the server prints them";
const IDLE: &str = "progress without events is confirmed by itself";
const CONNECT: &str = "of Connect itself";
const NAMING: &str = "topics come from the route alone";
const LOGGED: &str = "errors are logged, counted, and dealt with by `spec.errors`";

/// Names, or beginnings of names that end in `.*`.
const NOT_NEEDED: &[(&[&str], &str)] = &[
    (
        &[
            "poll.interval.ms",
            "max.batch.size",
            "max.queue.size",
            "max.queue.size.in.bytes",
            "query.fetch.size",
            "min.row.count.to.stream.results",
            "binlog.buffer.size",
            "slot.stream.params",
            "streaming.delay.ms",
            "batch.size",
        ],
        BOUNDED,
    ),
    (
        &[
            "retriable.restart.connector.wait.ms",
            "errors.max.retries",
            "errors.retry.*",
            "slot.max.retries",
            "slot.retry.delay.ms",
            "connect.keep.alive",
            "connect.keep.alive.interval.ms",
            "connect.timeout.ms",
            "connection.timeout.ms",
            "connection.validation.timeout.ms",
            "database.tcpKeepAlive",
            "database.connectionTimeZone",
            "database.query.timeout.ms",
            "executor.shutdown.timeout.ms",
            "use.nongraceful.disconnect",
        ],
        RETRIED,
    ),
    (
        &[
            "snapshot.*",
            "incremental.snapshot.*",
            "signal.*",
            "notification.*",
            "read.only",
            "topic.heartbeat.prefix",
        ],
        SNAPSHOTS,
    ),
    (
        &[
            "schema.history.internal",
            "schema.history.internal.*",
            "database.history",
            "database.history.*",
            "include.schema.changes",
            "include.schema.comments",
            "inconsistent.schema.handling.mode",
            "schema.refresh.mode",
        ],
        HISTORY,
    ),
    (
        &[
            "decimal.handling.mode",
            "time.precision.mode",
            "binary.handling.mode",
            "interval.handling.mode",
            "hstore.handling.mode",
            "money.fraction.digits",
            "bigint.unsigned.handling.mode",
            "include.unknown.datatypes",
            "enable.time.adjuster",
            "unavailable.value.placeholder",
            "schema.name.adjustment.mode",
            "field.name.adjustment.mode",
            "sanitize.field.names",
            "source.struct.version",
            "include.query",
            "database.serverTimezone",
        ],
        VALUES,
    ),
    (
        &[
            "heartbeat.*",
            "status.update.interval.ms",
            "xmin.fetch.interval.ms",
            "lsn.flush.mode",
            "flush.lsn.source",
            "offset.mismatch.strategy",
        ],
        IDLE,
    ),
    (
        &[
            "tasks.max",
            "config.action.reload",
            "config.providers",
            "config.providers.*",
            "transaction.boundary",
            "transaction.boundary.*",
            "internal.*",
            "custom.metric.tags",
            "cloud.environment",
            "cloud.provider",
            "kafka.auth.mode",
            "kafka.endpoint",
            "kafka.region",
            "after.state.only",
            "json.output.decimal.format",
        ],
        CONNECT,
    ),
    (
        &["offset.*"],
        "the pipeline's checkpoint has the position: see `spec.checkpoint`",
    ),
    (
        &["quarkus.*"],
        "of Debezium Server itself: see --http and --log-format of `tailpost run`",
    ),
    (
        &[
            "topic.naming.strategy",
            "topic.delimiter",
            "topic.cache.size",
            "topic.transaction",
            "provide.transaction.metadata",
            "provide.transaction.metadata.*",
        ],
        NAMING,
    ),
    (
        &[
            "errors.log.*",
            "event.processing.failure.handling.mode",
            "event.deserialization.failure.handling.mode",
        ],
        LOGGED,
    ),
    (
        &[
            "tombstones.on.delete",
            "skipped.operations",
            "skip.messages.without.change",
        ],
        "only INSERTs of an outbox are events",
    ),
    (&["extended.headers.enabled"], "headers are those of the row alone"),
    (
        &[
            "schema.include.list",
            "schema.exclude.list",
            "database.include.list",
            "database.exclude.list",
            "database.whitelist",
            "database.blacklist",
            "table.exclude.list",
            "table.ignore.builtin",
            "column.include.list",
            "column.exclude.list",
            "message.key.columns",
        ],
        "the tables and columns that are named are read, and no others",
    ),
];

/// Options that would do something here, and what is to be done.
const NOT_POSSIBLE: &[(&str, &str)] = &[
    (
        "converters",
        "no Java code runs here: let the query or the column's type say it",
    ),
    ("post.processors", "no Java code runs here"),
    (
        "database.initial.statements",
        "run them by hand, or as the role's own settings: `ALTER ROLE … SET …`",
    ),
    (
        "replica.identity.autoset.values",
        "no table is altered: run `ALTER TABLE … REPLICA IDENTITY …` by hand",
    ),
    (
        "publish.via.partition.root",
        "set it on the publication; one that is made here has it",
    ),
    (
        "gtid.source.includes",
        "transactions of every server are read: leave out this filter, or read another server",
    ),
    (
        "gtid.source.excludes",
        "transactions of every server are read: leave out this filter, or read another server",
    ),
    ("gtid.source.filter.dml.events", "transactions of every server are read"),
    ("driver.*", "the DSN has the connection's options"),
    (
        "database.*",
        "the DSN has the connection's options: look for its like there",
    ),
    (
        "column.*",
        "columns come as they are: let a generated column of the table say it",
    ),
    ("datatype.propagate.source.type", "values have no schema here"),
];

/// Tells of everything that is left.
pub(super) fn finish(work: &mut Work) {
    let rest: Vec<_> = work.settings.take_rest().collect();
    for (name, given) in rest {
        let fits = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == **pattern,
        };
        let why = NOT_NEEDED.iter().find(|(names, _)| names.iter().any(fits));
        let remedy = NOT_POSSIBLE.iter().find(|(known, _)| fits(known));
        match (why, remedy) {
            (Some((_, why)), _) => work.not_needed(&given.option, why),
            (None, Some((_, remedy))) => work.not_possible(&given.option, *remedy),
            (None, None) => work.unknown(&given.option),
        }
    }
}
