-- Candidates for ranking: two legs, then what ranking reads about each candidate, as arrays.

-- name: document_frequencies
SELECT term, count(*)
FROM memstore.postings
WHERE memory_id = %(memory_id)s AND term = ANY(%(terms)s::text[])
GROUP BY term;

-- name: postings
-- What BM25 needs of each term in the query: the whole of its list, and which entries may be hits.
SELECT candidate.term, array_agg(candidate.position), array_agg(candidate.frequency),
    array_agg(candidate.length), array_agg((true {filters}))
FROM memstore.postings AS candidate
WHERE candidate.memory_id = %(memory_id)s AND candidate.term = ANY(%(terms)s::text[])
GROUP BY candidate.term;

-- name: frame_entries
-- Texts are read only for queries that look into them.
-- The last column says which may be hits: a neighbour that the tags exclude may not.
SELECT array_agg(e.position), array_agg(e.session_id), array_agg(e.actor), array_agg(e.role),
    array_agg(e.event_type), array_agg(date_part('epoch', e.occurred_at)),
    array_agg(CASE
        WHEN NOT %(texts)s THEN ''
        WHEN octet_length(e.content) <= 400 THEN e.content
        ELSE left(e.content, 400)
    END),
    array_agg(e.content LIKE '%%?'), array_agg(e.length), array_agg((e.length > 0 {filters}))
FROM memstore.events AS e
WHERE e.memory_id = %(memory_id)s AND e.position = ANY(%(positions)s::bigint[]);

-- name: frame_chunks
SELECT array_agg(v.position), array_agg(v.chunk), array_agg(-(v.embedding <#> %(vector)s::halfvec)),
    array_agg(v.start), array_agg(v.stop)
FROM {vectors} AS v
WHERE v.memory_id = %(memory_id)s AND v.position = ANY(%(positions)s::bigint[]);
