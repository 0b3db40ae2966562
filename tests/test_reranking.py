"""Re-ranking by a cross-encoder: what it reads, what it changes, and what happens when it fails."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memstore import Budget, ConfigurationError, MissingExtra, NewEvent, Settings
from memstore.reranking import RERANKED, load_reranker
from tests.encoders import HashEncoder
from tests.stores import KINDS, connected

SAID = [f"tea number {n} of many" for n in range(12)]


class Wanting:
    """Puts first what has a word in it; keeps what it was asked."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.pairs: list[tuple[str, str]] = []

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        self.pairs += pairs
        return [float(self.word in text) for _, text in pairs]


class Answering:
    """Gives the same whatever it is asked, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        if isinstance(self.answer, Exception):
            raise self.answer
        found: Sequence[float] = self.answer
        return found


def filled(store: Any) -> Any:
    memory = store.memory(agent="a", user="u")
    memory.append([NewEvent(content=text) for text in SAID])
    memory.patch({})
    return memory


def shown(result: Any) -> list[int]:
    return [hit.event.position for hit in result]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_entries_are_ordered_anew(database_url: str, kind: str) -> None:
    with connected(kind, database_url, HashEncoder()) as store:
        memory = filled(store)
        before = memory.search("tea", k=12)
        inner = store._inner if kind == "async" else store
        inner.reranker = reranker = Wanting("number 9")
        after = memory.search("tea", k=3)
        assert shown(after) == [10, *shown(before)[:2]]
        assert {query for query, _ in reranker.pairs} == {"tea"}
        assert len(reranker.pairs) == len(SAID)
        place = shown(before).index(10)
        assert after[0].legs["reranker"].rank == 1
        assert after[0].reasons[0] == f"reranked from #{place + 1}"
        assert after[0].score == before[place].score
        assert "rerank" in after.milliseconds
        memory.search("  ")
        assert {query for query, _ in reranker.pairs} == {"tea"}


def test_a_context_takes_the_best_entries_for_its_task_first(database_url: str) -> None:
    with connected("sync", database_url) as store:
        memory = filled(store)
        last = shown(memory.search("which tea?", k=12))[-1]

        def given() -> list[int]:
            context = memory.resume("which tea?", budget=Budget(120, state_share=0.0))
            return [entry.position for entry in context.retrieved]

        assert given()
        assert last not in given()
        store.reranker = Wanting(SAID[last - 1])
        assert last in given()


def test_only_the_first_fifty_are_read(database_url: str) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content=f"tea {n}") for n in range(RERANKED + 10)])
        before = memory.search("tea", k=RERANKED + 10)
        store.reranker = reranker = Wanting("nothing")
        assert shown(memory.search("tea", k=RERANKED + 10)) == shown(before)
        assert len(reranker.pairs) == RERANKED


def test_of_a_long_entry_it_reads_the_passage_that_matched(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(content="road " * 400 + "quokka")
        memory.flush()
        store.reranker = reranker = Wanting("quokka")
        (hit,) = memory.search("quokka")
        ((_, text),) = reranker.pairs
        assert hit.span is not None
        assert text == hit.event.content[slice(*hit.span)]
        assert "quokka" in text
        assert len(text) <= 400


@pytest.mark.parametrize(
    "answer",
    [RuntimeError("no reranker today"), [1.0], [float("nan")] * 12, ["a"] * 12, np.ones((12, 2))],
    ids=["raises", "too few", "not a number", "not numeric", "of another shape"],
)
def test_when_it_fails_the_order_stays_and_it_is_said(database_url: str, answer: Any) -> None:
    with connected("sync", database_url) as store:
        memory = filled(store)
        before = shown(memory.search("tea", k=12))
        store.reranker = Answering(answer)
        result = memory.search("tea", k=12)
        assert shown(result) == before
        assert result.degraded.startswith("not re-ranked: the reranker ")
        assert memory.resume("tea").degraded == result.degraded


def test_it_is_named_by_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_RERANKER", str(tmp_path))
    assert Settings().reranker == str(tmp_path)
    with pytest.raises(ConfigurationError, match="can't be loaded as a cross-encoder"):
        load_reranker(str(tmp_path))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match="encoders"):
        load_reranker(str(tmp_path))
