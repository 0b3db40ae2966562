-- State versions: each saved state is a new row, the head is the highest version.

-- name: head_state
-- One row always: with a null version where no state was ever saved, and none at all where the
-- memory does not exist. The head is found through the memory's own row.
SELECT m.last_position AS log_end, s.version, s.schema_name, s.schema_version, s.document, s.marks,
    s.log_position, s.kind, s.author, s.reason, s.created_at
FROM memstore.memories AS m
LEFT JOIN memstore.state_versions AS s
    ON s.memory_id = m.memory_id AND s.version = m.head_version
WHERE m.memory_id = %(memory_id)s;

-- name: state_at_version
SELECT s.version, s.schema_name, s.schema_version, s.document, s.marks, s.log_position, s.kind, s.author,
    s.reason, s.created_at, m.last_position AS log_end
FROM memstore.memories AS m
JOIN memstore.state_versions AS s USING (memory_id)
WHERE m.memory_id = %(memory_id)s AND s.version = %(version)s;

-- name: state_at_position
-- The newest state that had absorbed the log no further than a position.
SELECT s.version, s.schema_name, s.schema_version, s.document, s.marks, s.log_position, s.kind, s.author,
    s.reason, s.created_at, m.last_position AS log_end
FROM memstore.memories AS m
JOIN memstore.state_versions AS s USING (memory_id)
WHERE m.memory_id = %(memory_id)s AND s.log_position <= %(position)s
ORDER BY s.version DESC
LIMIT 1;

-- name: state_at_time
SELECT s.version, s.schema_name, s.schema_version, s.document, s.marks, s.log_position, s.kind, s.author,
    s.reason, s.created_at, m.last_position AS log_end
FROM memstore.memories AS m
JOIN memstore.state_versions AS s USING (memory_id)
WHERE m.memory_id = %(memory_id)s AND s.created_at <= %(as_of)s
ORDER BY s.version DESC
LIMIT 1;

-- name: state_of_request
-- What was saved under an idempotency key.
SELECT s.version, s.schema_name, s.schema_version, s.document, s.marks, s.log_position, s.kind, s.author,
    s.reason, s.created_at, m.last_position AS log_end, s.request_digest
FROM memstore.memories AS m
JOIN memstore.state_versions AS s USING (memory_id)
WHERE m.memory_id = %(memory_id)s AND s.idempotency_key = %(key)s;

-- name: state_history
-- Newest first, a keyset page below a version.
SELECT version, schema_name, schema_version, log_position, kind, author, reason, created_at
FROM memstore.state_versions
WHERE memory_id = %(memory_id)s AND version < %(before)s
ORDER BY version DESC
LIMIT %(limit)s;

-- name: advance_head
-- Compare-and-set: no row comes back when another writer was faster.
UPDATE memstore.memories
SET head_version = head_version + 1
WHERE memory_id = %(memory_id)s AND head_version = %(expected_version)s
RETURNING last_position, clock_timestamp() AS saved_at;

-- name: insert_state
INSERT INTO memstore.state_versions (
    memory_id, version, tenant_id, schema_name, schema_version, document, marks, log_position,
    kind, author, reason, created_at, idempotency_key, request_digest)
VALUES (
    %(memory_id)s, %(version)s, %(tenant_id)s, %(schema_name)s, %(schema_version)s,
    %(document)s::json, %(marks)s::json, %(log_position)s, %(kind)s, %(author)s, %(reason)s,
    %(created_at)s, %(idempotency_key)s, %(request_digest)s);

-- name: stored_states
-- A keyset page of every stored version that is of a schema, memory by memory of the tenant.
SELECT s.memory_id, s.version, m.agent_id, m.user_id, m.head_version, s.schema_name,
    s.schema_version, s.document
FROM memstore.memories AS m
JOIN memstore.state_versions AS s USING (memory_id)
WHERE m.tenant_id = %(tenant_id)s AND m.memory_id >= %(memory_id)s
    AND s.schema_name = %(schema_name)s
    AND (m.memory_id, s.version) > (%(memory_id)s, %(version)s)
ORDER BY m.memory_id, s.version
LIMIT %(limit)s;
