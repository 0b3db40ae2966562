"""Routes of the log: append, append in bulk, read, stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from memstore import InvalidInput, MemstoreError, NewEvent
from memstore.text import check_batch_key, check_id
from memstore.wire import appended_to, event_to, new_event_from
from memstore_api import bodies, examples
from memstore_api.edge import Refused, refused
from memstore_api.replies import NDJSON, Json, Lines, problem_of
from memstore_api.routes import MEMORY, Memory, Readable, Writable, answer, body_of, service_of

router = APIRouter(tags=["log"])

BULK_EVENTS = 500
BULK_CHARACTERS = 2_000_000
STREAM_PAGE = 500
PAGE = 100
BULK_KEY = 480  # bytes: its batches are numbered as they come

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Names this request: repeated with the same body it stores nothing twice",
    ),
]
Tags = Annotated[list[str] | None, Query(description="Only those of this value (repeatable)")]
Time = Annotated[str | None, Query(description="An ISO 8601 time with its offset")]
Limit = Annotated[int | None, Query(ge=1, le=bodies.MAX_INT, description="Of a page, 100")]
Position = Annotated[int | None, Query(ge=0, le=bodies.MAX_POSITION)]


def checked_key(key: str | None) -> str | None:
    """Refuse a key that leaves no room for what is derived from it, as the store does."""
    return None if key is None else check_batch_key(key, "Idempotency-Key")


def events_from(given: list[Any], most: int) -> list[NewEvent]:
    """Read the events of one request."""
    if len(given) > most:
        raise InvalidInput(f"at most {most} events at once", path="events")
    return [new_event_from(value, index) for index, value in enumerate(given)]


@router.post(
    MEMORY + "/events",
    status_code=201,
    summary="Append one event, or many: all of them or none",
    responses=answer(examples.APPENDED, "The positions that they have", 201),
    openapi_extra=body_of(
        {"oneOf": [examples.EVENT_SCHEMA, {"type": "array", "items": examples.EVENT_SCHEMA}]},
        examples.NEW_EVENT,
        description="One event or a list. As NDJSON, an event a line, any number is taken: they "
        "are stored batch by batch, and the answer says how many",
    ),
)
async def append(
    request: Request, memory: Writable, idempotency_key: IdempotencyKey = None
) -> Response:
    key = None if idempotency_key is None else check_id(idempotency_key, "Idempotency-Key")
    if bodies.media_type(request) == NDJSON:
        return await append_bulk(request, memory, key)
    value = await bodies.read_json(request, bodies.JSON_TYPE)
    most = service_of(request).settings.max_batch
    if isinstance(value, list):
        events = events_from(value, most)
        appended = await memory.append(events, idempotency_key=checked_key(key))
    else:
        (event,) = events_from([value], most)
        if key is not None:
            if event.idempotency_key not in (None, key):
                raise InvalidInput("the event has another key of its own", path="Idempotency-Key")
            event = replace(event, idempotency_key=key)
        appended = await memory.append([event])
    return Json(appended_to(appended), 201)


async def append_bulk(request: Request, memory: Memory, key: str | None) -> Response:
    """Append batch by batch as the lines come. What was stored before a failure stays stored."""
    total: dict[str, Any] = {"events": 0, "repeated": 0, "first": None, "last": None}
    number, batch, size = 0, list[NewEvent](), 0
    if key is not None and len(key.encode()) > BULK_KEY:
        raise InvalidInput(f"of NDJSON takes at most {BULK_KEY} bytes", path="Idempotency-Key")

    async def store() -> None:
        nonlocal number, batch, size
        if not batch:
            return
        batch_key = None if key is None else f"{key}.{number}"
        appended = await memory.append(batch, idempotency_key=batch_key)
        total["events"] += len(batch)
        total["repeated"] += len(appended.repeated)
        total["first"] = total["first"] or appended.positions[0]
        total["last"] = appended.position
        number, batch, size = number + 1, [], 0

    try:
        async for value in bodies.lines(request):
            event = new_event_from(value, len(batch))
            batch.append(event)
            size += len(event.content) if isinstance(event.content, str) else 0
            if len(batch) == BULK_EVENTS or size >= BULK_CHARACTERS:
                await store()
        await store()
    except MemstoreError as error:
        return problem_of(error, request.state.request_id, stored=total)
    except bodies.Malformed as error:
        return problem_of(error.error, request.state.request_id, status=400, stored=total)
    except Refused as error:
        return refused(error, request.state.request_id, stored=total)
    return Json(total, 201)


@router.get(
    MEMORY + "/events",
    summary="Read the log by page, or stream it",
    description="With `Accept: application/x-ndjson` the entries come as a stream, one a line, "
    "and `limit` is how many at most; without it all that match.",
    responses=answer(examples.PAGE, "A page; `next` is what to pass as `after` for the next one"),
)
async def read(
    request: Request,
    memory: Readable,
    session: Tags = None,
    actor: Tags = None,
    role: Tags = None,
    event_type: Tags = None,
    correlation_id: Tags = None,
    since: Time = None,
    until: Time = None,
    after: Position = None,
    before: Position = None,
    newest_first: bool = False,
    limit: Limit = None,
) -> Response:
    tags: dict[str, Any] = {
        "session": session,
        "actor": actor,
        "role": role,
        "event_type": event_type,
        "correlation_id": correlation_id,
        "since": bodies.query_time(since, "since"),
        "until": bodies.query_time(until, "until"),
        "after": after,
        "before": before,
        "newest_first": newest_first,
    }
    if bodies.wants_lines(request):
        first = await memory.events(**tags, limit=min(limit or STREAM_PAGE, STREAM_PAGE))
        return Lines(stream(memory, tags, first, limit), request.state.request_id)
    limit = page_size(request, limit)
    events = await memory.events(**tags, limit=limit)
    following = events[-1].position if len(events) == limit else None
    return Json({"events": [event_to(event) for event in events], "next": following})


def page_size(request: Request, limit: int | None) -> int:
    """Check how many a page is to hold, and choose where it is not said."""
    most = service_of(request).settings.max_page
    if limit is None:
        return min(PAGE, most)
    if limit > most:
        raise InvalidInput(f"a page holds up to {most}", path="limit")
    return limit


async def stream(
    memory: Memory, tags: dict[str, Any], page: list[Any], limit: int | None
) -> AsyncIterator[Any]:
    """Give entry after entry; no transaction is open while a slow reader is waited for."""
    left = bodies.MAX_POSITION if limit is None else limit
    edge = "before" if tags["newest_first"] else "after"
    while page:
        for event in page:
            yield event_to(event)
        left -= len(page)
        if left <= 0 or len(page) < STREAM_PAGE:
            return
        tags[edge] = page[-1].position
        page = await memory.events(**tags, limit=min(left, STREAM_PAGE))
