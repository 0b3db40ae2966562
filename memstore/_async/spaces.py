"""Spaces: where each encoder's vectors live, and switching from one to another.

A new encoder is a new space. It is filled beside the one that serves, switched in one
transaction, and the old one is kept until it is dropped.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

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
        await conn.execute("LOCK TABLE memstore.spaces IN SHARE ROW EXCLUSIVE MODE")
        spaces = await listed(conn)
        for space in spaces:
            if space.encoder == encoder:
                if space.dimension != dimension:
                    raise ConfigurationError(
                        f"the space of {encoder!r} has dimension {space.dimension}, "
                        f"this encoder gives {dimension}: it is another encoder, name it so"
                    )
                return space
        status = "filling" if any(s.status == "serving" for s in spaces) else "serving"
        parameters: dict[str, Any] = {
            "encoder": encoder,
            "dimension": dimension,
            "status": status,
        }
        row = await (await conn.execute(sql.statement("insert_space"), parameters)).fetchone()
        assert row is not None
        await conn.execute(
            sql.statement("create_vectors").format(
                vectors=vectors_table(row["space_id"]), dimension=composing.Literal(dimension)
            )
        )
        await conn.execute(sql.statement("enqueue_everything"), {"space_id": row["space_id"]})
        return await _named(conn, encoder)


async def switch(db: AsyncDatabase, encoder: str) -> Space:
    """Let another space serve, in one transaction; the one before is retained.

    Raises `ConfigurationError` while entries still wait to be encoded for it.
    """
    async with db.transaction(role=None) as conn:
        await conn.execute("LOCK TABLE memstore.spaces IN SHARE ROW EXCLUSIVE MODE")
        space = await _named(conn, encoder)
        if space.status == "serving":
            return space
        cursor = await conn.execute(sql.statement("queue_age"))
        waiting = {row["space_id"]: row["waiting"] for row in await cursor.fetchall()}
        if space.status == "retained":
            await conn.execute(
                sql.statement("enqueue_missing").format(vectors=space.vectors),
                {"space_id": space.space_id},
            )
        if left := waiting.get(space.space_id, 0):
            raise ConfigurationError(
                f"{left} entries still wait to be encoded with {encoder!r}: run 'memstore worker "
                f"--encoder {encoder}'"
            )
        await conn.execute(sql.statement("retire_serving_space"))
        await conn.execute(sql.statement("serve_space"), {"space_id": space.space_id})
        return await _named(conn, encoder)


async def drop(db: AsyncDatabase, encoder: str) -> None:
    """Remove a space that does not serve, with its vectors."""
    async with db.transaction(role=None) as conn:
        await conn.execute("LOCK TABLE memstore.spaces IN SHARE ROW EXCLUSIVE MODE")
        space = await _named(conn, encoder)
        if space.status == "serving":
            raise ConfigurationError(f"the space of {encoder!r} serves: switch to another first")
        parameters = {"space_id": space.space_id}
        await conn.execute(sql.statement("delete_space_queue"), parameters)
        await conn.execute(sql.statement("delete_space"), parameters)
        await conn.execute(sql.statement("drop_vectors").format(vectors=space.vectors))
