"""The application: routes, errors as problems, and what starts and stops with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from memstore import AsyncMemoryStore, Encoder, InvalidInput, MemstoreError
from memstore.problems import MEDIA_TYPE, NoRoute
from memstore_api import (
    bodies,
    examples,
    routes_log,
    routes_recall,
    routes_schemas,
    routes_server,
    routes_state,
)
from memstore_api.edge import Edge, Refused
from memstore_api.edge import refused as refused_body
from memstore_api.measures import Measures
from memstore_api.replies import problem_of
from memstore_api.service import Service
from memstore_api.settings import ServerSettings

logger = logging.getLogger("memstore.server")

SPARE_THREADS = 8


def create_app(
    settings: ServerSettings | None = None, *, encoder: str | Encoder | None = "default"
) -> FastAPI:
    """Make the application. Its lifespan opens the store and closes it.

    `encoder` is as in `MemoryStore.connect`. Raises `ConfigurationError` for settings that do
    not go together.
    """
    settings = settings or ServerSettings()
    service, measures = Service(settings, encoder), Measures()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Blocking work of each request finds a thread: what is bounded is the requests.
        threads = ThreadPoolExecutor(settings.max_requests + SPARE_THREADS, "memstore")
        asyncio.get_running_loop().set_default_executor(threads)
        store = await service.open()
        loading = asyncio.create_task(load_encoder(store))
        try:
            yield
        finally:
            loading.cancel()
            await service.close()

    app = FastAPI(
        title="memstore",
        summary="The memory that an agent keeps when its process does not survive",
        version=metadata.version("memstore"),
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        # FastAPI's own spans and logs hold paths, which hold ids, and errors' words.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=lifespan,
        responses={
            "default": {
                "description": "A problem (RFC 9457)",
                "content": {MEDIA_TYPE: {"example": examples.PROBLEM}},
            }
        },
    )
    app.state.service = service
    app.state.measures = measures
    app.state.lately = {}
    app.add_middleware(Edge, settings=settings, measures=measures)
    for part in (routes_log, routes_state, routes_recall, routes_schemas, routes_server):
        app.include_router(part.router)
    add_handlers(app)
    return app


async def load_encoder(store: AsyncMemoryStore) -> None:
    """Load the encoder while requests are answered already, by words alone."""
    try:
        await store.encoder()
    except MemstoreError as error:
        logger.error("the encoder can't be loaded: %s", error)
    except Exception as error:
        logger.error("the encoder can't be loaded: %s", type(error).__name__)


def add_handlers(app: FastAPI) -> None:
    """Answer every error as a problem."""

    @app.exception_handler(MemstoreError)
    async def refused(request: Request, error: MemstoreError) -> Response:
        answer = problem_of(error, request.state.request_id)
        if answer.status_code >= 500:
            fields = {"request_id": request.state.request_id} | safe_words(error)
            logger.error("a request failed", extra={"fields": fields})
        return answer

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return problem_of(
            InvalidInput(first["msg"], path=str(first["loc"][-1])), request.state.request_id
        )

    @app.exception_handler(bodies.Malformed)
    async def malformed(request: Request, error: bodies.Malformed) -> Response:
        return problem_of(error.error, request.state.request_id, status=400)

    @app.exception_handler(Refused)
    async def too_much(request: Request, error: Refused) -> Response:
        return refused_body(error, request.state.request_id)

    @app.exception_handler(bodies.UnsupportedType)
    async def unsupported(request: Request, error: bodies.UnsupportedType) -> Response:
        refused = InvalidInput(f"send {' or '.join(error.taken)}", path=error.header)
        answer = problem_of(refused, request.state.request_id, status=415)
        answer.headers[error.told] = ", ".join(error.taken)
        return answer

    @app.exception_handler(routes_state.PreconditionMissing)
    async def unconditional(request: Request, _: routes_state.PreconditionMissing) -> Response:
        refused = InvalidInput("a whole state needs the version it builds on", path="If-Match")
        return problem_of(refused, request.state.request_id, status=428)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        # The router's own: 404 and 405.
        detail = f"{error.detail}: /openapi.json lists the routes"
        answer = problem_of(NoRoute(detail), request.state.request_id, status=error.status_code)
        answer.headers.update(error.headers or {})
        return answer


def safe_words(error: MemstoreError) -> dict[str, str]:
    """Describe an error for the log. What the database says of a statement may quote a client."""
    found = {"error": type(error).__name__}
    state = getattr(error.__cause__, "sqlstate", None)
    return found | ({"sqlstate": state} if state else {"detail": str(error)})
