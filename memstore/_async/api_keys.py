"""API keys in the database: its owner makes, lists, rotates and revokes, a server looks up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Any

from memstore import sql
from memstore._async.database import AUTHENTICATOR, AsyncDatabase, Conn
from memstore.errors import InvalidInput, NotFound
from memstore.keys import ApiKey, NewKey, check_bound, check_scopes, make_token, parse_token
from memstore.text import check_id, check_time

NO_GRACE = timedelta()


def _key(row: dict[str, Any], tenant: str) -> ApiKey:
    def several(name: str) -> tuple[str, ...] | None:
        return None if row[name] is None else tuple(row[name])

    def moment(name: str) -> datetime | None:
        return None if row[name] is None else row[name].astimezone(UTC)

    return ApiKey(
        key_id=row["key_id"],
        tenant=tenant,
        name=row["name"],
        scopes=tuple(row["scopes"]),
        agents=several("agents"),
        users=several("users"),
        created_at=row["created_at"].astimezone(UTC),
        expires_at=moment("expires_at"),
        revoked_at=moment("revoked_at"),
    )


async def authenticate(db: AsyncDatabase, token: str) -> ApiKey | None:
    """Find the active key of a token; None where there is none."""
    parsed = parse_token(token)
    if parsed is None:
        return None
    key_id, digest = parsed
    async with db.transaction(AUTHENTICATOR) as conn:
        cursor = await conn.execute(sql.statement("find_key"), {"key_id": key_id})
        row = await cursor.fetchone()
    if row is None or not compare_digest(bytes(row["secret_digest"]), digest):
        return None
    key = _key(row, row["tenant"])
    return key if key.active(datetime.now(UTC)) else None


async def create(
    db: AsyncDatabase,
    tenant: str,
    name: str,
    scopes: Iterable[str],
    agents: Iterable[str] | None,
    users: Iterable[str] | None,
    expires_at: datetime | None,
) -> NewKey:
    """Make a key for the tenant."""
    given = {
        "name": check_id(name, "name"),
        "scopes": check_scopes(scopes),
        "agents": check_bound(agents, "agents"),
        "users": check_bound(users, "users"),
        "expires_at": None if expires_at is None else check_time(expires_at, "expires_at"),
    }
    async with db.transaction(role=None) as conn:
        return await _insert(conn, db, tenant, given)


async def _insert(conn: Conn, db: AsyncDatabase, tenant: str, given: dict[str, Any]) -> NewKey:
    key_id, digest, token = make_token()
    made = {"key_id": key_id, "secret_digest": digest, "tenant_id": db.tenant_id}
    row = await (await conn.execute(sql.statement("insert_key"), made | given)).fetchone()
    assert row is not None
    return NewKey(_key(row, tenant), token)


async def listed(db: AsyncDatabase, tenant: str) -> list[ApiKey]:
    """List the tenant's keys, oldest first, those that ended too."""
    async with db.transaction(role=None) as conn:
        cursor = await conn.execute(sql.statement("list_keys"), {"tenant_id": db.tenant_id})
        return [_key(row, tenant) for row in await cursor.fetchall()]


async def revoke(
    db: AsyncDatabase, tenant: str, key_id: str, grace: timedelta = NO_GRACE
) -> ApiKey:
    """End a key now, or when a time of grace has passed."""
    async with db.transaction(role=None) as conn:
        return await _revoke(conn, db, tenant, key_id, grace)


async def _revoke(
    conn: Conn, db: AsyncDatabase, tenant: str, key_id: str, grace: timedelta
) -> ApiKey:
    if grace < NO_GRACE:
        raise InvalidInput("must not be negative", path="grace")
    parameters = {
        "tenant_id": db.tenant_id,
        "key_id": check_id(key_id, "key_id"),
        "grace": grace,
    }
    row = await (await conn.execute(sql.statement("revoke_key"), parameters)).fetchone()
    if row is None:
        raise NotFound(f"tenant {tenant!r} has no key {key_id!r}")
    return _key(row, tenant)


async def rotate(
    db: AsyncDatabase,
    tenant: str,
    key_id: str,
    grace: timedelta,
    expires_at: datetime | None,
) -> NewKey:
    """Make a key with the same rights and end the old one after a time of grace.

    A key that has ended is not brought back to life.
    """
    now = datetime.now(UTC)
    if any(key.key_id == key_id and not key.active(now) for key in await listed(db, tenant)):
        raise InvalidInput("it has ended; make a new key", path="key_id")
    async with db.transaction(role=None) as conn:
        old = await _revoke(conn, db, tenant, key_id, grace)
        given = {
            "name": old.name,
            "scopes": list(old.scopes),
            "agents": None if old.agents is None else list(old.agents),
            "users": None if old.users is None else list(old.users),
            "expires_at": None if expires_at is None else check_time(expires_at, "expires_at"),
        }
        return await _insert(conn, db, tenant, given)
