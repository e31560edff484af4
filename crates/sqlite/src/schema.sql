-- A database of superstep.
--
-- Each row has a checksum: XXH3 with 64 bits of the name of the table and the columns before it, each seeded with that of what
-- stands before it. Rows that were made by hand have none that fits, and are refused.

-- The threads, and how much belongs to each, so that no row of theirs is lost unseen.
CREATE TABLE threads (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- The id of the newest checkpoint.
    head INTEGER NOT NULL,
    -- How many checkpoints there are: fewer than `head` if some were pruned.
    checkpoints INTEGER NOT NULL,
    -- How many of them are in the index `branches`.
    branched INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- Their checkpoints. The key is the thread's key and the id in one number, so that a commit writes one row of one
-- b-tree, at the end of those of its thread. JSON is stored as text.
CREATE TABLE checkpoints (
    key INTEGER PRIMARY KEY,
    -- The id of the checkpoint it follows, in the same thread.
    parent INTEGER,
    -- input, loop, update or fork.
    source TEXT NOT NULL,
    -- UTC milliseconds.
    created_ms INTEGER NOT NULL,
    -- {"step":2,"next":["node",...]}
    control TEXT NOT NULL,
    -- What was to be remembered with it; NULL if nothing was.
    metadata TEXT,
    -- Whether its parent was pruned.
    parent_pruned INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    -- The same of its key, `applied` and `snapshot`, which are read only to load it.
    content_checksum INTEGER NOT NULL,
    -- [{"slot":0,"node":"name","update":{...}},...] in fold order. Without `update`: see `tasks`, under the parent.
    applied TEXT NOT NULL,
    -- {"channel":value,...} with every channel, on some checkpoints.
    snapshot TEXT,
    thread INTEGER GENERATED ALWAYS AS (key >> 32) VIRTUAL,
    id INTEGER GENERATED ALWAYS AS (key & 0xffffffff) VIRTUAL
) STRICT;

-- The checkpoints that follow another than the one committed before them.
CREATE INDEX branches ON checkpoints (thread, parent) WHERE parent <> id - 1;

-- How tasks ended before their superstep was over. Rows with a negative slot, -((slot + 1) << 24) + n, have further
-- results of the effects of the unfinished task in that slot.
CREATE TABLE tasks (
    -- The key of the checkpoint that has them to run.
    checkpoint INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    -- {"end":"finished","update":{...},"targets":["node",...]}, {"end":"failed","attempts":1,"error":"text"}
    -- or {"end":"cancelled"}
    record TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (checkpoint, slot)
) STRICT;

-- The sum of the lower halves of the checksums of a checkpoint's tasks, if it has any.
CREATE TABLE task_sums (
    checkpoint INTEGER PRIMARY KEY,
    sum INTEGER NOT NULL
) STRICT;

-- For people.
CREATE VIEW history AS
SELECT
    threads.name AS thread,
    id,
    parent,
    source,
    control ->> '$.step' AS step,
    control ->> '$.next' AS next,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_ms / 1000.0, 'unixepoch') AS created,
    metadata,
    applied,
    snapshot IS NOT NULL AS has_snapshot
FROM checkpoints JOIN threads ON threads.key = checkpoints.thread
ORDER BY checkpoints.key DESC;
