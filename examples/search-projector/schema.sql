-- An outbox of records that are to be in a search index: one event for each state of a record.
CREATE TABLE public.record_outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    record_id   text NOT NULL,
    source_hash text NOT NULL,
    operation   text NOT NULL DEFAULT 'upsert',
    document    jsonb NOT NULL
);
