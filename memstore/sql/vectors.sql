-- One space's vectors: the leg that scans them, and the indexes of large memories.

-- name: vector_leg
-- The exact scan of one memory, by chunk. Inner product on unit vectors is the cosine. No index
-- is used for a sum: one would look at so many entries, and a filter would leave too few of them.
SELECT array_agg(nearest.position), array_agg(-nearest.distance)
FROM (
    SELECT candidate.position, (candidate.embedding <#> %(vector)s::halfvec) + 0::float8 AS distance
    FROM {vectors} AS candidate
    WHERE candidate.memory_id = %(memory_id)s {filters}
    ORDER BY distance, candidate.position
    LIMIT %(limit)s
) AS nearest;

-- name: nearest_chunks
-- The same where the memory's own index may be used. Where it has none, this scans as well.
SELECT array_agg(nearest.position), array_agg(-nearest.distance)
FROM (
    SELECT v.position, v.embedding <#> %(vector)s::halfvec AS distance
    FROM {vectors} AS v
    WHERE v.memory_id = %(memory_id)s
    ORDER BY distance, v.position
    LIMIT %(limit)s
) AS nearest;

-- name: large_memories
SELECT memory_id, last_position FROM memstore.memories WHERE last_position >= %(above)s;

-- name: owns_vectors
-- The login, whatever role it took for the transaction.
SELECT pg_has_role(session_user, relowner, 'USAGE') AS own
FROM pg_class
WHERE oid = %(vectors)s::text::regclass;

-- name: vector_indexes
SELECT c.relname AS name, i.indisvalid AS valid
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_am AS a ON a.oid = c.relam
WHERE i.indrelid = %(vectors)s::text::regclass AND a.amname = 'hnsw';

-- name: create_vector_index
CREATE INDEX CONCURRENTLY {index} ON {vectors} USING hnsw (embedding halfvec_ip_ops)
WHERE memory_id = {memory_id};

-- name: drop_vector_index
DROP INDEX CONCURRENTLY IF EXISTS memstore.{index};
