-- The application's own table. The outbox needs none: its messages live in PostgreSQL's log only.
CREATE TABLE public.orders (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer    text NOT NULL,
    total_cents bigint NOT NULL CHECK (total_cents >= 0),
    status      text NOT NULL DEFAULT 'placed',
    changed_at  timestamptz NOT NULL DEFAULT now()
);
