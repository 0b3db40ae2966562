# generated from memstore/_async by scripts/generate_sync.py: edit there
"""Recording what resume was asked, considered and gave, and reading it back as a labelled set."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from uuid import UUID

from memstore import sql
from memstore._sync.database import Database
from memstore.budget import Budget
from memstore.context import Context
from memstore.errors import InvalidInput, NotFound
from memstore.text import check_uuid, check_whole, dumps
from memstore.trace import Trace
from memstore.types import Identity

MAX_POSITIONS = 10_000
MAX_PAGE = 10_000


def record(
    db: Database, identity: Identity, context: Context, budget: Budget, log_end: int
) -> None:
    """Store a context's trace; a memory that holds nothing, or was erased, has none."""
    if not log_end:
        return
    considered = [hit.event.position for hit in context.search.hits] if context.search else []
    given = sorted(entry.position for entry in (*context.tail, *context.retrieved))
    with db.transaction() as conn:
        key = {"memory_id": identity.memory_id}
        row = (conn.execute(sql.statement("lock_memory"), key)).fetchone()
        if row is None or row["last_position"] < log_end:  # it was erased, and perhaps begun again
            return
        conn.execute(
            sql.statement("insert_trace"),
            {
                "memory_id": identity.memory_id,
                "context_id": context.id,
                "tenant_id": db.tenant_id,
                "task": context.task,
                "budget": budget.total,
                "tokens": dumps(dict(context.tokens)),
                "log_end": log_end,
                "considered": considered,
                "given": given,
            },
        )


def feedback(db: Database, identity: Identity, context_id: UUID, used: Iterable[int]) -> None:
    """Mark which positions helped; what was said before for this context is replaced."""
    positions = sorted({check_whole(position, "used") for position in used})
    if len(positions) > MAX_POSITIONS or not all(0 < p < 2**63 for p in positions):
        raise InvalidInput(f"up to {MAX_POSITIONS} positions, numbers from 1", path="used")
    known = check_uuid(context_id, "context_id")
    key = {"memory_id": identity.memory_id, "context_id": known, "used": positions}
    with db.transaction() as conn:
        row = (conn.execute(sql.statement("mark_used"), key)).fetchone()
    if row is None:
        raise NotFound(f"{identity} has no trace of a context {context_id}")


def read(db: Database, identity: Identity, *, only_labelled: bool, limit: int) -> list[Trace]:
    """Read traces, newest first."""
    if not 1 <= check_whole(limit, "limit") <= MAX_PAGE:
        raise InvalidInput(f"a page holds 1 to {MAX_PAGE} traces", path="limit")
    parameters = {
        "memory_id": identity.memory_id,
        "only_labelled": bool(only_labelled),
        "limit": limit,
    }
    with db.transaction() as conn:
        cursor = conn.execute(sql.statement("read_traces"), parameters)
        found = cursor.fetchall()
    return [
        Trace(
            context_id=row["context_id"],
            created_at=row["created_at"].astimezone(UTC),
            task=row["task"],
            budget=row["budget"],
            tokens=row["tokens"],
            log_end=row["log_end"],
            considered=tuple(row["considered"]),
            given=tuple(row["given"]),
            used=None if row["used"] is None else tuple(row["used"]),
        )
        for row in found
    ]
