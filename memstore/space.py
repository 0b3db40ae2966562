"""A space: one encoder's vectors, in a table of their own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from psycopg import sql


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One encoder's vectors. `status` is filling, serving or retained."""

    space_id: int
    encoder: str
    dimension: int
    status: Literal["filling", "serving", "retained"]
    created_at: datetime

    @property
    def vectors(self) -> sql.Identifier:
        """The table of its vectors."""
        return vectors_table(self.space_id)

    def index_of(self, memory_id: UUID) -> str:
        """Name the index of one memory's vectors."""
        return f"vectors_{self.space_id}_{memory_id.hex}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """How many memories were given an index of their vectors, and how many lost theirs."""

    created: int = 0
    dropped: int = 0


def vectors_table(space_id: int) -> sql.Identifier:
    return sql.Identifier("memstore", f"vectors_{space_id}")
