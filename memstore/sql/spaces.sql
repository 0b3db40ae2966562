-- Spaces: one encoder's vectors, in a table of their own.

-- name: list_spaces
SELECT space_id, encoder, dimension, status, created_at FROM memstore.spaces ORDER BY space_id;

-- name: insert_space
INSERT INTO memstore.spaces (encoder, dimension, status)
VALUES (%(encoder)s, %(dimension)s, %(status)s)
RETURNING space_id;

-- name: create_vectors
-- Inner product on unit vectors is the cosine. Vectors stay in the row: a scan reads them all.
CREATE TABLE {vectors} (
    memory_id  uuid NOT NULL,
    position   bigint NOT NULL,
    chunk      int NOT NULL,
    tenant_id  int NOT NULL,
    start      int NOT NULL,
    stop       int NOT NULL,
    embedding  halfvec({dimension}) NOT NULL,
    PRIMARY KEY (memory_id, position, chunk)
);
ALTER TABLE {vectors} ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE {vectors} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {vectors} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON {vectors}
    USING (tenant_id = NULLIF(current_setting('memstore.tenant', true), '')::int);
CREATE POLICY worker ON {vectors} TO memstore_worker USING (true);
GRANT SELECT ON {vectors} TO memstore_server;
GRANT SELECT, INSERT, DELETE ON {vectors} TO memstore_worker;
GRANT SELECT, DELETE ON {vectors} TO memstore_eraser;

-- name: lock_spaces
-- Whoever makes, switches or drops a space waits for the others. Reading goes on.
LOCK TABLE memstore.spaces IN SHARE ROW EXCLUSIVE MODE;

-- name: wait_for_appends
-- Until those under way have ended; those that follow wait for as long as this transaction lives.
LOCK TABLE memstore.events IN SHARE MODE;

-- name: enqueue_missing
INSERT INTO memstore.encoding_queue (memory_id, space_id, position, tenant_id)
SELECT e.memory_id, %(space_id)s, e.position, e.tenant_id
FROM memstore.events AS e
WHERE e.content ~ '\S' AND NOT EXISTS (
    SELECT FROM {vectors} AS v WHERE v.memory_id = e.memory_id AND v.position = e.position)
ON CONFLICT DO NOTHING;

-- name: retire_serving_space
UPDATE memstore.spaces SET status = 'retained' WHERE status = 'serving';

-- name: serve_space
UPDATE memstore.spaces SET status = 'serving' WHERE space_id = %(space_id)s;

-- name: drop_vectors
DROP TABLE {vectors};

-- name: delete_space
DELETE FROM memstore.spaces WHERE space_id = %(space_id)s;

-- name: delete_space_queue
DELETE FROM memstore.encoding_queue WHERE space_id = %(space_id)s;

-- name: schema_of_vectors
-- Where the extension is, if the search path does not lead there.
SELECT n.nspname AS schema
FROM pg_extension AS e
JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = 'vector' AND to_regtype('halfvec') IS NULL;
