-- The log: appending and reading events.

-- name: known_keys
SELECT idempotency_key, position, body_digest
FROM memstore.events
WHERE memory_id = %(memory_id)s AND idempotency_key = ANY(%(keys)s::text[]);

-- name: append_events
-- Lock the memory's row, take the next positions and write the events, their postings and
-- the queue rows, all in one statement. No row comes back when the memory does not exist yet.
WITH memory AS (
    UPDATE memstore.memories
    SET last_position = last_position + %(count)s,
        indexed_terms = indexed_terms + %(terms_total)s
    WHERE memory_id = %(memory_id)s
    RETURNING last_position - %(count)s AS before, tenant_id, clock_timestamp() AS recorded_at
), new_events AS (
    INSERT INTO memstore.events (
        memory_id, position, tenant_id, session_id, actor, role, event_type, occurred_at,
        recorded_at, content, length, payload, correlation_id, idempotency_key, body_digest)
    SELECT %(memory_id)s, memory.before + given.ordinal, memory.tenant_id, given.session_id,
        given.actor, given.role, given.event_type, coalesce(given.occurred_at, memory.recorded_at),
        memory.recorded_at, given.content, given.length, given.payload::json, given.correlation_id,
        given.idempotency_key, given.body_digest
    FROM memory, unnest(
        %(session_ids)s::text[], %(actors)s::text[], %(roles)s::text[], %(event_types)s::text[],
        %(occurred_ats)s::timestamptz[], %(contents)s::text[], %(event_lengths)s::int[],
        %(payloads)s::text[],
        %(correlation_ids)s::text[], %(idempotency_keys)s::text[], %(body_digests)s::bytea[]
    ) WITH ORDINALITY AS given (
        session_id, actor, role, event_type, occurred_at, content, length, payload,
        correlation_id, idempotency_key, body_digest, ordinal)
), new_postings AS (
    INSERT INTO memstore.postings (memory_id, position, tenant_id, frequency, length, term)
    SELECT %(memory_id)s, memory.before + given.ordinal, memory.tenant_id, given.frequency,
        given.length, given.term
    FROM memory, unnest(
        %(term_ordinals)s::int[], %(frequencies)s::int[], %(lengths)s::int[], %(terms)s::text[]
    ) AS given (ordinal, frequency, length, term)
), queued AS (
    INSERT INTO memstore.encoding_queue (memory_id, space_id, position, tenant_id)
    SELECT %(memory_id)s, spaces.space_id, memory.before + given.ordinal, memory.tenant_id
    FROM memory, unnest(%(encoded_ordinals)s::int[]) AS given (ordinal), memstore.spaces
    WHERE spaces.status IN ('serving', 'filling')
)
SELECT before, recorded_at FROM memory;

-- name: read_events_oldest_first
SELECT position, session_id, actor, role, event_type, occurred_at, recorded_at, content, payload,
    correlation_id, idempotency_key
FROM memstore.events AS e
WHERE e.memory_id = %(memory_id)s {filters}
ORDER BY e.position
LIMIT %(limit)s;

-- name: read_events_newest_first
SELECT position, session_id, actor, role, event_type, occurred_at, recorded_at, content, payload,
    correlation_id, idempotency_key
FROM memstore.events AS e
WHERE e.memory_id = %(memory_id)s {filters}
ORDER BY e.position DESC
LIMIT %(limit)s;

-- name: events_at
SELECT position, session_id, actor, role, event_type, occurred_at, recorded_at, content, payload,
    correlation_id, idempotency_key
FROM memstore.events
WHERE memory_id = %(memory_id)s AND position = ANY(%(positions)s::bigint[])
ORDER BY position;

-- name: correlated_events
-- The other halves of tool calls and results.
SELECT position, session_id, actor, role, event_type, occurred_at, recorded_at, content, payload,
    correlation_id, idempotency_key
FROM memstore.events
WHERE memory_id = %(memory_id)s AND correlation_id = ANY(%(correlation_ids)s::text[])
ORDER BY position
LIMIT %(limit)s;

-- name: tail_events
-- Newest first.
SELECT position, session_id, actor, role, event_type, occurred_at, recorded_at, content, payload,
    correlation_id, idempotency_key
FROM memstore.events
WHERE memory_id = %(memory_id)s AND position > %(after)s
ORDER BY position DESC
LIMIT %(limit)s;
