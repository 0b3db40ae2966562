"""Transactions on a pool: role and tenant per transaction, dead connections replaced."""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from memstore import telemetry
from memstore._async.runtime import LoopGuard, in_thread
from memstore.arrays import adapters
from memstore.errors import ConfigurationError, MemstoreError, StorageError
from memstore.sql import statement

Conn = AsyncConnection[DictRow]

SERVER = "memstore_server"
WORKER = "memstore_worker"
ERASER = "memstore_eraser"
AUTHENTICATOR = "memstore_authenticator"

ADAPTERS = adapters()

# Stated each time: a database may have another default.
BEGIN = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED")
# An index of vectors looks at so many entries: more of them find more of the nearest.
EF_SEARCH = 400
# No one plan fits a memory of ten entries and one of a million: each call is planned anew.
SNAPSHOT = sql.SQL(
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
    "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL hnsw.ef_search = {}"
).format(sql.Literal(EF_SEARCH))
ISO_DATES = b"; SET LOCAL datestyle = 'ISO'"  # the driver reads no other


def wrap(error: psycopg.Error) -> StorageError:
    """Turn a driver's error into ours; the one place where that is done."""
    return StorageError(f"the database failed: {str(error).strip() or type(error).__name__}")


class ReportingConnection(AsyncConnection[DictRow]):
    """Reports why it could not be made: a pool tries again, and in the end says nothing of it."""

    @classmethod
    async def connect(  # type: ignore[override]  # `report` is the pool's own keyword
        cls, conninfo: str = "", *, report: Callable[[str], object], **kwargs: Any
    ) -> Self:
        try:
            made = await super().connect(conninfo, **kwargs)
        except psycopg.Error as error:
            report(": " + " ".join(str(error).split()))
            raise
        report("")
        return made


class AsyncDatabase:
    """A pool of connections whose every transaction states its role and its tenant.

    Both are set with ``SET LOCAL``, in the same message as ``BEGIN``: nothing outlives the
    transaction, so a pooler in transaction mode can sit between.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int,
        connect_timeout: float,
        prepare: bool,
        revive: Callable[[], object] | None = None,
    ) -> None:
        self.url = url
        self.tenant_id: int | None = None
        self._vectors_schema: str | None = None
        self.revive = revive
        self._timeout = connect_timeout
        self._pid = os.getpid()
        self._reason = ""  # why the last attempt to connect failed, after a colon
        self._attempts = pool_size + 1
        self._prologues: dict[tuple[str | None, bool, int | None, str | None], bytes] = {}
        self._pool: AsyncConnectionPool[Conn] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            timeout=connect_timeout,
            reconnect_timeout=connect_timeout,
            open=False,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": 2 if prepare else None,
                "application_name": "memstore",
                "client_encoding": "utf8",
                "context": ADAPTERS,
                "report": self._report,
            },
            connection_class=ReportingConnection,
        )

    def _report(self, reason: str) -> None:
        self._reason = reason

    async def open(self) -> None:
        self._guard = LoopGuard()
        try:
            conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:  # libpq's words may quote a password
            raise ConfigurationError(
                "the database's URL is neither postgresql://… nor a list of name=value"
            ) from error
        await self._pool.open()
        try:
            await self._pool.wait(self._timeout)
            self._vectors_schema = await self._find_vectors()
        except (PoolTimeout, psycopg.Error) as error:
            await self._pool.close()
            raise StorageError(f"no connection within {self._timeout} s{self._reason}") from error
        except BaseException:
            await self._pool.close()
            raise

    async def _find_vectors(self) -> str | None:
        """Name the vector extension's schema where the search path lacks it."""
        async with self.transaction(role=None) as conn:
            row = await (await conn.execute(statement("schema_of_vectors"))).fetchone()
        return row["schema"] if row else None

    async def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child's copies: to close them would end the parent's sessions
        self._guard.check()
        await self._pool.close()

    def for_tenant(self, tenant_id: int) -> Self:
        """Return the same pool for another tenant. The first one is to be closed, it alone."""
        view = copy.copy(self)
        view.tenant_id = tenant_id
        return view

    def check(self) -> None:
        """Refuse a forked child and another event loop, where the pool would hang."""
        if os.getpid() != self._pid:
            raise StorageError("a store can't be used across fork(): open one in the child")
        self._guard.check()

    def _prologue(self, role: str | None, snapshot: bool) -> bytes:
        """Write what begins a transaction; each kind is written once."""
        key = (role, snapshot, self.tenant_id, self._vectors_schema)
        if key in self._prologues:
            return self._prologues[key]
        parts: list[sql.Composable] = [SNAPSHOT if snapshot else BEGIN]
        if role is not None:
            parts.append(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        if self.tenant_id is not None and role != WORKER:
            parts.append(
                sql.SQL("SET LOCAL memstore.tenant = {}").format(sql.Literal(str(self.tenant_id)))
            )
        if self._vectors_schema is not None:
            path = sql.Identifier(self._vectors_schema)
            parts.append(sql.SQL("SET LOCAL search_path = {}").format(path))
        self._prologues[key] = sql.SQL("; ").join(parts).as_bytes(None)
        return self._prologues[key]

    async def _begin(self, role: str | None, snapshot: bool) -> Conn:
        """Take a connection and begin on it; one that died in the pool is replaced.

        Nothing has been said yet when BEGIN fails, so trying again is safe.
        """
        self.check()
        prologue = self._prologue(role, snapshot)
        for attempt in range(self._attempts):
            try:
                conn = await self._pool.getconn()
            except PoolClosed as error:
                raise StorageError("this store is closed") from error
            except PoolTimeout as error:
                if self.revive is not None:
                    await in_thread(self.revive)  # for the next call, if it was down
                raise StorageError(
                    f"no connection was free within {self._timeout} s{self._reason}"
                ) from error
            try:
                style = conn.pgconn.parameter_status(b"DateStyle") or b"ISO"
                readable = prologue if style.startswith(b"ISO") else prologue + ISO_DATES
                await conn.execute(readable)
            except psycopg.OperationalError as error:
                lost = conn.closed
                await self._give_back(conn)
                if not lost or attempt + 1 == self._attempts:
                    raise wrap(error) from error
            except psycopg.Error as error:  # the role may not be taken, say
                await conn.rollback()
                await self._give_back(conn)
                raise wrap(error) from error
            except BaseException:
                await self._give_back(conn)
                raise
            else:
                return conn
        raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises

    async def _give_back(self, conn: Conn) -> None:
        """Return a connection to the pool; a server that died must be there to replace it."""
        try:
            if conn.closed and self.revive is not None:
                await in_thread(self.revive)
        finally:
            await self._pool.putconn(conn)

    @asynccontextmanager
    async def transaction(
        self, role: str | None = SERVER, *, snapshot: bool = False
    ) -> AsyncIterator[Conn]:
        """Begin as a role and the store's tenant; commit at the end, roll back on an error.

        With `snapshot` it can only read, and all of its statements see the same moment.

        Raises `StorageError` for whatever the driver raises. When the connection is lost during
        COMMIT the outcome is unknown to the client: repeat with the same idempotency keys.
        """
        with telemetry.span("transaction", role=role or "login", snapshot=snapshot):
            conn = await self._begin(role, snapshot)
            try:
                try:
                    yield conn
                except BaseException:
                    if not conn.closed:
                        await conn.rollback()
                    raise
                await conn.commit()
            except MemstoreError:
                raise
            except psycopg.Error as error:
                raise wrap(error) from error
            finally:
                await self._give_back(conn)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Conn]:
        """Connect outside of the pool and of any transaction, as the login itself."""
        async with await AsyncConnection[DictRow].connect(
            self.url, autocommit=True, row_factory=dict_row, prepare_threshold=None
        ) as conn:
            if self._vectors_schema is not None:
                path = sql.Identifier(self._vectors_schema)
                await conn.execute(sql.SQL("SET search_path = {}").format(path))
            yield conn

    async def fetch_one(
        self, statement: sql.Composed | sql.SQL, parameters: dict[str, Any]
    ) -> DictRow | None:
        """Read one row in a transaction of its own."""
        async with self.transaction() as conn:
            return await (await conn.execute(statement, parameters)).fetchone()


async def fetch_all(conn: Conn, statement: Any, parameters: dict[str, Any]) -> list[Any]:
    """Read rows as tuples, in binary, and so their arrays of numbers as numpy's."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)
