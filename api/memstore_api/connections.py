"""Connections that end when their client is too slow: in asking, or in taking the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger("memstore.server")

#: Not whichever is installed: httptools holds a head of any length, without a bound.
_Base: Any = H11Protocol


class Connection(_Base):  # type: ignore[misc]  # its base has no types
    """A connection that is cut where a request's head does not come, or an answer is not taken.

    Both take `body_timeout` and `send_timeout` seconds at most, however many pieces they come or
    go in: what is not written in that time down to the transport's low-water mark is given up.
    """

    _head: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop("_head")
        self._stop("_answer")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer = self._timer(self._settings.send_timeout, self._cut_answer)

    def resume_writing(self) -> None:
        self._stop("_answer")
        super().resume_writing()

    @property
    def _settings(self) -> Any:
        return self.config.app.state.service.settings

    def _await_head(self) -> None:
        """Start the clock where no request is under way, unless it runs; stop it where one is."""
        cycle = self.cycle
        if cycle is not None and (not cycle.response_complete or self.timeout_keep_alive_task):
            self._stop("_head")
        elif self._head is None:
            self._head = self._timer(self._settings.body_timeout, self._cut_head)

    def _timer(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        made: asyncio.TimerHandle = self.loop.call_later(seconds, then)
        return made

    def _stop(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)

    def _cut_head(self) -> None:
        self.transport.abort()

    def _cut_answer(self) -> None:
        logger.warning("an answer was not taken in time")
        self.transport.abort()
