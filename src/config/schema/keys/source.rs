//! `spec.source`.

use crate::config::quantity::show_size;
use crate::config::schema::key::{Key, Takes, either, filled, like, patterns, tagged, text, variant, word};
use crate::config::schema::keys::source::Database::{Mysql, Postgres};

#[derive(Clone, Copy, PartialEq)]
enum Database {
    Postgres,
    Mysql,
}

pub(super) fn source() -> Takes {
    tagged(
        "the database; `mysql` and `mariadb` do the same: the server says which it is",
        vec![
            variant(["postgres"], vec![config(Postgres)]),
            variant(["mysql", "mariadb"], vec![config(Mysql)]),
        ],
    )
}

fn config(database: Database) -> Key {
    let own = match database {
        Postgres => postgres(),
        Mysql => mysql(),
    };
    let keys = common(database).into_iter().chain(own).collect();
    Key::new("config", Takes::Mapping(keys), "").required()
}

fn common(database: Database) -> Vec<Key> {
    vec![
        Key::new(
            "id",
            filled(),
            "names the source, in the checkpoint and in `source.name` of an envelope",
        )
        .required(),
        Key::new(
            "dsn",
            text(),
            "where and how to connect, see [PostgreSQL](#dsn-of-postgresql) and [MySQL and MariaDB](#dsn-of-mysql-and-mariadb)",
        )
        .required(),
        Key::new("outbox", Takes::Mapping(outbox(database)), ""),
        Key::new(
            "tables",
            patterns(),
            "ordinary tables whose changes are published, to the sink's `topic`, in its envelope",
        ),
        Key::new(
            "start",
            start(database),
            "only without a checkpoint, or with `--from-slot`: `earliest` (what the slot or the binlog still has), `latest` (the log's end now), or a place",
        )
        .default("earliest"),
        Key::new(
            "max_message_bytes",
            Takes::Size(1024..=1 << 30),
            "a larger message or row is not taken in, and is `rejected`",
        )
        .default(show_size(64 << 20)),
        Key::of_deltaforge("start_position", Takes::Anything, "the same as `start`"),
        Key::of_deltaforge(
            "snapshot",
            Takes::Anything,
            "without effect where it, or its `mode`, is `never`; else refused",
        ),
        Key::of_deltaforge(
            "on_schema_drift",
            Takes::Anything,
            "without effect where it is `adapt`; else refused",
        ),
    ]
}

fn outbox(database: Database) -> Vec<Key> {
    let prefixes = Key::new(
        "prefixes",
        patterns(),
        "prefixes of `pg_logical_emit_message` whose messages are events",
    );
    let tables = Key::new(
        "tables",
        patterns(),
        "tables whose INSERTs are events; the rows may be deleted at once, and in MySQL need not be kept at all (`ENGINE = BLACKHOLE`)",
    );
    match database {
        Postgres => vec![tables, prefixes],
        Mysql => vec![tables],
    }
}

fn start(database: Database) -> Takes {
    let words = word(["earliest", "latest"]);
    match database {
        Postgres => {
            let lsn = Key::new(
                "lsn",
                like("LSN", "^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$"),
                "behind this place in the WAL, such as `16/B374D848`",
            );
            either([words, Takes::Mapping(vec![lsn.required()])])
        }
        Mysql => {
            let gtid = Key::new(
                "gtid",
                like("GTIDs", "[0-9]"),
                "behind these: a set of MySQL's such as `3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5`, or of MariaDB's `0-1-100`",
            );
            let file = Key::new(
                "file",
                like("file name", r"\.[0-9]{6,10}$"),
                "in place of `gtid`: a binlog file, such as `binlog.000123`",
            );
            let pos = Key::new(
                "pos",
                Takes::Integer(4..=u32::MAX.into()),
                "where an event of `file` begins; without it, the file's first",
            )
            .default(4);
            either([
                words,
                Takes::Mapping(vec![gtid.required()]),
                Takes::Mapping(vec![file.required(), pos]),
            ])
        }
    }
}

fn postgres() -> Vec<Key> {
    vec![
        Key::new(
            "slot",
            like("name", "^[a-z0-9_]{1,63}$"),
            "the replication slot; one for each pipeline. Made on the first start; missing on a later one, it is a lost slot",
        )
        .required(),
        Key::new(
            "publication",
            like("name", r"^[\s\S]{1,63}$"),
            "made on the first start if it is missing: without tables for messages alone, for INSERTs when all its tables are outboxes (and for UPDATEs with `on_update`)",
        )
        .required(),
        Key::new("create", Takes::Boolean, "`false`: slot and publication must be there").default(true),
        Key::new(
            "failover",
            Takes::Boolean,
            "a slot that is made here is one that PostgreSQL 17 and later keep in step on their standbys, so that it survives a [promotion](delivery.md#when-a-standby-is-promoted-postgresql); before 17 it has no effect",
        )
        .default(true),
    ]
}

fn mysql() -> Vec<Key> {
    vec![
        Key::new(
            "server_id",
            Takes::Integer(1..=u32::MAX.into()),
            "tells this reader apart: distinct among all servers and readers of the replication topology",
        )
        .default_in_words("one of `1073741824` to `2147483647` that follows from `metadata.name`"),
    ]
}
