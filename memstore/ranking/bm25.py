"""BM25 over arrays of term frequencies, with Lucene's IDF, which is never negative."""

from __future__ import annotations

import numpy as np

from memstore.ranking.frame import Floats


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
