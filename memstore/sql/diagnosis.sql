-- What an operator wants to know of a database.

-- name: server_versions
SELECT current_setting('server_version') AS postgres,
    (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS pgvector;

-- name: serving_privileges
-- What the serving role may do to the tables that must stay as they were written.
SELECT bool_or(
    has_any_column_privilege('memstore_server', kept.name, 'UPDATE')
    OR has_table_privilege('memstore_server', kept.name, 'DELETE, TRUNCATE')) AS may_rewrite
FROM unnest(ARRAY['memstore.events', 'memstore.state_versions']) AS kept (name);

-- name: orphaned_postings
-- Memories with postings and no row of their own, as far as the tenant sees.
SELECT count(*) AS orphaned
FROM (SELECT DISTINCT memory_id FROM memstore.postings) AS p
WHERE NOT EXISTS (SELECT FROM memstore.memories AS m WHERE m.memory_id = p.memory_id);

-- name: orphaned_vectors
SELECT count(*) AS orphaned
FROM (SELECT DISTINCT memory_id FROM {vectors}) AS v
WHERE NOT EXISTS (SELECT FROM memstore.memories AS m WHERE m.memory_id = v.memory_id);
