"""One finding about a database's fitness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, whether it is as it should be, and the finding or what to do."""

    name: str
    ok: bool
    detail: str
