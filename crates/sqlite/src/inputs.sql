
-- The ids of inputs, under which a thread accepts each once: the list `$input` in the metadata, if it has one id; NULL for lists
-- of several, which are those of deleted inputs.
CREATE INDEX inputs ON checkpoints (thread, CASE
    WHEN NOT json_valid(metadata) THEN NULL
    WHEN json_array_length(metadata, '$."$input"') = 1 THEN metadata -> '$."$input"'
END) WHERE instr(metadata, '"$input"') > 0;
