"""The vector leg: an exact scan of one memory, and an index of its own for one that outgrew that.

One index over all memories returns too few under a filter; a partial one, of one memory, does not.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg import sql as composing

from memstore import sql
from memstore._async.database import EF_SEARCH, WORKER, AsyncDatabase, Conn, fetch_all, wrap
from memstore.candidates import Leg
from memstore.config import FEWEST_INDEXED
from memstore.errors import ConfigurationError
from memstore.filters import exists
from memstore.space import Indexed, Space

LOCK = {"key": 0x766563746F7273}  # "vectors"; held as long as the session lives


async def leg(
    conn: Conn, space: Space, given: dict[str, Any], tags: dict[str, Any], last: int, enough: int
) -> Leg:
    """Find the entries nearest to a query: exactly, but where a large memory has its own index.

    `given` are the statement's parameters, `last` is the log's last position. An entry's best
    chunk counts, so chunks are read until they belong to `enough` entries, or there are no more.
    """
    chunks: int = given["limit"]
    exact = sql.statement("vector_leg").format(vectors=space.vectors, filters=exists(tags))
    statement = exact
    if not tags and last >= FEWEST_INDEXED and chunks <= EF_SEARCH:
        statement = sql.statement("nearest_chunks").format(vectors=space.vectors)
    while True:
        ((position, score),) = await fetch_all(conn, statement, given | {"limit": chunks})
        if position is None:
            position, score = np.empty(0, np.int64), np.empty(0)
        _, first = np.unique(position, return_index=True)
        best = np.sort(first)
        if len(best) >= enough or (statement is exact and len(position) < chunks):
            return position[best], score[best]
        chunks *= 8
        statement = exact


async def index_large(db: AsyncDatabase, space: Space, above: int) -> Indexed:
    """Give each memory of at least `above` entries an index, and drop that of one half as large.

    Both are done concurrently: nobody waits for it. Where another process is at it, nothing is
    done, nor with 0. Raises `ConfigurationError` where the login does not own the table.
    """
    if not above:
        return Indexed()
    above = max(above, FEWEST_INDEXED)
    async with db.transaction(WORKER) as conn:
        cursor = await conn.execute(sql.statement("large_memories"), {"above": above // 2})
        entries = {row["memory_id"]: row["last_position"] for row in await cursor.fetchall()}
        # No session where there is nothing to do: a pooler would hand on what is set in it.
        if not any(await _todo(conn, space, entries, above)):
            return Indexed()
        table = {"vectors": space.vectors.as_string(conn)}
        row = await (await conn.execute(sql.statement("owns_vectors"), table)).fetchone()
    if row is not None and not row["own"]:
        raise ConfigurationError(
            f"only the owner of {table['vectors']} may index it: run 'memstore space index' with "
            "the login that ran 'memstore migrate'"
        )
    try:
        async with db.session() as conn:
            return await _index(conn, space, entries, above)
    except psycopg.Error as error:
        raise wrap(error) from error


async def _todo(
    conn: Conn, space: Space, entries: dict[UUID, int], above: int
) -> tuple[list[str], list[UUID]]:
    """List the indexes to drop, by name, and the memories to be given one."""
    table = {"vectors": space.vectors.as_string(conn)}
    cursor = await conn.execute(sql.statement("vector_indexes"), table)
    valid = {index["name"]: index["valid"] for index in await cursor.fetchall()}
    named = {space.index_of(memory_id): memory_id for memory_id in entries}
    drop = [name for name, whole in valid.items() if name not in named or not whole]
    create = [
        memory_id
        for name, memory_id in named.items()
        if entries[memory_id] >= above and not valid.get(name)
    ]
    return drop, create


async def _index(conn: Conn, space: Space, entries: dict[UUID, int], above: int) -> Indexed:
    # Two builds on one table at once would be a deadlock.
    row = await (await conn.execute(sql.statement("try_to_lock"), LOCK)).fetchone()
    if row is None or not row["got"]:
        return Indexed()
    drop, create = await _todo(conn, space, entries, above)
    for name in drop:
        dropping = sql.statement("drop_vector_index")
        await conn.execute(dropping.format(index=composing.Identifier(name)))
    for memory_id in create:
        building = sql.statement("create_vector_index").format(
            index=composing.Identifier(space.index_of(memory_id)),
            vectors=space.vectors,
            memory_id=composing.Literal(memory_id),
        )
        await conn.execute(building)
    return Indexed(created=len(create), dropped=len(drop))
