"""Routes for whoever runs the server: is it alive, is it ready, how is it doing."""

from __future__ import annotations

import time
from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import Response

from memstore import MemstoreError
from memstore_api.measures import Measures
from memstore_api.replies import Json
from memstore_api.routes import answer, service_of

router = APIRouter(tags=["server"])

FRESH_SECONDS = 1.0  # so that asking often costs the database nothing


@router.get("/healthz", summary="Is it alive?", responses=answer({"status": "ok"}, "It is"))
async def alive() -> Response:
    return Json({"status": "ok"})


@router.get(
    "/readyz",
    summary="Can it serve?",
    responses=answer(
        {"ready": True, "checks": [{"name": "database", "ok": True, "detail": "connected"}]},
        "It can; with 503 it can't",
    ),
)
async def ready(request: Request) -> Response:
    state = request.app.state
    then, known = getattr(state, "readiness", (-FRESH_SECONDS, None))
    now = time.monotonic()
    if known is None or now - then >= FRESH_SECONDS:
        checks = await service_of(request).store.readiness()
        fit = all(check.ok for check in checks)
        known = {"ready": fit, "checks": [asdict(check) for check in checks]}
        state.readiness = (now, known)
    return Json(known, 200 if known["ready"] else 503)


@router.get("/metrics", summary="Measures in Prometheus's format", include_in_schema=False)
async def metrics(request: Request) -> Response:
    measures: Measures = request.app.state.measures
    try:
        queue = await service_of(request).store.backlog()
        measures.queue(queue.entries, queue.age)
    except MemstoreError:
        pass  # the other measures matter most when the database is away
    return Response(measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
