"""The ``memstore`` command."""

from __future__ import annotations

from memstore.cli.main import main

__all__ = ["main"]
