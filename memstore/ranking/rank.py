"""One query's ranking: features, weighted and added up."""

from __future__ import annotations

import numpy as np

from memstore.ranking.bm25 import bm25
from memstore.ranking.features import (
    Neighbours,
    best_chunks,
    best_in_session,
    named,
    scaled,
    share,
)
from memstore.ranking.frame import Floats, Frame, Ranked
from memstore.ranking.fusion import ranks, rrf
from memstore.ranking.query import QueryFeatures
from memstore.ranking.settings import Settings
from memstore.ranking.times import closeness


def rank(frame: Frame, query: QueryFeatures, settings: Settings | None = None) -> Ranked:
    """Rank a frame's eligible entries for a query; equal scores go by position, older first."""
    s = settings or Settings()
    n = len(frame)
    if not n:
        empty = np.empty(0)
        return Ranked(order=np.empty(0, np.int64), scores=empty)
    by_actor, naming = named(frame, query)
    if naming.all():
        naming = np.zeros_like(naming)
    tf, df = frame.tf[:, ~naming], frame.df[~naming]

    def bm(counts: Floats, length: Floats) -> Floats:
        return bm25(counts, df, length, frame.documents, frame.average_length, s.k1, s.b)

    lexical = bm(tf, frame.doc_length)
    cosine, chunk = best_chunks(frame)
    leg_scores = {"lexical": np.where(lexical > 0, lexical, np.nan), "vector": cosine}
    leg_ranks = {name: ranks(scores, frame.position) for name, scores in leg_scores.items()}

    features: dict[str, Floats]
    if s.reciprocal:
        fused = rrf(list(leg_ranks.values()), (s.lexical, s.vector))
        features, weights = {"reciprocal": fused}, {"reciprocal": 1.0}
    else:
        features = {"lexical": share(lexical), "vector": scaled(cosine)}
        legs = (s.lexical * features["lexical"] + s.vector * features["vector"]) / 2
        beside = Neighbours(frame)
        window, length = tf.copy(), frame.doc_length.copy()
        for offset in (-1, 1):
            window += beside.shift(tf, offset)
            length += beside.shift(frame.doc_length, offset)
        asks = frame.asks.astype(np.float64)
        user = np.array([role == "user" for role in frame.role])
        features |= {
            "window": share(bm(window, length / 3)),
            "adjacent": beside.shift(legs, -1) + beside.shift(legs, 1),
            "near": beside.shift(legs, -2) + beside.shift(legs, 2),
            "answer": beside.shift(legs * asks, -1),
            "session": best_in_session(frame, legs),
            "actor": by_actor.astype(np.float64),
            "user": user.astype(np.float64) if not user.all() else np.zeros(n),
            "question": asks,
            "time": closeness(query.times, frame.occurred_at),
        }
        weights = {name: float(getattr(s, name)) for name in features}
    contributions = {k: weights[k] * v for k, v in features.items() if weights[k]}
    scores = np.sum(list(contributions.values()), axis=0) if contributions else np.zeros(n)
    order = np.lexsort((frame.position, -scores))
    return Ranked(
        order=order[frame.eligible[order]],
        scores=scores,
        contributions=contributions,
        leg_scores=leg_scores,
        leg_ranks=leg_ranks,
        best_chunk=chunk,
    )
