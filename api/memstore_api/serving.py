"""Running the application until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from memstore import ConfigurationError
from memstore_api.access import is_loopback
from memstore_api.app import create_app
from memstore_api.settings import ServerSettings


class _Server(uvicorn.Server):
    """Says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[str], object]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for one in server.sockets:
                host, port = one.getsockname()[:2]
                self._listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")


def serve(settings: ServerSettings, listening: Callable[[str], object]) -> None:
    """Serve until SIGTERM or SIGINT; then requests under way finish and the store is closed.

    `listening` is told each address. Raises `ConfigurationError` where it can't start, and for a
    server that asks for no key but listens where others reach it.
    """
    if settings.insecure and not is_loopback(settings.host):
        raise ConfigurationError(
            f"a server that asks for no key listens on loopback alone, not at {settings.host}"
        )
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_timeout,
    )
    server = _Server(config, listening)
    server.run()
    if not server.started:
        raise ConfigurationError("the server could not start; the log above says why")
