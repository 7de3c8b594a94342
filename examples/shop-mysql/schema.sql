-- The application's table, and its two outboxes. What is inserted into a BLACKHOLE table is in the binlog only: nothing is
-- stored, nothing has to be deleted. MariaDB loads the engine first, once: INSTALL SONAME 'ha_blackhole'
CREATE DATABASE shop;

CREATE TABLE shop.orders (
    id        BIGINT AUTO_INCREMENT PRIMARY KEY,
    customer  VARCHAR(64) NOT NULL,
    total     DECIMAL(10, 2) NOT NULL,
    status    ENUM ('placed', 'paid') NOT NULL DEFAULT 'placed',
    placed_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
);

-- The id is the application's own: AUTO_INCREMENT would give each row the same in a table that keeps nothing.
CREATE TABLE shop.orders_outbox (
    id             BINARY(16) NOT NULL,
    aggregate_type VARCHAR(64) NOT NULL,
    aggregate_id   BIGINT NOT NULL,
    event_type     VARCHAR(64) NOT NULL,
    payload        JSON NOT NULL
) ENGINE = BLACKHOLE;

-- Another team's, with a name of its own for the payload. It is text here, so that its bytes stay as they are written.
CREATE TABLE shop.payments_outbox (
    id             BINARY(16) NOT NULL,
    aggregate_type VARCHAR(64) NOT NULL,
    aggregate_id   BIGINT NOT NULL,
    event_type     VARCHAR(64) NOT NULL,
    data           TEXT NOT NULL
) ENGINE = BLACKHOLE;
