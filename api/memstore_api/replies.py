"""Answers: JSON, NDJSON and problems, written by the same code whatever the route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response, StreamingResponse

from memstore.errors import AccessDenied, MemstoreError, TooBusy
from memstore.problems import MEDIA_TYPE, to_problem
from memstore.text import dumps

NDJSON = "application/x-ndjson"


class Json(Response):
    """One JSON value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content).encode()


class Lines(StreamingResponse):
    """A stream of JSON values, one a line. A failure midway is the last line, as a problem."""

    def __init__(self, values: AsyncIterator[Any], request_id: str) -> None:
        super().__init__(_lines(values, request_id), media_type=NDJSON)


async def _lines(values: AsyncIterator[Any], request_id: str) -> AsyncIterator[bytes]:
    try:
        async for value in values:
            yield dumps(value).encode() + b"\n"
    except MemstoreError as error:
        yield dumps({"problem": to_problem(error, request_id)}).encode() + b"\n"


class Problem(Response):
    """A problem (RFC 9457)."""

    media_type = MEDIA_TYPE

    def __init__(self, problem: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        # Escaped to ASCII: what was refused may hold characters that UTF-8 has not.
        super().__init__(json.dumps(problem).encode(), problem["status"], dict(headers))


def problem_of(error: MemstoreError, request_id: str, **more: Any) -> Problem:
    """Answer with an error."""
    headers: dict[str, str] = {}
    if isinstance(error, TooBusy):
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if isinstance(error, AccessDenied) and not error.known:
        headers["WWW-Authenticate"] = "Bearer"
    problem = to_problem(error, request_id) | more
    if "actual_version" in problem:
        headers["ETag"] = etag(problem["actual_version"])
    if problem["status"] == 503:
        headers.setdefault("Retry-After", "1")
    return Problem(problem, headers)


def etag(version: int) -> str:
    """Write a state's version as an entity tag."""
    return f'"{version}"'
