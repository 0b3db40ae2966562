"""Rows of candidates as the arrays that ranking reads, and ranked entries as hits. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memstore import telemetry
from memstore.analysis import terms
from memstore.ranking import Frame, Postings, Ranked, Settings, idf
from memstore.types import Event, Hit, LegScore

LEGS = ("lexical", "vector")

_SENTENCE = re.compile(r"\S[^\n]*?(?:[.?!](?=\s)|[。？！]|(?=\n)|$)")

Integers = NDArray[np.int64]
Leg = tuple[Integers, NDArray[np.float64]]
"""Positions and their scores, all different, best first."""


@dataclass(slots=True)
class Clock:
    """Milliseconds by step; the same step adds up."""

    milliseconds: dict[str, float]
    started: float

    @classmethod
    def start(cls) -> Clock:
        return cls({}, perf_counter())

    def lap(self, step: str) -> None:
        now = perf_counter()
        telemetry.lap(step, now - self.started)
        self.milliseconds[step] = self.milliseconds.get(step, 0.0) + (now - self.started) * 1000
        self.started = now


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query as it is searched with.

    `vector` is pgvector's text form, None where there is nothing to encode with. `legible` is
    the share of the text that the encoder can read. `now` is when it is asked.
    """

    text: str
    vector: str | None
    legible: float
    now: datetime


@dataclass(frozen=True, slots=True)
class Found:
    """One query's ranking: its frame, and the (m, 2) spans of the frame's chunks.

    `rivals` are groups of positions of which the newest may lead; a query that names a time wants
    what was said then, and has none.
    """

    frame: Frame
    ranked: Ranked
    spans: Integers
    leg_hits: dict[str, int]
    rivals: Sequence[Sequence[int]] = ()


def frame_positions(legs: Iterable[Leg], settings: Settings, last: int) -> list[int]:
    """List the positions to read: the best of both legs, and `reach` entries on either side.

    Each leg's scores are set on one scale and added, as ranking will do again on more; the best
    `frame` stay. `last` is the log's last position.
    """
    total: dict[int, float] = {}
    for positions, scores in legs:
        if not len(positions):
            continue
        low, high = scores.min(), scores.max()
        shares = (scores - low) / (high - low) if high > low else np.ones(len(scores))
        for position, share in zip(positions.tolist(), shares.tolist(), strict=True):
            total[position] = total.get(position, 0.0) + share
    best = sorted(total, key=lambda position: (-total[position], position))[: settings.frame]
    steps = range(-settings.reach, settings.reach + 1)
    around = {position + step for position in best for step in steps}
    return sorted(position for position in around if 1 <= position <= last)


def build_frame(
    entries: Sequence[Any],
    postings: Sequence[Postings],
    chunks: Sequence[Any],
    documents: int,
    average_length: float,
) -> tuple[Frame, Integers]:
    """Put together what was read, column by column, as `frame_entries` and `frame_chunks` name it.

    A column is None where no row was read. Returns the frame, and its chunks' (m, 2) spans.
    """
    position, session, actor, role, event_type, occurred_at, text, asks, length, eligible = (
        column if column is not None else () for column in entries
    )
    position = np.asarray(position, np.int64)
    sessions: dict[str | None, int] = {None: -1}
    actors: dict[str, int] = {}
    order = np.argsort(position)
    tf = np.zeros((len(position), len(postings)))
    for column, one in enumerate(postings):
        rows, inside = _rows(position, order, one.position)
        tf[rows, column] = one.frequency[inside]
    chunk_position, chunk, cosine, start, stop = (
        column if column is not None else () for column in chunks
    )
    row_of_chunk, _ = _rows(position, order, np.asarray(chunk_position, np.int64))
    frame = Frame(
        position=position,
        session=np.array(
            [sessions.setdefault(name, len(sessions) - 1) for name in session], np.int64
        ),
        actor=np.array([actors.setdefault(name, len(actors)) for name in actor], np.int64),
        actors=tuple(actors),
        role=role,
        event_type=event_type,
        occurred_at=np.asarray(occurred_at, np.float64),
        text=text,
        asks=np.asarray(asks, np.bool_),
        eligible=np.asarray(eligible, np.bool_),
        terms=[one.term for one in postings],
        tf=tf,
        df=np.array([len(one.position) for one in postings], np.float64),
        doc_length=np.asarray(length, np.float64),
        documents=documents,
        average_length=average_length,
        chunk_row=row_of_chunk,
        chunk=np.asarray(chunk, np.int64),
        cosine=np.asarray(cosine, np.float64),
    )
    return frame, np.array([start, stop], np.int64).T


def _rows(position: Integers, order: Integers, wanted: Integers) -> tuple[Integers, Integers]:
    """Find positions in a frame: the rows of those that are there, and their indices in `wanted`.

    `order` sorts `position`.
    """
    at = np.searchsorted(position, wanted, sorter=order)
    inside = np.flatnonzero(at < len(position))
    inside = inside[position[order[at[inside]]] == wanted[inside]]
    return order[at[inside]], inside


def to_hit(event: Event, found: Found, index: int, score: float, newest: int | None = None) -> Hit:
    """Describe one ranked entry; `newest` is the position of a later one that is like it."""
    ranked = found.ranked
    legs = {
        leg: LegScore(rank, float(ranked.leg_scores[leg][index]))
        for leg in LEGS
        if (rank := int(ranked.leg_ranks[leg][index]))
    }
    span = _span(found, index)
    if span is not None and span[1] - span[0] >= len(event.content.strip()):
        span = None
    return Hit(
        event=event,
        score=score,
        legs=legs,
        reasons=(*_reasons(found, index, legs), *([f"older than {newest}"] if newest else [])),
        span=span,
    )


def focused(hit: Hit, found: Found) -> Hit:
    """Narrow a long entry's span to the sentence or line that has most of the query's terms.

    By rarity, the first of equals; where the span has none of them it stays.
    """
    if hit.span is None:
        return hit
    start, stop = hit.span
    weights = dict(
        zip(found.frame.terms, idf(found.frame.df, found.frame.documents).tolist(), strict=True)
    )
    best, span = 0.0, hit.span
    for match in _SENTENCE.finditer(hit.event.content, start, stop):
        has = terms(match[0]).frequencies.keys() & weights.keys()
        covered = sum(weights[term] for term in has)
        if covered > best + 1e-9:
            best, span = covered, match.span()
    return replace(hit, span=span)


def _span(found: Found, index: int) -> tuple[int, int] | None:
    """Find the characters of an entry's best chunk."""
    frame = found.frame
    best = (frame.chunk_row == index) & (frame.chunk == found.ranked.best_chunk[index])
    rows = np.flatnonzero(best)
    return None if not len(rows) else (int(found.spans[rows[0], 0]), int(found.spans[rows[0], 1]))


def _reasons(found: Found, index: int, legs: dict[str, LegScore]) -> tuple[str, ...]:
    """Say why an entry is here: the legs that found it, its terms, what else counted most."""
    frame = found.frame
    reasons: list[str] = []
    if "lexical" in legs:
        present = np.flatnonzero(frame.tf[index])
        rarest = sorted(present.tolist(), key=lambda column: (frame.df[column], column))[:4]
        words = ", ".join(frame.terms[column] for column in rarest)
        reasons.append(f"lexical #{legs['lexical'].rank} ({words})")
    if "vector" in legs:
        reasons.append(f"vector #{legs['vector'].rank}")
    others = {
        name: float(values[index])
        for name, values in found.ranked.contributions.items()
        if name not in (*LEGS, "reciprocal") and values[index] > 0.1
    }
    reasons += sorted(others, key=lambda name: (-others[name], name))[:2]
    return tuple(reasons)
