"""The REST server: memories of many tenants over HTTP. `create_app` makes the application."""

from __future__ import annotations

from memstore_api.app import create_app
from memstore_api.settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
