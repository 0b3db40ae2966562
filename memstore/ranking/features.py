"""The features of a frame's entries, each an (n,) array of about 0 to 1."""

from __future__ import annotations

import re

import numpy as np

from memstore.analysis import query_terms
from memstore.ranking.frame import Booleans, Floats, Frame, Integers
from memstore.ranking.query import QueryFeatures


class Neighbours:
    """Finds the entries beside each entry in its session, as far as the frame has them."""

    def __init__(self, frame: Frame, reach: int = 3) -> None:
        self._order = np.lexsort((frame.position, frame.session))
        self._session = frame.session[self._order]
        self._position = frame.position[self._order]
        self._reach = reach

    def shift(self, values: Floats, offset: int) -> Floats:
        """Give each entry the value of the one `offset` after it (before it when negative).

        `values` is (n,) or (n, t). Zero where there is none, or where it is further than
        `reach` positions for each step.
        """
        result = np.zeros_like(values)
        step = abs(offset)
        if step >= len(self._order) or not step:
            return result
        first, second = self._order[:-step], self._order[step:]
        beside = (
            (self._session[:-step] == self._session[step:])
            & (self._session[:-step] >= 0)
            & (self._position[step:] - self._position[:-step] <= self._reach * step)
        )
        first, second = first[beside], second[beside]
        if offset > 0:
            result[first] = values[second]
        else:
            result[second] = values[first]
        return result


def share(values: Floats) -> Floats:
    """Divide by the largest, if that is above zero."""
    top = float(values.max(initial=0.0))
    return values / top if top > 0 else np.zeros_like(values)


def scaled(values: Floats) -> Floats:
    """Map the lowest to 0 and the highest to 1; NaN becomes the mean of the others."""
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros_like(values)
    low, high = float(values[known].min()), float(values[known].max())
    if high <= low:
        return np.zeros_like(values)
    result = (values - low) / (high - low)
    return np.where(known, result, result[known].mean())


def best_chunks(frame: Frame) -> tuple[Floats, Integers]:
    """Find each entry's best cosine, NaN where none is encoded, and its chunk, else -1."""
    cosine = np.full(len(frame), np.nan)
    chunk = np.full(len(frame), -1, np.int64)
    known = np.flatnonzero(np.isfinite(frame.cosine))
    # Worst first, so that the best is written last; of equals the first chunk.
    known = known[np.lexsort((-frame.chunk[known], frame.cosine[known]))]
    cosine[frame.chunk_row[known]] = frame.cosine[known]
    chunk[frame.chunk_row[known]] = frame.chunk[known]
    return cosine, chunk


def named(frame: Frame, query: QueryFeatures) -> tuple[Booleans, Booleans]:
    """Mark the entries of actors whom the query names, and the terms that name them.

    Both all False when it names nobody or everybody. Role names are no names.
    """
    roles = {"user", "assistant", "system", "tool"}
    words = [frozenset(name.casefold().split()) - roles for name in frame.actors]
    present = np.unique(frame.actor)
    hit = np.array([bool(w & query.words) for w in words], bool)
    entries, terms = np.zeros(len(frame), bool), np.zeros(len(frame.terms), bool)
    if not hit[present].any() or hit[present].all():
        return entries, terms
    names = {t for name, h in zip(frame.actors, hit, strict=True) if h for t in query_terms(name)}
    return hit[frame.actor], np.array([t in names for t in frame.terms], bool)


def best_in_session(frame: Frame, values: Floats) -> Floats:
    """Give each entry the best value in its session; zero where it has none."""
    _, code = np.unique(frame.session, return_inverse=True)
    best = np.full(int(code.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(best, code, values)
    return np.where(frame.session >= 0, best[code], 0.0)


def session_coverage(frame: Frame, tf: Floats, weights: Floats) -> Floats:
    """Give the share of (t,) term weights that each entry's session has; zero without one."""
    total = float(weights.sum())
    if total <= 0:
        return np.zeros(len(frame))
    _, code = np.unique(frame.session, return_inverse=True)
    present = np.zeros((int(code.max(initial=-1)) + 1, tf.shape[1]), bool)
    np.logical_or.at(present, code, tf > 0)
    return np.where(frame.session >= 0, (present @ weights / total)[code], 0.0)


def matching(frame: Frame, rows: Integers, pattern: re.Pattern[str]) -> Floats:
    """Mark those of the given rows whose text the pattern is found in."""
    result = np.zeros(len(frame))
    found: list[int] = [
        int(row) for row in rows if pattern.search(str(frame.text[int(row)]).casefold())
    ]
    result[found] = 1.0
    return result
