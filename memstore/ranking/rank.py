"""One query's ranking: features, weighted and added up."""

from __future__ import annotations

import numpy as np

from memstore.ranking.bm25 import bm25, idf
from memstore.ranking.features import (
    Neighbours,
    best_chunks,
    best_in_session,
    matching,
    named,
    scaled,
    session_coverage,
    share,
)
from memstore.ranking.frame import Floats, Frame, Ranked
from memstore.ranking.fusion import ranks, rrf
from memstore.ranking.query import NUMBER_WORDS, TIME_WORDS, QueryFeatures
from memstore.ranking.settings import Settings
from memstore.ranking.times import closeness

LONG = 100
"""Terms; beyond it an entry is held back, and its neighbours say less about it."""
FULL_REPLY = 200
"""Terms; a reply that is shorter says less about what it replies to."""
LOOKED_INTO = 100
"""Entries whose text is read for times and numbers: those that lead without."""


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
        features = {"reciprocal": rrf(list(leg_ranks.values()), (s.lexical, s.vector))}
        weights = {"reciprocal": 1.0}
    else:
        weights = s.weights()
        features = {"lexical": share(lexical), "vector": query.legible * scaled(cosine)}
        legs = (features["lexical"] + features["vector"]) / 2
        beside = Neighbours(frame)
        window, length = tf.copy(), frame.doc_length.copy()
        for offset in (-2, -1, 1, 2):
            window += beside.shift(tf, offset)
            length += beside.shift(frame.doc_length, offset)
        terms = frame.doc_length + 1
        asks = frame.asks.astype(np.float64)
        mine = np.array([role == "user" for role in frame.role], np.float64)
        mine = mine if not mine.all() else np.zeros(n)
        features |= {
            "window": np.where(
                frame.session >= 0,
                share(bm(window, length / 5)) * np.minimum(LONG / terms, 1),
                features["lexical"],
            ),
            "answer": beside.shift(legs * asks, -1),
            "reply": mine * beside.shift(features["vector"] * np.minimum(terms / FULL_REPLY, 1), 1),
            "session": best_in_session(frame, legs),
            "coverage": session_coverage(frame, tf, idf(df, frame.documents)),
            "actor": by_actor.astype(np.float64),
            "user": mine,
            "told": (1 - mine) * (query.asks_told and mine.any()),
            "question": asks,
            "time": closeness(query.times, frame.occurred_at),
            "length": np.maximum(np.log(terms / LONG), 0) / 3,
        }
        if query.asks_time or query.asks_number:
            score = np.sum([weights[k] * v for k, v in features.items()], axis=0)
            first = np.lexsort((frame.position, -score))[:LOOKED_INTO]
            if query.asks_time:
                features["dated"] = matching(frame, first, TIME_WORDS)
            if query.asks_number:
                features["numbered"] = matching(frame, first, NUMBER_WORDS)
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
