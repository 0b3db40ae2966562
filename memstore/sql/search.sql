-- Candidates for ranking: two legs, then what ranking reads about each candidate.

-- name: document_frequencies
SELECT term, count(*)
FROM memstore.postings
WHERE memory_id = %(memory_id)s AND term = ANY(%(terms)s::text[])
GROUP BY term;

-- name: lexical_leg
-- Exact BM25 with Lucene's idf, ln(1 + (N - df + .5) / (df + .5)): the memory's own statistics.
WITH memory AS MATERIALIZED (
    SELECT last_position::float8 AS documents,
        greatest(indexed_terms, 1)::float8 / greatest(last_position, 1) AS average_length
    FROM memstore.memories
    WHERE memory_id = %(memory_id)s
), matches AS MATERIALIZED (
    SELECT p.position, p.frequency, p.length,
        count(*) OVER (PARTITION BY p.term)::float8 AS df
    FROM memstore.postings AS p
    WHERE p.memory_id = %(memory_id)s AND p.term = ANY(%(terms)s::text[])
)
SELECT candidate.position,
    sum(ln(1 + (memory.documents - candidate.df + 0.5) / (candidate.df + 0.5))
        * candidate.frequency * (%(k1)s::float8 + 1) / (candidate.frequency
        + %(k1)s::float8 * (1 - %(b)s::float8
            + %(b)s::float8 * candidate.length / memory.average_length))) AS score
FROM matches AS candidate, memory
WHERE true {filters}
GROUP BY candidate.position
ORDER BY score DESC, candidate.position
LIMIT %(limit)s;

-- name: vector_leg
-- The exact scan of one memory, by chunk. Inner product on unit vectors is the cosine.
SELECT nearest.position, -nearest.distance AS score
FROM (
    SELECT candidate.position, candidate.embedding <#> %(vector)s::halfvec AS distance
    FROM {vectors} AS candidate
    WHERE candidate.memory_id = %(memory_id)s {filters}
    ORDER BY distance, candidate.position
    LIMIT %(limit)s
) AS nearest;

-- name: frame_entries
-- Texts are read only for queries that look into them.
-- The last column says which may be hits: a neighbour that the tags exclude may not.
SELECT e.position, e.session_id, e.actor, e.role, e.event_type,
    date_part('epoch', e.occurred_at),
    CASE
        WHEN NOT %(texts)s THEN ''
        WHEN octet_length(e.content) <= 400 THEN e.content
        ELSE left(e.content, 400)
    END,
    e.content LIKE '%%?',
    e.length, (e.length > 0 {filters})
FROM memstore.events AS e
WHERE e.memory_id = %(memory_id)s AND e.position = ANY(%(positions)s::bigint[])
ORDER BY e.position;

-- name: frame_postings
-- Each term's document frequency in the whole memory, and its postings inside the frame.
SELECT p.term, count(*),
    array_agg(p.position) FILTER (WHERE p.position = ANY(%(positions)s::bigint[])),
    array_agg(p.frequency) FILTER (WHERE p.position = ANY(%(positions)s::bigint[]))
FROM memstore.postings AS p
WHERE p.memory_id = %(memory_id)s AND p.term = ANY(%(terms)s::text[])
GROUP BY p.term;

-- name: frame_chunks
SELECT v.position, v.chunk, -(v.embedding <#> %(vector)s::halfvec), v.start, v.stop
FROM {vectors} AS v
WHERE v.memory_id = %(memory_id)s AND v.position = ANY(%(positions)s::bigint[])
ORDER BY v.position, v.chunk;
