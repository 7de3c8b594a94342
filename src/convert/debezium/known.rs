//! Options that no other part takes: what needs nothing here, each with the reason, and what does.
//!
//! A reason holds of an outbox's events. Where ordinary tables are captured beside it, or the value decides, that is said.

use super::settings::Given;
use super::work::Work;
use crate::convert::report::Fate;

const BOUNDED: &str = "the log is streamed, and `spec.delivery` bounds what waits";
const RETRIED: &str = "what can heal is tried again, by `spec.restart`; what cannot ends the pipeline";
const SNAPSHOTS: &str = "there are no snapshots";
const HISTORY: &str = "no history of schemas: each row in the binlog comes with its table's own";
const IDLE: &str = "progress without events is confirmed by itself";
const CONNECT: &str = "of Connect itself";
const NAMING: &str = "topics come from the route alone";
const LOGGED: &str = "errors are logged, counted, and dealt with by `spec.errors`";

/// Names, or beginnings of names that end in `.*`.
const NOT_NEEDED: &[(&[&str], &str)] = &[
    (
        &["database.allowPublicKeyRetrieval", "driver.allowPublicKeyRetrieval"],
        "without TLS the server's key is asked for wherever a password needs it",
    ),
    (
        &[
            "poll.interval.ms",
            "max.batch.size",
            "max.queue.size",
            "max.queue.size.in.bytes",
            "query.fetch.size",
            "min.row.count.to.stream.results",
            "binlog.buffer.size",
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
            "include.schema.comments",
            "schema.refresh.mode",
        ],
        HISTORY,
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
            "topic.cache.size",
            "topic.transaction",
            "provide.transaction.metadata.*",
        ],
        NAMING,
    ),
    (&["errors.log.*"], LOGGED),
    (&["extended.headers.enabled"], "headers are those of the row alone"),
    (
        &["table.ignore.builtin"],
        "the tables that are named are read, and no others",
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

/// Options that do nothing to an outbox's events, as far as they go, and all to rows of ordinary tables beside it: why they are
/// not needed without such tables, and what becomes of them with.
const OF_TABLES: &[(&[&str], &str, Fate, &str)] = &[
    (
        &[
            "column.exclude.list",
            "column.include.list",
            "column.blacklist",
            "column.whitelist",
        ],
        "a router publishes the columns that it names, and no others",
        Fate::NotPossible,
        "EVERY column of the ordinary tables is published: take columns out by a processor of type `mask` (`action: remove`), or on \
         PostgreSQL by a column list of the publication",
    ),
    (
        &["message.key.columns"],
        "the router has the key",
        Fate::NotPossible,
        "changes of ordinary tables have their primary key as the key: for another write the sink's `key`, a template",
    ),
    (
        &["skip.messages.without.change"],
        ONLY_INSERTS,
        Fate::NotPossible,
        "every UPDATE of an ordinary table is published, whatever it changes: let consumers tell",
    ),
    (
        &["tombstones.on.delete"],
        ONLY_INSERTS,
        Fate::Different,
        "no tombstone stands behind a DELETE of an ordinary table",
    ),
    (
        &["after.state.only"],
        "outbox events have no envelope",
        Fate::NotPossible,
        "changes of ordinary tables come in the sink's `envelope`, whose `after` is the row: let consumers read that",
    ),
    (
        &["topic.naming.strategy"],
        NAMING,
        Fate::NotPossible,
        "topics of ordinary tables are made by the sink's `topic`: write what this strategy makes",
    ),
    (
        &[
            "schema.name.adjustment.mode",
            "field.name.adjustment.mode",
            "sanitize.field.names",
            "source.struct.version",
            "include.query",
            "include.unknown.datatypes",
            "unavailable.value.placeholder",
        ],
        "values are payloads as they are",
        Fate::Different,
        "changes of ordinary tables come in the sink's envelope as docs/pipeline-file.md has it, whatever this says",
    ),
    (&["topic.delimiter"], NAMING, Fate::Taken, "spec.sinks[].config.topic"),
];

const ONLY_INSERTS: &str = "only INSERTs of an outbox are events";

/// How values of columns are written, and where that shows.
const OF_VALUES: [&str; 8] = [
    "decimal.handling.mode",
    "time.precision.mode",
    "interval.handling.mode",
    "hstore.handling.mode",
    "money.fraction.digits",
    "bigint.unsigned.handling.mode",
    "enable.time.adjuster",
    "json.output.decimal.format",
];

/// Tells of everything that is left.
pub(super) fn finish(work: &mut Work) {
    let rest: Vec<_> = work.settings.take_rest().collect();
    for (name, given) in rest {
        let fits = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == **pattern,
        };
        if let Some((fate, text)) = by_value(work, &name, &given) {
            work.report.add(fate, given.option, text);
            continue;
        }
        if let Some((_, why, fate, text)) = OF_TABLES.iter().find(|(names, ..)| names.iter().any(fits)) {
            match work.has_ordinary {
                true => work.report.add(*fate, given.option, *text),
                false => work.not_needed(&given.option, why),
            }
            continue;
        }
        let why = NOT_NEEDED.iter().find(|(names, _)| names.iter().any(fits));
        let remedy = NOT_POSSIBLE.iter().find(|(known, _)| fits(known));
        match (why, remedy) {
            (Some((_, why)), _) => work.not_needed(&given.option, why),
            (None, Some((_, remedy))) => work.not_possible(&given.option, *remedy),
            (None, None) => work.unknown(&given.option),
        }
    }
}

/// Options of which the value decides.
fn by_value(work: &Work, name: &str, given: &Given) -> Option<(Fate, &'static str)> {
    let needs_nothing = |why| Some((Fate::NotNeeded, why));
    match name {
        "binary.handling.mode" if given.is("bytes") => needs_nothing("a binary payload is its bytes"),
        "binary.handling.mode" => Some((
            Fate::NotPossible,
            "a binary column becomes text in this form there, and a binary payload is its bytes here: if payload, key or a placed \
             column is binary, let consumers read bytes, or let the application write this text",
        )),
        "decimal.handling.mode" if given.is("string") => needs_nothing("decimals are their digits, as text"),
        name if OF_VALUES.contains(&name) => match work.has_ordinary || work.has_placed {
            true => Some((
                Fate::Different,
                "placed columns and ordinary tables' have decimals as their digits and times as the server prints them, whatever \
                 this says: see that consumers read these",
            )),
            false => needs_nothing("keys become text as the server prints them, and payloads are sent as they are"),
        },
        "database.connectionTimeZone" | "database.serverTimezone" => {
            needs_nothing("a TIMESTAMP in the binlog is in UTC, and comes so")
        }
        "slot.stream.params" => match given.value.is_empty() {
            true => needs_nothing("nothing is given"),
            false if given.value.contains("origin") => Some((
                Fate::NotPossible,
                "rows that the server itself got by replication are published here, whatever their origin: leave them out of the \
                 publication",
            )),
            false => Some((Fate::NotPossible, "the stream is begun without options of one's own")),
        },
        "event.processing.failure.handling.mode"
        | "event.deserialization.failure.handling.mode"
        | "inconsistent.schema.handling.mode" => match given.is("fail") {
            true => needs_nothing(LOGGED),
            false => Some((
                Fate::Different,
                "there the connector goes on past what it cannot read; here the pipeline halts at it: name a topic for such events in \
                 `spec.dead_letter`, or write `errors: {invalid: skip, unroutable: skip}`",
            )),
        },
        "provide.transaction.metadata" => match given.is("true") {
            true => Some((
                Fate::Different,
                "no records of transactions are published to `<topic.prefix>.transaction`",
            )),
            false => needs_nothing(NAMING),
        },
        "include.schema.changes" => match given.is("true") {
            true => Some((
                Fate::Different,
                "changes of schemas are not published to the topic `<topic.prefix>`",
            )),
            false => needs_nothing(HISTORY),
        },
        name if name.starts_with("notification.") => {
            Some((Fate::Different, "no notifications are sent: see /status and logs"))
        }
        "topic.naming.strategy" if NAMED_BY_TABLE.iter().any(|class| given.value.ends_with(class)) => {
            needs_nothing("topics of tables are named so")
        }
        "tombstones.on.delete" if given.is("false") => needs_nothing("no tombstone stands behind a DELETE"),
        "skip.messages.without.change" | "after.state.only" | "include.query" if given.is("false") => {
            needs_nothing("off there, too")
        }
        _ => None,
    }
}

/// Strategies that make `<prefix>.<schema>.<table>`.
const NAMED_BY_TABLE: [&str; 2] = [".SchemaTopicNamingStrategy", ".DefaultTopicNamingStrategy"];

#[cfg(test)]
mod tests {
    use super::super::input::Platform;
    use super::super::settings::Settings;
    use super::*;
    use crate::convert::report::Report;

    /// What becomes of an option: with ordinary tables or not, and with placed columns or not.
    fn fate(name: &str, value: &str, has_ordinary: bool, has_placed: bool) -> Fate {
        let mut settings = Settings::default();
        settings.insert(name, name, value);
        let mut work = Work {
            platform: Platform::Connect,
            settings,
            worker: None,
            report: Report::default(),
            has_ordinary,
            has_placed,
        };
        finish(&mut work);
        let [entry] = work.report.entries() else {
            panic!("{name}: {}", work.report);
        };
        entry.fate
    }

    #[test]
    fn what_does_nothing_to_an_outbox_s_events_is_told_where_ordinary_tables_are() {
        let cases = [
            ("column.exclude.list", "public.customer.ssn", Fate::NotPossible),
            ("column.include.list", "public.customer.id", Fate::NotPossible),
            ("message.key.columns", "public.customer:email", Fate::NotPossible),
            ("skip.messages.without.change", "true", Fate::NotPossible),
            ("after.state.only", "true", Fate::NotPossible),
            ("topic.naming.strategy", "com.example.Own", Fate::NotPossible),
            ("tombstones.on.delete", "true", Fate::Different),
            ("decimal.handling.mode", "double", Fate::Different),
            ("unavailable.value.placeholder", "x", Fate::Different),
        ];
        for (name, value, expected) in cases {
            assert_eq!(fate(name, value, true, false), expected, "{name}");
            assert_eq!(fate(name, value, false, false), Fate::NotNeeded, "{name}");
        }
        assert_eq!(fate("time.precision.mode", "connect", false, true), Fate::Different);
    }

    #[test]
    fn the_value_decides_where_it_does_something() {
        let cases = [
            ("binary.handling.mode", "bytes", Fate::NotNeeded),
            ("binary.handling.mode", "hex", Fate::NotPossible),
            ("slot.stream.params", "origin=none", Fate::NotPossible),
            ("slot.stream.params", "", Fate::NotNeeded),
            ("event.processing.failure.handling.mode", "fail", Fate::NotNeeded),
            ("event.processing.failure.handling.mode", "skip", Fate::Different),
            ("provide.transaction.metadata", "true", Fate::Different),
            ("provide.transaction.metadata", "false", Fate::NotNeeded),
            ("notification.sink.topic.name", "n", Fate::Different),
            ("include.schema.changes", "true", Fate::Different),
            ("tombstones.on.delete", "false", Fate::NotNeeded),
            ("snapshot.fetch.size", "1", Fate::NotNeeded),
            ("decimal.handling.mode", "string", Fate::NotNeeded),
            ("colour", "blue", Fate::Unknown),
        ];
        for (name, value, expected) in cases {
            assert_eq!(fate(name, value, false, false), expected, "{name}={value}");
        }
    }
}
