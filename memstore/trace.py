"""A trace: one resume as it was recorded, and what of it helped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one resume was asked, considered and gave.

    `considered` are the positions of the entries that were ranked, best first, `given` of those
    in the context, in the log's order. `log_end` is where the log ended then. `used` are the
    positions that helped, None until `feedback` said so; `tokens` is by part.
    """

    context_id: UUID
    created_at: datetime
    task: str
    budget: int
    tokens: Mapping[str, int]
    log_end: int
    considered: tuple[int, ...]
    given: tuple[int, ...]
    used: tuple[int, ...] | None
