"""Traces and feedback: off by default, a labelled set of the user's own, erased with the memory."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from memstore import InvalidInput, NotFound
from tests.stores import QUIET, connected


@pytest.fixture
def memory(store: Any) -> Any:
    memory = store.memory(agent="a", user="u")
    memory.append([{"content": f"tea number {n}"} for n in range(1, 6)])
    memory.patch({"user_preferences": {"drink": "tea"}})
    return memory


def test_nothing_is_recorded_unless_asked_for(memory: Any) -> None:
    context = memory.resume("tea")
    assert memory.traces() == []
    with pytest.raises(NotFound):
        memory.feedback(context.id, used=[1])


def test_a_recorded_context_and_what_helped(memory: Any) -> None:
    first = memory.resume("tea", budget=400, record=True)
    second = memory.resume("number 3", record=True)
    assert first.id != second.id
    memory.feedback(first.id, used=[3, 1, 3])
    newest, oldest = memory.traces()
    assert (newest.context_id, newest.task, newest.used) == (second.id, "number 3", None)
    assert (oldest.context_id, oldest.task, oldest.budget) == (first.id, "tea", 400)
    assert oldest.used == (1, 3)
    assert oldest.log_end == 5
    assert set(oldest.given) == {e.position for e in (*first.tail, *first.retrieved)}
    assert oldest.considered == tuple(hit.event.position for hit in first.search.hits)
    assert oldest.tokens == dict(first.tokens)
    assert memory.traces(only_labelled=True) == [oldest]
    memory.feedback(first.id, used=[])
    assert memory.traces(only_labelled=True)[0].used == ()
    assert len(memory.traces(limit=1)) == 1


def test_feedback_is_checked(memory: Any) -> None:
    context = memory.resume("tea", record=True)
    for used in ([0], [-1], ["1"], [True], [1.0]):
        with pytest.raises(InvalidInput, match="used"):
            memory.feedback(context.id, used=used)
    with pytest.raises(NotFound):
        memory.feedback(uuid4(), used=[1])


def test_another_memorys_context_cannot_be_marked(store: Any, memory: Any) -> None:
    context = memory.resume("tea", record=True)
    other = store.memory(agent="a", user="other")
    other.append(content="x")
    with pytest.raises(NotFound):
        other.feedback(context.id, used=[1])
    assert other.traces() == []


def test_traces_go_with_the_memory(memory: Any) -> None:
    memory.resume("tea", record=True)
    memory.erase()
    assert memory.traces() == []


def test_an_empty_memory_has_nothing_to_record(store: Any) -> None:
    memory = store.memory(agent="a", user="nobody")
    memory.resume("tea", record=True)
    assert memory.traces() == []


def test_the_setting_records_every_resume(database_url: str) -> None:
    settings = QUIET.model_copy(update={"record_traces": True, "budget": 300})
    with connected("sync", database_url, settings=settings) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(content="tea")
        memory.resume("tea")
        memory.resume("tea", record=False)
        (trace,) = memory.traces()
        assert trace.budget == 300
