"""Opening a database and handing out memories."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload
from uuid import UUID

import psycopg

from memstore import sql, telemetry
from memstore._async import (
    api_keys,
    diagnosis,
    encoding_queue,
    migrations,
    spaces,
    state_migration,
    tuning,
    vectors,
)
from memstore._async.database import AsyncDatabase, wrap
from memstore._async.memory import AsyncMemory
from memstore._async.runtime import Lock, in_thread
from memstore._async.schemas import AsyncSchemas, Known
from memstore.config import Settings
from memstore.default_schema import DEFAULT_SCHEMA, AgentState
from memstore.diagnosis import Backlog, Check
from memstore.encoding.limited import EncoderLimit
from memstore.encoding.source import EncoderSource
from memstore.errors import (
    ConfigurationError,
    EncoderMismatch,
    MigrationRequired,
    NotFound,
    TooBusy,
)
from memstore.keys import ApiKey, NewKey
from memstore.reranking import RerankerSource
from memstore.schema import StateSchema
from memstore.space import Indexed, Space
from memstore.state import M, MigrationReport
from memstore.text import check_id, check_whole
from memstore.tuning import BUDGETS, Tuned
from memstore.types import Encoder, Identity, Reranker
from memstore.worker import Worker

if TYPE_CHECKING:
    from memstore.embedded import EmbeddedServer


class AsyncMemoryStore:
    """Every memory of one tenant in one Postgres.

    Open it with `embedded` or `connect`, and close it, or use it as a context manager. Set
    `reranker` to a cross-encoder, or its name, to have it order the best entries anew; by default
    it is the setting's, and none.
    """

    def __init__(
        self, db: AsyncDatabase, settings: Settings, encoder: str | Encoder | None
    ) -> None:
        """Use `embedded` or `connect` instead."""
        self.settings = settings
        limited = settings.query_encoders is not None
        self._rerankers = RerankerSource(
            settings.reranker, settings.query_patience if limited else None
        )
        self._db = db
        self._encoders = EncoderSource(encoder, settings.cache_dir)
        self._space: Space | None = None
        self._known_schemas: Known = {}
        self._lock = Lock()
        self._limit = (
            EncoderLimit(settings.query_encoders, settings.query_patience)
            if settings.query_encoders
            else None
        )
        self._server: EmbeddedServer | None = None
        self._worker: Worker | None = None
        self._closed = False
        self._owner = True  # of the connections: a view for another tenant is not

    # opening and closing

    @classmethod
    async def embedded(
        cls,
        data_dir: Path | str | None = None,
        *,
        encoder: str | Encoder | None = "default",
        settings: Settings | None = None,
    ) -> Self:
        """Open a real Postgres with pgvector in a folder of the user's, started if need be.

        `data_dir` is by default ``MEMSTORE_DATA_DIR``, else a folder below the user's data
        folder. Any number of processes may open the same folder. The database is migrated, and
        the encoder's space made. `encoder` is a model's name, an `Encoder`, or None for a store
        that searches by words alone; "default" is the setting's.

        Raises `MissingExtra` without the extra ``embedded``, `ConfigurationError` for a folder
        that another Postgres version made, `EncoderMismatch` when another encoder serves.
        """
        from memstore.embedded import EmbeddedServer, default_data_dir  # not needed to connect

        settings = settings or Settings()
        folder = Path(data_dir) if data_dir else settings.data_dir or default_data_dir()
        server = await in_thread(EmbeddedServer.acquire, folder)
        try:
            await migrations.migrate(server.url)
            store = await cls._open(server.url, settings, encoder, server, prepare_space=True)
        except BaseException:
            await in_thread(server.release)
            raise
        return store

    @classmethod
    async def connect(
        cls,
        url: str | None = None,
        *,
        tenant: str | None = None,
        encoder: str | Encoder | None = "default",
        settings: Settings | None = None,
    ) -> Self:
        """Open any Postgres with pgvector that ``memstore migrate`` has prepared.

        `url` is a libpq URL or conninfo, by default ``MEMSTORE_URL``; ``PG*`` variables fill in
        what it leaves out. Its role must be a member of memstore_server and memstore_worker.

        Raises `StorageError` when there is no connection, `MigrationRequired` when the database
        is not at this code's migrations, `NotFound` for an unknown tenant, `EncoderMismatch`
        when another encoder serves there.
        """
        settings = settings or Settings()
        if tenant is not None:
            settings = settings.model_copy(update={"tenant": tenant})
        return await cls._open(url or settings.url or "", settings, encoder)

    @classmethod
    async def prepare(
        cls,
        url: str,
        *,
        encoder: str | Encoder | None = "default",
        settings: Settings | None = None,
    ) -> None:
        """Make the tenant and the encoder's space in a migrated database, unless they are there.

        Needs the owner's role. `connect` works afterwards.
        """
        store = await cls._open(
            url, (settings or Settings()).without_thread(), encoder, prepare_space=True
        )
        await store.close()

    @classmethod
    async def _open(
        cls,
        url: str,
        settings: Settings,
        encoder: str | Encoder | None,
        server: EmbeddedServer | None = None,
        *,
        prepare_space: bool = False,
    ) -> Self:
        if settings.telemetry:
            telemetry.enable()
        db = AsyncDatabase(
            url,
            pool_size=settings.pool_size,
            connect_timeout=settings.connect_timeout,
            prepare=settings.prepare,
            revive=server.ensure_running if server else None,
        )
        store = cls(db, settings, settings.encoder if encoder == "default" else encoder)
        await db.open()
        try:
            await store._prepare(prepare_space)
        except psycopg.Error as error:
            await db.close()
            raise wrap(error) from error
        except BaseException:
            await db.close()
            raise
        store._server = server
        if settings.encode_in_background and store._space is not None:
            store._worker = await store.make_worker()
            store._worker.start()
        return store

    async def make_worker(self, encoder: str | Encoder | None = None) -> Worker:
        """Make a worker for this store's encoder, or for another's space; start it, and stop it.

        Raises `NotFound` when that encoder has no space.
        """
        encoders, space = self._encoders, self._space
        if encoder is not None:
            encoders = EncoderSource(encoder, self.settings.cache_dir)
            space = await spaces.of(self._db, encoders.name) if encoders.name else None
        if space is None:
            raise ConfigurationError("this store has no encoder")
        return Worker(self._db.url, encoders, space, self.settings, revive=self._db.revive)

    async def _prepare(self, prepare_space: bool) -> None:
        """Check migrations, find the tenant and the space."""
        async with self._db.transaction(role=None) as conn:
            await migrations.verify(conn)
        if prepare_space:
            await self.create_tenant(self.settings.tenant)
        self._db.tenant_id = await self._tenant_id(self.settings.tenant)
        async with self._db.transaction() as conn:
            self._space = await spaces.serving(conn)
        name = self._encoders.name
        if name is None:
            self._space = None
        elif self._space is None and prepare_space:
            dimension = await in_thread(self._encoders.dimension)
            self._space = await spaces.create(self._db, name, dimension)
        elif self._space is None:
            raise MigrationRequired(
                f"no encoder serves in this database yet: run 'memstore migrate --encoder {name}'"
            )
        elif self._space.encoder != name:
            raise EncoderMismatch(
                f"this database's vectors are from {self._space.encoder!r}, not {name!r}: open it "
                f"with that encoder, or fill a space for the new one with "
                f"'memstore space add {name}' and switch to it"
            )

    async def _tenant_id(self, name: str) -> int:
        row = await self._db.fetch_one(
            sql.statement("tenant_id"), {"name": check_id(name, "tenant")}
        )
        if row is None:
            raise NotFound(f"there is no tenant {name!r}: run 'memstore migrate --tenant {name}'")
        return int(row["tenant_id"])

    async def for_tenant(self, name: str) -> Self:
        """Return this store for another tenant, over the same connections and encoder.

        It lives as long as this one, which is to be closed, it alone. Raises `NotFound`.
        """
        view = copy.copy(self)
        view.settings = self.settings.model_copy(update={"tenant": name})
        view._db = self._db.for_tenant(await self._tenant_id(name))
        view._owner = False
        return view

    @property
    def reranker(self) -> str | Reranker | None:
        """What orders the best entries anew: a cross-encoder, its name until it is loaded, or None.

        It is that of the views for other tenants too.
        """
        return self._rerankers.given

    @reranker.setter
    def reranker(self, reranker: str | Reranker | None) -> None:
        self._rerankers.given = reranker

    @property
    def url(self) -> str:
        """The database's URL: of the embedded one too, for psql or another client."""
        return self._db.url

    async def close(self) -> None:
        """Stop encoding, close the connections and let go of the embedded server."""
        if self._closed or not self._owner:
            return
        if self._worker is not None:
            await in_thread(self._worker.stop)
        await self._db.close()
        self._closed = True
        if self._server is not None:
            await in_thread(self._server.release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # memories

    @overload
    def memory(self, *, agent: str, user: str) -> AsyncMemory[AgentState]: ...
    @overload
    def memory(self, *, agent: str, user: str, schema: StateSchema[M]) -> AsyncMemory[M]: ...
    def memory(
        self, *, agent: str, user: str, schema: StateSchema[Any] = DEFAULT_SCHEMA
    ) -> AsyncMemory[Any]:
        """Name what one agent knows about one user. Nothing is read or written yet.

        `agent` and `user` are compared exactly, up to 512 bytes of UTF-8 each. `schema` is the
        state's; without one it is `DEFAULT_SCHEMA`.
        """
        identity = Identity(self.settings.tenant, check_id(agent, "agent"), check_id(user, "user"))
        return AsyncMemory(self, identity, schema)

    async def memories(self, *, page: int = 500) -> AsyncIterator[Identity]:
        """Go through the tenant's memories, in no order that means anything."""
        after = UUID(int=0)
        while True:
            async with self._db.transaction() as conn:
                cursor = await conn.execute(
                    sql.statement("list_memories"),
                    {"tenant_id": self._db.tenant_id, "after": after, "limit": page},
                )
                found = await cursor.fetchall()
            for row in found:
                yield Identity(self.settings.tenant, row["agent_id"], row["user_id"])
            if len(found) < page:
                return
            after = found[-1]["memory_id"]

    async def create_tenant(self, name: str) -> None:
        """Make a tenant unless it is there. Needs the owner's role."""
        async with self._db.transaction(role=None) as conn:
            await conn.execute(sql.statement("create_tenant"), {"name": check_id(name, "tenant")})

    @property
    def schemas(self) -> AsyncSchemas:
        """The tenant's registered schemas: register them, list them, try out new versions."""
        return AsyncSchemas(self)

    async def migrate_states(
        self,
        schema: StateSchema[Any] = DEFAULT_SCHEMA,
        *,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> MigrationReport:
        """Bring the tenant's stored states to the schema's current version.

        Every stored document, of any version, is tried first. Only when no memory's head fails
        are those that are older saved as new versions; the stored ones are never altered. With
        `dry_run` nothing is saved. `progress` is told how many were tried.
        """
        return await state_migration.migrate_states(
            self, schema, dry_run=dry_run, progress=progress
        )

    async def tune(
        self,
        labelled: Sequence[tuple[AsyncMemory[Any], str, Sequence[int]]],
        *,
        budgets: Sequence[int] = BUDGETS,
        wanted: float = 0.9,
        progress: Callable[[int, int], object] | None = None,
    ) -> Tuned:
        """Find the budget that is worth it, and how to split it, on a labelled set.

        Each label is a memory, a task, and the positions of the entries that help with it.
        Every task is resumed at each of the `budgets`; the curve, its knee and the smallest
        budget that keeps the `wanted` share of those entries come back. Raises `NotFound`
        where nothing is labelled.
        """
        return await tuning.tune(labelled, budgets, wanted, progress)

    # serving

    async def readiness(self) -> list[Check]:
        """Say whether this store can serve: database, migrations, encoder, and the queue's age."""
        return await diagnosis.readiness(self)

    async def backlog(self) -> Backlog:
        """Measure what waits for a vector, over all tenants."""
        return await diagnosis.backlog(self)

    async def authenticate(self, token: str) -> ApiKey | None:
        """Find a token's key, of any tenant; None where it is unknown, expired or revoked.

        Needs a role that is a member of memstore_authenticator.
        """
        return await api_keys.authenticate(self._db, token)

    async def create_key(
        self,
        name: str,
        *,
        scopes: Iterable[str],
        agents: Iterable[str] | None = None,
        users: Iterable[str] | None = None,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Make an API key of this tenant. Its token is in the answer and nowhere else.

        `agents` and `users` bind it to those ids. Needs the owner's role, as do the others.
        """
        return await api_keys.create(
            self._db, self.settings.tenant, name, scopes, agents, users, expires_at
        )

    async def keys(self) -> list[ApiKey]:
        """List the tenant's API keys, oldest first, those that ended too."""
        return await api_keys.listed(self._db, self.settings.tenant)

    async def revoke_key(self, key_id: str) -> ApiKey:
        """End an API key now. Raises `NotFound`."""
        return await api_keys.revoke(self._db, self.settings.tenant, key_id)

    async def rotate_key(
        self,
        key_id: str,
        *,
        grace: timedelta = api_keys.NO_GRACE,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Make a key with the same rights, and end the old one after a time of grace.

        Raises `NotFound`, and `InvalidInput` for a key that has ended.
        """
        return await api_keys.rotate(self._db, self.settings.tenant, key_id, grace, expires_at)

    # encoders and their spaces

    async def encoder(self) -> Encoder | None:
        """Return the store's encoder, loaded at the first call; None in a store without one.

        Raises `EncoderMismatch` when its dimension is not its space's.
        """
        if self._space is None:
            return None
        encoder = self._encoders.loaded
        if encoder is None:
            async with self._lock:
                encoder = await in_thread(self._encoders.get)
        if encoder.dimension != self._space.dimension:
            raise EncoderMismatch(
                f"{encoder.name!r} gives {encoder.dimension} dimensions, its space has "
                f"{self._space.dimension}: it is another model under the same name"
            )
        return encoder

    async def _query_encoder(self) -> Encoder | None:
        """Return the encoder for a query: behind the limit, where there is one.

        Raises `TooBusy` while another call loads it, if queries are not to wait.
        """
        if self._limit is None:
            return await self.encoder()
        if self._encoders.loaded is None and self._lock.locked():
            raise TooBusy("the encoder is being loaded")
        encoder = await self.encoder()
        return None if encoder is None else self._limit.of(encoder)

    async def spaces(self) -> list[Space]:
        """List the spaces: the one that serves, those being filled, those retained."""
        async with self._db.transaction() as conn:
            return await spaces.listed(conn)

    async def add_space(self, encoder: Encoder) -> Space:
        """Make a space for another encoder and queue every entry for it; this one serves on."""
        return await spaces.create(self._db, encoder.name, encoder.dimension)

    async def switch_space(self, encoder: str) -> Space:
        """Let a filled space serve, in one transaction; the one before is retained.

        Stores that are open must be opened again with that encoder.
        """
        return await spaces.switch(self._db, encoder)

    async def drop_space(self, encoder: str) -> None:
        """Remove a space that does not serve."""
        await spaces.drop(self._db, encoder)

    async def fill_space(self, encoder: Encoder) -> int:
        """Encode what waits in an encoder's space until nothing is due; return how many."""
        space = await spaces.create(self._db, encoder.name, encoder.dimension)
        total = 0
        while await encoding_queue.backlog(self._db, space):
            total += await encoding_queue.encode_due(
                self._db, encoder, space, self.settings.lease_seconds
            )
        return total

    async def index_vectors(self, *, above: int | None = None) -> Indexed:
        """Index the vectors of each memory that outgrew the exact scan, drop what has shrunk.

        `above` is in entries, by default the setting `index_above`; with 0 nothing is done.
        Nobody waits for it. Raises `ConfigurationError` where the login does not own the vectors.
        """
        wanted = self.settings.index_above if above is None else check_whole(above, "above")
        async with self._db.transaction() as conn:
            space = await spaces.serving(conn)
        return Indexed() if space is None else await vectors.index_large(self._db, space, wanted)

    def _wake_worker(self) -> None:
        if self._worker is not None:
            self._worker.wake()
