"""Findings about a database's fitness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, whether it is as it should be, and the finding or what to do."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for a vector: how many entries, how many of them failed, seconds of the oldest."""

    entries: int = 0
    failing: int = 0
    age: float = 0.0
