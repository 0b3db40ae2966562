-- Registered state schemas, by tenant.

-- name: newest_schema_version
SELECT max(version) AS version FROM memstore.state_schemas
WHERE tenant_id = %(tenant_id)s AND name = %(name)s;

-- name: schema_versions
-- Every version of a schema up to one, the first one first.
SELECT name, version, schema, migration, initial, created_at
FROM memstore.state_schemas
WHERE tenant_id = %(tenant_id)s AND name = %(name)s AND version <= %(version)s
ORDER BY version;

-- name: list_schemas
-- The newest version of each.
SELECT DISTINCT ON (name) name, version, schema, migration, initial, created_at
FROM memstore.state_schemas
WHERE tenant_id = %(tenant_id)s
ORDER BY name, version DESC;

-- name: count_schemas
SELECT count(*) AS registered FROM memstore.state_schemas WHERE tenant_id = %(tenant_id)s;

-- name: insert_schema
-- No row comes back when another one was registered at the same time.
INSERT INTO memstore.state_schemas (tenant_id, name, version, schema, migration, initial)
VALUES (
    %(tenant_id)s, %(name)s, %(version)s, %(schema)s::json, %(migration)s::json,
    %(initial)s::json)
ON CONFLICT DO NOTHING
RETURNING created_at;
