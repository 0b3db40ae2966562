"""The weights of the ranking: one set for every kind of log."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How entries are scored: a weighted sum of features, each about 0 to 1.

    A weight of 0 leaves its feature out. The defaults were fitted on chat between people and on
    agent threads together, and checked on conversations left out of the fit; small changes
    to them matter little.
    """

    candidates: int = 300
    """How many entries each leg brings."""
    frame: int = 120
    """How many candidates are kept, by the legs' scores alone, for the whole ranking."""
    reach: int = 2
    """How many positions before and after a candidate belong to the frame."""
    k1: float = 1.2
    """BM25: how soon a repeated term stops counting."""
    b: float = 0.75
    """BM25: how much longer entries are held back."""
    newest: bool = True
    """Of short statements that are alike and match alike, the newest takes the best place."""
    distinct: bool = False
    """Leave out of a search what says the same as a better hit, word for word or nearly."""
    reciprocal: bool = False
    """Fuse the two legs by reciprocal rank and nothing else."""
    lexical: float = 0.65
    """The entry's BM25, as a share of the best one's."""
    vector: float = 1.05
    """The cosine of the entry's best chunk, on the scale of the frame's."""
    window: float = 0.65
    """BM25 over the entry with two neighbours on either side, as a share of the best one's.
    An entry of more than 100 terms speaks for itself, so that it counts less as it gets longer.
    One without a session has no neighbours, and its own BM25 stands in."""
    answer: float = 0.3
    """The legs' score of the entry before it, if that one asks."""
    reply: float = 2.0
    """It is the user's among other roles: the cosine of the entry after it, mostly the reply, as
    far as that one is long (200 terms) and so says again what it was asked."""
    session: float = 0.6
    """The legs' best score in its session."""
    coverage: float = 0.5
    """The share of the query's terms, weighed by rarity, that its session has."""
    actor: float = 0.55
    """The query names its actor, but not all actors."""
    user: float = 0.1
    """It is the user's among other roles."""
    told: float = 0.5
    """It is not the user's, and the query asks what the assistant said."""
    question: float = -0.15
    """It is itself a question."""
    dated: float = 0.6
    """The query asks for a time, and its text has one."""
    numbered: float = 0.4
    """The query asks for a number, and its text has one."""
    time: float = 1.2
    """How near its time is to one that the query names."""
    length: float = -0.5
    """How far it is longer than 100 terms: 1 at 2,000."""

    def weights(self) -> dict[str, float]:
        """Return the features' weights by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NO_WEIGHTS}

    def without(self, *names: str) -> Settings:
        """Return a copy with the given weights at 0, to measure what each is worth."""
        nothing: dict[str, Any] = dict.fromkeys(names, 0.0)
        return replace(self, **nothing)


_NO_WEIGHTS = frozenset(
    {"candidates", "frame", "reach", "k1", "b", "newest", "distinct", "reciprocal"}
)
_ALONE = tuple(set(Settings().weights()) - {"lexical", "vector"})

_PLAIN = replace(Settings().without(*_ALONE), newest=False)

LEXICAL = _PLAIN.without("vector")
"""BM25 alone."""
VECTOR = _PLAIN.without("lexical")
"""The cosine alone."""
RECIPROCAL = replace(_PLAIN, reciprocal=True)
"""Reciprocal rank fusion of the two."""
IDENTITY = ("actor", "user", "reply", "told")
"""The weights that know who spoke."""
TIME = ("time", "dated")
"""The weights that know when."""
NEIGHBOURS = ("window", "answer", "reply", "session", "coverage")
"""The weights that look at other entries."""
