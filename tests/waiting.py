"""Sessions that wait for a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from pydantic import BaseModel

from memstore import (
    StateSchema,
)


class Tally(BaseModel):
    """A state that can be checked: how many events it has absorbed, and their numbers' sum."""

    events: int = 0
    total: int = 0


TALLY = StateSchema("tally", 1, Tally)


@contextmanager
def row_locked(url: str, memory: Any) -> Iterator[None]:
    """Hold a memory's row, so that whoever appends to it waits in mid-transaction."""
    with closing(psycopg.connect(url)) as conn:
        conn.execute(
            "SELECT FROM memstore.memories WHERE memory_id = %s FOR UPDATE",
            (memory.identity.memory_id,),
        )
        yield


WAITING = "wait_event_type = 'Lock'"
