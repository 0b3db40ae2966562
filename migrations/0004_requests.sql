-- A save can be repeated under the idempotency key of its request, as an append can.

ALTER TABLE memstore.state_versions
    ADD COLUMN idempotency_key text COLLATE "C",
    ADD COLUMN request_digest bytea;
CREATE UNIQUE INDEX state_versions_by_request ON memstore.state_versions (memory_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
