-- Tenants, memories and their erasure.

-- name: tenant_id
SELECT tenant_id FROM memstore.tenants WHERE name = %(name)s;

-- name: create_tenant
INSERT INTO memstore.tenants (name) VALUES (%(name)s) ON CONFLICT DO NOTHING;

-- name: create_memory
-- Where another was faster, its row is locked: else an erasure could remove it before it is used.
INSERT INTO memstore.memories AS m (memory_id, tenant_id, agent_id, user_id)
VALUES (%(memory_id)s, %(tenant_id)s, %(agent_id)s, %(user_id)s)
ON CONFLICT (memory_id) DO UPDATE SET last_position = m.last_position;

-- name: list_memories
-- Keyset page by memory_id.
SELECT memory_id, agent_id, user_id, last_position, head_version, created_at
FROM memstore.memories
WHERE tenant_id = %(tenant_id)s AND memory_id > %(after)s
ORDER BY memory_id
LIMIT %(limit)s;

-- name: lock_memory
SELECT last_position, head_version FROM memstore.memories WHERE memory_id = %(memory_id)s FOR UPDATE;

-- name: memory_statistics
SELECT last_position, head_version, indexed_terms FROM memstore.memories WHERE memory_id = %(memory_id)s;

-- name: erase_events
DELETE FROM memstore.events WHERE memory_id = %(memory_id)s;

-- name: erase_postings
DELETE FROM memstore.postings WHERE memory_id = %(memory_id)s;

-- name: erase_state_versions
DELETE FROM memstore.state_versions WHERE memory_id = %(memory_id)s;

-- name: erase_encoding_queue
DELETE FROM memstore.encoding_queue WHERE memory_id = %(memory_id)s;

-- name: erase_vectors
DELETE FROM {vectors} WHERE memory_id = %(memory_id)s;

-- name: erase_memory
DELETE FROM memstore.memories WHERE memory_id = %(memory_id)s;

-- name: record_erasure
INSERT INTO memstore.erasures (memory_id, tenant_id, events, versions, author, reason)
VALUES (%(memory_id)s, %(tenant_id)s, %(events)s, %(versions)s, %(author)s, %(reason)s);
