"""Removing a whole memory: its rows in every table, in one transaction, under a role of its own."""

from __future__ import annotations

from memstore import sql
from memstore._async import spaces, states
from memstore._async.database import ERASER, AsyncDatabase
from memstore.errors import NotFound
from memstore.types import Identity


async def erase(
    db: AsyncDatabase, identity: Identity, tenant_id: int, author: str | None, reason: str | None
) -> None:
    """Erase a memory and record that it was; see `AsyncMemory.erase`."""
    notes = {"author": states.note(author, "author"), "reason": states.note(reason, "reason")}
    key = {"memory_id": identity.memory_id}
    async with db.transaction(ERASER) as conn:
        row = await (await conn.execute(sql.statement("lock_memory"), key)).fetchone()
        if row is None:
            raise NotFound(f"there is no memory {identity}")
        await conn.execute(sql.statement("erase_encoding_queue"), key)
        for space in await spaces.listed(conn):
            await conn.execute(sql.statement("erase_vectors").format(vectors=space.vectors), key)
        for name in ("traces", "postings", "state_versions", "events", "memory"):
            await conn.execute(sql.statement(f"erase_{name}"), key)
        counts = {"events": row["last_position"], "versions": row["head_version"]}
        await conn.execute(
            sql.statement("record_erasure"), key | {"tenant_id": tenant_id} | counts | notes
        )
