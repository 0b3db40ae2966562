"""Running the application until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from memstore import ConfigurationError, telemetry
from memstore_api.access import is_loopback
from memstore_api.app import create_app
from memstore_api.connections import Connection
from memstore_api.settings import ServerSettings


class _Server(uvicorn.Server):
    """Says where it listens, once it does, and does at the end what is left to do."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: Callable[[str], object],
        ended: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._ended = ended

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for one in server.sockets:
                host, port = one.getsockname()[:2]
                self._listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # Here, since a signal that was held back until now ends the process afterwards.
        await asyncio.to_thread(self._ended)


def config_of(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """Say how an application is served."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=Connection,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_timeout,
    )


def serve(settings: ServerSettings, listening: Callable[[str], object]) -> None:
    """Serve until SIGTERM or SIGINT; then requests under way finish and the store is closed.

    `listening` is told each address. Raises what opening the store raised, and
    `ConfigurationError` where it can't listen, or would listen where others reach it and ask for
    no key.
    """
    if settings.insecure and not is_loopback(settings.host):
        raise ConfigurationError(
            f"a server that asks for no key listens on loopback alone, not at {settings.host}"
        )
    ended = telemetry.export() if settings.telemetry else lambda: None
    app = create_app(settings)
    server = _Server(config_of(app, settings), listening, ended)
    # After a SIGINT, uvicorn raises KeyboardInterrupt once all is finished.
    with suppress(KeyboardInterrupt, SystemExit):
        server.run()
    if not server.started:
        raise app.state.service.failure or ConfigurationError(
            "the server could not start; the log above says why"
        )
