"""Re-ranking: a cross-encoder reads the best entries beside the query. Off, unless one is named.

It reads both texts at once, so it tells better than two vectors do, and takes a thousand times
as long: only the best few are worth it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memstore.errors import (
    ConfigurationError,
    EncoderFailed,
    MemstoreError,
    MissingExtra,
    TooBusy,
)
from memstore.types import Hit, LegScore, Reranker

__all__ = ["RerankerSource", "load_reranker", "rerank"]

LEAST = 400  # characters read of a long entry, round what matched in it
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
        model = CrossEncoder(name)
    except Exception as error:  # the hub, the files and the library raise many types
        raise ConfigurationError(f"{name!r} can't be loaded as a cross-encoder: {error}") from error
    return _CrossEncoder(model)


class _CrossEncoder:
    """A cross-encoder that threads may share.

    transformers sets truncation on its tokenizer at each call, and two threads that do so at
    once get an error from it.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = threading.Lock()

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        with self._lock:
            scores: Sequence[float] = self._model.predict(list(pairs), show_progress_bar=False)
        return scores


class RerankerSource:
    """A store's reranker: loaded once, when it is first needed, for all who share the source.

    `given` is a cross-encoder's name or path, a `Reranker`, or None. With `patience` a call waits
    so many seconds for one that is under way, and is then refused: on a server threads that wait
    would keep others from searching at all.
    """

    def __init__(self, given: str | Reranker | None, patience: float | None = None) -> None:
        self.given = given
        self._patience = -1 if patience is None else patience
        self._one = threading.Lock()
        self._failed: tuple[str, MemstoreError] | None = None

    def rerank(self, query: str, hits: Sequence[Hit], most: int) -> list[Hit]:
        """Order the first `most` hits anew; the others follow as they are.

        Raises `TooBusy`, what `load_reranker` raises (a name that can't be loaded is tried
        once), and `EncoderFailed` as `rerank` does.
        """
        if not self._one.acquire(timeout=self._patience):
            raise TooBusy("the reranker is busy", retry_after=max(self._patience, 0.0))
        try:
            return rerank(self._loaded(), query, hits, most)
        finally:
            self._one.release()

    def _loaded(self) -> Reranker:
        given = self.given
        assert given is not None
        if not isinstance(given, str):
            return given
        if self._failed and self._failed[0] == given:
            raise self._failed[1].with_traceback(None)  # each raise would lengthen it
        try:
            loaded = load_reranker(given)
        except MemstoreError as error:
            self._failed = (given, error)
            raise
        if self.given is given:  # nobody has set another meanwhile
            self.given = loaded
        return loaded


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit], most: int) -> list[Hit]:
    """Order the first `most` hits by a reranker's scores; the others follow as they are.

    Of a long entry it reads the passage that matched best. Its rank and score are told in
    `Hit.legs` under ``reranker``; `Hit.score` stays the ranking's. Raises `EncoderFailed` when it
    raises, or does not give a finite number for each pair.
    """
    best, others = hits[:most], hits[most:]
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
    if hit.span is None:
        return hit.event.content[:LONGEST]
    start, stop = hit.span
    around = max(0, LEAST - (stop - start)) // 2
    return hit.event.content[max(0, start - around) : stop + around]


def _reranked(hit: Hit, before: int, told: LegScore) -> Hit:
    reasons = (f"reranked from #{before}", *hit.reasons)
    return replace(hit, legs={**hit.legs, "reranker": told}, reasons=reasons)
