"""BM25 over arrays of term frequencies, with Lucene's IDF, which is never negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memstore.ranking.frame import Booleans, Floats, Integers


@dataclass(frozen=True, slots=True)
class Postings:
    """One term's list: p different positions, and what each of these entries has."""

    term: str
    position: Integers
    """(p,) positions in the log, in any order."""
    frequency: Integers
    """(p,) how often the entry has the term."""
    length: Integers
    """(p,) the entry's length in terms."""
    eligible: Booleans
    """(p,) whether the entry may be returned."""


def idf(df: Floats, n: int) -> Floats:
    """Weigh terms by rarity: (t,) document frequencies among n documents to (t,) weights.

    Lucene's form: ln(1 + (n - df + .5) / (df + .5)).
    """
    return np.log1p((n - df + 0.5) / (df + 0.5))


def bm25(
    tf: Floats,
    df: Floats,
    doc_length: Floats,
    n: int,
    avgdl: float,
    k1: float = 1.2,
    b: float = 0.75,
) -> Floats:
    """Score documents: (d, t) term frequencies, (t,) document frequencies, (d,) lengths to (d,).

    The sum over terms of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / avgdl)), after
    Robertson and Zaragoza (2009), *The Probabilistic Relevance Framework*.
    """
    if tf.size == 0:
        return np.zeros(len(tf))
    norm = k1 * (1 - b + b * doc_length / max(avgdl, 1e-9))
    saturated = tf * (k1 + 1) / np.maximum(tf + norm[:, None], 1e-9)
    return np.asarray(saturated @ idf(df, n), dtype=np.float64)


def best_by_bm25(
    postings: Sequence[Postings],
    n: int,
    avgdl: float,
    limit: int,
    k1: float = 1.2,
    b: float = 0.75,
) -> tuple[Integers, Floats]:
    """Score every eligible entry that has one of the terms, exactly; return the best `limit`.

    `n` is both how many documents there are and the last position. The sum is `bm25`'s. Returns
    positions and scores, best first, equal scores in order of position.
    """
    total = np.zeros(n + 1)
    for one in postings:
        (weight,) = idf(np.array([len(one.position)], np.float64), n)
        norm = k1 * (1 - b + b * one.length / max(avgdl, 1e-9))
        score = weight * one.frequency * (k1 + 1) / (one.frequency + norm)
        total[one.position] += np.where(one.eligible, score, 0.0)
    position = np.flatnonzero(total)
    if len(position) > limit:
        position = position[total[position] >= np.partition(total[position], -limit)[-limit]]
    order = np.lexsort((position, -total[position]))[:limit]
    return position[order], total[position[order]]
