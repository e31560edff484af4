SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA version_3;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE version_3.checkpoints (
    thread bigint NOT NULL,
    id bigint NOT NULL,
    parent bigint,
    source text NOT NULL,
    created_ms bigint NOT NULL,
    control text NOT NULL,
    metadata text,
    parent_pruned boolean NOT NULL,
    checksum bigint NOT NULL,
    content_checksum bigint NOT NULL,
    applied text NOT NULL,
    snapshot text
);
CREATE TABLE version_3.threads (
    key bigint NOT NULL,
    name bytea NOT NULL,
    root bytea,
    head bigint NOT NULL,
    checkpoints bigint NOT NULL,
    branched bigint NOT NULL,
    prunes bigint NOT NULL,
    checksum bigint NOT NULL
)
WITH (fillfactor='70');
CREATE VIEW version_3.history AS
 SELECT
        CASE
            WHEN (POSITION(('\x00'::bytea) IN (threads.name)) = 0) THEN convert_from(threads.name, 'UTF8'::name)
            ELSE encode(threads.name, 'escape'::text)
        END AS thread,
    checkpoints.id,
    checkpoints.parent,
    checkpoints.source,
    ((checkpoints.control)::json ->> 'step'::text) AS step,
    ((checkpoints.control)::json ->> 'next'::text) AS next,
    to_timestamp((((checkpoints.created_ms)::numeric / 1000.0))::double precision) AS created,
    checkpoints.metadata,
    checkpoints.applied,
    (checkpoints.snapshot IS NOT NULL) AS has_snapshot
   FROM (version_3.checkpoints
     JOIN version_3.threads ON ((threads.key = checkpoints.thread)))
  ORDER BY checkpoints.thread, checkpoints.id DESC;
CREATE TABLE version_3.identity (
    id text NOT NULL
);
CREATE SEQUENCE version_3.lease_tokens
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE version_3.leases (
    hash bytea NOT NULL,
    name bytea NOT NULL,
    owner text NOT NULL,
    token bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE version_3.store_items (
    id bigint NOT NULL,
    namespace bytea NOT NULL,
    key bytea NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    ttl_ms bigint,
    expires_ms bigint,
    words bigint NOT NULL,
    value text NOT NULL,
    model text,
    vector bytea,
    text text NOT NULL,
    checksum bigint NOT NULL
);
CREATE SEQUENCE version_3.store_puts
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE version_3.store_puts OWNED BY version_3.store_items.id;
CREATE TABLE version_3.store_words (
    term bytea NOT NULL,
    item bigint NOT NULL
);
CREATE TABLE version_3.task_sums (
    thread bigint NOT NULL,
    checkpoint bigint NOT NULL,
    sum bigint NOT NULL
);
CREATE TABLE version_3.tasks (
    thread bigint NOT NULL,
    checkpoint bigint NOT NULL,
    slot bigint NOT NULL,
    record text NOT NULL,
    checksum bigint NOT NULL
);
CREATE SEQUENCE version_3.thread_keys
    START WITH 1
    INCREMENT BY 64
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE version_3.versions (
    part text NOT NULL,
    version bigint NOT NULL
);
INSERT INTO version_3.checkpoints VALUES (1, 1, NULL, 'input', 1699999999999, '{"step":-1,"next":["b"]}', NULL, false, -5146014166874981627, 1126839639033145216, '[{"slot":0,"node":"a","update":1}]', NULL);
INSERT INTO version_3.checkpoints VALUES (1, 2, 1, 'loop', 1700000000000, '{"step":0,"next":["b"]}', NULL, false, -7423067879239216106, -301055515988860979, '[{"slot":0,"node":"a","update":2}]', NULL);
INSERT INTO version_3.checkpoints VALUES (2, 1, NULL, 'input', 1699999999999, '{"step":-1,"next":["b"]}', NULL, false, -3316102065229698044, 3295378019083185202, '[{"slot":0,"node":"a","update":1}]', NULL);
INSERT INTO version_3.identity VALUES ('1f2a7f6e-0000-4000-8000-000000000003');
INSERT INTO version_3.leases VALUES ('\xe3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8', '\x74', '1-00000000000000ff', 1, '2000-01-01 00:00:00+00');
INSERT INTO version_3.store_items VALUES (1, '\x6e6f746573', '\x6b', 1795479411370, 1795479411370, NULL, NULL, 3, '{"text":"an old note"}', NULL, NULL, 'an old note', 1977644236456718470);
INSERT INTO version_3.store_words VALUES ('\xcba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4', 1);
INSERT INTO version_3.store_words VALUES ('\xea325d761f98c6b73320e442b67f2a3574d9924716d788ddc0dbbdcaca853fe7', 1);
INSERT INTO version_3.store_words VALUES ('\xedb465624291e4053c6c5ea4b7eb320dec773e10a57d26b95dcf0564f8e310f8', 1);
INSERT INTO version_3.task_sums VALUES (1, 2, 5810712539);
INSERT INTO version_3.tasks VALUES (1, 2, 0, '{"end":"started","attempts":1,"once":{"paid":"1"}}', -568832887765015455);
INSERT INTO version_3.tasks VALUES (1, 2, -16777216, '{"end":"started","once":{"sent":"2"}}', 6484056041983282042);
INSERT INTO version_3.threads VALUES (1, '\x74', NULL, 2, 2, 0, 0, -2311464683111786949);
INSERT INTO version_3.threads VALUES (2, '\x741f6368696c643a304031', '\x74', 1, 1, 0, 0, 2447341522951416701);
INSERT INTO version_3.versions VALUES ('superstep', 3);
SELECT pg_catalog.setval('version_3.lease_tokens', 1, true);
SELECT pg_catalog.setval('version_3.store_puts', 1, true);
SELECT pg_catalog.setval('version_3.thread_keys', 1, true);
ALTER TABLE ONLY version_3.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (thread, id);
ALTER TABLE ONLY version_3.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (id);
ALTER TABLE ONLY version_3.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY version_3.store_items
    ADD CONSTRAINT store_items_pkey PRIMARY KEY (id);
ALTER TABLE ONLY version_3.store_words
    ADD CONSTRAINT store_words_pkey PRIMARY KEY (term, item);
ALTER TABLE ONLY version_3.task_sums
    ADD CONSTRAINT task_sums_pkey PRIMARY KEY (thread, checkpoint);
ALTER TABLE ONLY version_3.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (thread, checkpoint, slot);
ALTER TABLE ONLY version_3.threads
    ADD CONSTRAINT threads_pkey PRIMARY KEY (key);
ALTER TABLE ONLY version_3.versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (part);
CREATE INDEX checkpoints_branches ON version_3.checkpoints USING btree (thread, parent) WHERE (parent <> (id - 1));
CREATE INDEX checkpoints_inputs ON version_3.checkpoints USING btree (thread, (
CASE
    WHEN (strpos(substr(metadata, (strpos(metadata, '"$input"'::text) + 8)), '"$input"'::text) = 0) THEN hashtextextended("substring"(metadata, '"\$input":(\["(?:[^"\\]|\\.)*"\])'::text), (0)::bigint)
    ELSE NULL::bigint
END)) WHERE (strpos(metadata, '"$input"'::text) > 0);
CREATE UNIQUE INDEX leases_tokens ON version_3.leases USING btree (token);
CREATE INDEX store_expiries ON version_3.store_items USING btree (expires_ms) WHERE (expires_ms IS NOT NULL);
CREATE UNIQUE INDEX store_keys ON version_3.store_items USING btree (sha256(namespace), sha256(key));
CREATE INDEX store_scopes ON version_3.store_items USING btree (SUBSTRING(namespace FROM 1 FOR 128), id);
CREATE INDEX store_words_items ON version_3.store_words USING btree (item);
CREATE UNIQUE INDEX threads_names ON version_3.threads USING btree (sha256(name));
CREATE INDEX threads_roots ON version_3.threads USING btree (sha256(root)) WHERE (root IS NOT NULL);
