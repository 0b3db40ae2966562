"""Is this database fit to serve? Connection, extension, migrations, spaces, queue, orphans."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg

from memstore import sql
from memstore._async import migrations, spaces
from memstore._async.database import WORKER, AsyncDatabase
from memstore.diagnosis import Backlog, Check
from memstore.errors import MemstoreError

if TYPE_CHECKING:
    from memstore._async.store import AsyncMemoryStore

OLD_SECONDS = 600


async def diagnose(db: AsyncDatabase, tenant: str, encoder: str | None) -> list[Check]:
    """Run every check that the ones before it allow; what fails says what to do."""
    checks: list[Check] = []
    try:
        await db.open()
    except MemstoreError as error:
        return [Check("connection", False, f"{error}: is Postgres running, is the URL right?")]
    try:
        return await _all(db, tenant, encoder, checks)
    except (MemstoreError, psycopg.Error) as error:
        return [*checks, Check("database", False, str(error).strip())]
    finally:
        await db.close()


async def _one(db: AsyncDatabase, statement: Any, **parameters: Any) -> dict[str, Any]:
    async with db.transaction(role=None) as conn:
        row = await (await conn.execute(statement, parameters)).fetchone()
    return row or {}


async def _all(
    db: AsyncDatabase, tenant: str, encoder: str | None, checks: list[Check]
) -> list[Check]:
    versions = await _one(db, sql.statement("server_versions"))
    checks.append(Check("connection", True, f"PostgreSQL {versions['postgres']}"))
    if versions["pgvector"] is None:
        checks.append(Check("pgvector", False, "the extension is missing: run 'memstore migrate'"))
        return checks
    checks.append(Check("pgvector", True, f"version {versions['pgvector']}"))
    try:
        async with db.transaction(role=None) as conn:
            await migrations.verify(conn)
    except MemstoreError as error:
        checks.append(Check("migrations", False, str(error)))
        return checks
    checks.append(Check("migrations", True, "up to date"))
    rewrite = (await _one(db, sql.statement("serving_privileges")))["may_rewrite"]
    checks.append(
        Check(
            "append-only",
            not rewrite,
            "the serving role may rewrite the log: revoke UPDATE and DELETE from memstore_server"
            if rewrite
            else "the serving role can't change what was written",
        )
    )
    row = await _one(db, sql.statement("tenant_id"), name=tenant)
    if not row:
        checks.append(Check("tenant", False, f"there is no tenant {tenant!r}"))
        return checks
    checks.append(Check("tenant", True, tenant))
    db.tenant_id = row["tenant_id"]
    await _spaces(db, encoder, checks)
    return checks


async def _spaces(db: AsyncDatabase, encoder: str | None, checks: list[Check]) -> None:
    async with db.transaction() as conn:
        found = await spaces.listed(conn)
    serving = next((space for space in found if space.status == "serving"), None)
    fits = encoder is None or (serving is not None and serving.encoder == encoder)
    described = ", ".join(f"{s.encoder} ({s.dimension}, {s.status})" for s in found) or "none"
    advice = "" if fits else f"; {encoder!r} does not serve: run 'memstore space add {encoder}'"
    checks.append(Check("spaces", fits, described + advice))
    async with db.transaction(WORKER) as conn:
        queues = await (await conn.execute(sql.statement("queue_age"))).fetchall()
    waiting = sum(queue["waiting"] for queue in queues)
    failing = sum(queue["failing"] for queue in queues)
    oldest = min((queue["oldest"] for queue in queues), default=None)
    age = 0.0 if oldest is None else (datetime.now(UTC) - oldest).total_seconds()
    advice = "; is a worker running? 'memstore worker'" if age > OLD_SECONDS or failing else ""
    checks.append(
        Check(
            "queue",
            not advice,
            f"{waiting} entries wait for a vector, {failing} of them failed, "
            f"the oldest for {age:.0f} s{advice}",
        )
    )
    orphans = 0
    async with db.transaction() as conn:
        statements = [sql.statement("orphaned_postings")] + [
            sql.statement("orphaned_vectors").format(vectors=space.vectors) for space in found
        ]
        for statement in statements:
            row = await (await conn.execute(statement)).fetchone()
            orphans += row["orphaned"] if row else 0
    checks.append(Check("orphans", not orphans, f"{orphans} memories have derived rows and no log"))


async def readiness(store: AsyncMemoryStore) -> list[Check]:
    """Say whether an open store can serve.

    An old queue and a space that serves no more are told, not held against it: it still answers.
    """
    db, space = store._db, store._space
    try:
        async with db.transaction(role=None) as conn:
            await conn.execute(sql.statement("server_versions"))
    except MemstoreError:
        return [Check("database", False, "no connection")]
    checks = [Check("database", True, "connected")]
    try:
        async with db.transaction(role=None) as conn:
            await migrations.verify(conn)
        checks.append(Check("migrations", True, "up to date"))
    except MemstoreError:
        checks.append(Check("migrations", False, "not those of this version"))
        return checks
    if space is None:
        checks.append(Check("encoder", True, "none: search is by words alone"))
        return checks
    ready = store._encoders.loaded is not None
    detail = space.encoder if ready else "not loaded"
    async with db.transaction() as conn:
        serving = await spaces.serving(conn)
    if serving is None or serving.space_id != space.space_id:
        other = repr(serving.encoder) if serving else "no encoder"
        detail += f"; {other} serves now, and what is new is found by words alone: open it again"
    checks.append(Check("encoder", ready, detail))
    queue = await backlog(store)
    detail = f"{queue.entries} entries wait, the oldest for {queue.age:.0f} s"
    checks.append(Check("queue", True, detail))
    return checks


async def backlog(store: AsyncMemoryStore) -> Backlog:
    """Measure the queue of the space that serves, over all tenants."""
    async with store._db.transaction(WORKER) as conn:
        queues = await (await conn.execute(sql.statement("queue_age"))).fetchall()
    for queue in queues:
        if store._space is not None and queue["space_id"] == store._space.space_id:
            age = (datetime.now(UTC) - queue["oldest"]).total_seconds()
            return Backlog(queue["waiting"], queue["failing"], max(0.0, age))
    return Backlog()
