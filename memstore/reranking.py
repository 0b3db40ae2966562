"""Re-ranking: a cross-encoder reads the best entries beside the query. Off, unless one is named.

It reads both texts at once, so it tells better than two vectors do, and takes a thousand times
as long: only the best few are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from memstore.errors import ConfigurationError, EncoderFailed, MissingExtra
from memstore.types import Hit, LegScore, Reranker

__all__ = ["RERANKED", "load_reranker", "rerank"]

RERANKED = 50
LONGEST = 2_000  # characters of an entry; what a cross-encoder reads of one is shorter


def load_reranker(name: str) -> Reranker:
    """Load a sentence-transformers cross-encoder by name or path; that imports torch.

    Raises `MissingExtra`, and `ConfigurationError` when there is no such model.
    """
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "encoders") from error
    try:
        return cast(Reranker, CrossEncoder(name))
    except Exception as error:  # the hub, the files and the library raise many types
        raise ConfigurationError(f"{name!r} can't be loaded as a cross-encoder: {error}") from error


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit]) -> list[Hit]:
    """Order the first 50 hits by a reranker's scores; the others follow as they are.

    Of a long entry it reads the passage that matched best. Its rank and score are told in
    `Hit.legs` under ``reranker``; `Hit.score` stays the ranking's. Raises `EncoderFailed` when it
    raises, or does not give a finite number for each pair.
    """
    best, others = hits[:RERANKED], hits[RERANKED:]
    if not best:
        return []
    try:
        scores = np.asarray(reranker.predict([(query, _passage(hit)) for hit in best]), np.float64)
    except Exception as error:  # whatever a model may raise
        raise EncoderFailed(f"the reranker failed: {error}") from error
    if scores.shape != (len(best),) or not np.isfinite(scores).all():
        raise EncoderFailed(f"the reranker gave no number for each of {len(best)} entries")
    order = np.argsort(-scores, kind="stable").tolist()
    ordered = [
        _reranked(best[index], index + 1, LegScore(rank, float(scores[index])))
        for rank, index in enumerate(order, 1)
    ]
    return [*ordered, *others]


def _passage(hit: Hit) -> str:
    start, stop = hit.span or (0, LONGEST)
    return hit.event.content[start:stop]


def _reranked(hit: Hit, before: int, told: LegScore) -> Hit:
    reasons = (f"reranked from #{before}", *hit.reasons)
    return replace(hit, legs={**hit.legs, "reranker": told}, reasons=reasons)
