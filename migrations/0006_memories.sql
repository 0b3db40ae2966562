-- Memories are gone through tenant by tenant, in the order of their ids. Nobody looks one up by its
-- names: its id is derived from them.
CREATE INDEX memories_by_tenant ON memstore.memories (tenant_id, memory_id);
DROP INDEX memstore.memories_by_identity;

-- Who serves may move a memory's counters and not say whose it is. Who erases only locks its row.
REVOKE UPDATE ON memstore.memories FROM memstore_server, memstore_eraser;
GRANT UPDATE (last_position, head_version, indexed_terms) ON memstore.memories TO memstore_server;
GRANT UPDATE (last_position) ON memstore.memories TO memstore_eraser;
