"""Spaces: where each encoder's vectors live, and switching from one to another.

A new encoder is a new space. It is filled beside the one that serves, switched in one
transaction, and the old one is kept until it is dropped.
"""

from __future__ import annotations

from datetime import UTC

from psycopg import sql as composing

from memstore import sql
from memstore._async.database import AsyncDatabase, Conn
from memstore.errors import ConfigurationError, NotFound
from memstore.space import Space, vectors_table


async def listed(conn: Conn) -> list[Space]:
    cursor = await conn.execute(sql.statement("list_spaces"))
    return [
        Space(**row | {"created_at": row["created_at"].astimezone(UTC)})
        for row in await cursor.fetchall()
    ]


async def serving(conn: Conn) -> Space | None:
    return next((space for space in await listed(conn) if space.status == "serving"), None)


async def usable(conn: Conn, space: Space | None) -> tuple[Space | None, str]:
    """Look whether a space that was found earlier still serves.

    Returns it, or None once it was dropped, and what is left out of its vectors, in words.
    """
    if space is None:
        return None, ""
    now = next((one for one in await listed(conn) if one.space_id == space.space_id), None)
    again = "open the store again with the encoder that serves"
    if now is None:
        return None, f"lexical only: the space of {space.encoder!r} was dropped; {again}"
    if now.status != "serving":
        return space, f"lexical only for new entries: {space.encoder!r} serves no more; {again}"
    return space, ""


async def _named(conn: Conn, encoder: str) -> Space:
    for space in await listed(conn):
        if space.encoder == encoder:
            return space
    raise NotFound(
        f"there is no space for encoder {encoder!r}: 'memstore migrate' makes the first one, "
        f"'memstore space add {encoder}' another"
    )


async def of(db: AsyncDatabase, encoder: str) -> Space:
    """Find an encoder's space; raises `NotFound`."""
    async with db.transaction() as conn:
        return await _named(conn, encoder)


async def create(db: AsyncDatabase, encoder: str, dimension: int) -> Space:
    """Make a space for an encoder; the first one serves, a later one is to be filled.

    Where the encoder has a space already that one is returned. Needs the owner's role.
    Raises `ConfigurationError` when the existing one has another dimension.
    """
    async with db.transaction(role=None) as conn:
        await conn.execute(sql.statement("lock_spaces"))
        spaces = await listed(conn)
        space = next((space for space in spaces if space.encoder == encoder), None)
        if space is None:
            first = not any(space.status == "serving" for space in spaces)
            space = await _made(conn, encoder, dimension, "serving" if first else "filling")
        elif space.dimension != dimension:
            raise ConfigurationError(
                f"the space of {encoder!r} has dimension {space.dimension}, "
                f"this encoder gives {dimension}: it is another encoder, name it so"
            )
    if space.status != "retained":
        await _queue_missing(db, space)
    return space


async def _made(conn: Conn, encoder: str, dimension: int, status: str) -> Space:
    parameters = {"encoder": encoder, "dimension": dimension, "status": status}
    row = await (await conn.execute(sql.statement("insert_space"), parameters)).fetchone()
    assert row is not None
    await conn.execute(
        sql.statement("create_vectors").format(
            vectors=vectors_table(row["space_id"]), dimension=composing.Literal(dimension)
        )
    )
    return await _named(conn, encoder)


async def _queue_missing(db: AsyncDatabase, space: Space) -> None:
    """Queue every entry that a space lacks, at any time: what is queued already stays as it is.

    An append that began before the space was to be filled does not queue for it, and its entry
    is not to be seen before it commits. So first the appends under way are waited for.
    """
    async with db.transaction(role=None) as conn:
        await conn.execute(sql.statement("wait_for_appends"))
    async with db.transaction(role=None) as conn:
        await conn.execute(
            sql.statement("enqueue_missing").format(vectors=space.vectors),
            {"space_id": space.space_id},
        )


async def switch(db: AsyncDatabase, encoder: str) -> Space:
    """Let another space serve, in one transaction; the one before is retained.

    One that was retained is served at once, while what it has missed is filled in. Raises
    `ConfigurationError` while entries still wait to be encoded for it.
    """
    async with db.transaction(role=None) as conn:
        await conn.execute(sql.statement("lock_spaces"))
        space = await _named(conn, encoder)
        if space.status != "serving":
            cursor = await conn.execute(sql.statement("queue_age"))
            waiting = {row["space_id"]: row["waiting"] for row in await cursor.fetchall()}
            if left := waiting.get(space.space_id, 0):
                raise ConfigurationError(
                    f"{left} entries still wait to be encoded with {encoder!r}: run 'memstore "
                    f"worker --encoder {encoder}'"
                )
            await conn.execute(sql.statement("retire_serving_space"))
            await conn.execute(sql.statement("serve_space"), {"space_id": space.space_id})
            space = await _named(conn, encoder)
    await _queue_missing(db, space)
    return space


async def drop(db: AsyncDatabase, encoder: str) -> None:
    """Remove a space that does not serve, with its vectors."""
    async with db.transaction(role=None) as conn:
        await conn.execute(sql.statement("lock_spaces"))
        space = await _named(conn, encoder)
        if space.status == "serving":
            raise ConfigurationError(f"the space of {encoder!r} serves: switch to another first")
        parameters = {"space_id": space.space_id}
        await conn.execute(sql.statement("delete_space_queue"), parameters)
        await conn.execute(sql.statement("delete_space"), parameters)
        await conn.execute(sql.statement("drop_vectors").format(vectors=space.vectors))
