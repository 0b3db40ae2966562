"""A real Postgres with pgvector in a folder: no root, no Docker, no port.

The server belongs to everyone who has the folder open: the first starts it, the last stops it.
"""

from __future__ import annotations

from memstore.embedded.server import EmbeddedServer, default_data_dir
from memstore.embedded.wheel import binaries

__all__ = ["EmbeddedServer", "binaries", "default_data_dir"]
