# generated from memstore/_async by scripts/generate_sync.py: edit there
"""Spaces: where each encoder's vectors live, and switching from one to another.

A new encoder is a new space. It is filled beside the one that serves, switched in one
transaction, and the old one is kept until it is dropped.
"""

from __future__ import annotations

from datetime import UTC

from psycopg import sql as composing

from memstore import sql
from memstore._sync.database import Conn, Database
from memstore.errors import ConfigurationError, NotFound
from memstore.space import Space, vectors_table


def listed(conn: Conn) -> list[Space]:
    cursor = conn.execute(sql.statement("list_spaces"))
    return [
        Space(**row | {"created_at": row["created_at"].astimezone(UTC)})
        for row in cursor.fetchall()
    ]


def serving(conn: Conn) -> Space | None:
    return next((space for space in listed(conn) if space.status == "serving"), None)


def usable(conn: Conn, space: Space | None) -> tuple[Space | None, str]:
    """Look whether a space that was found earlier still serves.

    Returns it, or None once it was dropped, and what is left out of its vectors, in words.
    """
    if space is None:
        return None, ""
    now = next((one for one in listed(conn) if one.space_id == space.space_id), None)
    again = "open the store again with the encoder that serves"
    if now is None:
        return None, f"lexical only: the space of {space.encoder!r} was dropped; {again}"
    if now.status != "serving":
        return space, f"lexical only for new entries: {space.encoder!r} serves no more; {again}"
    return space, ""


def _named(conn: Conn, encoder: str) -> Space:
    for space in listed(conn):
        if space.encoder == encoder:
            return space
    raise NotFound(
        f"there is no space for encoder {encoder!r}: 'memstore migrate' makes the first one, "
        f"'memstore space add {encoder}' another"
    )


def of(db: Database, encoder: str) -> Space:
    """Find an encoder's space; raises `NotFound`."""
    with db.transaction() as conn:
        return _named(conn, encoder)


def create(db: Database, encoder: str, dimension: int) -> Space:
    """Make a space for an encoder; the first one serves, a later one is to be filled.

    Where the encoder has a space already that one is returned. Needs the owner's role.
    Raises `ConfigurationError` when the existing one has another dimension.
    """
    with db.transaction(role=None) as conn:
        conn.execute(sql.statement("lock_spaces"))
        spaces = listed(conn)
        space = next((space for space in spaces if space.encoder == encoder), None)
        if space is None:
            first = not any(space.status == "serving" for space in spaces)
            space = _made(conn, encoder, dimension, "serving" if first else "filling")
        elif space.dimension != dimension:
            raise ConfigurationError(
                f"the space of {encoder!r} has dimension {space.dimension}, "
                f"this encoder gives {dimension}: it is another encoder, name it so"
            )
    if space.status != "retained":
        _queue_missing(db, space)
    return space


def _made(conn: Conn, encoder: str, dimension: int, status: str) -> Space:
    parameters = {"encoder": encoder, "dimension": dimension, "status": status}
    row = (conn.execute(sql.statement("insert_space"), parameters)).fetchone()
    assert row is not None
    conn.execute(
        sql.statement("create_vectors").format(
            vectors=vectors_table(row["space_id"]), dimension=composing.Literal(dimension)
        )
    )
    return _named(conn, encoder)


def _queue_missing(db: Database, space: Space) -> None:
    """Queue every entry that a space lacks, at any time: what is queued already stays as it is.

    An append that began before the space was to be filled does not queue for it, and its entry
    is not to be seen before it commits. So first the appends under way are waited for.
    """
    with db.transaction(role=None) as conn:
        conn.execute(sql.statement("wait_for_appends"))
    with db.transaction(role=None) as conn:
        conn.execute(
            sql.statement("enqueue_missing").format(vectors=space.vectors),
            {"space_id": space.space_id},
        )


def switch(db: Database, encoder: str) -> Space:
    """Let another space serve, in one transaction; the one before is retained.

    One that was retained is served at once, while what it has missed is filled in. Raises
    `ConfigurationError` while entries still wait to be encoded for it.
    """
    with db.transaction(role=None) as conn:
        conn.execute(sql.statement("lock_spaces"))
        space = _named(conn, encoder)
        if space.status != "serving":
            cursor = conn.execute(sql.statement("queue_age"))
            waiting = {row["space_id"]: row["waiting"] for row in cursor.fetchall()}
            if left := waiting.get(space.space_id, 0):
                raise ConfigurationError(
                    f"{left} entries still wait to be encoded with {encoder!r}: run 'memstore "
                    f"worker --encoder {encoder}'"
                )
            conn.execute(sql.statement("retire_serving_space"))
            conn.execute(sql.statement("serve_space"), {"space_id": space.space_id})
            space = _named(conn, encoder)
    _queue_missing(db, space)
    return space


def drop(db: Database, encoder: str) -> None:
    """Remove a space that does not serve, with its vectors."""
    with db.transaction(role=None) as conn:
        conn.execute(sql.statement("lock_spaces"))
        space = _named(conn, encoder)
        if space.status == "serving":
            raise ConfigurationError(f"the space of {encoder!r} serves: switch to another first")
        parameters = {"space_id": space.space_id}
        conn.execute(sql.statement("delete_space_queue"), parameters)
        conn.execute(sql.statement("delete_space"), parameters)
        conn.execute(sql.statement("drop_vectors").format(vectors=space.vectors))
