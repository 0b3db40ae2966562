"""Rows of candidates as the arrays that ranking reads, and ranked entries as hits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memstore.ranking import Frame, Ranked, Settings
from memstore.types import Event, Hit, LegScore

LEGS = ("lexical", "vector")

Integers = NDArray[np.int64]


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
    """One query's ranking: its frame, and the (m, 2) spans of the frame's chunks."""

    frame: Frame
    ranked: Ranked
    spans: Integers
    leg_hits: dict[str, int]


def frame_positions(
    legs: Iterable[Mapping[int, float]], settings: Settings, last: int
) -> list[int]:
    """List the positions to read: the best of both legs, and `reach` entries on either side.

    Each leg's (position, score) are set on one scale and added, as ranking will do again on
    more; the best `frame` stay. `last` is the log's last position.
    """
    total: dict[int, float] = {}
    for leg in legs:
        if not leg:
            continue
        low, high = min(leg.values()), max(leg.values())
        for position, score in leg.items():
            share = (score - low) / (high - low) if high > low else 1.0
            total[position] = total.get(position, 0.0) + share
    best = sorted(total, key=lambda position: (-total[position], position))[: settings.frame]
    steps = range(-settings.reach, settings.reach + 1)
    around = {position + step for position in best for step in steps}
    return sorted(position for position in around if 1 <= position <= last)


def build_frame(
    entries: list[tuple[Any, ...]],
    postings: list[tuple[Any, ...]],
    chunks: list[tuple[Any, ...]],
    documents: int,
    indexed_terms: int,
) -> tuple[Frame, Integers]:
    """Turn rows into arrays. `entries` are in order of position."""
    columns = list(zip(*entries, strict=True)) or [()] * 10
    position = np.array(columns[0], np.int64)
    sessions: dict[str | None, int] = {None: -1}
    actors: dict[str, int] = {}
    tf = np.zeros((len(position), len(postings)))
    df = np.zeros(len(postings))
    for column, (_, count, inside, frequencies) in enumerate(postings):
        df[column] = count
        if inside:
            tf[np.searchsorted(position, inside), column] = frequencies
    chunk_columns = list(zip(*chunks, strict=True)) or [()] * 5
    row_of_chunk = np.searchsorted(position, np.array(chunk_columns[0], np.int64))
    frame = Frame(
        position=position,
        session=np.array(
            [sessions.setdefault(name, len(sessions) - 1) for name in columns[1]], np.int64
        ),
        actor=np.array([actors.setdefault(name, len(actors)) for name in columns[2]], np.int64),
        actors=tuple(actors),
        role=columns[3],
        event_type=columns[4],
        occurred_at=np.array(columns[5], np.float64),
        text=columns[6],
        asks=np.array(columns[7], np.bool_),
        eligible=np.array(columns[9], np.bool_),
        terms=[term for term, *_ in postings],
        tf=tf,
        df=df,
        doc_length=np.array(columns[8], np.float64),
        documents=documents,
        average_length=max(indexed_terms, 1) / max(documents, 1),
        chunk_row=row_of_chunk.astype(np.int64),
        chunk=np.array(chunk_columns[1], np.int64),
        cosine=np.array(chunk_columns[2], np.float64),
    )
    spans = np.array([chunk_columns[3], chunk_columns[4]], np.int64).T
    return frame, spans


def to_hit(event: Event, found: Found, index: int, score: float) -> Hit:
    """Describe one ranked entry."""
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
        reasons=_reasons(found, index, legs),
        span=span,
    )


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


def distinct(values: Iterable[str]) -> list[str]:
    """Keep the first of equal texts, and no blank ones."""
    return list(dict.fromkeys(value for value in values if value.strip()))
