"""Routes of the state: load, save, patch, commit, history, differences, marks."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from memstore import InvalidInput, State
from memstore.http import MERGE_TYPE, PATCH_TYPE
from memstore.wire import change_to, committed_to, state_to, version_to
from memstore_api import bodies, examples
from memstore_api.replies import Json, etag
from memstore_api.routes import MEMORY, Memory, Readable, Writable, answer, body_of, service_of
from memstore_api.routes_log import IdempotencyKey, Limit, checked_key, events_from, page_size

router = APIRouter(tags=["state"])

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description='The version that this builds on, as "7"')
]
Number = Annotated[int, Query(ge=0, le=bodies.MAX_INT)]
MaybeNumber = Annotated[int | None, Query(ge=0, le=bodies.MAX_INT)]
Position = Annotated[int | None, Query(ge=0, le=bodies.MAX_POSITION)]
Note = Annotated[str | None, Query()]


class PreconditionMissing(Exception):
    """A whole state is saved only over a version that its writer has seen."""


def state_answer(memory: Memory, state: State[Any], status: int = 200) -> Response:
    return Json(state_to(state, memory.schema), status, {"ETag": etag(state.version)})


async def whole(memory: Memory, document: dict[str, Any], expected: int | None) -> Any:
    """Make of a document what is to be committed, off the event loop where that may take long.

    Over any version it is a patch of all there is: it meets the head under the lock, and a retry
    under its key is the same request, whatever the version is by then.
    """
    if expected is None:
        return [{"op": "replace", "path": "", "value": document}]
    accept = memory.schema.accept
    return await asyncio.to_thread(accept, document) if memory.schema.slow else accept(document)


STATE = answer(examples.STATE, "The state; its version is the ETag too")


@router.get(
    MEMORY + "/state",
    summary="Load the state, or the one that was",
    description="At most one of `version`, `position` and `as_of`.",
    responses=STATE,
)
async def load(
    memory: Readable,
    version: MaybeNumber = None,
    position: Position = None,
    as_of: Annotated[str | None, Query(description="An ISO 8601 time with its offset")] = None,
) -> Response:
    moment = bodies.query_time(as_of, "as_of")
    # Never 304: below one version the answer changes with the log, the time and the schema.
    state = await memory.state(version=version, position=position, as_of=moment)
    return state_answer(memory, state)


@router.put(
    MEMORY + "/state",
    summary="Save a whole state over the version in If-Match",
    responses=STATE,
    openapi_extra=body_of(
        bodies.SaveBody.model_json_schema(), {"document": examples.DOCUMENT, "author": "research"}
    ),
)
async def save(
    request: Request,
    memory: Writable,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    if if_match is None:
        raise PreconditionMissing
    expected = bodies.precondition(request)
    body = await bodies.read_body(request, bodies.SaveBody)
    committed = await memory.commit(
        state=await whole(memory, body.document, expected),
        expected_version=expected,
        author=body.author,
        reason=body.reason,
        log_position=body.log_position,
        idempotency_key=checked_key(idempotency_key),
    )
    assert committed.state is not None
    return state_answer(memory, committed.state)


@router.patch(
    MEMORY + "/state",
    summary="Patch the state, by JSON Merge Patch or JSON Patch",
    responses=STATE,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                MERGE_TYPE: {"schema": examples.MERGE_SCHEMA, "example": examples.MERGE},
                PATCH_TYPE: {"schema": examples.PATCH_SCHEMA, "example": examples.PATCH},
            },
        }
    },
)
async def patch(
    request: Request,
    memory: Writable,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
    author: Note = None,
    reason: Note = None,
    log_position: Position = None,
) -> Response:
    change = await bodies.read_json(request, MERGE_TYPE, PATCH_TYPE)
    kind: type = dict if bodies.media_type(request) == MERGE_TYPE else list
    if not isinstance(change, kind):
        wanted = "an object" if kind is dict else "a list of operations"
        raise InvalidInput(f"such a patch is {wanted}", path="body")
    committed = await memory.commit(
        state=change,
        expected_version=bodies.precondition(request),
        author=author,
        reason=reason,
        log_position=log_position,
        idempotency_key=checked_key(idempotency_key),
    )
    assert committed.state is not None
    return state_answer(memory, committed.state)


@router.post(
    MEMORY + "/commit",
    summary="Append events and save a state: both or neither",
    description="`state` is a whole document, which needs If-Match; `patch` is a JSON Merge "
    "Patch (an object) or a JSON Patch (a list).",
    responses=answer(examples.COMMITTED, "What was written"),
    openapi_extra=body_of(
        bodies.CommitBody.model_json_schema(),
        {"events": [examples.NEW_EVENT], "patch": examples.MERGE, "author": "research"},
    ),
)
async def commit(
    request: Request,
    memory: Writable,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    expected = bodies.precondition(request)
    body = await bodies.read_body(request, bodies.CommitBody)
    if body.state is not None and body.patch is not None:
        raise InvalidInput("beside a state there is no patch", path="patch")
    if body.state is not None and if_match is None:
        raise PreconditionMissing
    wanted: Any = body.patch
    if body.state is not None:
        wanted = await whole(memory, body.state, expected)
    committed = await memory.commit(
        events=events_from(body.events, service_of(request).settings.max_batch),
        state=wanted,
        expected_version=expected,
        author=body.author,
        reason=body.reason,
        log_position=body.log_position,
        idempotency_key=checked_key(idempotency_key),
    )
    version = None if committed.state is None else committed.state.version
    headers = {} if version is None else {"ETag": etag(version)}
    return Json(committed_to(committed, memory.schema), 200, headers)


@router.get(
    MEMORY + "/history",
    summary="List state versions, newest first",
    responses=answer(
        {"versions": [examples.VERSION], "next": None},
        "A page; `next` is what to pass as `before` for the next one",
    ),
)
async def history(
    request: Request, memory: Readable, before: MaybeNumber = None, limit: Limit = None
) -> Response:
    limit = page_size(request, limit)
    start = bodies.MAX_INT if before is None else before
    versions = await memory.history(before=start, limit=limit)
    following = versions[-1].version if len(versions) == limit else None
    return Json({"versions": [version_to(version) for version in versions], "next": following})


@router.get(
    MEMORY + "/diff",
    summary="List what changed between two versions",
    responses=answer({"changes": [examples.CHANGE]}, "The changes, from `old` to `new`"),
)
async def diff(memory: Readable, old: Number, new: Number) -> Response:
    return Json({"changes": [change_to(change) for change in await memory.diff(old, new)]})


@router.post(
    MEMORY + "/revert",
    summary="Save an older version's state as a new version",
    responses=STATE,
    openapi_extra=body_of(bodies.RevertBody.model_json_schema(), {"to": 3}),
)
async def revert(request: Request, memory: Writable) -> Response:
    body = await bodies.read_body(request, bodies.RevertBody)
    state = await memory.revert(to=body.to, author=body.author, reason=body.reason)
    return state_answer(memory, state)


@router.post(
    MEMORY + "/confirm",
    summary="Mark a part of the state as true from now on",
    responses=STATE,
    openapi_extra=body_of(
        bodies.ConfirmBody.model_json_schema(), {"path": "/user_preferences/timezone"}
    ),
)
async def confirm(request: Request, memory: Writable) -> Response:
    body = await bodies.read_body(request, bodies.ConfirmBody)
    state = await memory.confirm(body.path, author=body.author, reason=body.reason)
    return state_answer(memory, state)


@router.post(
    MEMORY + "/flag",
    summary="Mark a part of the state as doubtful",
    responses=STATE,
    openapi_extra=body_of(
        bodies.FlagBody.model_json_schema(),
        {"path": "/user_preferences/timezone", "reason": "wrote from Lisbon today"},
    ),
)
async def flag(request: Request, memory: Writable) -> Response:
    body = await bodies.read_body(request, bodies.FlagBody)
    return state_answer(memory, await memory.flag(body.path, body.reason, author=body.author))
