-- What is remembered across threads, schema 1. Beside the tables of threads, and independent of them.

-- Which schema each part of a database has that is not counted by `PRAGMA user_version`.
CREATE TABLE IF NOT EXISTS parts (
    name TEXT PRIMARY KEY,
    schema INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE store_items (
    id INTEGER PRIMARY KEY,
    -- The labels, joined with '.'.
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    -- UTC milliseconds.
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    -- How long it lives after it was put or refreshed, and when that is over; NULL for ever.
    ttl_ms INTEGER,
    expires_ms INTEGER,
    -- How many words it has in `store_words`.
    words INTEGER NOT NULL,
    -- JSON.
    value TEXT NOT NULL,
    -- The direction of its meaning, as floats of 32 bits, little-endian, and the model that found it.
    model TEXT,
    vector BLOB,
    UNIQUE (namespace, key)
) STRICT;

-- To count and list without reading the values.
CREATE INDEX store_scopes ON store_items (namespace, expires_ms, words);
CREATE INDEX store_expiries ON store_items (expires_ms) WHERE expires_ms IS NOT NULL;

-- The words of each item, in lower case and separated by spaces, under its id; nothing for an item without words.
CREATE VIRTUAL TABLE store_words USING fts5 (text, tokenize = 'ascii', detail = none);
