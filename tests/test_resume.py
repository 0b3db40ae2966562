"""A restart on a real database: the state, what it has not absorbed, and what bears on the task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel

from memstore import (
    Encoder,
    NewEvent,
    StateSchema,
    o200k,
)
from memstore.importing import read_events
from tests.encoders import PATIENCE, Gated, HashEncoder, Recording
from tests.resumed import BUDGETS, THREAD, call, check_pairs, positions, shown
from tests.stores import KINDS, connected


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with connected(request.param, database_url, HashEncoder()) as opened:
        yield opened


@pytest.fixture
def memory(store: Any) -> Any:
    return store.memory(agent="a", user="u")


def said(*texts: str) -> list[NewEvent]:
    return [
        NewEvent(content=text, role="assistant" if n % 2 else "user", session_id="s")
        for n, text in enumerate(texts)
    ]


def filler(count: int) -> list[NewEvent]:
    """Messages about this and that, none of which repeats another."""
    things = ("lamps", "chairs", "maps", "drums", "kites", "boots", "clocks", "pears")
    return said(
        *(f"number {n} of the {things[n % 8]} went to shelf {n * 7 % 31}" for n in range(count))
    )


# the parts


def test_state_stale_parts_tail_and_old_entries_come_together(memory: Any) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=400)
    memory.append(said("the boiler's valve is a brass one, size 22"))
    memory.append(filler(60))
    memory.commit(
        events=said("let us fix the boiler"),
        state={
            "user_preferences": {"units": "metric"},
            "confirmed_facts": [
                {"statement": "the house is in Braga", "confirmed_at": long_ago.isoformat()}
            ],
            "active_task": {"description": "fix the boiler"},
        },
    )
    memory.append(said("shall I drain it first?", "yes, from the lower tap"))
    memory.flush()
    context = memory.resume("which valve does the boiler need?", budget=600)
    assert context.state.version == 1
    assert context.state.value.active_task.description == "fix the boiler"
    assert [part.path for part in context.stale] == ["/confirmed_facts/0"]
    assert "the house is in Braga" in context.stale[0].question
    assert positions(context.tail) == [63, 64]
    assert 1 in positions(context.retrieved)
    assert positions(context.retrieved) == sorted(positions(context.retrieved))
    assert not set(positions(context.tail)) & set(positions(context.retrieved))
    assert context.task == "which valve does the boiler need?"
    (old,) = [entry for entry in context.retrieved if entry.position == 1]
    assert old.hit is not None
    assert "lexical" in old.reason
    text = context.to_text()
    for part in ("Braga", "metric", "fix the boiler", "lower tap", "brass one, size 22"):
        assert part in text
    assert text.index("brass one") < text.index("lower tap")
    assert "stale /confirmed_facts/0" in text
    assert context.stale[0].question in text
    assert context.degraded == ""
    assert context.search is not None
    assert context.search.unencoded == 0
    assert {"state", "encode", "tail", "entries", "assemble"} <= context.milliseconds.keys()
    assert 0 < context.tokens.total <= 600
    assert all(context.tokens[part] for part in ("state", "tail", "retrieved"))


def test_the_tail_is_everything_after_the_watermark(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(said("one", "two"))
        memory.patch({"user_preferences": {"a": 1}})
        memory.append(said("three"))
        memory.append(said("four", "five"))
        # The agent dies here, between its appends and saving what it made of them.
    for kind in KINDS:
        with connected(kind, database_url, HashEncoder()) as store:
            memory = store.memory(agent="a", user="u")
            context = memory.resume("go on")
            assert positions(context.tail) == [3, 4, 5]
            assert context.state.log_position == 2
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.patch({"user_preferences": {"b": 2}}, log_position=4)  # it had read so far
        assert positions(memory.resume("go on").tail) == [5]
        memory.revert(to=1)
        assert positions(memory.resume("go on").tail) == [3, 4, 5]
        memory.confirm("/user_preferences/a")  # absorbs nothing
        assert positions(memory.resume("go on").tail) == [3, 4, 5]
        memory.update(lambda state: None)
        memory.flush()
        assert positions(memory.resume("go on").tail) == []
        assert positions(memory.resume("go on").retrieved) == [1, 2, 3, 4, 5]


def test_without_a_state_the_whole_log_is_the_tail(memory: Any) -> None:
    memory.append(filler(30))
    context = memory.resume("lamps", budget=10_000)
    assert positions(context.tail) == list(range(1, 31))
    assert context.state.version == 0
    assert context.retrieved == ()
    assert context.dropped == ()


def test_what_of_the_tail_does_not_fit_competes_as_what_is_retrieved(memory: Any) -> None:
    memory.append(said("the vault's code is quokka seven"))
    memory.append(filler(200))
    memory.flush()
    context = memory.resume("what is the vault's code?", budget=500)
    assert 1 in positions(context.retrieved)
    assert max(positions(context.tail)) == 201
    assert 1 not in positions(context.tail)
    assert len(shown(context)) < 201
    left_out = {item.position for item in context.dropped if item.part == "tail"}
    assert left_out.isdisjoint(shown(context))


def test_an_empty_memory_has_an_empty_context(memory: Any) -> None:
    for task in (None, "", "anything at all?"):
        for budget in BUDGETS:
            context = memory.resume(task, budget=budget)
            assert (context.tail, context.retrieved, context.stale) == ((), (), ())
            assert context.state.version == 0
            assert context.to_text() == ""
            assert context.to_messages("openai") == context.to_messages("anthropic") == []
            assert context.tokens.total == 0
            assert context.dropped == ()


def test_a_state_without_a_log(memory: Any) -> None:
    memory.patch({"user_preferences": {"units": "metric"}})
    context = memory.resume("which units?")
    assert "metric" in context.to_text()
    assert shown(context) == []


# what is asked


def test_without_a_task_the_states_cues_are_asked(memory: Any) -> None:
    memory.append(said("the boiler's valve is made of brass"))
    memory.append(filler(80))
    memory.append(said("the greenhouse roof is of glass"))
    memory.append(filler(20))
    for task, expected in (
        ({"description": "repair the boiler's valve"}, 1),
        ({"description": "mend the greenhouse roof", "last_action": "bought putty"}, 82),
        (None, None),
    ):
        memory.patch({"active_task": task})
        memory.flush()
        context = memory.resume(budget=300)
        if expected is None:
            assert context.search.leg_hits == {"lexical": 0, "vector": 0}
            assert context.retrieved == ()
        else:
            best = max(context.retrieved, key=lambda e: e.hit.score if e.hit else -1)
            assert best.position == expected
    memory.patch({"unresolved_issues": [{"description": "is the valve of brass?"}]})
    assert 1 in positions(memory.resume(budget=300).retrieved)


def test_the_cues_are_asked_beside_a_task(memory: Any) -> None:
    memory.append(said("the boiler's valve is made of brass", "the greenhouse roof is of glass"))
    memory.append(filler(80))
    memory.patch({"active_task": {"description": "mend the greenhouse roof"}})
    memory.flush()
    found = positions(memory.resume("which valve has the boiler?", budget=400).retrieved)
    assert {1, 2} <= set(found)


class Plain(BaseModel):
    """No cues, nothing that grows stale."""

    city: str = ""
    nested: dict[str, list[int]] = {}


PLAIN = StateSchema("plain", 1, Plain)


def test_a_schema_without_cues(store: Any) -> None:
    memory = store.memory(agent="a", user="u", schema=PLAIN)
    memory.append(said("tea at four", "with milk"))
    memory.save(Plain(city="Braga", nested={"a": [1, 2]}), expected_version=0)
    memory.append(said("and a biscuit"))
    context = memory.resume()
    assert context.state.value == Plain(city="Braga", nested={"a": [1, 2]})
    assert (positions(context.tail), context.retrieved, context.stale) == ([3], (), ())
    assert "Braga" in context.to_text()
    assert positions(memory.resume("tea").retrieved)[0] == 1


@pytest.mark.parametrize(
    "task",
    [
        "a\x00b",
        "\udc97 half an emoji",
        "   ",
        "the",
        "?!",
        "' OR 1=1; --",
        'team:foobar & (a | !b) <-> "c',
        "</recalled>",
        "茶はどこ？ 駅で。",
        "Which? " * 3_000,
        "word " * 60_000,
        "x" * 1_000_000,
    ],
    ids=lambda task: repr(task[:14]),
)
def test_any_text_is_a_task(database_url: str, task: str) -> None:
    # traps 1, 2, 6, 8
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(said("tea at the station", "茶を飲む"))
        memory.patch({"user_preferences": {"a": 1}})
        memory.flush()
        context = memory.resume(task, budget=500)
        assert context.degraded == ""
        assert context.tokens.total <= 500


# with a real encoder


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_entry_is_found_in_other_words(
    database_url: str, kind: str, encoder: Encoder
) -> None:
    dinner = [
        NewEvent(content=text, role="assistant" if n % 2 else "user", session_id="dinner")
        for n, text in enumerate(
            (
                "Three of us on Saturday, my sister comes too.",
                "Lovely. Is there anything she dislikes?",
                "She cannot stand cilantro, please leave it out.",
                "I shall, the salsa gets parsley instead.",
            )
        )
    ]
    task = "Which herb must the cook avoid for the relative that visits?"
    thread = list(read_events(THREAD))
    for used, expected in ((encoder, True), (None, False)):
        with connected(kind, database_url, used) as store:
            memory = store.memory(agent="a", user="found" if used else "not found")
            memory.append([*thread[:20], *dinner, *thread[20:90]])
            memory.patch({"user_preferences": {"language": "English"}})
            memory.append(thread[90:93])
            memory.flush()
            context = memory.resume(task, budget=700)
            assert (23 in positions(context.retrieved)) == expected
            assert ("cannot stand cilantro" in context.to_text()) == expected
            if expected:
                (entry,) = [e for e in context.retrieved if e.position == 23]
                assert "vector #" in entry.reason


def test_a_large_result_does_not_crowd_out_short_turns(memory: Any) -> None:
    rows = "\n".join(f"row {n}: value {n * n}" for n in range(3_000))[:60_000]
    memory.patch({"user_preferences": {"units": "metric"}})
    turns = [f"short turn {n}, about the {n}th sensor" for n in range(10)]
    memory.append([*said(*turns[:5]), *call("read_table", rows, "c"), *said(*turns[5:])])
    memory.flush()
    context = memory.resume("what did the sensors say?", budget=1_024)
    text = context.to_text()
    assert all(turn in text for turn in turns)
    assert {6, 7} <= set(positions(context.tail))
    (result,) = [entry for entry in context.tail if entry.position == 7]
    assert result.cut is not None
    assert "characters left out" in json.dumps(context.to_messages("openai"))
    check_pairs(context)


def test_calls_and_results_come_together_across_the_watermark(memory: Any) -> None:
    # trap 40
    made, answered = call("orders.lookup", "order WF-20418: twelve probes", "c-1")
    memory.append([*said("where is my order?"), made])
    memory.patch({"user_preferences": {"a": 1}})
    memory.append([answered, *said("it is on its way")])
    memory.flush()
    context = memory.resume("where is the order?")
    assert {2, 3, 4} <= set(shown(context))
    check_pairs(context)


def test_a_hit_on_one_half_brings_the_other(memory: Any) -> None:
    # trap 40
    memory.append(call("orders.lookup", "the parcel is in Braga, shelf quokka", "c-1"))
    memory.append(filler(100))
    memory.append(call("weather", "a storm over the whole coast", "c-2")[:1])  # no answer yet
    memory.patch({"user_preferences": {"a": 1}})
    memory.flush()
    context = memory.resume("on which shelf is the parcel, quokka?", budget=400)
    assert {1, 2} <= set(positions(context.retrieved))
    for budget in (64, 128, 256, 512):
        found = {p for p in shown(memory.resume("parcel shelf quokka", budget=budget)) if p < 3}
        assert found in (set(), {1, 2})


@pytest.mark.parametrize(
    "content",
    ["word " * 209_715, "x" * 1_048_576, "茶" * 349_525, "\n" * 1_000 + "é" * 500_000],
    ids=["words", "one-word", "chinese", "lines"],
)
def test_an_entry_of_a_megabyte_in_the_tail(database_url: str, content: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(said("before"))
        memory.append(said(content))
        memory.append(said("after"))
        for budget in (64, 1_024, 4_096):
            context = memory.resume("go on", budget=budget)
            assert o200k()(context.to_text()) <= budget
            assert 3 in positions(context.tail)
            if budget > 64:
                (entry,) = [e for e in context.tail if e.position == 2]
                assert entry.cut is not None
                assert positions(context.tail) == [1, 2, 3]


# what is missing


class Mute(Recording):
    def encode(self, texts: Any) -> NDArray[np.float32]:
        raise ConnectionError("the model's host is away")


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_encoder_a_context_comes_by_words_and_says_so(
    database_url: str, kind: str
) -> None:
    # trap 14
    with connected(kind, database_url, Mute()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(said("the vault's code is quokka"))
        memory.append(filler(40))
        memory.patch({"active_task": {"description": "open the vault"}})
        memory.append(said("and now?"))
        for task in ("what is the code of the vault?", None):
            context = memory.resume(task, budget=300)
            assert context.degraded == "lexical only: the encoder failed (ConnectionError)"
            assert 1 in positions(context.retrieved)
            assert positions(context.tail) == [42]
            assert context.search is not None
            assert context.search.leg_hits["vector"] == 0
            assert context.search.unencoded == 42


def test_what_has_no_vector_yet_is_counted_and_found_by_words(memory: Any) -> None:
    memory.append(said("the vault's code is quokka"))
    memory.flush()
    memory.append(said("the cellar's code is zyzzyva"))
    memory.patch({"user_preferences": {"a": 1}})
    context = memory.resume("which code has the cellar?")
    assert positions(context.retrieved) == [1, 2]
    assert context.search.unencoded == 1
    assert context.degraded == ""


def test_a_store_without_an_encoder_is_not_degraded(database_url: str) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(said("the vault's code is quokka"))
        memory.patch({"user_preferences": {"a": 1}})
        context = memory.resume("quokka")
        assert positions(context.retrieved) == [1]
        assert (context.degraded, context.search.unencoded) == ("", 0)


def test_both_tracks_are_read_at_one_moment(database_url: str) -> None:
    encoder = Gated()
    with connected("sync", database_url, encoder) as store, ThreadPoolExecutor(1) as threads:
        memory = store.memory(agent="a", user="u")
        memory.append(said("the vault's code is quokka", "noted"))
        memory.patch({"user_preferences": {"a": 1}})
        resuming = threads.submit(memory.resume, "which code has the vault?")
        assert encoder.asked.wait(PATIENCE)
        # While a resume waits for its encoder everything that it has read is erased, and more said.
        memory.erase(reason="asked to")
        memory.append(said("who are you?"))
        encoder.may.set()
        context = resuming.result(PATIENCE)
    assert context.state.version == 0
    assert [entry.event.content for entry in context.tail] == ["who are you?"]
    assert "quokka" not in context.to_text()
