"""The systems that are compared: each ranks one memory's positions for one question."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import numpy as np

from eval.datasets import Query
from memstore import Event, Hit, Memory, Ranking
from memstore.analysis import query_terms, terms
from memstore.ranking import LEXICAL, RECIPROCAL, VECTOR

DEPTH = 50

Steps = dict[str, float]


class System(Protocol):
    """Ranks a memory's entries for a question: hits, best first, and milliseconds by step."""

    def __call__(self, query: Query) -> tuple[list[Hit], Steps]: ...


def searched(memory: Memory[object], ranking: Ranking | None, depth: int) -> System:
    """Search the store as its users do."""

    def system(query: Query) -> tuple[list[Hit], Steps]:
        started = perf_counter()
        result = memory.search(query.question, k=depth, ranking=ranking)
        if result.degraded:
            raise RuntimeError(result.degraded)
        total = (perf_counter() - started) * 1000
        return list(result.hits), dict(result.milliseconds) | {"total": total}

    return system


def _timed(rank: Callable[[str], list[tuple[Event, float]]]) -> System:
    def system(query: Query) -> tuple[list[Hit], Steps]:
        started = perf_counter()
        hits = [Hit(event=event, score=score, legs={}) for event, score in rank(query.question)]
        return hits, {"total": (perf_counter() - started) * 1000}

    return system


def recent(events: list[Event], depth: int) -> System:
    """The newest entries, whatever is asked."""
    newest = [(event, float(event.position)) for event in reversed(events[-depth:])]
    return _timed(lambda question: newest)


def full(events: list[Event], depth: int) -> System:
    """Replay: every entry, oldest first."""
    replayed = [(event, -float(event.position)) for event in events]
    return _timed(lambda question: replayed)


def rank_bm25(events: list[Event], depth: int) -> System:
    """rank-bm25's BM25Okapi in memory, over the same terms."""
    from rank_bm25 import BM25Okapi

    documents = [
        [term for term, n in terms(event.content).frequencies.items() for _ in range(n)] or [""]
        for event in events
    ]
    index = BM25Okapi(documents)

    def rank(question: str) -> list[tuple[Event, float]]:
        scores = np.asarray(index.get_scores(list(query_terms(question))))
        best = np.lexsort((np.arange(len(scores)), -scores))[:depth]
        return [(events[i], float(scores[i])) for i in best if scores[i] > 0]

    return _timed(rank)


NAMES = ("memstore", "lexical", "vector", "rrf", "recent", "full", "rank-bm25", "ts-rank")
RANKINGS = {"memstore": None, "lexical": LEXICAL, "vector": VECTOR, "rrf": RECIPROCAL}


def make(name: str, memory: Memory[object], url: str, depth: int = DEPTH) -> System:
    """Make a system by its name, over one memory that holds everything, encoded."""
    if name in RANKINGS:
        return searched(memory, RANKINGS[name], depth)
    events = all_events(memory)
    if name == "ts-rank":
        from eval.ts_rank import ts_rank

        return _timed(ts_rank(url, events, depth))
    return {"recent": recent, "full": full, "rank-bm25": rank_bm25}[name](events, depth)


def all_events(memory: Memory[object]) -> list[Event]:
    events: list[Event] = []
    while page := memory.events(after=events[-1].position if events else 0, limit=1000):
        events += page
    return events
