# generated from memstore/_async by scripts/generate_sync.py: edit there
"""Rows of the database as the domain's types. Times come out in UTC whatever the session says."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from memstore.types import Event


def event(row: dict[str, Any]) -> Event:
    return Event(
        position=row["position"],
        session_id=row["session_id"],
        actor=row["actor"],
        role=row["role"],
        event_type=row["event_type"],
        occurred_at=row["occurred_at"].astimezone(UTC),
        recorded_at=row["recorded_at"].astimezone(UTC),
        content=row["content"],
        payload=row.get("payload"),
        correlation_id=row["correlation_id"],
        idempotency_key=row.get("idempotency_key"),
    )
