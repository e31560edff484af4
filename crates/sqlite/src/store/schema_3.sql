-- What is remembered across threads, schema 3: a checksum of each item, as threads have them. Words, totals and terms are made of
-- the items and have none.

ALTER TABLE store_items ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

UPDATE store_items SET checksum = row_sum(
    'item', id, namespace, key, created_ms, updated_ms, ttl_ms, expires_ms, words, value, model, vector
);
