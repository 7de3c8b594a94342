-- An outbox of an event bus: the application says topic and partition key by itself, and numbers the events of each aggregate.
CREATE DATABASE IF NOT EXISTS bus;
CREATE TABLE bus.event_outbox (
    outbox_id       CHAR(36) NOT NULL PRIMARY KEY,
    aggregate_id    VARCHAR(100) NOT NULL,
    aggregate_type  VARCHAR(100) NOT NULL,
    event_type      VARCHAR(100) NOT NULL,
    event_payload   JSON NOT NULL,
    event_metadata  JSON,
    sequence_number BIGINT NOT NULL,
    target_topic    VARCHAR(200),
    partition_key   VARCHAR(200),
    created_at      TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
);
