"""A server's registered schemas: the methods of `Schemas`, each a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from memstore import wire
from memstore._async.runtime import in_thread
from memstore.http import read_answer
from memstore.json_schema import Definition, JsonSchema
from memstore.schema import check_name
from memstore.state import MigrationReport
from memstore.text import clean_json

if TYPE_CHECKING:
    from memstore._async.client import AsyncClient

PATH = "/v1/schemas"


class AsyncRemoteSchemas:
    """The registered schemas of the key's tenant, on a server. Made by ``client.schemas``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def register(
        self,
        name: str,
        version: int,
        schema: dict[str, Any],
        *,
        migration: list[dict[str, Any]] | None = None,
        initial: dict[str, Any] | None = None,
    ) -> Definition:
        """Register a version of a state's schema. See `Schemas.register`; it needs ``admin``."""
        body = _body(schema, migration, initial)
        path = _path(name, version)
        response = await self._client._send("PUT", path, body=body)
        return read_answer(response.content, wire.definition_from)

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
        """Try a version on stored states before it is registered. See `Schemas.trial`.

        A server tries 2,000 documents at most, and says so in `complete`.
        """
        body = _body(schema, migration, initial) | {"limit": limit}
        path = f"{_path(name, version)}/trial"
        response = await self._client._send("POST", path, body=body)
        return read_answer(response.content, wire.report_from)

    async def get(self, name: str, version: int | None = None) -> JsonSchema:
        """Return a schema to name a memory with. See `Schemas.get`."""
        return await in_thread(JsonSchema, await self.versions(name, version))

    async def versions(self, name: str, version: int | None = None) -> list[Definition]:
        """Return a schema's versions from the first on, up to one. Raises `NotFound`."""
        check_name(name, 1 if version is None else version)
        params = {} if version is None else {"version": version}
        path = f"{PATH}/{_encoded(name)}"
        response = await self._client._send("GET", path, params=params)
        return read_answer(response.content, wire.definitions_from)

    async def registered(self) -> list[Definition]:
        """List the schemas by name, each in its newest version."""
        response = await self._client._send("GET", PATH)
        return read_answer(response.content, wire.definitions_from)


def _body(schema: Any, migration: Any, initial: Any) -> dict[str, Any]:
    given = {"schema": schema, "migration": migration, "initial": initial}
    return {part: clean_json(value, path=part) for part, value in given.items()}


def _path(name: str, version: int) -> str:
    check_name(name, version)
    return f"{PATH}/{_encoded(name)}/versions/{version}"


def _encoded(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")
