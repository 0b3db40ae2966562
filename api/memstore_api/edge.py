"""The outermost layer: request ids, limits on bodies and on what is under way, headers, the log.

The log has a line for each request: its route, never its path, its query or its text.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from secrets import token_hex
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memstore import telemetry
from memstore.errors import InvalidInput, MemstoreError, TooBusy
from memstore_api.measures import METHODS, Measures
from memstore_api.replies import NDJSON, problem_of
from memstore_api.settings import ServerSettings

logger = logging.getLogger("memstore.server")

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
LEAST_RATE = 4_096  # bytes a second of a body, once it has taken the time of a pause
CLIENT_LEFT = 499  # nobody is there to be answered; logs and measures know it by this
UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, measures: Measures) -> None:
        self._app = app
        self._settings = settings
        self._measures = measures
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = _Call(scope, receive, send, self._settings)
        method = scope["method"] if scope["method"] in METHODS else "other"
        with telemetry.request(method, call.headers) as span:
            await self._bounded(call, scope)
            route = getattr(scope.get("route"), "path", "")
            self._log(call, method, route, scope)
            telemetry.answered(span, method, route, call.status, call.id)

    async def _bounded(self, call: _Call, scope: Scope) -> None:
        """Run a request if there is room."""
        limited = scope["path"] not in UNLIMITED
        if limited and self._under_way >= self._settings.max_requests:
            await call.refuse(TooBusy("the server is busy"))
            return
        self._under_way += limited
        self._measures.under_way.set(self._under_way)
        try:
            await self._run(call, scope)
        finally:
            self._under_way -= limited
            self._measures.under_way.set(self._under_way)

    async def _run(self, call: _Call, scope: Scope) -> None:
        try:
            await self._app(scope, call.receive, call.send)
        except ClientDisconnect:
            call.status = call.status or CLIENT_LEFT
        except Exception as error:
            # The error's own words may hold a client's text: only its kind and place are logged.
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            logger.error(
                "a request failed",
                extra={
                    "fields": {
                        "request_id": call.id,
                        "error": type(error).__name__,
                        "file": place.tb_frame.f_code.co_filename if place else "",
                        "line": place.tb_lineno if place else 0,
                    }
                },
            )
            if not call.status:
                await call.refuse(MemstoreError("it failed"))
            elif not call.finished:
                raise RuntimeError("the answer broke off") from None

    def _log(self, call: _Call, method: str, route: str, scope: Scope) -> None:
        seconds = time.perf_counter() - call.began
        self._measures.request(method, route, call.status, seconds)
        line = {
            "request_id": call.id,
            "method": method,
            "route": route,
            "status": call.status,
            "milliseconds": round(seconds * 1000, 1),
            "key": scope.get("state", {}).get("principal_id", ""),
            "received": call.received,
        }
        logger.info("request", extra={"fields": line})


class Refused(Exception):
    """A body that is too long, or too slow in coming."""

    def __init__(self, error: MemstoreError, status: int) -> None:
        super().__init__(status)
        self.error = error
        self.status = status


def refused(error: Refused, request_id: str, **more: Any) -> Response:
    """Answer with it; the rest of the body is not read."""
    answer = problem_of(error.error, request_id, status=error.status, **more)
    answer.headers["Connection"] = "close"
    return answer


class _Call:
    """One request: what passes in is counted, what passes out gets its headers."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, settings: ServerSettings
    ) -> None:
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else token_hex(8)
        self.began = time.perf_counter()
        self.status = 0
        self.received = 0
        self._receive = receive
        self._send = send
        self.finished = False
        self._whole = False
        self._waited = 0.0
        self._timeout = settings.body_timeout
        streamed = self.headers.get("content-type", "").startswith(NDJSON)
        self._most = None if streamed else settings.max_body
        scope.setdefault("state", {})["request_id"] = self.id
        if scope["path"].startswith("/v1/"):
            # Routed as sent: an id may hold a slash, which arrives as %2F.
            scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        # A pause is bounded, and so is the whole: a body that drips does not hold its place.
        left = self._timeout + self.received / LEAST_RATE - self._waited
        began = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), min(left, self._timeout))
        except TimeoutError:
            raise Refused(InvalidInput("the body took too long", path="body"), 408) from None
        self._waited += time.monotonic() - began
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._most is not None and self.received > self._most:
                error = InvalidInput(f"at most {self._most:,} bytes", path="body")
                raise Refused(error, 413)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), *HEADERS, (b"x-request-id", self.id.encode())]
            message = {**message, "headers": headers}
        await self._send(message)
        self.finished = message["type"] == "http.response.body" and not message.get("more_body")

    async def refuse(self, error: MemstoreError) -> None:
        response = problem_of(error, self.id)
        response.headers["Connection"] = "close"
        await response({"type": "http"}, self.receive, self.send)
