//! What the story says and does in each database's own words.

/// The texts that differ.
#[derive(Debug)]
pub(in crate::cli::demo) struct Script {
    /// The pipeline file that is run, and shown.
    pub(in crate::cli::demo) pipeline: &'static str,
    /// What the file takes its DSN from.
    pub(in crate::cli::demo) dsn_variable: &'static str,
    /// What is set up before the relay starts: why, and how.
    pub(in crate::cli::demo) preparations: &'static [(&'static str, &'static str)],
    /// What the first start has done.
    pub(in crate::cli::demo) started: &'static str,
    /// Where a relay goes on that has no checkpoint.
    pub(in crate::cli::demo) beginning: &'static str,
    pub(in crate::cli::demo) committed: &'static str,
    pub(in crate::cli::demo) rolled_back: &'static str,
    pub(in crate::cli::demo) payment: &'static str,
    /// A transaction with a message for each number from the first to the second, under keys by its remainder of the third.
    pub(in crate::cli::demo) messages: fn(u64, u64, u64) -> String,
}

pub(super) const POSTGRES: Script = Script {
    pipeline: include_str!("../pipelines/postgres.yaml"),
    dsn_variable: "POSTGRES_DSN",
    preparations: &[
        (
            "The application has a table, and needs none for its events:",
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, paid boolean NOT NULL DEFAULT false);",
        ),
        (
            "tailpost gets a role:",
            "\
CREATE ROLE tailpost LOGIN REPLICATION;
GRANT CREATE ON DATABASE shop TO tailpost;  -- it makes the publication itself",
        ),
    ],
    started: "It made the publication and the slot, and streams.",
    beginning: "the slot's own place",
    committed: r#"BEGIN;
INSERT INTO orders (id, customer) VALUES (1001, 'ada');
SELECT pg_logical_emit_message(true, 'outbox',
  '{"id": "a1", "aggregate_type": "Order", "aggregate_id": 1001, "event_type": "OrderPlaced",
    "payload": {"order": 1001, "customer": "ada", "total": 42.00}}');
COMMIT;"#,
    rolled_back: r#"BEGIN;
INSERT INTO orders (id, customer) VALUES (1002, 'bob');
SELECT pg_logical_emit_message(true, 'outbox',
  '{"id": "b1", "aggregate_type": "Order", "aggregate_id": 1002, "event_type": "OrderPlaced",
    "payload": {"order": 1002, "customer": "bob", "total": 10.50}}');
ROLLBACK;"#,
    payment: r#"BEGIN;
UPDATE orders SET paid = true WHERE id = 1001;
SELECT pg_logical_emit_message(true, 'outbox',
  '{"id": "a2", "aggregate_type": "Order", "aggregate_id": 1001, "event_type": "OrderPaid",
    "payload": {"order": 1001, "method": "card"}}');
COMMIT;"#,
    messages: |first, last, keys| {
        format!(
            r#"BEGIN;
SELECT pg_logical_emit_message(true, 'outbox', format(
  '{{"aggregate_type": "Stock", "aggregate_id": "item-%s", "event_type": "Moved", "payload": {{"n": %s}}}}',
  n % {keys}, n))
FROM generate_series({first}, {last}) AS n;
COMMIT;"#
        )
    },
};

const MYSQL_TABLES: (&str, &str) = (
    "The application has a table, and another for its events. That one keeps nothing: its rows are in the binlog alone.",
    "\
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT NOT NULL, paid BOOLEAN NOT NULL DEFAULT FALSE);
CREATE TABLE outbox (
  id VARCHAR(36), aggregate_type VARCHAR(64) NOT NULL, aggregate_id VARCHAR(64) NOT NULL,
  event_type VARCHAR(64) NOT NULL, payload TEXT NOT NULL) ENGINE = BLACKHOLE;",
);

const MYSQL_USER: (&str, &str) = (
    "tailpost gets a user, which may read the binlog and the description of this table:",
    "\
CREATE USER tailpost@localhost;
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO tailpost@localhost;
GRANT SELECT ON shop.outbox TO tailpost@localhost;",
);

pub(super) const MYSQL: Script = Script {
    pipeline: include_str!("../pipelines/mysql.yaml"),
    dsn_variable: "MYSQL_DSN",
    preparations: &[MYSQL_TABLES, MYSQL_USER],
    started: "It reads the binlog from its beginning, and needs nothing of its own in the server.",
    beginning: "the binlog's beginning",
    committed: r#"BEGIN;
INSERT INTO orders (id, customer) VALUES (1001, 'ada');
INSERT INTO outbox VALUES ('a1', 'Order', 1001, 'OrderPlaced',
  '{"order": 1001, "customer": "ada", "total": 42.00}');
COMMIT;"#,
    rolled_back: r#"BEGIN;
INSERT INTO orders (id, customer) VALUES (1002, 'bob');
INSERT INTO outbox VALUES ('b1', 'Order', 1002, 'OrderPlaced',
  '{"order": 1002, "customer": "bob", "total": 10.50}');
ROLLBACK;"#,
    payment: r#"BEGIN;
UPDATE orders SET paid = TRUE WHERE id = 1001;
INSERT INTO outbox VALUES ('a2', 'Order', 1001, 'OrderPaid',
  '{"order": 1001, "method": "card"}');
COMMIT;"#,
    messages: |first, last, keys| {
        format!(
            r#"BEGIN;
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})
SELECT 'Stock', CONCAT('item-', n % {keys}), 'Moved', CONCAT('{{"n": ', n, '}}') FROM numbers;
COMMIT;"#
        )
    },
};

pub(super) const MARIADB: Script = Script {
    preparations: &[
        (
            "MariaDB has the engine BLACKHOLE in a plugin, which is loaded once:",
            "INSTALL SONAME 'ha_blackhole';",
        ),
        MYSQL_TABLES,
        MYSQL_USER,
    ],
    ..MYSQL
};
