"""The two stores under one face, so that one suite of tests runs over both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memstore import (
    AsyncMemory,
    AsyncMemoryStore,
    AsyncRemoteMemory,
    AsyncRemoteSchemas,
    AsyncSchemas,
    MemoryStore,
    Settings,
)

KINDS = ("sync", "async")
LONGEST = 120.0  # seconds: a hang becomes a failure
QUIET = Settings(encode_in_background=False)


class Blocking:
    """An asynchronous object whose coroutines run to their end on a loop in another thread."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if isinstance(found, AsyncSchemas | AsyncRemoteSchemas):
            return Blocking(found, self._loop)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if inspect.isasyncgen(result):
                return self._run(_collect(result))
            if inspect.isawaitable(result):
                result = self._run(result)
            inner = isinstance(result, AsyncMemory | AsyncMemoryStore | AsyncRemoteMemory)
            return Blocking(result, self._loop) if inner else result

        return call

    def _run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(LONGEST)


async def _collect(items: Any) -> list[Any]:
    return [item async for item in items]


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LONGEST)
        loop.close()


@contextmanager
def connected(
    kind: str,
    url: str,
    encoder: Any = None,
    settings: Settings = QUIET,
    owner: str | None = None,
) -> Iterator[Any]:
    """Open a migrated database as either store; `owner` is its URL for who may prepare it."""
    if encoder is not None:
        MemoryStore.prepare(owner or url, encoder=encoder, settings=settings)
    if kind == "sync":
        with MemoryStore.connect(url, encoder=encoder, settings=settings) as blocking:
            yield blocking
        return
    with event_loop() as loop:
        opening = AsyncMemoryStore.connect(url, encoder=encoder, settings=settings)
        store = Blocking(asyncio.run_coroutine_threadsafe(opening, loop).result(), loop)
        try:
            yield store
        finally:
            store.close()
