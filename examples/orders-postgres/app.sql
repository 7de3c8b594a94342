-- What the application does: change its data and say so, in one transaction. Run it as often as you like.

-- An order is placed. Both happen, or neither does.
BEGIN;
WITH placed AS (
    INSERT INTO public.orders (customer, total_cents) VALUES ('ada', 4200) RETURNING id, customer, total_cents
)
SELECT pg_logical_emit_message(
    true, -- transactional: delivered at COMMIT, dropped by ROLLBACK
    'outbox', -- the prefix that the pipeline listens to
    json_build_object(
        'id', gen_random_uuid(),
        'aggregate_type', 'Order',
        'aggregate_id', id,
        'event_type', 'OrderPlaced',
        'payload', json_build_object('order', id, 'customer', customer, 'total_cents', total_cents)
    )::text
) FROM placed;
COMMIT;

-- The same order is paid: the same aggregate_id, so the same key, and after the first event.
BEGIN;
WITH paid AS (
    UPDATE public.orders SET status = 'paid', changed_at = now()
    WHERE id = (SELECT max(id) FROM public.orders) RETURNING id
)
SELECT pg_logical_emit_message(true, 'outbox', json_build_object(
    'id', gen_random_uuid(),
    'aggregate_type', 'Order',
    'aggregate_id', id,
    'event_type', 'OrderPaid',
    'payload', json_build_object('order', id, 'method', 'card')
)::text) FROM paid;
COMMIT;

-- The application changes its mind: nothing of this reaches Kafka.
BEGIN;
SELECT pg_logical_emit_message(true, 'outbox', '{"aggregate_type": "Order", "event_type": "OrderLost", "payload": {}}');
ROLLBACK;
