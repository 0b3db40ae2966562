-- The encoding queue and one space's vectors.

-- name: backlogged_memories
-- Memories whose oldest waiting entries are due, for a worker to pick from.
SELECT due.memory_id
FROM (
    SELECT memory_id, available_at
    FROM memstore.encoding_queue
    WHERE space_id = %(space_id)s AND available_at <= now()
    ORDER BY available_at
    LIMIT 1000
) AS due
GROUP BY due.memory_id
ORDER BY min(due.available_at)
LIMIT %(limit)s;

-- name: other_backlogged_memories
-- Memories with due entries by their ids, from any id on: a long backlog is passed in one step, so
-- that an import of thousands of entries does not keep every other memory waiting.
WITH RECURSIVE waiting AS (
    (
        SELECT memory_id
        FROM memstore.encoding_queue
        WHERE memory_id >= %(from)s::uuid AND space_id = %(space_id)s
        ORDER BY memory_id
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT q.memory_id
        FROM memstore.encoding_queue AS q
        WHERE q.memory_id > waiting.memory_id AND q.space_id = %(space_id)s
        ORDER BY q.memory_id
        LIMIT 1
    )
    FROM waiting
    WHERE waiting.memory_id IS NOT NULL
)
SELECT waiting.memory_id
FROM waiting
WHERE EXISTS (
    SELECT FROM memstore.encoding_queue AS q
    WHERE q.memory_id = waiting.memory_id AND q.space_id = %(space_id)s AND q.available_at <= now()
)
LIMIT %(limit)s;

-- name: claim_entries
-- A claim is a lease: should its holder die, the entries are due again when it runs out. The
-- limit holds in a CTE alone: a sub-select may be run again for each row that it is joined to.
WITH due AS MATERIALIZED (
    SELECT position
    FROM memstore.encoding_queue
    WHERE memory_id = %(memory_id)s AND space_id = %(space_id)s AND available_at <= now()
    ORDER BY position
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE memstore.encoding_queue AS q
SET attempts = q.attempts + 1, available_at = now() + %(lease)s
FROM due
WHERE q.memory_id = %(memory_id)s AND q.space_id = %(space_id)s AND q.position = due.position
RETURNING q.position, q.attempts, q.enqueued_at;

-- name: renew_claim
-- Each claim counts an attempt: a lease that ran out and was taken by another is let be.
UPDATE memstore.encoding_queue AS q
SET available_at = now() + %(lease)s
FROM unnest(%(positions)s::bigint[], %(enqueued_ats)s::timestamptz[], %(attempts)s::int[])
    AS claimed (position, enqueued_at, attempts)
WHERE q.memory_id = %(memory_id)s AND q.space_id = %(space_id)s
    AND q.position = claimed.position AND q.enqueued_at = claimed.enqueued_at
    AND q.attempts = claimed.attempts;

-- name: events_to_encode
-- The claimed events, each with the turn before it in its session, or the call that a tool's
-- result answers.
SELECT e.position, e.session_id, e.actor, e.role, e.event_type, e.occurred_at, e.recorded_at,
    e.content, e.correlation_id, before.position AS before_position, before.actor AS before_actor,
    before.role AS before_role, before.event_type AS before_event_type,
    before.occurred_at AS before_occurred_at, before.recorded_at AS before_recorded_at,
    left(before.content, 2000) AS before_content
FROM memstore.events AS e
LEFT JOIN LATERAL (
    SELECT p.position, p.actor, p.role, p.event_type, p.occurred_at, p.recorded_at, p.content
    FROM memstore.events AS p
    WHERE p.memory_id = %(memory_id)s AND p.position < e.position
        AND p.position >= e.position - 50 AND p.session_id IS NOT DISTINCT FROM e.session_id
        AND p.content <> ''
        AND (e.event_type <> 'tool_result' OR e.correlation_id IS NULL
            OR p.correlation_id = e.correlation_id)
    ORDER BY p.position DESC
    LIMIT 1
) AS before ON true
WHERE e.memory_id = %(memory_id)s AND e.position = ANY(%(positions)s::bigint[])
ORDER BY e.position;

-- name: take_claimed
-- Only what is still queued may be written: an erased memory's entries are not, nor is their
-- text written as the vectors of those that took their positions since.
DELETE FROM memstore.encoding_queue AS q
USING unnest(%(positions)s::bigint[], %(enqueued_ats)s::timestamptz[])
    AS claimed (position, enqueued_at)
WHERE q.memory_id = %(memory_id)s AND q.space_id = %(space_id)s
    AND q.position = claimed.position AND q.enqueued_at = claimed.enqueued_at
RETURNING q.position, q.tenant_id;

-- name: clear_vectors
DELETE FROM {vectors}
WHERE memory_id = %(memory_id)s AND position = ANY(%(positions)s::bigint[]);

-- name: insert_vectors
INSERT INTO {vectors} (memory_id, position, chunk, tenant_id, start, stop, embedding)
SELECT %(memory_id)s, given.position, given.chunk, %(tenant_id)s, given.start, given.stop,
    given.embedding::halfvec
FROM unnest(
    %(positions)s::bigint[], %(chunks)s::int[], %(starts)s::int[], %(stops)s::int[],
    %(embeddings)s::text[]
) AS given (position, chunk, start, stop, embedding);

-- name: postpone_entry
-- By its claim, too: another's is let be, and an erased memory's error is not written over.
UPDATE memstore.encoding_queue
SET available_at = now() + %(delay)s, last_error = %(error)s
WHERE memory_id = %(memory_id)s AND space_id = %(space_id)s AND position = %(position)s
    AND enqueued_at = %(enqueued_at)s AND attempts = %(attempts)s;

-- name: retry_failed
UPDATE memstore.encoding_queue
SET available_at = now(), last_error = NULL
WHERE memory_id = %(memory_id)s AND space_id = %(space_id)s AND last_error IS NOT NULL;

-- name: waiting_entries
-- How many entries of a memory wait for a vector, and the last error among them.
SELECT count(*) AS waiting, max(last_error) AS last_error, max(attempts) AS attempts,
    min(available_at) AS next_at
FROM memstore.encoding_queue
WHERE memory_id = %(memory_id)s AND space_id = %(space_id)s;

-- name: queue_age
-- Length and age of the whole queue.
SELECT space_id, count(*) AS waiting, count(*) FILTER (WHERE last_error IS NOT NULL) AS failing,
    min(enqueued_at) AS oldest
FROM memstore.encoding_queue
GROUP BY space_id;
