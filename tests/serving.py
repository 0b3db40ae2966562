"""What the tests of server and clients share: an encoder, an application served in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from zlib import crc32

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray

from memstore import AsyncClient, Client, MemoryStore
from memstore_api import ServerSettings, create_app
from memstore_api.serving import config_of
from tests.stores import QUIET, Blocking, connected, event_loop

LOCAL = "http://127.0.0.1"
LONGEST = 30.0
KINDS = ("sync", "async", "client", "async client")


class WordEncoder:
    """Counts words in 64 drawers: quick, and alike for texts that share words."""

    name = "words"
    dimension = 64

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.full((len(texts), self.dimension), 0.01, np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.casefold().split():
                row[crc32(word.encode()) % self.dimension] += 1
        normal: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return normal

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        return [(start, min(start + 400, len(text))) for start in range(0, len(text), 400)]


def application(url: str, *, encoder: Any = None, **settings: Any) -> FastAPI:
    """Make an application over a migrated database; with an encoder its space is made too."""
    if encoder is not None:
        MemoryStore.prepare(url, encoder=encoder, settings=QUIET)
    given: dict[str, Any] = {"url": url, "encode_in_background": False} | settings
    return create_app(ServerSettings(**given), encoder=encoder)


@asynccontextmanager
async def asked(app: FastAPI, key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Start an application and give a client that calls it in this process."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=LOCAL, headers=headers) as http,
    ):
        yield http


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """Serve an application at a port of its own, and give its URL."""
    settings = app.state.service.settings.model_copy(update={"port": 0})
    server = uvicorn.Server(config_of(app, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + LONGEST
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"{LOCAL}:{port}"
    finally:
        server.should_exit = True
        thread.join(LONGEST)
        assert not thread.is_alive()


@contextmanager
def opened(kind: str, url: str, encoder: Any = None) -> Iterator[Any]:
    """Open a migrated database as a store of either side, or through a server as a client."""
    if kind in ("sync", "async"):
        with connected(kind, url, encoder) as store:
            yield store
        return
    app = application(url, encoder=encoder, insecure=True, encode_in_background=True)
    with running(app) as address:
        if kind == "client":
            with Client(address) as client:
                yield client
            return
        with event_loop() as loop:
            blocking = Blocking(AsyncClient(address), loop)
            try:
                yield blocking
            finally:
                blocking.close()
