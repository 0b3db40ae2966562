"""Routes for whoever runs the server: is it alive, is it ready, how is it doing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from memstore import AsyncMemoryStore, Backlog, MemstoreError
from memstore_api.measures import Measures
from memstore_api.replies import Json
from memstore_api.routes import answer, service_of

router = APIRouter(tags=["server"])

FRESH_SECONDS = 1.0

T = TypeVar("T")


async def lately(request: Request, name: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the database once a second at most, however many ask here: no key is needed for it."""
    lock, answers = request.app.state.lately.setdefault(name, (asyncio.Lock(), []))
    async with lock:
        if not answers or time.monotonic() - answers[0][0] >= FRESH_SECONDS:
            found = await ask()
            answers[:] = [(time.monotonic(), found)]
        result: T = answers[0][1]
    return result


async def backlog_of(store: AsyncMemoryStore) -> Backlog | None:
    """Measure the queue; the other measures matter most when the database is away."""
    try:
        return await store.backlog()
    except MemstoreError:
        return None


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", summary="Is it alive?", responses=answer({"status": "ok"}, "It is"))
async def alive() -> Response:
    return Json({"status": "ok"})


@router.head("/readyz", include_in_schema=False)
@router.get(
    "/readyz",
    summary="Can it serve?",
    responses=answer(
        {"ready": True, "checks": [{"name": "database", "ok": True, "detail": "connected"}]},
        "It can; with 503 it can't",
    ),
)
async def ready(request: Request) -> Response:
    checks = await lately(request, "readiness", service_of(request).store.readiness)
    fit = all(check.ok for check in checks)
    known = {"ready": fit, "checks": [asdict(check) for check in checks]}
    return Json(known, 200 if fit else 503)


@router.get("/metrics", summary="Measures in Prometheus's format", include_in_schema=False)
async def metrics(request: Request) -> Response:
    measures: Measures = request.app.state.measures
    queue = await lately(request, "backlog", lambda: backlog_of(service_of(request).store))
    if queue is not None:
        measures.queue(queue.entries, queue.age)
    return Response(measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
