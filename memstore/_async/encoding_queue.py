"""Filling in vectors: claim a memory's backlog, encode it outside any transaction, write it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from memstore import sql, telemetry
from memstore._async import rows
from memstore._async.database import WORKER, AsyncDatabase, seconds
from memstore._async.runtime import in_thread, sleep
from memstore.encoding import check_vectors
from memstore.encoding.passages import Passage, passages
from memstore.errors import EncoderFailed, EncoderMismatch, StorageError
from memstore.space import Space
from memstore.text import clean_text
from memstore.types import Encoder, Event

logger = logging.getLogger("memstore.encoding")

BATCH = 64
SLICE = 64  # passages encoded between two looks at the lease
FIRST_DELAY = 2.0
LONGEST_DELAY = 3600.0
POLL_SECONDS = 0.05
LONGEST_ERROR = 500  # characters

Pair = tuple[Event, Event | None]
Encoded = tuple[Event, list[Passage], list[Any]]


def delay(attempts: int) -> float:
    """Seconds until the next attempt: doubling from two, an hour at most."""
    return min(FIRST_DELAY * 2.0 ** min(max(attempts - 1, 0), 30), LONGEST_DELAY)


def described(error: Exception) -> str:
    """Put an encoder's error into words that the database can hold."""
    try:
        text = str(error)
    except Exception:  # an encoder's error is anybody's class
        text = ""
    return clean_text(f"{type(error).__name__}: {text}")[:LONGEST_ERROR].rstrip(": ")


async def _claim(
    db: AsyncDatabase, space: Space, memory_id: UUID, lease: float
) -> tuple[list[Pair], dict[int, dict[str, Any]]]:
    """Claim up to a batch of one memory's due entries; read them with the turn before each."""
    key = {"memory_id": memory_id, "space_id": space.space_id}
    async with db.transaction(WORKER) as conn:
        cursor = await conn.execute(
            sql.statement("claim_entries"), key | {"limit": BATCH, "lease": seconds(lease)}
        )
        claimed = {row["position"]: row for row in await cursor.fetchall()}
        if not claimed:
            return [], {}
        cursor = await conn.execute(
            sql.statement("events_to_encode"), key | {"positions": list(claimed)}
        )
        found = await cursor.fetchall()
        gone = claimed.keys() - {row["position"] for row in found}  # their memory was erased
        if gone:
            await conn.execute(sql.statement("take_claimed"), key | _as_claimed(claimed, gone))
    pairs = [(rows.event(row), _before(row)) for row in found]
    return pairs, claimed


def _as_claimed(
    claimed: dict[int, dict[str, Any]], positions: Collection[int]
) -> dict[str, list[Any]]:
    """Name claimed entries to a statement."""
    return {
        "positions": list(positions),
        "enqueued_ats": [claimed[position]["enqueued_at"] for position in positions],
        "attempts": [claimed[position]["attempts"] for position in positions],
    }


def _before(row: dict[str, Any]) -> Event | None:
    if row["before_position"] is None:
        return None
    return rows.event(
        {
            name.removeprefix("before_"): value
            for name, value in row.items()
            if name.startswith("before_")
        }
        | {"session_id": row["session_id"], "correlation_id": None}
    )


@dataclass(slots=True)
class _Lease:
    """A claim that is held while its entries are encoded, and renewed when that takes long.

    `held` are the claimed entries that were neither written nor postponed yet.
    """

    db: AsyncDatabase
    key: dict[str, Any]
    held: dict[int, dict[str, Any]]
    duration: float
    renewed: float

    async def keep(self) -> None:
        if monotonic() - self.renewed < self.duration / 3:
            return
        async with self.db.transaction(WORKER) as conn:
            await conn.execute(
                sql.statement("renew_claim"),
                self.key | _as_claimed(self.held, self.held) | {"lease": seconds(self.duration)},
            )
        self.renewed = monotonic()

    async def postpone(self, position: int, error: Exception) -> None:
        """Let go of an entry on which the encoder failed until it is to be tried again."""
        entry = self.held.pop(position)
        postponed = {
            "position": position,
            "enqueued_at": entry["enqueued_at"],
            "attempts": entry["attempts"],
            "delay": seconds(delay(entry["attempts"])),
            "error": described(error),
        }
        async with self.db.transaction(WORKER) as conn:
            await conn.execute(sql.statement("postpone_entry"), self.key | postponed)


def _split(encoder: Encoder, pairs: Sequence[Pair]) -> list[tuple[Event, list[Passage]]]:
    return [(event, passages(event, before, encoder)) for event, before in pairs]


@telemetry.traced("encode_entries")
async def _encoded(
    encoder: Encoder, pairs: Sequence[Pair], lease: _Lease
) -> list[Encoded] | Exception:
    """Encode events with their passages, off the loop; an event without text has none.

    Hands back whatever the encoder raises, except a misfit.
    """
    try:
        split = await in_thread(_split, encoder, pairs)
        texts = [passage.text for _, parts in split for passage in parts]
        telemetry.count(entries=len(pairs), passages=len(texts))
        vectors: list[Any] = []
        for start in range(0, len(texts), SLICE):
            some = texts[start : start + SLICE]
            vectors += list(
                check_vectors(await in_thread(encoder.encode, some), encoder.dimension, len(some))
            )
            await lease.keep()
    except (EncoderMismatch, StorageError):
        raise
    except Exception as error:
        logger.warning("encoding %d entries failed: %s", len(pairs), type(error).__name__)
        return error
    rows_of = iter(vectors)
    return [(event, parts, [next(rows_of) for _ in parts]) for event, parts in split]


async def _write(
    db: AsyncDatabase,
    space: Space,
    memory_id: UUID,
    claimed: dict[int, dict[str, Any]],
    encoded: Sequence[Encoded],
) -> None:
    """Write vectors and take their entries off the queue, together.

    What is no longer queued (its memory was erased meanwhile) is not written.
    """
    key = {"memory_id": memory_id, "space_id": space.space_id}
    positions = [event.position for event, _, _ in encoded]
    async with db.transaction(WORKER) as conn:
        cursor = await conn.execute(
            sql.statement("take_claimed"), key | _as_claimed(claimed, positions)
        )
        taken = {row["position"]: row["tenant_id"] for row in await cursor.fetchall()}
        if not taken:
            return
        await conn.execute(
            sql.statement("clear_vectors").format(vectors=space.vectors),
            {"memory_id": memory_id, "positions": list(taken)},
        )
        lines = [
            (event.position, passage, vector)
            for event, parts, vectors in encoded
            if event.position in taken
            for passage, vector in zip(parts, vectors, strict=True)
        ]
        await conn.execute(
            sql.statement("insert_vectors").format(vectors=space.vectors),
            {
                "memory_id": memory_id,
                "tenant_id": next(iter(taken.values())),
                "positions": [position for position, _, _ in lines],
                "chunks": [passage.chunk for _, passage, _ in lines],
                "starts": [passage.start for _, passage, _ in lines],
                "stops": [passage.stop for _, passage, _ in lines],
                "embeddings": [vector_text(vector) for _, _, vector in lines],
            },
        )


async def _written(
    db: AsyncDatabase,
    space: Space,
    memory_id: UUID,
    claimed: dict[int, dict[str, Any]],
    encoded: Sequence[Encoded],
) -> None:
    """Write, once more where the connection is lost: else the claim would have to run out first."""
    try:
        await _write(db, space, memory_id, claimed, encoded)
    except StorageError as error:
        logger.warning("writing %d entries' vectors again: %s", len(encoded), error)
        await _write(db, space, memory_id, claimed, encoded)


def vector_text(vector: Any) -> str:
    """Write a vector in pgvector's text form."""
    return "[" + ",".join(f"{value:.6g}" for value in vector.tolist()) + "]"


async def encode_some(
    db: AsyncDatabase, encoder: Encoder, space: Space, memory_id: UUID, lease: float
) -> int:
    """Encode one batch of a memory's backlog and return how many entries left the queue.

    When a batch fails its entries are tried one by one, so that a failing one holds back
    nothing but itself: it is tried again later, ever more rarely. Raises `EncoderFailed` when
    every entry failed, `EncoderMismatch` when the vectors do not fit the space.
    """
    pairs, claimed = await _claim(db, space, memory_id, lease)
    if not pairs:
        return 0
    key = {"memory_id": memory_id, "space_id": space.space_id}
    held = _Lease(db, key, dict(claimed), lease, monotonic())
    encoded = await _encoded(encoder, pairs, held)
    if not isinstance(encoded, Exception):
        await _written(db, space, memory_id, claimed, encoded)
        return len(pairs)
    done, last = 0, encoded
    for pair in pairs:
        await held.keep()  # failing takes its time too
        encoded = await _encoded(encoder, [pair], held)
        if isinstance(encoded, Exception):
            last = encoded
            await held.postpone(pair[0].position, last)
        else:
            await _written(db, space, memory_id, claimed, encoded)
            held.held.pop(pair[0].position)
            done += 1
    if not done:
        raise EncoderFailed(f"the encoder failed: {described(last)}") from last
    return done


async def backlog(db: AsyncDatabase, space: Space, memories: int = 16) -> list[UUID]:
    """List memories with due entries: those due for longest, and as many others at random."""
    half = {"space_id": space.space_id, "limit": memories // 2}
    async with db.transaction(WORKER) as conn:
        cursor = await conn.execute(sql.statement("backlogged_memories"), half)
        found = [row["memory_id"] for row in await cursor.fetchall()]
        others = sql.statement("other_backlogged_memories")
        for start in (uuid4(), UUID(int=0)) if found else ():
            cursor = await conn.execute(others, half | {"from": start})
            found += [row["memory_id"] for row in await cursor.fetchall()]
    return list(dict.fromkeys(found))[:memories]


async def encode_due(
    db: AsyncDatabase,
    encoder: Encoder,
    space: Space,
    lease: float,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Encode one batch for each memory with a backlog; return how many entries were done.

    `stopping` is asked before each batch. Raises `EncoderFailed` when all of it failed.
    """
    done, failed = 0, None
    for memory_id in await backlog(db, space):
        if stopping():
            break
        try:
            done += await encode_some(db, encoder, space, memory_id, lease)
        except EncoderFailed as error:
            failed = error
    if failed is not None and not done:
        raise failed
    return done


async def waiting(db: AsyncDatabase, space: Space, memory_id: UUID) -> dict[str, Any]:
    """Count a memory's entries that have no vector yet."""
    row = await db.fetch_one(
        sql.statement("waiting_entries"), {"memory_id": memory_id, "space_id": space.space_id}
    )
    assert row is not None
    return row


async def flush(
    db: AsyncDatabase,
    encoder: Encoder,
    space: Space,
    memory_id: UUID,
    *,
    lease: float,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Encode a memory's backlog here and wait for what others have claimed of it.

    Entries that failed before are tried once more. Raises `EncoderFailed` when some fail again.
    """
    key = {"memory_id": memory_id, "space_id": space.space_id}
    async with db.transaction(WORKER) as conn:
        await conn.execute(sql.statement("retry_failed"), key)
    while True:
        done = await encode_some(db, encoder, space, memory_id, lease)
        left = await waiting(db, space, memory_id)
        if progress is not None:
            progress(left["waiting"])
        if not left["waiting"]:
            return
        if done:
            continue
        if left["last_error"] is not None:
            raise EncoderFailed(f"{left['waiting']} entries are not encoded: {left['last_error']}")
        await sleep(POLL_SECONDS)
