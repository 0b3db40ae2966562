-- The record of applied migrations, and applying one. The migrations' own text is in migrations/.

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS memstore;

-- name: create_record
CREATE TABLE IF NOT EXISTS memstore.migrations (
    number      int PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- name: try_to_lock
SELECT pg_try_advisory_lock(%(key)s) AS got;

-- name: unlock
SELECT pg_advisory_unlock(%(key)s);

-- name: bound_waiting
-- A statement that waits for a table's lock holds up everybody who comes after it.
SET LOCAL lock_timeout = '2s';

-- name: applied_migrations
SELECT number, checksum FROM memstore.migrations;

-- name: record_migration
INSERT INTO memstore.migrations (number, name, checksum)
VALUES (%(number)s, %(name)s, %(checksum)s);
