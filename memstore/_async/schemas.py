"""State schemas registered in the database: by anybody who may, for every client and server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from memstore import sql
from memstore._async import state_migration
from memstore._async.database import Conn
from memstore._async.runtime import in_thread
from memstore.default_schema import DEFAULT_SCHEMA
from memstore.errors import InvalidInput, NotFound, SchemaConflict, SchemaError
from memstore.json_schema import Definition, JsonSchema, defined
from memstore.schema import check_name
from memstore.state import MigrationReport
from memstore.text import dumps

if TYPE_CHECKING:
    from memstore._async.store import AsyncMemoryStore

MOST_VERSIONS = 1_000  # of all of a tenant's schemas
MOST_KNOWN = 256

Known = dict[tuple[int | None, str, int], JsonSchema]


class AsyncSchemas:
    """The registered schemas of a store's tenant. Made by ``store.schemas``."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        self._store = store
        self._db = store._db
        self._known = store._known_schemas

    async def register(
        self,
        name: str,
        version: int,
        schema: dict[str, Any],
        *,
        migration: list[dict[str, Any]] | None = None,
        initial: dict[str, Any] | None = None,
    ) -> Definition:
        """Register a version of a state's schema, as JSON Schema (draft 2020-12).

        Versions are registered one after the other, from 1 on, and never change: repeated with
        the same body it does nothing. From version 2 on `migration` is the JSON Patch that
        leads there from the version before; an operation with ``"optional": true`` is left out
        where what it takes is not there. `initial` is the state of a memory that has none yet,
        by default the defaults of the schema's properties.

        Raises `SchemaError` for an unsound one, `SchemaConflict` where another body is
        registered under that name and version.
        """
        definition, _ = await self.add(name, version, schema, migration=migration, initial=initial)
        return definition

    async def add(
        self,
        name: str,
        version: int,
        schema: dict[str, Any],
        *,
        migration: list[dict[str, Any]] | None = None,
        initial: dict[str, Any] | None = None,
    ) -> tuple[Definition, bool]:
        """Do what `register` does, and tell whether it is new."""
        given = await in_thread(defined, name, version, schema, migration, initial)
        before = await self._versions(name, version)
        if not (before and before[-1].version == version):
            await self._compiled(given, before)
            async with self._db.transaction() as conn:
                created = await self._insert(conn, given)
            if created is not None:
                return created, True
            before = await self._versions(name, version)
        if not before[-1].is_same(given):
            raise SchemaConflict(schema=name, version=version)
        return before[-1], False

    async def _insert(self, conn: Conn, given: Definition) -> Definition | None:
        tenant = {"tenant_id": self._db.tenant_id}
        counted = await (await conn.execute(sql.statement("count_schemas"), tenant)).fetchone()
        if counted is None or counted["registered"] >= MOST_VERSIONS:
            raise InvalidInput(f"{MOST_VERSIONS:,} versions are registered already", path="version")
        body = {
            part: None if (value := getattr(given, part)) is None else dumps(value)
            for part in ("schema", "migration", "initial")
        }
        named = {"name": given.name, "version": given.version}
        cursor = await conn.execute(sql.statement("insert_schema"), tenant | named | body)
        row = await cursor.fetchone()
        return None if row is None else replace(given, created_at=row["created_at"].astimezone(UTC))

    async def trial(
        self,
        name: str,
        version: int,
        schema: dict[str, Any],
        *,
        migration: list[dict[str, Any]] | None = None,
        initial: dict[str, Any] | None = None,
        limit: int | None = None,
    ) -> MigrationReport:
        """Try a version on every stored state before it is registered; nothing is written.

        With a `limit` it tries that many stored documents at most. Takes and raises what
        `register` does.
        """
        given = await in_thread(defined, name, version, schema, migration, initial)
        candidate = await self._compiled(given, await self._versions(name, version))
        return await state_migration.migrate_states(
            self._store, candidate, dry_run=True, progress=None, limit=limit
        )

    async def get(self, name: str, version: int | None = None) -> JsonSchema:
        """Return a schema to name a memory with: the newest version, or the one given.

        Under an older version than the newest, states that were saved under a newer one are
        refused. Raises `NotFound`.
        """
        version = await self._existing(name, version)
        key = (self._db.tenant_id, name, version)
        if key in self._known:
            return self._known[key]
        found = await in_thread(JsonSchema, await self.versions(name, version))
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = found
        return found

    async def versions(self, name: str, version: int | None = None) -> list[Definition]:
        """Return a schema's versions from the first on, up to one. Raises `NotFound`."""
        version = await self._existing(name, version)
        found = await self._versions(name, version)
        if not found or found[-1].version != version:
            raise NotFound(f"no version {version} of a schema {name!r} is registered")
        return found

    async def _existing(self, name: str, version: int | None) -> int:
        """Find the newest version, unless one is given."""
        check_name(name, 1 if version is None else version)
        if version is not None:
            return version
        given = {"tenant_id": self._db.tenant_id, "name": name}
        row = await self._db.fetch_one(sql.statement("newest_schema_version"), given)
        if row is None or row["version"] is None:
            raise NotFound(f"no schema {name!r} is registered")
        newest: int = row["version"]
        return newest

    async def registered(self) -> list[Definition]:
        """List the schemas by name, each in its newest version."""
        async with self._db.transaction() as conn:
            tenant = {"tenant_id": self._db.tenant_id}
            cursor = await conn.execute(sql.statement("list_schemas"), tenant)
            return [_definition(row) for row in await cursor.fetchall()]

    async def _versions(self, name: str, version: int) -> list[Definition]:
        async with self._db.transaction() as conn:
            given = {"tenant_id": self._db.tenant_id, "name": name, "version": version}
            cursor = await conn.execute(sql.statement("schema_versions"), given)
            return [_definition(row) for row in await cursor.fetchall()]

    async def _compiled(self, given: Definition, before: list[Definition]) -> JsonSchema:
        """Put a definition on top of those before it; raises SchemaError where it does not fit."""
        if given.name == DEFAULT_SCHEMA.name:
            raise SchemaError("this is the default schema's name", path="name")
        earlier = [one for one in before if one.version < given.version]
        if len(earlier) != given.version - 1:
            raise SchemaError(f"the next version is {len(earlier) + 1}", path="version")
        return await in_thread(JsonSchema, [*earlier, given])


def _definition(row: dict[str, Any]) -> Definition:
    return Definition(**row | {"created_at": row["created_at"].astimezone(UTC)})
