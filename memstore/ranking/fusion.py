"""Putting rankings together: ranks from scores, reciprocal rank fusion, several queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memstore.ranking.frame import Floats, Integers, Ranked


def ranks(scores: Floats, position: Integers) -> Integers:
    """Rank (n,) scores: 1 is best, 0 where the score is NaN; equal scores by position."""
    order = np.lexsort((position, -scores))
    result = np.empty(len(scores), np.int64)
    result[order] = np.arange(1, len(scores) + 1)
    result[np.isnan(scores)] = 0
    return result


def rrf(leg_ranks: Sequence[Integers], weights: Sequence[float] = (), constant: int = 60) -> Floats:
    """Fuse l legs' (n,) ranks, 0 for not found, to (n,) sums of weight / (constant + rank).

    Cormack, Clarke and Buettcher (2009), *Reciprocal Rank Fusion*.
    """
    total = np.zeros(len(leg_ranks[0]) if leg_ranks else 0)
    for leg, weight in zip(leg_ranks, weights or [1.0] * len(leg_ranks), strict=True):
        total += np.where(leg > 0, weight / (constant + leg), 0.0)
    return total


def merge(
    rankings: Sequence[tuple[Integers, Ranked]], weights: Sequence[float] = ()
) -> list[tuple[int, float]]:
    """Merge several queries' rankings to (position, score) pairs, best first.

    Each ranking comes with its frame's (n,) positions. Scores are set on one scale (the best of
    each query is 1, the worst 0), weighted, and the highest of an entry counts, so that an entry
    that one query wants is not outvoted by those that don't.
    """
    best: dict[int, float] = {}
    for (position, ranked), weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        if not len(ranked.order):
            continue
        scores = ranked.scores[ranked.order]
        low, high = float(scores[-1]), float(scores[0])
        scaled = (scores - low) / (high - low) if high > low else np.ones(len(scores))
        for index, score in zip(ranked.order.tolist(), (weight * scaled).tolist(), strict=True):
            key = int(position[index])
            best[key] = max(score, best.get(key, -np.inf))
    return sorted(best.items(), key=lambda item: (-item[1], item[0]))
