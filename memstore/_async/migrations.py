"""The database's own migrations: numbered SQL files, each applied once, checksums enforced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import psycopg
from psycopg import AsyncConnection
from psycopg import sql as composing
from psycopg.rows import DictRow, dict_row

from memstore import sql
from memstore._async.database import AUTHENTICATOR, ERASER, SERVER, WORKER, wrap
from memstore._async.runtime import sleep
from memstore.errors import MigrationRequired, StorageError
from memstore.migration import Migration, pending

LOCK = {"key": 0x6D656D73746F7265 >> 1}  # "memstore", in a positive bigint
POLL_SECONDS = 0.1
INHERITING = 160_000  # the first server version whose memberships say whether they are inherited
LOCK_SECONDS = 2.0  # that a migration waits for a table at most, as bound_waiting says


async def migrate(url: str, *, timeout: float = 60.0) -> list[Migration]:
    """Bring a database up to this code's migrations and return those applied now.

    Needs a role that may create schemas, roles and extensions. Each file is one transaction. A
    polled advisory lock lets one process migrate at a time; after `timeout` seconds without it
    this fails, and so it does where others hold a table for so long: what was applied before
    stays. Raises `MigrationRequired` when the database is newer than this code, or when a file
    changed after it was applied, and `StorageError`.
    """
    try:
        async with (
            await AsyncConnection[DictRow].connect(
                url, autocommit=True, row_factory=dict_row
            ) as conn,
            _locked(conn, timeout),
        ):
            await conn.execute(sql.statement("create_schema"))
            await conn.execute(sql.statement("create_record"))
            todo = pending(await _applied(conn))
            for migration in todo:
                await _apply(conn, migration, timeout)
            return todo
    except psycopg.Error as error:
        raise wrap(error) from error


async def _apply(conn: AsyncConnection[DictRow], migration: Migration, timeout: float) -> None:
    """Apply one, again and again while others hold a table that it needs."""
    waited = 0.0
    while True:
        try:
            async with conn.transaction():
                await conn.execute(sql.statement("bound_waiting"))
                # A file's text is as constant as a literal: it ships with this code.
                await conn.execute(composing.SQL(migration.text))  # pyright: ignore
                await conn.execute(
                    sql.statement("record_migration"),
                    {
                        "number": migration.number,
                        "name": migration.name,
                        "checksum": migration.checksum,
                    },
                )
                return
        except psycopg.errors.LockNotAvailable as error:
            waited += LOCK_SECONDS
            if waited >= timeout:
                raise StorageError(
                    f"migration {migration.number} ({migration.name}) needs a table that others "
                    "hold; end long transactions and run 'memstore migrate' again"
                ) from error
            await sleep(POLL_SECONDS)


async def grant(url: str, login: str) -> None:
    """Let a login serve: make it a member of memstore's roles. It owns nothing all the same.

    Of the roles that see every tenant it inherits nothing: it has to take them, as the store
    does (from PostgreSQL 16 on; before, no membership can say so).
    """
    member = composing.Identifier(login)
    wide = composing.SQL(", ").join(map(composing.Identifier, (WORKER, ERASER, AUTHENTICATOR)))
    try:
        async with await AsyncConnection[DictRow].connect(url, autocommit=True) as conn:
            apart = " WITH INHERIT FALSE" if conn.info.server_version >= INHERITING else ""
            serve = composing.SQL("GRANT {} TO {}").format(composing.Identifier(SERVER), member)
            await conn.execute(serve)
            take = composing.SQL("GRANT {} TO {}{}").format(wide, member, composing.SQL(apart))
            await conn.execute(take)
    except psycopg.Error as error:
        raise wrap(error) from error


@asynccontextmanager
async def _locked(conn: AsyncConnection[DictRow], timeout: float) -> AsyncIterator[None]:
    """Hold the migration lock. Polled: waiting in it would deadlock with an index build."""
    waited = 0.0
    while True:
        cursor = await conn.execute(sql.statement("try_to_lock"), LOCK)
        if cast(DictRow, await cursor.fetchone())["got"]:
            break
        if waited >= timeout:
            raise StorageError(f"another process has been migrating for {timeout:.0f} s")
        await sleep(POLL_SECONDS)
        waited += POLL_SECONDS
    try:
        yield
    finally:
        if not conn.closed:
            await conn.execute(sql.statement("unlock"), LOCK)


async def _applied(conn: AsyncConnection[DictRow]) -> dict[int, str]:
    cursor = await conn.execute(sql.statement("applied_migrations"))
    return {row["number"]: row["checksum"] for row in await cursor.fetchall()}


async def verify(conn: AsyncConnection[DictRow]) -> None:
    """Raise `MigrationRequired` unless the database is at exactly this code's migrations."""
    try:
        applied = await _applied(conn)
    except psycopg.errors.UndefinedTable:
        applied = {}
    except psycopg.errors.InsufficientPrivilege as error:
        raise wrap(error) from error
    if todo := pending(applied):
        raise MigrationRequired(
            f"the database lacks {len(todo)} migrations, from {todo[0].number} "
            f"({todo[0].name}): run 'memstore migrate'"
        )
