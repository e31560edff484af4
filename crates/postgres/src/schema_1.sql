-- A schema of superstep in PostgreSQL, version 1.
--
-- Each row has a checksum: XXH3 with 64 bits of the name of the table and the columns before it, each seeded with that of what
-- stands before it. Rows that were made by hand have none that fits, and are refused. Names are bytes, because a text of
-- PostgreSQL cannot contain a NUL; they are found by their SHA-256, because they may be longer than an index allows.

-- The threads, and how much belongs to each, so that no row of theirs is lost unseen.
CREATE TABLE threads (
    key bigint PRIMARY KEY,
    name bytea NOT NULL,
    -- The name of the thread under which it is; NULL if it is of no subgraph.
    root bytea,
    -- The id of the newest checkpoint.
    head bigint NOT NULL,
    -- How many checkpoints there are: fewer than `head` if some were pruned.
    checkpoints bigint NOT NULL,
    -- How many of them do not follow the one committed before them.
    branched bigint NOT NULL,
    -- How often it was pruned.
    prunes bigint NOT NULL,
    checksum bigint NOT NULL
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX threads_names ON threads (sha256(name));
CREATE INDEX threads_roots ON threads (sha256(root)) WHERE root IS NOT NULL;

-- Keys are taken in blocks of as many.
CREATE SEQUENCE thread_keys INCREMENT 64;

-- Their checkpoints. JSON is stored as text.
CREATE TABLE checkpoints (
    -- The key of the thread.
    thread bigint NOT NULL,
    id bigint NOT NULL,
    -- The id of the checkpoint it follows, in the same thread.
    parent bigint,
    -- input, loop, update or fork.
    source text NOT NULL,
    -- UTC milliseconds.
    created_ms bigint NOT NULL,
    -- {"step":2,"next":["node",...]}
    control text NOT NULL,
    -- What was to be remembered with it; NULL if nothing was.
    metadata text,
    -- Whether its parent was pruned.
    parent_pruned boolean NOT NULL,
    checksum bigint NOT NULL,
    -- The same of its thread, id, `applied` and `snapshot`.
    content_checksum bigint NOT NULL,
    -- [{"slot":0,"node":"name","update":{...}},...] in fold order. Without `update`: see `tasks`, under the parent.
    applied text NOT NULL,
    -- {"channel":value,...} with every channel, on some checkpoints.
    snapshot text,
    PRIMARY KEY (thread, id)
);

-- The checkpoints that follow another than the one committed before them.
CREATE INDEX checkpoints_branches ON checkpoints (thread, parent) WHERE parent <> id - 1;

-- How tasks ended before their superstep was over. Rows with a negative slot, -((slot + 1) << 24) + n, have further results of
-- the effects of the unfinished task in that slot; their checksum has n = 0.
CREATE TABLE tasks (
    thread bigint NOT NULL,
    -- The checkpoint that has them to run.
    checkpoint bigint NOT NULL,
    slot bigint NOT NULL,
    -- {"end":"finished","update":{...},"targets":["node",...]}, {"end":"failed","attempts":1,"error":"text"}
    -- or {"end":"cancelled"}
    record text NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (thread, checkpoint, slot)
);

-- The sum of the lower halves of the checksums of a checkpoint's tasks, if it has any.
CREATE TABLE task_sums (
    thread bigint NOT NULL,
    checkpoint bigint NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (thread, checkpoint)
);

-- Who writes a thread and those of its subgraphs. Every write of an owner checks its token in the same transaction.
CREATE TABLE leases (
    -- SHA-256 of the name of the thread.
    hash bytea PRIMARY KEY,
    name bytea NOT NULL,
    -- A process that has the database open.
    owner text NOT NULL,
    token bigint NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE SEQUENCE lease_tokens;

-- What is remembered across threads.
CREATE TABLE store_items (
    id bigint PRIMARY KEY,
    -- The labels, joined with '.'.
    namespace bytea NOT NULL,
    key bytea NOT NULL,
    -- UTC milliseconds.
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    -- How long it lives after it was put or refreshed, and when that is over; NULL for ever.
    ttl_ms bigint,
    expires_ms bigint,
    -- How many words it has.
    words bigint NOT NULL,
    -- JSON.
    value text NOT NULL,
    -- The direction of its meaning, as floats of 32 bits, little-endian, and the model that found it.
    model text,
    vector bytea,
    -- Its words, in lower case and separated by spaces.
    text text NOT NULL,
    checksum bigint NOT NULL
);

CREATE SEQUENCE store_puts OWNED BY store_items.id;
CREATE UNIQUE INDEX store_keys ON store_items (sha256(namespace), sha256(key));
-- The first bytes of a namespace, which may be longer than an index allows.
CREATE INDEX store_scopes ON store_items (substring(namespace FROM 1 FOR 128), id);
CREATE INDEX store_expiries ON store_items (expires_ms) WHERE expires_ms IS NOT NULL;

-- Which items have which words.
CREATE TABLE store_words (
    -- SHA-256 of the word.
    term bytea NOT NULL,
    item bigint NOT NULL,
    PRIMARY KEY (term, item)
);
CREATE INDEX store_words_items ON store_words (item);

-- For people.
CREATE VIEW history AS
SELECT
    CASE WHEN position('\x00'::bytea IN name) = 0 THEN convert_from(name, 'UTF8') ELSE encode(name, 'escape') END AS thread,
    id,
    parent,
    source,
    control::json ->> 'step' AS step,
    control::json ->> 'next' AS next,
    to_timestamp(created_ms / 1000.0) AS created,
    metadata,
    applied,
    snapshot IS NOT NULL AS has_snapshot
FROM checkpoints JOIN threads ON threads.key = checkpoints.thread
ORDER BY checkpoints.thread, checkpoints.id DESC;
