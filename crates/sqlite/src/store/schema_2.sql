-- What is remembered across threads, schema 2: what a search for words would otherwise have to count. Items whose time is over
-- are counted until they are swept.

CREATE TABLE store_totals (
    namespace TEXT PRIMARY KEY,
    -- How many items it has, and how many words they have together.
    items INTEGER NOT NULL,
    words INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER store_item_put AFTER INSERT ON store_items BEGIN
    INSERT INTO store_totals VALUES (new.namespace, 1, new.words)
        ON CONFLICT (namespace) DO UPDATE SET items = items + 1, words = words + excluded.words;
END;

CREATE TRIGGER store_item_gone AFTER DELETE ON store_items BEGIN
    UPDATE store_totals SET items = items - 1, words = words - old.words WHERE namespace = old.namespace;
    DELETE FROM store_totals WHERE namespace = old.namespace AND items <= 0;
END;

CREATE TABLE store_terms (
    -- One of the words of `store_words`.
    term TEXT NOT NULL,
    namespace TEXT NOT NULL,
    -- How many of its items have it.
    items INTEGER NOT NULL,
    PRIMARY KEY (term, namespace)
) STRICT, WITHOUT ROWID;

INSERT INTO store_totals SELECT namespace, count(*), sum(words) FROM store_items GROUP BY namespace;

CREATE VIRTUAL TABLE temp.store_vocabulary USING fts5vocab (main, store_words, instance);
INSERT INTO store_terms
    SELECT term, namespace, count(DISTINCT doc) FROM temp.store_vocabulary JOIN store_items ON id = doc
    GROUP BY term, namespace;
DROP TABLE temp.store_vocabulary;
