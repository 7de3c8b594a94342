-- What the application does: change its data and say so, in one transaction. Run it as often as you like.

-- An order is placed. Both happen, or neither does.
BEGIN;
INSERT INTO shop.orders (customer, total) VALUES ('ada', 42.00);
SET @id = LAST_INSERT_ID();
INSERT INTO shop.orders_outbox (id, aggregate_type, aggregate_id, event_type, payload)
    SELECT UNHEX(REPLACE(UUID(), '-', '')), 'Order', id, 'placed', JSON_OBJECT('order', id, 'customer', customer, 'total', total)
    FROM shop.orders WHERE id = @id;
COMMIT;

-- It is paid: a row changes, and each outbox gets an event.
BEGIN;
UPDATE shop.orders SET status = 'paid' WHERE id = @id;
INSERT INTO shop.payments_outbox (id, aggregate_type, aggregate_id, event_type, data)
    SELECT UNHEX(REPLACE(UUID(), '-', '')), 'Payment', id, 'received', CONCAT('{ "order": ', id, ', "amount": ', total, ' }')
    FROM shop.orders WHERE id = @id;
INSERT INTO shop.orders_outbox (id, aggregate_type, aggregate_id, event_type, payload)
    SELECT UNHEX(REPLACE(UUID(), '-', '')), 'Order', id, 'paid', JSON_OBJECT('order', id) FROM shop.orders WHERE id = @id;
COMMIT;

-- The application changes its mind: nothing of this reaches Kafka.
BEGIN;
INSERT INTO shop.orders_outbox (id, aggregate_type, aggregate_id, event_type, payload)
    SELECT UNHEX(REPLACE(UUID(), '-', '')), 'Order', id, 'lost', JSON_OBJECT('order', id) FROM shop.orders WHERE id = @id;
ROLLBACK;
