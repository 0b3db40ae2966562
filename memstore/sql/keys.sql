-- API keys: looked up by whoever serves, for every tenant; kept by the database's owner, by tenant.

-- name: find_key
SELECT k.key_id, k.name, k.secret_digest, k.scopes, k.agents, k.users, k.created_at, k.expires_at,
    k.revoked_at, t.name AS tenant
FROM memstore.api_keys AS k
JOIN memstore.tenants AS t USING (tenant_id)
WHERE k.key_id = %(key_id)s;

-- name: insert_key
INSERT INTO memstore.api_keys (
    key_id, tenant_id, name, secret_digest, scopes, agents, users, expires_at)
VALUES (
    %(key_id)s, %(tenant_id)s, %(name)s, %(secret_digest)s, %(scopes)s::text[],
    %(agents)s::text[], %(users)s::text[], %(expires_at)s)
RETURNING key_id, name, scopes, agents, users, created_at, expires_at, revoked_at;

-- name: list_keys
SELECT key_id, name, scopes, agents, users, created_at, expires_at, revoked_at
FROM memstore.api_keys
WHERE tenant_id = %(tenant_id)s
ORDER BY created_at, key_id;

-- name: revoke_key
-- An earlier revocation stands.
UPDATE memstore.api_keys
SET revoked_at = least(revoked_at, clock_timestamp() + %(grace)s)
WHERE tenant_id = %(tenant_id)s AND key_id = %(key_id)s
RETURNING key_id, name, scopes, agents, users, created_at, expires_at, revoked_at;
