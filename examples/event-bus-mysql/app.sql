-- What the application does. Run it as often as you like.

-- The row is deleted again in the same transaction: the binlog has it, and the table stays empty.
START TRANSACTION;
SET @id = UUID();
INSERT INTO bus.event_outbox (outbox_id, aggregate_id, aggregate_type, event_type, event_payload, event_metadata,
    sequence_number, target_topic, partition_key)
VALUES (@id, '42', 'Account', 'MoneyDeposited', '{"amount": 12.5}', '{"user": "ada", "tenant": "north"}',
    1, 'bank.accounts', 'north-42');
DELETE FROM bus.event_outbox WHERE outbox_id = @id;
COMMIT;

-- Without a topic of its own, the event goes to one of its type.
START TRANSACTION;
SET @id = UUID();
INSERT INTO bus.event_outbox (outbox_id, aggregate_id, aggregate_type, event_type, event_payload, sequence_number)
VALUES (@id, '42', 'Account', 'MoneyWithdrawn', '{"amount": 2}', 2);
DELETE FROM bus.event_outbox WHERE outbox_id = @id;
COMMIT;
