"""The weights of the ranking: one set for every kind of log."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How entries are scored: a weighted sum of features, each about 0 to 1.

    A weight of 0 leaves its feature out.
    """

    candidates: int = 300
    """How many entries each leg brings."""
    frame: int = 150
    """How many candidates are kept, by the legs' scores alone, for the whole ranking."""
    reach: int = 3
    """How many positions before and after a candidate belong to the frame."""
    k1: float = 1.2
    """BM25: how soon a repeated term stops counting."""
    b: float = 0.75
    """BM25: how much longer entries are held back."""
    reciprocal: bool = False
    """Fuse the two legs by reciprocal rank and nothing else."""
    lexical: float = 1.0
    """The entry's BM25, as a share of the best one's."""
    vector: float = 1.0
    """The cosine of the entry's best chunk, on the scale of the frame's."""
    window: float = 0.4
    """BM25 over the entry with its neighbours, as a share of the best one's."""
    adjacent: float = 0.3
    """The legs' score of each of the two entries beside it in its session."""
    near: float = 0.1
    """The same, two away."""
    answer: float = 0.3
    """The legs' score of the entry before it, if that one asks."""
    session: float = 0.2
    """The legs' best score in its session."""
    actor: float = 0.4
    """The query names its actor, but not all actors."""
    user: float = 0.4
    """It is the user's, in a log that has other roles too."""
    question: float = -0.2
    """It is itself a question."""

    time: float = 0.6
    """How near its time is to one that the query names."""

    def weights(self) -> dict[str, float]:
        """Return the features' weights by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NO_WEIGHTS}

    def without(self, *names: str) -> Settings:
        """Return a copy with the given weights at 0, to measure what each is worth."""
        nothing: dict[str, Any] = dict.fromkeys(names, 0.0)
        return replace(self, **nothing)


_NO_WEIGHTS = frozenset({"candidates", "frame", "reach", "k1", "b", "reciprocal"})
_ALONE = tuple(set(Settings().weights()) - {"lexical", "vector"})

LEXICAL = Settings().without("vector", *_ALONE)
"""BM25 alone."""
VECTOR = Settings().without("lexical", *_ALONE)
"""The cosine alone."""
RECIPROCAL = replace(Settings().without(*_ALONE), reciprocal=True)
"""Reciprocal rank fusion of the two."""
