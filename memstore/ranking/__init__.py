"""Ranking as pure functions over arrays, used by the store and by its evaluation alike."""

from __future__ import annotations

from memstore.ranking.bm25 import Postings, best_by_bm25, bm25, idf
from memstore.ranking.frame import Frame, Ranked
from memstore.ranking.fusion import merge, rrf
from memstore.ranking.newest import newest_first, rivals
from memstore.ranking.query import QueryFeatures, query_features
from memstore.ranking.rank import rank
from memstore.ranking.settings import (
    IDENTITY,
    LEXICAL,
    NEIGHBOURS,
    RECIPROCAL,
    TIME,
    VECTOR,
    Settings,
)

__all__ = [
    "IDENTITY",
    "LEXICAL",
    "NEIGHBOURS",
    "RECIPROCAL",
    "TIME",
    "VECTOR",
    "Frame",
    "Postings",
    "QueryFeatures",
    "Ranked",
    "Settings",
    "best_by_bm25",
    "bm25",
    "idf",
    "merge",
    "newest_first",
    "query_features",
    "rank",
    "rivals",
    "rrf",
]
