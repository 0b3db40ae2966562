-- Keys to the server. Who serves may look a key up and nothing else: it can neither make one nor
-- give one more rights. Keys are made, rotated and revoked by the database's owner.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'memstore_authenticator') THEN
        BEGIN
            CREATE ROLE memstore_authenticator NOLOGIN;
            EXECUTE format('GRANT memstore_authenticator TO %I', current_user);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- roles belong to the cluster: another database's migration was faster
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'memstore_authenticator', 'MEMBER') THEN
        EXECUTE format('GRANT memstore_authenticator TO %I', current_user);
    END IF;
END
$$;
GRANT USAGE ON SCHEMA memstore TO memstore_authenticator;

CREATE TABLE memstore.api_keys (
    key_id         text COLLATE "C" PRIMARY KEY,
    tenant_id      int NOT NULL REFERENCES memstore.tenants,
    name           text NOT NULL,
    secret_digest  bytea NOT NULL CHECK (octet_length(secret_digest) = 32),
    scopes         text[] NOT NULL CHECK (scopes <@ ARRAY['read', 'write', 'admin']),
    agents         text[],
    users          text[],
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at     timestamptz,
    revoked_at     timestamptz
);
CREATE INDEX api_keys_by_tenant ON memstore.api_keys (tenant_id, created_at);

ALTER TABLE memstore.api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE memstore.api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memstore.api_keys
    USING (tenant_id = NULLIF(current_setting('memstore.tenant', true), '')::int);
-- A key says which tenant it is of, so it is looked up before the tenant is known.
CREATE POLICY authenticator ON memstore.api_keys FOR SELECT TO memstore_authenticator USING (true);

GRANT SELECT ON memstore.api_keys, memstore.tenants TO memstore_authenticator;
