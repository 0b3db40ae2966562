"""Routes of recall: search, resume, feedback; and of a memory as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, get_args
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from memstore import Budget, Context, InvalidInput
from memstore.selection import Provider
from memstore.wire import context_to, identity_to, search_to, trace_to
from memstore_api import bodies, examples
from memstore_api.access import Principal
from memstore_api.measures import Measures
from memstore_api.replies import Json, Lines
from memstore_api.routes import (
    MEMORY,
    Erasable,
    Readable,
    Writable,
    admitted,
    answer,
    bearer,
    body_of,
    service_of,
)
from memstore_api.routes_log import Limit, page_size

router = APIRouter(tags=["recall"])

RENDERINGS = ("text", *get_args(Provider))


def measures_of(request: Request) -> Measures:
    measures: Measures = request.app.state.measures
    return measures


@router.post(
    MEMORY + "/search",
    summary="Find the entries that bear most on a query",
    responses=answer(
        examples.SEARCH, "Hits, best first; `degraded` says what was left out, in words"
    ),
    openapi_extra=body_of(
        bodies.SearchBody.model_json_schema(),
        {"query": "which database did we settle on?", "k": 10, "role": "user"},
    ),
)
async def search(request: Request, memory: Readable) -> Response:
    body = await bodies.read_body(request, bodies.SearchBody)
    result = await memory.search(body.query, k=body.k, **body.tags())
    measures_of(request).answer(result.milliseconds, result.degraded)
    return Json(search_to(result))


@router.post(
    MEMORY + "/resume",
    summary="Load what an agent needs to go on, within a token budget",
    description="`render` is text, openai or anthropic: the context in that form is `rendered`.",
    responses=answer(examples.CONTEXT, "The context"),
    openapi_extra=body_of(
        bodies.ResumeBody.model_json_schema(),
        {"task": "benchmark hybrid search", "budget": 2048, "render": "anthropic"},
    ),
)
async def resume(request: Request, memory: Readable) -> Response:
    settings = service_of(request).settings
    body = await bodies.read_body(request, bodies.ResumeBody)
    if body.render is not None and body.render not in RENDERINGS:
        raise InvalidInput(f"one of {', '.join(RENDERINGS)}", path="render")
    default = Budget(settings.budget, settings.state_share, settings.tail_share)
    budget = body.chosen(default, settings.max_budget)
    context = await memory.resume(body.task, budget=budget, record=body.record, now=body.moment())
    measures_of(request).answer(context.milliseconds, context.degraded, context.tokens.total)
    wire = context_to(context, memory.schema)
    if body.render is not None:
        wire["rendered"] = rendered(context, body.render)
    return Json(wire)


def rendered(context: Context, form: str) -> Any:
    # The body's model has let no other form through.
    return context.to_text() if form == "text" else context.to_messages(form)  # type: ignore[arg-type]


@router.post(
    MEMORY + "/contexts/{context_id}/feedback",
    status_code=204,
    summary="Say which entries of a recorded context helped",
    openapi_extra=body_of(bodies.FeedbackBody.model_json_schema(), {"used": [17]}),
)
async def feedback(request: Request, memory: Writable, context_id: UUID) -> Response:
    body = await bodies.read_body(request, bodies.FeedbackBody)
    await memory.feedback(context_id, body.used)
    return Response(status_code=204)


@router.get(
    MEMORY + "/contexts",
    summary="List recorded contexts, newest first",
    responses=answer({"traces": [examples.TRACE]}, "What each was asked, considered and gave"),
)
async def traces(
    request: Request,
    memory: Readable,
    only_labelled: bool = False,
    limit: Limit = None,
) -> Response:
    limit = page_size(request, limit)
    found = await memory.traces(only_labelled=only_labelled, limit=limit)
    return Json({"traces": [trace_to(trace) for trace in found]})


@router.get(
    MEMORY + "/unencoded",
    tags=["memories"],
    summary="Count the entries that have no vector yet",
    responses=answer({"unencoded": 0}, "0 once search covers all by both legs"),
)
async def unencoded(memory: Readable) -> Response:
    return Json({"unencoded": await memory.unencoded()})


@router.delete(
    MEMORY,
    status_code=204,
    tags=["memories"],
    summary="Erase a memory for good",
)
async def erase(
    memory: Erasable,
    author: Annotated[str | None, Query()] = None,
    reason: Annotated[str | None, Query()] = None,
) -> Response:
    await memory.erase(author=author, reason=reason)
    return Response(status_code=204)


@router.get(
    "/v1/memories",
    tags=["memories"],
    summary="Stream the tenant's memories, one a line",
    responses={
        200: {
            "description": "NDJSON",
            "content": {"application/x-ndjson": {"example": {"agent": "research", "user": "u-17"}}},
        }
    },
)
async def memories(
    request: Request,
    principal: Annotated[Principal, Depends(admitted)],
    _: Annotated[Any, Depends(bearer)],
) -> Response:
    principal.demand("read")
    store = await service_of(request).for_tenant(principal.tenant)

    async def seen() -> AsyncIterator[Any]:
        async for identity in store.memories():
            if principal.sees(identity.agent_id, identity.user_id):
                yield identity_to(identity)

    return Lines(seen(), request.state.request_id)
