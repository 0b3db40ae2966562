"""The domain's words as frozen dataclasses and protocols; no behaviour beyond derivation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, SupportsIndex, overload, runtime_checkable
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

Role = Literal["user", "assistant", "system", "tool"]
ROLES: tuple[Role, ...] = ("user", "assistant", "system", "tool")

JSON = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose memory it is: what one agent knows about one user, inside one tenant."""

    tenant: str
    agent_id: str
    user_id: str

    @property
    def memory_id(self) -> UUID:
        """Derive the memory's id: 128 bits of SHA-256 over the length-prefixed parts, as a UUIDv8.

        The length prefixes keep ``("a", "b:c")`` and ``("a:b", "c")`` apart, and no look-up
        is needed to find a memory from any node.
        """
        digest = hashlib.sha256()
        for part in (self.tenant, self.agent_id, self.user_id):
            raw = part.encode()
            digest.update(len(raw).to_bytes(4, "big") + raw)
        bits = bytearray(digest.digest()[:16])
        bits[6] = (bits[6] & 0x0F) | 0x80
        bits[8] = (bits[8] & 0x3F) | 0x80
        return UUID(bytes=bytes(bits))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent_id}/{self.user_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to append. `occurred_at` must be aware; left out, it is the time of recording."""

    content: str = ""
    role: Role = "user"
    event_type: str = "message"
    actor: str | None = None
    session_id: str | None = None
    occurred_at: datetime | None = None
    payload: JSON = None
    correlation_id: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of a memory's log, as stored. Both times are aware and in UTC.

    `position` numbers the log from 1, gapless, in commit order. `actor` is who spoke or
    acted; where none was given it is the role.
    """

    position: int
    session_id: str | None
    actor: str
    role: Role
    event_type: str
    occurred_at: datetime
    recorded_at: datetime
    content: str
    payload: JSON = None
    correlation_id: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The receipt of an append.

    `positions` has one number per event given, in the order given. `repeated` lists those
    that were stored before under the same idempotency key. `unindexed` maps a position to
    the number of its terms that the lexical index left out.
    """

    positions: tuple[int, ...]
    repeated: tuple[int, ...] = ()
    unindexed: Mapping[int, int] = field(default_factory=dict)

    @property
    def position(self) -> int:
        """The last event's position."""
        return self.positions[-1]


@dataclass(frozen=True, slots=True)
class LegScore:
    """Where one leg ranked an entry (1 is best) and the leg's own score."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A retrieved entry. `span` is the (start, stop) character range of `event.content` that
    matched best, when the entry is longer than one chunk. `reasons` are short phrases a
    person can read: ``lexical #1 (postgres, vector)``, ``vector #3``, ``neighbour of 41``.
    """

    event: Event
    score: float
    legs: Mapping[str, LegScore]
    reasons: tuple[str, ...] = ()
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Sequence[Hit]):
    """Hits, best first, and what the search did.

    `leg_hits` counts each leg's candidates. `unencoded` is the number of entries in the memory
    that have no vector yet and so were covered by the lexical leg alone. `degraded` says in
    words what was left out (the encoder failed, say), or is empty. `milliseconds` is by step.
    """

    hits: tuple[Hit, ...]
    leg_hits: Mapping[str, int] = field(default_factory=dict)
    unencoded: int = 0
    degraded: str = ""
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)


@runtime_checkable
class Encoder(Protocol):
    """Text to vectors. One encoder's vectors form one space, named by `name`."""

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode n texts to an (n, dimension) float32 array of unit vectors."""
        ...

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        """Split a text into (start, stop) character spans that each fit the encoder's window.

        `reserve` tokens of the window are kept free for the header and the preceding turn.
        """
        ...


class Reranker(Protocol):
    """Scores (query, text) pairs; higher is better. Any sentence-transformers CrossEncoder fits."""

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]: ...


class TokenCounter(Protocol):
    """Counts the tokens of a text: any callable from a string to a number."""

    def __call__(self, text: str, /) -> int: ...
