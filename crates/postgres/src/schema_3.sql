-- Version 3: the ids of inputs, under which a thread accepts each once.

-- The hash of the list `$input` in the metadata, if it has one id; NULL for lists of several, which are those of deleted inputs, and
-- for metadata that has another entry of this name deeper inside.
CREATE INDEX checkpoints_inputs ON checkpoints (thread, (CASE
    WHEN strpos(substr(metadata, strpos(metadata, '"$input"') + 8), '"$input"') = 0
    THEN hashtextextended(substring(metadata FROM '"\$input":(\["(?:[^"\\]|\\.)*"\])'), 0)
END)) WHERE strpos(metadata, '"$input"') > 0;
