"""What ranking reads and gives: the candidates as arrays, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The candidates of one search with their neighbours: n entries, t query terms, m chunks.

    Entries may come in any order. Those that are not `eligible` (neighbours that a filter
    excludes) lend their scores to others and are never returned themselves.
    """

    position: Integers
    """(n,) positions in the log, all different."""
    session: Integers
    """(n,) any number per session; negative where an entry has none, and so no neighbours."""
    actor: Integers
    """(n,) indices into `actors`."""
    actors: Sequence[str]
    """The actors' names."""
    role: Sequence[str]
    """n roles."""
    event_type: Sequence[str]
    """n event types."""
    occurred_at: Floats
    """(n,) seconds since the epoch."""
    text: Sequence[str]
    """n contents; the first few hundred characters are enough."""
    asks: Booleans
    """(n,) whether the content ends with a question mark."""
    eligible: Booleans
    """(n,) whether the entry may be returned."""
    terms: Sequence[str]
    """The t query terms, in the order of the columns of `tf`."""
    tf: Floats
    """(n, t) how often each entry has each term."""
    df: Floats
    """(t,) how many entries of the whole memory have each term."""
    doc_length: Floats
    """(n,) the entries' lengths in terms."""
    documents: int
    """Entries in the whole memory."""
    average_length: float
    """Their mean length in terms."""
    chunk_row: Integers
    """(m,) for each encoded chunk, the index of its entry in the arrays above."""
    chunk: Integers
    """(m,) the chunk's number inside its entry."""
    cosine: Floats
    """(m,) its cosine with the query; NaN counts as not encoded."""

    def __len__(self) -> int:
        return len(self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """The eligible entries of a frame, best first, and why.

    `scores` and each of `contributions` are (n,) in the frame's order; the contributions add up
    to the score. `leg_scores` and `leg_ranks` give each leg's own score and rank (1 is best, 0
    is not found) by the leg's name. `best_chunk` is the number of the chunk that matched best,
    -1 where none is encoded.
    """

    order: Integers
    scores: Floats
    contributions: Mapping[str, Floats] = field(default_factory=dict)
    leg_scores: Mapping[str, Floats] = field(default_factory=dict)
    leg_ranks: Mapping[str, Integers] = field(default_factory=dict)
    best_chunk: Integers = field(default_factory=lambda: np.empty(0, np.int64))
