"""What a running server holds: the store, a view of it for each tenant, schemas, the gate."""

from __future__ import annotations

import importlib
from typing import Any

from memstore import (
    DEFAULT_SCHEMA,
    AccessDenied,
    AsyncMemoryStore,
    ConfigurationError,
    Encoder,
    InvalidInput,
    MemstoreError,
    NotFound,
    SchemaError,
    StateSchema,
)
from memstore_api.access import Gate
from memstore_api.settings import ServerSettings


class Service:
    """One server's parts. Nothing of a client's is kept in it between requests."""

    def __init__(self, settings: ServerSettings, encoder: str | Encoder | None) -> None:
        self.settings = settings
        self._encoder = encoder
        self.gate = Gate(settings)
        self._schemas = {
            schema.name: schema for schema in (DEFAULT_SCHEMA, *map(imported, settings.schemas))
        }
        self.failure: MemstoreError | None = None  # why it did not open
        self._store: AsyncMemoryStore | None = None
        self._views: dict[str, AsyncMemoryStore] = {}

    @property
    def store(self) -> AsyncMemoryStore:
        if self._store is None:
            raise ConfigurationError("the server has not started")
        return self._store

    async def open(self) -> AsyncMemoryStore:
        """Open the store: the database at the settings' URL, or the embedded one."""
        settings = self.settings
        given: dict[str, Any] = {"encoder": self._encoder, "settings": settings}
        try:
            if settings.url is not None:
                self._store = await AsyncMemoryStore.connect(**given)
            else:
                self._store = await AsyncMemoryStore.embedded(**given)
        except MemstoreError as error:
            self.failure = error
            raise
        self._views = {settings.tenant: self._store}
        return self._store

    async def close(self) -> None:
        store, self._store, self._views = self._store, None, {}
        if store is not None:
            await store.close()

    async def for_tenant(self, tenant: str) -> AsyncMemoryStore:
        """Return the store of a tenant; raises `AccessDenied` where there is no such tenant."""
        store = self.store
        if tenant not in self._views:
            try:
                self._views[tenant] = await store.for_tenant(tenant)
            except NotFound as error:
                raise AccessDenied("the key's tenant is not known here") from error
        return self._views[tenant]

    async def schema(
        self, name: str | None, version: int | None, store: AsyncMemoryStore
    ) -> StateSchema[Any]:
        """Return a schema by its name, imported or registered; without one it is the default."""
        imported = DEFAULT_SCHEMA if name is None else self._schemas.get(name)
        if imported is not None:
            if version is not None:
                raise InvalidInput("only a registered schema has some", path="schema_version")
            return imported
        assert name is not None
        try:
            return await store.schemas.get(name, version)
        except (NotFound, SchemaError) as error:
            raise InvalidInput(
                "no schema of that name is served, or not in that version", path="schema"
            ) from error

    def refuse_imported(self, name: str) -> None:
        """Refuse a name under which this server serves a schema of its own."""
        if name in self._schemas:
            raise InvalidInput("this server has its own schema of that name", path="name")


def imported(name: str) -> StateSchema[Any]:
    """Import a schema by ``module:NAME``."""
    module, _, attribute = name.partition(":")
    try:
        schema = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the operator's module may raise anything
        raise ConfigurationError(
            f"the schema {name!r} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(schema, StateSchema):
        raise ConfigurationError(f"{name!r} is no StateSchema")
    return schema
