"""What was said anew: the newest of statements that are alike leads, in search and in resume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore import Budget, NewEvent, Ranking
from memstore.ranking import LEXICAL, RECIPROCAL, VECTOR, newest_first
from tests.encoders import HashEncoder
from tests.stores import KINDS, connected

FILLER = [f"note {n}: the weather of day {n} was dry and warm" for n in range(30)]
SAID = [
    "The build on the gateway is 2.8.3.",
    *FILLER[:10],
    "The build on the probes is 2.8.1.",
    *FILLER[10:20],
    "The build on the gateway is 2.9.0.",
    *FILLER[20:],
]
OLD, OTHER, NEW = 1, 12, 23
ASKED = "Which build is on the gateway?"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with connected(request.param, database_url, HashEncoder()) as opened:
        yield opened


def filled(store: Any, *, user: str = "u", texts: list[str] = SAID, **given: Any) -> Any:
    memory = store.memory(agent="a", user=user)
    memory.append([NewEvent(**{"content": text, "session_id": "s", **given}) for text in texts])
    memory.flush()
    memory.patch({})
    return memory


def found(memory: Any, query: str = ASKED, k: int = 10, **ranking: Any) -> list[int]:
    result = memory.search(query, k=k, ranking=replace(Ranking(), **ranking))
    return [hit.event.position for hit in result]


def test_a_statement_is_ranked_below_the_one_that_supersedes_it(store: Any) -> None:
    memory = filled(store)
    first = memory.search(ASKED, k=5)
    places = [hit.event.position for hit in first]
    assert places.index(NEW) == 0
    assert places.index(OLD) > 0
    assert f"older than {NEW}" in first[places.index(OLD)].reasons
    assert not any("older" in reason for reason in first[0].reasons)
    scores = [hit.score for hit in first]
    assert scores == sorted(scores, reverse=True)
    # The same entries, and all but those that changed places where they were.
    before = found(memory, k=20, newest=False)
    after = found(memory, k=20)
    assert sorted(before) == sorted(after)
    moved = {p for p, q in zip(before, after, strict=True) if p != q}
    assert moved <= {OLD, NEW}


def test_it_does_not_depend_on_how_many_hits_are_asked_for(store: Any) -> None:
    memory = filled(store)
    assert found(memory, k=1) == [NEW]
    assert found(memory, k=3) == found(memory, k=20)[:3]


def test_the_order_of_the_log_counts_and_not_the_wording(store: Any) -> None:
    """The same two statements the other way round: the last word is the last word."""
    texts = SAID.copy()
    texts[OLD - 1], texts[NEW - 1] = texts[NEW - 1], texts[OLD - 1]
    assert found(filled(store, texts=texts))[0] == NEW


def test_the_newest_statement_comes_into_a_small_context_first(store: Any) -> None:
    memory = filled(store)
    shown = memory.resume(ASKED, budget=Budget(128, state_share=0.0)).retrieved
    hits = [hit.event.position for hit in memory.resume(ASKED, budget=Budget(512)).search]
    assert NEW in [entry.position for entry in shown]
    assert hits.index(NEW) < hits.index(OLD)


def test_statements_of_two_actors_do_not_supersede_each_other(store: Any) -> None:
    memory = store.memory(agent="a", user="two")
    memory.append(
        [
            NewEvent(content="My flight to Braga is on Monday", actor="Ines"),
            NewEvent(content="My flight to Braga is on Friday", actor="Rui"),
        ]
    )
    memory.flush()
    reasons = [reason for hit in memory.search("flight to Braga") for reason in hit.reasons]
    assert not any(reason.startswith("older") for reason in reasons)


@pytest.mark.parametrize(
    "texts",
    [
        ["Which build is on the gateway now?", "Which build is on the gateway then?"],
        ["The build on the gateway is 2.8.3.", "Rui brought a new mast for that gateway build."],
        ["The build of the gateway " + "is old and " * 40, "The build of the gateway is new"],
    ],
    ids=["questions", "other words", "long"],
)
def test_what_makes_no_like_statement_keeps_its_place(store: Any, texts: list[str]) -> None:
    memory = filled(store, texts=[*texts, *FILLER])
    assert found(memory) == found(memory, newest=False)


def test_a_query_that_names_a_time_wants_what_was_said_then(store: Any) -> None:
    memory = store.memory(agent="a", user="times")
    memory.append(
        [
            NewEvent(
                content=f"The gateway runs build {number}",
                occurred_at=datetime(2026, 5, day, tzinfo=UTC),
            )
            for number, day in enumerate((4, 11, 18), 1)
        ]
    )
    memory.flush()
    assert found(memory, "Which build ran on the gateway?")[0] == 3
    assert found(memory, "Which build ran on the gateway on 11 May 2026?")[0] == 2


def test_the_plain_legs_are_left_as_they_are() -> None:
    assert not any(plain.newest for plain in (LEXICAL, VECTOR, RECIPROCAL))


@given(
    order=st.lists(st.integers(1, 40), unique=True, max_size=20),
    data=st.data(),
)
def test_only_entries_of_a_group_change_places(order: list[int], data: st.DataObject) -> None:
    groups = data.draw(
        st.lists(st.lists(st.integers(1, 40), unique=True, min_size=2, max_size=5), max_size=4)
    )
    texts = {p: data.draw(st.sampled_from(["a b c", "a b d", "x y z", ""])) for p in range(1, 41)}
    result, newest = newest_first(order, groups, texts)
    grouped = {position for group in groups for position in group}
    assert sorted(result) == sorted(order)
    for before, after in zip(order, result, strict=True):
        assert before == after or {before, after} <= grouped
    assert all(older < newer for older, newer in newest.items())


def test_the_newest_takes_the_best_place_of_those_alike() -> None:
    texts = {1: "he lives in Rome", 5: "he lives in Oslo", 9: "he lives in Lima", 4: "she is away"}
    result, newest = newest_first([5, 4, 1, 9], [[5, 4, 1, 9]], texts)
    assert result == [9, 4, 5, 1]
    assert newest == {5: 9, 1: 9}


def test_repeats_are_left_out_of_a_search_on_request(store: Any) -> None:
    repeated = ["The pump is on.", "Pump: pressure 3 bar", "the pump is on", "THE PUMP IS ON!"]
    memory = filled(store, texts=[*repeated, *FILLER])
    assert {1, 2, 3, 4} <= set(found(memory, "the pump", k=4))
    distinct = found(memory, "the pump", k=4, distinct=True)
    assert len(distinct) == 4
    assert len({1, 3, 4} & set(distinct)) == 1
    assert 2 in distinct
