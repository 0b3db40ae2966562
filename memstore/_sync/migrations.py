# generated from memstore/_async by scripts/generate_sync.py: edit there
"""The database's own migrations: numbered SQL files, each applied once, checksums enforced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import psycopg
from psycopg import Connection, sql
from psycopg.rows import DictRow, dict_row

from memstore._sync.database import wrap
from memstore._sync.runtime import sleep
from memstore.errors import MigrationRequired, StorageError
from memstore.migration import Migration, pending

LOCK = 0x6D656D73746F7265 >> 1  # "memstore", in a positive bigint
POLL_SECONDS = 0.1

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS memstore;
CREATE TABLE IF NOT EXISTS memstore.migrations (
    number      int PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
)
"""


def migrate(url: str, *, timeout: float = 60.0) -> list[Migration]:
    """Bring a database up to this code's migrations and return those applied now.

    Needs a role that may create schemas, roles and extensions. Each file is one transaction. A
    polled advisory lock lets one process migrate at a time; after `timeout` seconds without it
    this fails. Raises `MigrationRequired` when the database is newer than this code, or when a
    file changed after it was applied.
    """
    try:
        with (
            Connection[DictRow].connect(url, autocommit=True, row_factory=dict_row) as conn,
            _locked(conn, timeout),
        ):
            conn.execute(_BOOTSTRAP)
            todo = pending(_applied(conn))
            for migration in todo:
                with conn.transaction():
                    # A file's text is as constant as a literal: it ships with this code.
                    conn.execute(sql.SQL(migration.text))  # pyright: ignore
                    conn.execute(
                        "INSERT INTO memstore.migrations (number, name, checksum) "
                        "VALUES (%s, %s, %s)",
                        (migration.number, migration.name, migration.checksum),
                    )
            return todo
    except psycopg.Error as error:
        raise wrap(error) from error


@contextmanager
def _locked(conn: Connection[DictRow], timeout: float) -> Iterator[None]:
    """Hold the migration lock. Polled: waiting in it would deadlock with an index build."""
    waited = 0.0
    while True:
        cursor = conn.execute("SELECT pg_try_advisory_lock(%s) AS got", (LOCK,))
        if cast(DictRow, cursor.fetchone())["got"]:
            break
        if waited >= timeout:
            raise StorageError(f"another process has been migrating for {timeout:.0f} s")
        sleep(POLL_SECONDS)
        waited += POLL_SECONDS
    try:
        yield
    finally:
        if not conn.closed:
            conn.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))


def _applied(conn: Connection[DictRow]) -> dict[int, str]:
    cursor = conn.execute("SELECT number, checksum FROM memstore.migrations")
    return {row["number"]: row["checksum"] for row in cursor.fetchall()}


def verify(conn: Connection[DictRow]) -> None:
    """Raise `MigrationRequired` unless the database is at exactly this code's migrations."""
    try:
        applied = _applied(conn)
    except psycopg.errors.UndefinedTable:
        applied = {}
    except psycopg.errors.InsufficientPrivilege as error:
        raise wrap(error) from error
    if todo := pending(applied):
        raise MigrationRequired(
            f"the database lacks {len(todo)} migrations, from {todo[0].number} "
            f"({todo[0].name}): run 'memstore migrate'"
        )
