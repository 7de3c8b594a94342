-- What the application does. Run it as often as you like.

-- An event as it should be; the e-mail address in it leaves the database only as a hash.
INSERT INTO public.dataset_outbox (pipeline_id, event_name, dataset_id, idempotency_key, care_label, payload) VALUES
    ('ingest-7', 'dataset.published', 'sales.daily', 'sales.daily@2026-11-29', 'internal',
     '{"rows": 1200, "owner": {"email": "ada@example.com"}, "at": [52.520008, 13.404954]}');

-- One without a care label is parked, not published.
INSERT INTO public.dataset_outbox (pipeline_id, event_name, dataset_id, idempotency_key, payload) VALUES
    ('ingest-7', 'dataset.published', 'sales.weekly', 'sales.weekly@48', '{"rows": 3}');

-- As is one that its schema does not allow.
INSERT INTO public.dataset_outbox (pipeline_id, event_name, dataset_id, idempotency_key, care_label, payload) VALUES
    ('ingest-7', 'dataset.published', 'sales.daily', 'sales.daily@2026-11-30', 'internal', '{"rows": "many"}');
