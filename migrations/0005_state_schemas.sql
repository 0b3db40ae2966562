-- State schemas registered as JSON Schema: every version, and the JSON Patch that leads to it from
-- the one before. A version is never changed: who serves may add one and nothing else.

CREATE TABLE memstore.state_schemas (
    tenant_id   int NOT NULL REFERENCES memstore.tenants,
    name        text COLLATE "C" NOT NULL,
    version     int NOT NULL CHECK (version >= 1),
    schema      json NOT NULL,
    migration   json,
    initial     json,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, name, version),
    CHECK ((migration IS NULL) = (version = 1))
);

ALTER TABLE memstore.state_schemas ENABLE ROW LEVEL SECURITY;
ALTER TABLE memstore.state_schemas FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memstore.state_schemas
    USING (tenant_id = NULLIF(current_setting('memstore.tenant', true), '')::int);

GRANT SELECT, INSERT ON memstore.state_schemas TO memstore_server;
