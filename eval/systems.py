"""The systems that are compared: each ranks one memory's entries and fills a context with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from eval.datasets import Query
from memstore import Budget, Context, Event, Hit, Memory, Ranking, o200k
from memstore.analysis import query_terms, terms
from memstore.context import ContextInputs, assemble
from memstore.ranking import LEXICAL, RECIPROCAL, VECTOR

#: Entries that are ranked for the measures, and at most for a context.
DEPTH, MOST = 50, 400
#: A budget in which everything fits.
UNLIMITED = 10**9

Steps = dict[str, float]
Rank = Callable[[str], Sequence[tuple[Event, float]]]


class System(Protocol):
    """Ranks a memory's entries for a question, and renders what fits a budget."""

    def rank(self, query: Query) -> tuple[Sequence[Hit], Steps]:
        """Return hits, best first, and milliseconds by step."""
        ...

    def context(self, query: Query, hits: Sequence[Hit], budget: int) -> Context:
        """Render a context of at most `budget` tokens from a question's `hits`."""
        ...


@dataclass(frozen=True, slots=True)
class Searched:
    """The store itself, searched and resumed as its users do it."""

    memory: Memory[Any]
    ranking: Ranking | None = None

    def rank(self, query: Query) -> tuple[Sequence[Hit], Steps]:
        if not query.question.strip():
            return (), {}
        started = perf_counter()
        result = self.memory.search(
            query.question, k=DEPTH, now=query.asked_at, ranking=self.ranking
        )
        total = (perf_counter() - started) * 1000
        if result.degraded:
            raise RuntimeError(result.degraded)
        return result.hits, dict(result.milliseconds) | {"total": total}

    def context(self, query: Query, hits: Sequence[Hit], budget: int) -> Context:
        return self.memory.resume(
            query.question, budget=budget, now=query.asked_at, ranking=self.ranking
        )


@dataclass(frozen=True, slots=True)
class Ranker:
    """A ranking by itself; its context is filled in its order, by the store's own assembly."""

    ranked: Rank

    def rank(self, query: Query) -> tuple[Sequence[Hit], Steps]:
        started = perf_counter()
        hits = [Hit(event=e, score=score, legs={}) for e, score in self.ranked(query.question)]
        return hits, {"total": (perf_counter() - started) * 1000}

    def context(self, query: Query, hits: Sequence[Hit], budget: int) -> Context:
        return rendered(ContextInputs(now=now(), task=query.question, hits=hits), budget)


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest entries, whatever is asked, as the turns that they were."""

    events: Sequence[Event]
    made: dict[int, Context] = field(default_factory=dict)

    def rank(self, query: Query) -> tuple[Sequence[Hit], Steps]:
        return [hit(event) for event in reversed(self.events[-DEPTH:])], {}

    def context(self, query: Query, hits: Sequence[Hit], budget: int) -> Context:
        if budget not in self.made:
            tail = self.events[-(budget // 8 + 1) :]  # an entry takes eight tokens or more
            self.made[budget] = rendered(ContextInputs(now=now(), tail=tail), budget)
        return self.made[budget]


@dataclass(frozen=True, slots=True)
class Full:
    """Replay from the start: everything, or as much of it as the budget holds."""

    events: Sequence[Event]
    made: dict[int, Context] = field(default_factory=dict)

    def rank(self, query: Query) -> tuple[Sequence[Hit], Steps]:
        return [hit(event) for event in self.events[:DEPTH]], {}

    def context(self, query: Query, hits: Sequence[Hit], budget: int) -> Context:
        if budget not in self.made:
            inputs = (
                ContextInputs(now=now(), tail=self.events)
                if budget >= UNLIMITED
                else ContextInputs(now=now(), hits=[hit(e) for e in self.events[: budget // 8]])
            )
            self.made[budget] = rendered(inputs, budget)
        return self.made[budget]


def hit(event: Event) -> Hit:
    return Hit(event=event, score=0.0, legs={})


def now() -> datetime:
    return datetime.now(UTC)


def rendered(inputs: ContextInputs, budget: int) -> Context:
    return assemble(inputs, Budget(budget, state_share=0.0, tail_share=1.0), o200k())


def rank_bm25(events: Sequence[Event]) -> Rank:
    """rank-bm25's BM25Okapi in memory, over the same terms.

    Its IDF, and so a score, can be negative; only entries without a query term have none.
    """
    from rank_bm25 import BM25Okapi

    documents = [
        [term for term, n in terms(event.content).frequencies.items() for _ in range(n)] or [""]
        for event in events
    ]
    index = BM25Okapi(documents)

    def rank(question: str) -> list[tuple[Event, float]]:
        scores = np.asarray(index.get_scores(list(query_terms(question))))
        best = np.lexsort((np.arange(len(scores)), -scores))[:MOST]
        return [(events[i], float(scores[i])) for i in best if scores[i]]

    return rank


RANKINGS = {"memstore": None, "lexical": LEXICAL, "vector": VECTOR, "rrf": RECIPROCAL}
NAMES = (*RANKINGS, "recent", "full", "rank-bm25", "ts-rank")


@contextmanager
def opened(
    name: str, memory: Memory[Any], url: str, ranking: Ranking | None = None
) -> Iterator[System]:
    """Make a system by its name, over one memory that holds everything, encoded.

    `url` is the store's database, in which `ts-rank` makes a temporary table. `ranking` takes
    the place of the shipped one.
    """
    if name in RANKINGS:
        yield Searched(memory, ranking or RANKINGS[name])
    elif name == "ts-rank":
        from eval.ts_rank import indexed

        with indexed(url, all_events(memory)) as rank:
            yield Ranker(rank)
    elif name == "rank-bm25":
        yield Ranker(rank_bm25(all_events(memory)))
    elif name == "recent":
        yield Recent(all_events(memory))
    elif name == "full":
        yield Full(all_events(memory))
    else:
        raise ValueError(f"no system {name!r}; there are {', '.join(NAMES)}")


def all_events(memory: Memory[Any]) -> list[Event]:
    """Read a whole log."""
    events: list[Event] = []
    while page := memory.events(after=events[-1].position if events else 0, limit=1000):
        events += page
    return events
