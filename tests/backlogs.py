"""Entries that wait for a vector."""

from __future__ import annotations

import pytest

from memstore import (
    NewEvent,
    Settings,
)
from tests.processes import administration

WORKING = Settings(encode_in_background=True)


def batch(count: int, name: str = "tea") -> list[NewEvent]:
    """Make events whose sessions differ: none is another's preceding turn."""
    return [NewEvent(content=f"{name} {n}", session_id=f"{name} {n}") for n in range(count)]


def encoded(url: str, space: int = 1) -> int:
    with administration(url) as conn:
        row = conn.execute(f"SELECT count(*) FROM memstore.vectors_{space}".encode()).fetchone()
        assert row is not None
        return int(row[0])


def said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text
