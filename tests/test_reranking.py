"""Re-ranking by a cross-encoder: what it reads, what it changes, and what happens when it fails."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from memstore import Budget, ConfigurationError, MissingExtra, NewEvent, Settings
from memstore.reranking import RerankerSource, load_reranker
from tests.encoders import HashEncoder
from tests.stores import KINDS, QUIET, connected

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


@pytest.mark.parametrize("most", [50, 7])
def test_only_so_many_are_read(database_url: str, most: int) -> None:
    settings = QUIET.model_copy(update={"rerank": most})
    with connected("sync", database_url, settings=settings) as store:
        memory = store.memory(agent="a", user=f"u-{most}")
        memory.append([NewEvent(content=f"tea {n}") for n in range(60)])
        before = memory.search("tea", k=60)
        store.reranker = reranker = Wanting("nothing")
        assert shown(memory.search("tea", k=60)) == shown(before)
        assert len(reranker.pairs) == most
        reranker.pairs.clear()
        memory.search("tea", k=3)  # of more than are asked for the best are found
        assert len(reranker.pairs) == most
        reranker.pairs.clear()
        memory.resume("tea", budget=2_000)
        assert 0 < len(reranker.pairs) <= most


def test_no_transaction_is_open_and_no_event_loop_is_held_while_it_reads(
    database_url: str,
) -> None:  # traps 34, 37
    asked, may = threading.Event(), threading.Event()

    class Slow(Wanting):
        def predict(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
            asked.set()
            assert may.wait(60)
            return super().predict(pairs)

    with connected("async", database_url) as store:
        memory = filled(store)
        store._inner.reranker = Slow("number 9")
        with ThreadPoolExecutor(1) as pool, psycopg.connect(database_url) as other:
            found = pool.submit(memory.search, "tea")
            assert asked.wait(60)
            assert memory.events(limit=1)  # the loop answers others
            others = other.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
            ).fetchone()
            may.set()
            assert others == (0,)
            assert shown(found.result(60))[0] == 10


def test_a_server_does_not_wait_long_for_a_busy_one(database_url: str) -> None:
    asked, may = threading.Event(), threading.Event()

    class Slow(Wanting):
        def predict(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
            asked.set()
            assert may.wait(60)
            return super().predict(pairs)

    settings = QUIET.model_copy(update={"query_encoders": 1, "query_patience": 0.05})
    with connected("sync", database_url, settings=settings) as store:
        memory = filled(store)
        store.reranker = Slow("number 9")
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(memory.search, "tea")
            assert asked.wait(60)
            second = memory.search("tea")
            may.set()
            assert second.degraded == "not re-ranked: the reranker is busy"
            assert len(second) == 10
            assert not first.result(60).degraded


def test_it_is_loaded_once_for_all_tenants_and_a_wrong_name_is_tried_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(name: str) -> Wanting:
        loaded.append(name)
        if name == "wrong":
            raise ConfigurationError("'wrong' can't be loaded as a cross-encoder: no such model")
        return Wanting("number 9")

    monkeypatch.setattr("memstore.reranking.load_reranker", load)
    settings = QUIET.model_copy(update={"reranker": "right"})
    with connected("sync", database_url, settings=settings) as store:
        view = store.for_tenant("default")
        assert view.reranker == "right"
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda s: filled(s).search("tea")[0], [store, view] * 2))
        assert loaded == ["right"]
        assert {"number 9" in hit.event.content for hit in results} == {True}
        store.reranker = "wrong"
        for _ in range(2):
            result = filled(store).search("tea")
            assert result.degraded.startswith("not re-ranked: 'wrong' can't be loaded")
            assert len(result) == 10
        assert loaded == ["right", "wrong"]


def test_an_error_that_is_raised_again_does_not_keep_what_was_searched(tmp_path: Path) -> None:
    source, lengths = RerankerSource(str(tmp_path)), set()
    for _ in range(4):
        with pytest.raises(ConfigurationError) as told:
            source.rerank("tea", [], 3)
        lengths.add(len(told.traceback))
    assert len(lengths) <= 2  # the first time it comes from further below


def test_one_that_is_set_while_another_is_loaded_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Wanting:
        source.given = None
        return Wanting(name)

    monkeypatch.setattr("memstore.reranking.load_reranker", load)
    source = RerankerSource("slow")
    source.rerank("tea", [], 3)
    assert source.given is None


def test_of_a_long_entry_it_reads_the_passage_that_matched(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(content="road " * 400 + "quokka")
        memory.flush()
        store.reranker = reranker = Wanting("quokka")
        (hit,) = memory.search("quokka")
        ((_, text),) = reranker.pairs
        assert hit.span is not None
        assert hit.event.content[slice(*hit.span)] in text
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
