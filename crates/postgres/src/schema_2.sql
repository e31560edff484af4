-- Version 2: an identity, and writes that do not delay the renewal of their lease.

-- A random number that distinguishes this schema from others, under whatever name its server is reached. A copy of the database
-- has the same.
CREATE TABLE identity (
    id text PRIMARY KEY
);
INSERT INTO identity VALUES (gen_random_uuid()::text);

-- A write locks the row of its lease FOR KEY SHARE until its end. A renewal, which changes no unique column, does not wait for
-- that; a take-over does, because it changes this one.
CREATE UNIQUE INDEX leases_tokens ON leases (token);
