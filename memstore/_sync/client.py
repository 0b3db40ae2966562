# generated from memstore/_async by scripts/generate_sync.py: edit there
"""The client of a memstore server: the store's methods over HTTP, repeated where that is safe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from random import random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from memstore import telemetry
from memstore._sync.remote import RemoteMemory
from memstore._sync.remote_schemas import RemoteSchemas
from memstore._sync.runtime import sleep
from memstore.default_schema import DEFAULT_SCHEMA, AgentState
from memstore.errors import InvalidInput, MemstoreError, MissingExtra, ServiceError, TooBusy
from memstore.http import error_of, read_answer
from memstore.problems import from_problem
from memstore.schema import StateSchema
from memstore.state import M
from memstore.text import check_id
from memstore.types import Identity

if TYPE_CHECKING:
    import httpx

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 10.0
GATEWAYS = (502, 504)  # who stands between does not know whether it was done


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("httpx", "client") from error
    return httpx


class Client:
    """A memstore server's memories, under the names that `MemoryStore` has.

    Close it, or use it as a context manager. What fails on the way is repeated where that does
    no harm: reads, and writes, which carry idempotency keys. Errors are the store's own;
    `AccessDenied`, `TooBusy` and `ServiceError` are a server's.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        attempts: int = 4,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Name a server; nothing is sent yet.

        `key` is an API key or a JWT. `timeout` is in seconds, for connecting and for each
        pause within an answer. Raises `MissingExtra` without the extra ``client``.
        """
        httpx = _httpx()
        if attempts < 1:
            raise InvalidInput("at least 1", path="attempts")
        headers = {"User-Agent": f"memstore/{metadata.version('memstore')}"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self.url = url
        self._attempts = attempts
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport
        )
        self._failures: tuple[type[Exception], tuple[type[Exception], ...]] = (
            httpx.RequestError,
            (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @overload
    def memory(self, *, agent: str, user: str) -> RemoteMemory[AgentState]: ...
    @overload
    def memory(self, *, agent: str, user: str, schema: StateSchema[M]) -> RemoteMemory[M]: ...
    def memory(
        self, *, agent: str, user: str, schema: StateSchema[Any] = DEFAULT_SCHEMA
    ) -> RemoteMemory[Any]:
        """Name what one agent knows about one user. Nothing is read or written yet.

        A `schema` of one's own must be served under its name (``memstore serve --schema``), or
        registered: ``client.schemas.get(name)``.
        """
        return RemoteMemory(self, check_id(agent, "agent"), check_id(user, "user"), schema)

    @property
    def schemas(self) -> RemoteSchemas:
        """The tenant's registered schemas: register them, list them, try out new versions."""
        return RemoteSchemas(self)

    def memories(self) -> Iterator[Identity]:
        """Go through the tenant's memories that the key may see. The tenant's name is left out."""
        try:
            with self._http.stream("GET", "/v1/memories") as response:
                if response.status_code != 200:
                    response.read()
                    raise _error(response)
                rest = b""
                for part in response.iter_bytes():
                    # Not by httpx's lines, which end at U+2028 too: an id may hold one.
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        yield read_answer(line, _identity)
                if rest:
                    raise ServiceError("the server's answer broke off")
        except self._failures[0] as error:
            raise self._unreached(error) from error

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        media_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> httpx.Response:
        """Send a request, and again where it failed unsent or is `repeatable`.

        Raises what the server answers, or `ServiceError` when it can't be reached.
        """
        given = dict(headers or {})
        content = None
        if body is not None:
            # Escaped to ASCII: half a surrogate pair arrives, and is mended there as here.
            content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
            given["Content-Type"] = media_type
        telemetry.inject(given)
        failure, unsent = self._failures
        for attempt in range(1, self._attempts + 1):
            again, pause = repeatable, FIRST_PAUSE * 2**attempt * (0.5 + random())
            try:
                response: httpx.Response = self._http.request(
                    method, path, params=params, content=content, headers=given
                )
            except failure as error:
                again = again or isinstance(error, unsent)
                problem: MemstoreError = self._unreached(error)
                problem.__cause__ = error
            else:
                if response.status_code < 300:
                    return response
                problem = _error(response)
                if isinstance(problem, TooBusy):
                    again, pause = True, max(pause, problem.retry_after)  # nothing was done
                else:
                    again = again and response.status_code in (503, *GATEWAYS)
            if not again or attempt == self._attempts or pause > LONGEST_PAUSE:
                raise problem
            sleep(pause)
        raise AssertionError("unreachable")

    def _unreached(self, error: Exception) -> ServiceError:
        words = f"{self.url} can't be reached: {type(error).__name__} {error}"
        return ServiceError(words.rstrip())


def _identity(found: Any) -> Identity:
    if "problem" in found:
        raise from_problem(found["problem"])
    return Identity("", found["agent"], found["user"])


def _error(response: httpx.Response) -> MemstoreError:
    media_type = response.headers.get("Content-Type", "")
    return error_of(response.status_code, media_type, response.content)
