-- What the application does. Run it as often as you like.
INSERT INTO public.record_outbox (record_id, source_hash, document) VALUES
    ('r-1', 'a1', '{"id": "r-1", "title_t": "On the Origin"}'),
    ('r-2', 'b1', '{"id": "r-2", "title_t": "Principia"}'),
    ('r-1', 'a2', '{"id": "r-1", "title_t": "On the Origin of Species"}');
