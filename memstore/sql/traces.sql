-- Traces: what resume was asked, considered and gave, and what of it helped.

-- name: insert_trace
INSERT INTO memstore.traces (
    memory_id, context_id, tenant_id, task, budget, tokens, log_end, considered, given)
VALUES (
    %(memory_id)s, %(context_id)s, %(tenant_id)s, %(task)s, %(budget)s, %(tokens)s::json,
    %(log_end)s, %(considered)s::bigint[], %(given)s::bigint[]);

-- name: mark_used
UPDATE memstore.traces SET used = %(used)s::bigint[]
WHERE memory_id = %(memory_id)s AND context_id = %(context_id)s
RETURNING context_id;

-- name: read_traces
-- Newest first; with a feedback only where that is asked for.
SELECT context_id, created_at, task, budget, tokens, log_end, considered, given, used
FROM memstore.traces
WHERE memory_id = %(memory_id)s AND (used IS NOT NULL OR NOT %(only_labelled)s)
ORDER BY created_at DESC
LIMIT %(limit)s;

-- name: erase_traces
DELETE FROM memstore.traces WHERE memory_id = %(memory_id)s;
