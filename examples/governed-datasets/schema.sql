-- An outbox of a data platform: each event names its dataset, its version, and the key by which consumers know it again.
CREATE TABLE public.dataset_outbox (
    outbox_id       uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    pipeline_id     text NOT NULL,
    event_name      text NOT NULL,
    dataset_id      text NOT NULL,
    version         text NOT NULL DEFAULT '1.0.0',
    idempotency_key text,
    care_label      text,
    payload         jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now()
);
