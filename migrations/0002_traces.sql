-- What resume was asked, considered and gave, where its user wants that recorded; and what helped.

CREATE TABLE memstore.traces (
    memory_id   uuid NOT NULL REFERENCES memstore.memories,
    context_id  uuid NOT NULL,
    tenant_id   int NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    task        text NOT NULL,
    budget      int NOT NULL,
    tokens      json NOT NULL,
    log_end     bigint NOT NULL,
    considered  bigint[] NOT NULL,
    given       bigint[] NOT NULL,
    used        bigint[],
    PRIMARY KEY (memory_id, context_id)
);
CREATE INDEX traces_by_time ON memstore.traces (memory_id, created_at);

ALTER TABLE memstore.traces ENABLE ROW LEVEL SECURITY;
ALTER TABLE memstore.traces FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memstore.traces
    USING (tenant_id = NULLIF(current_setting('memstore.tenant', true), '')::int);

GRANT SELECT, INSERT ON memstore.traces TO memstore_server;
GRANT UPDATE (used) ON memstore.traces TO memstore_server;
GRANT SELECT, DELETE ON memstore.traces TO memstore_eraser;
