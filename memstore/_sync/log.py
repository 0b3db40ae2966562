# generated from memstore/_async by scripts/generate_sync.py: edit there
"""The log track: appending events with their postings, and reading them back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from uuid import UUID

from memstore import sql
from memstore._sync import rows
from memstore._sync.database import Conn, Database
from memstore._sync.runtime import in_thread
from memstore.analysis import Analysis, terms
from memstore.errors import IdempotencyConflict, InvalidInput
from memstore.filters import EventFilter, conditions
from memstore.text import body_digest, check_batch_key, check_whole, dumps, prepare_event
from memstore.types import Appended, Event, Identity, NewEvent

MAX_BATCH = 10_000
MAX_PAGE = 10_000
#: Characters that are analysed at once on the event loop; more would hold up everybody else.
MOST_ON_LOOP = 20_000

Prepared = tuple[NewEvent, Analysis]


def prepare(events: Iterable[NewEvent]) -> list[Prepared]:
    """Check, clean and analyse a batch; nothing is written when one event is refused."""
    prepared: list[Prepared] = []
    for index, event in enumerate(events):
        if index == MAX_BATCH:
            raise InvalidInput(f"at most {MAX_BATCH} events are appended at once", path="events")
        try:
            clean = prepare_event(event)
        except InvalidInput as error:
            raise type(error)(str(error), path=f"events[{index}]") from error
        prepared.append((clean, terms(clean.content)))
    return prepared


def prepare_batch(events: Iterable[NewEvent], key: str | None) -> list[Prepared]:
    """Prepare a batch, off the event loop when it is large; `key` names the whole of it.

    Each event then gets a key of its own from that one.
    """
    batch = list(islice(events, MAX_BATCH + 1))
    if key is not None:
        check_batch_key(key, "idempotency_key")
        batch = [_keyed(event, key, index) for index, event in enumerate(batch)]
    if sum(len(event.content) for event in batch if isinstance(event.content, str)) > MOST_ON_LOOP:
        return in_thread(prepare, batch)
    return prepare(batch)


def _keyed(event: NewEvent, key: str, index: int) -> NewEvent:
    if event.idempotency_key is not None:
        raise InvalidInput(
            "it has a key of its own, beside the whole batch's",
            path=f"events[{index}].idempotency_key",
        )
    return replace(event, idempotency_key=key_of(key, index))


def key_of(batch: str, index: int) -> str:
    """Name one event of a batch that has a key."""
    return f"{batch}:{index}"


def _parameters(memory_id: UUID, batch: Sequence[Prepared]) -> dict[str, Any]:
    events = [event for event, _ in batch]
    postings = [
        (ordinal, frequency, analysis.length, term)
        for ordinal, (_, analysis) in enumerate(batch, 1)
        for term, frequency in analysis.frequencies.items()
    ]
    return {
        "memory_id": memory_id,
        "count": len(batch),
        "terms_total": sum(analysis.length for _, analysis in batch),
        "session_ids": [e.session_id for e in events],
        "actors": [e.actor for e in events],
        "roles": [e.role for e in events],
        "event_types": [e.event_type for e in events],
        "occurred_ats": [e.occurred_at for e in events],
        "contents": [e.content for e in events],
        "event_lengths": [analysis.length for _, analysis in batch],
        "payloads": [None if e.payload is None else dumps(e.payload) for e in events],
        "correlation_ids": [e.correlation_id for e in events],
        "idempotency_keys": [e.idempotency_key for e in events],
        "body_digests": [body_digest(e) if e.idempotency_key else None for e in events],
        "term_ordinals": [ordinal for ordinal, *_ in postings],
        "frequencies": [frequency for _, frequency, *_ in postings],
        "lengths": [length for *_, length, _ in postings],
        "terms": [term for *_, term in postings],
        "encoded_ordinals": [n for n, e in enumerate(events, 1) if e.content.strip()],
    }


def create_memory(conn: Conn, identity: Identity, tenant_id: int) -> None:
    conn.execute(
        sql.statement("create_memory"),
        {
            "memory_id": identity.memory_id,
            "tenant_id": tenant_id,
            "agent_id": identity.agent_id,
            "user_id": identity.user_id,
        },
    )


def lock_memory(conn: Conn, identity: Identity, tenant_id: int) -> dict[str, Any]:
    """Lock a memory's row, making it first if need be, and return its counters."""
    parameters = {"memory_id": identity.memory_id}
    row = (conn.execute(sql.statement("lock_memory"), parameters)).fetchone()
    if row is None:
        create_memory(conn, identity, tenant_id)
        row = (conn.execute(sql.statement("lock_memory"), parameters)).fetchone()
        assert row is not None
    return row


def known_keys(conn: Conn, memory_id: UUID, keys: Sequence[str]) -> dict[str, tuple[int, bytes]]:
    """Look up idempotency keys: the position and the body's digest of each that is known."""
    cursor = conn.execute(sql.statement("known_keys"), {"memory_id": memory_id, "keys": keys})
    return {
        row["idempotency_key"]: (row["position"], bytes(row["body_digest"]))
        for row in cursor.fetchall()
    }


def append(
    conn: Conn,
    identity: Identity,
    tenant_id: int,
    batch: Sequence[Prepared],
    key: str | None = None,
) -> Appended:
    """Append a prepared batch inside the caller's transaction.

    Events whose idempotency key is known keep the position they have. Raises
    `IdempotencyConflict` when such an event's body differs, or when the batch's own `key` was
    used for a batch of another length.
    """
    positions: list[int | None] = [None] * len(batch)
    fresh = list(range(len(batch)))
    keyed = any(event.idempotency_key for event, _ in batch)
    repeats: dict[int, int] = {}  # index -> index of the first with the same key in this batch
    if keyed:
        lock_memory(conn, identity, tenant_id)  # the look-up must see earlier commits
        keys = [event.idempotency_key for event, _ in batch if event.idempotency_key]
        beyond = [] if key is None else [key_of(key, len(batch))]
        known = known_keys(conn, identity.memory_id, keys + beyond)
        if key is not None and known and known.keys() != set(keys):
            raise IdempotencyConflict(key=key, position=min(p for p, _ in known.values()))
        fresh, first = [], dict[str, int]()
        for index, (event, _) in enumerate(batch):
            key = event.idempotency_key
            if key is None:
                fresh.append(index)
            elif key in known:
                position, digest = known[key]
                if digest != body_digest(event):
                    raise IdempotencyConflict(key=key, position=position)
                positions[index] = position
            elif key in first:
                if body_digest(batch[first[key]][0]) != body_digest(event):
                    raise InvalidInput(
                        f"two different events share the key {key!r}",
                        path=f"events[{index}].idempotency_key",
                    )
                repeats[index] = first[key]
            else:
                first[key] = index
                fresh.append(index)
    if fresh:
        before = _insert(conn, identity, tenant_id, [batch[index] for index in fresh])
        for offset, index in enumerate(fresh, 1):
            positions[index] = before + offset
    for index, earlier in repeats.items():
        positions[index] = positions[earlier]
    done = tuple(position for position in positions if position is not None)
    written = set(fresh)
    return Appended(
        positions=done,
        repeated=tuple(done[i] for i in range(len(batch)) if i not in written),
        unindexed={done[i]: batch[i][1].omitted for i in fresh if batch[i][1].omitted},
    )


def _insert(conn: Conn, identity: Identity, tenant_id: int, batch: Sequence[Prepared]) -> int:
    """Write a batch and return the position before its first event."""
    parameters = _parameters(identity.memory_id, batch)
    statement = sql.statement("append_events")
    row = (conn.execute(statement, parameters)).fetchone()
    if row is None:
        create_memory(conn, identity, tenant_id)
        row = (conn.execute(statement, parameters)).fetchone()
        assert row is not None
    return int(row["before"])


def read(
    db: Database,
    memory_id: UUID,
    where: EventFilter,
    *,
    newest_first: bool,
    limit: int,
) -> list[Event]:
    """Read one page of events by position."""
    if not 1 <= check_whole(limit, "limit") <= MAX_PAGE:
        raise InvalidInput(f"a page holds 1 to {MAX_PAGE} events", path="limit")
    parameters = where.parameters()
    name = "read_events_newest_first" if newest_first else "read_events_oldest_first"
    statement = sql.statement(name).format(filters=conditions(parameters))
    with db.transaction() as conn:
        cursor = conn.execute(statement, parameters | {"memory_id": memory_id, "limit": limit})
        return [rows.event(row) for row in cursor.fetchall()]


def at(conn: Conn, memory_id: UUID, positions: Iterable[int]) -> dict[int, Event]:
    """Read events by position; those that do not exist are left out."""
    cursor = conn.execute(
        sql.statement("events_at"), {"memory_id": memory_id, "positions": list(positions)}
    )
    return {row["position"]: rows.event(row) for row in cursor.fetchall()}


def correlated(
    conn: Conn, memory_id: UUID, correlation_ids: Iterable[str], limit: int = 500
) -> list[Event]:
    """Read the events that share any of some correlation ids, oldest first."""
    cursor = conn.execute(
        sql.statement("correlated_events"),
        {"memory_id": memory_id, "correlation_ids": list(correlation_ids), "limit": limit},
    )
    return [rows.event(row) for row in cursor.fetchall()]
