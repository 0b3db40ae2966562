"""What resume asks: the task, each of its questions, and what the state works on."""

from __future__ import annotations

from typing import Any

import pytest

from memstore import Budget, NewEvent
from memstore.queries import (
    CUE_WEIGHT,
    MAX_CUES,
    MAX_CUES_BESIDE,
    MAX_QUESTIONS,
    TASK_WEIGHT,
    make_queries,
)
from tests.encoders import HashEncoder, Recording
from tests.stores import KINDS, connected

ASKED = "Plan the move. Where do parcels go? Which serial has the gateway? Who waters the beds?"
TOLD = (
    'Bart: "I won!\nWas I good?"\nAssistant: "You were."\nBart: "I had practised. All week long."'
)


def texts(task: str, cues: tuple[str, ...] = ()) -> list[str]:
    return [text for text, _ in make_queries(task, cues)]


def test_a_task_of_questions_is_asked_whole_and_question_by_question() -> None:
    assert texts(ASKED) == [
        ASKED,
        "Where do parcels go?",
        "Which serial has the gateway?",
        "Who waters the beds?",
    ]


@pytest.mark.parametrize(
    "task",
    [
        TOLD,
        "Where do parcels go?",
        "Find out. Where do parcels go?",
        "I moved. I bought a cat. Is it old? And who feeds it? Nobody knows. I asked.",
        "v1.2?x.y... ? no",
    ],
)
def test_what_is_told_is_asked_as_a_whole(task: str) -> None:
    assert texts(task) == [task]


def test_questions_in_other_scripts_and_in_quotes() -> None:
    assert texts("包裹寄到哪里？网关的序列号是多少？")[1:] == [
        "包裹寄到哪里？",
        "网关的序列号是多少？",
    ]
    assert texts('"Where to?"\n**And when?**\n')[1:] == ['"Where to?"', "**And when?**"]


def test_a_question_is_asked_once_and_so_many_at_most() -> None:
    assert texts("Who? Who? Who?") == ["Who? Who? Who?"]
    many = " ".join(f"What is {n}?" for n in range(50))
    assert len(texts(many)) == 1 + MAX_QUESTIONS


def test_the_states_cues_weigh_less_beside_a_task() -> None:
    cues = ("update the firmware", "the fan", "the fan", " ", "the shed", "the key", "the dog")
    alone = make_queries("", cues)
    assert [weight for _, weight in alone] == [TASK_WEIGHT] * MAX_CUES
    beside = make_queries("the fan", cues)
    assert beside == [
        ("the fan", TASK_WEIGHT),
        *((text, CUE_WEIGHT) for text in ("update the firmware", "the shed")),
    ]
    assert len(beside) == 1 + MAX_CUES_BESIDE
    assert make_queries(" \n", ()) == []


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest, database_url: str) -> Any:
    with connected(request.param, database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        filler = [f"note {n} about the garden and the weather of the week" for n in range(60)]
        facts = ["parcels go to the shed", "the gateway has serial 0091", "Rui waters the beds"]
        logged = [*filler[:20], facts[0], *filler[20:40], facts[1], *filler[40:], facts[2]]
        memory.append([NewEvent(content=text) for text in logged])
        memory.flush()
        memory.patch({})  # nothing is left for the tail
        yield memory


def test_each_question_gets_its_answer_into_a_small_context(memory: Any) -> None:
    found = [e.text for e in memory.resume(ASKED, budget=Budget(300)).retrieved]
    assert {"parcels go to the shed", "the gateway has serial 0091"} <= set(found)
    assert "Rui waters the beds" in found


def test_the_queries_are_encoded_in_one_call(database_url: str) -> None:
    encoder = Recording()
    with connected("sync", database_url, encoder) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(content="parcels go to the shed")
        memory.flush()
        encoder.texts.clear()
        calls = encoder.calls
        memory.resume(ASKED)
    assert encoder.calls == calls + 1
    assert encoder.texts == texts(ASKED)
