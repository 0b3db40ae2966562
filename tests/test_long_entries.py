"""Long entries: they crowd out nothing, and are cut to the passage that matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memstore import Budget, NewEvent
from tests.encoders import HashEncoder
from tests.stores import KINDS, connected

ROWS = 1_500
"""Rows of a dump of 60 KB, each with words of the query."""
SHORT = [
    "The pump in tunnel three lost pressure at noon.",
    "Rui says the pump in tunnel three has a new seal.",
    "We agreed that the pump in tunnel three is replaced in May.",
    "The spare pump for tunnel three is in the shed.",
    "No pump in tunnel three may run at night.",
    "A pump costs 340 euros, tunnel three needs one.",
    "Ines wants the pump of tunnel three checked weekly.",
    "The pump in tunnel three is a PX-40.",
    "The old pump went from tunnel three to tunnel five.",
    "Water stood in tunnel three when the pump failed.",
]
ASKED = "What happened to the pump in tunnel three?"


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with connected(request.param, database_url, HashEncoder()) as store:
        yield store.memory(agent="a", user="u")


def dump(needle: str = "", at: int = 0) -> str:
    rows = [f"{n:04} pump tunnel three ok 3.{n % 10} bar" for n in range(ROWS)]
    if needle:
        rows[at] = needle
    return "\n".join(rows)


def logged(memory: Any, result: str) -> None:
    call: dict[str, Any] = {
        "role": "assistant",
        "event_type": "tool_call",
        "content": "pump.log(tunnel=3)",
        "correlation_id": "call-1",
        "session_id": "s",
    }
    answer: dict[str, Any] = {
        "role": "tool",
        "actor": "pump.log",
        "event_type": "tool_result",
        "content": result,
        "correlation_id": "call-1",
        "session_id": "s",
    }
    turns = [
        NewEvent(content=text, role="assistant" if n % 2 else "user", session_id="s")
        for n, text in enumerate(SHORT)
    ]
    memory.append([*turns[:5], NewEvent(**call), NewEvent(**answer), *turns[5:]])
    memory.flush()
    memory.patch({})  # the state has absorbed it all


TURNS = [1, 2, 3, 4, 5, 8, 9, 10, 11, 12]
RESULT = 7


def test_a_tool_result_of_60_kb_stands_behind_ten_short_turns_in_search(memory: Any) -> None:
    logged(memory, dump())
    found = [hit.event.position for hit in memory.search(ASKED, k=12)]
    assert sorted(found[:10]) == TURNS
    assert set(found) == {*TURNS, 6, RESULT}


def test_a_tool_result_of_60_kb_crowds_out_no_short_turn_of_a_context(memory: Any) -> None:
    logged(memory, dump())
    context = memory.resume(ASKED, budget=Budget(700))
    shown = {entry.position: entry for entry in context.retrieved}
    assert set(TURNS) <= set(shown)
    assert context.tokens.total <= 700
    if RESULT in shown:
        assert shown[RESULT].cut is not None


@pytest.mark.parametrize("at", [0, ROWS // 3, ROWS - 1])
def test_a_long_result_is_cut_to_the_passage_that_matches(memory: Any, at: int) -> None:
    needle = "0000 valve seven burst, quokka inspected it, replaced by Teresa"
    logged(memory, dump(needle, at))
    asked = "Who replaced valve seven after the quokka inspected the burst?"
    (hit,) = [h for h in memory.search(asked, k=12) if h.event.position == RESULT]
    assert hit.span is not None
    start, stop = hit.span
    content = hit.event.content
    assert "quokka inspected it" in content[max(0, start - 40) : stop + 40]
    assert stop - start < 1_000
    context = memory.resume(asked, budget=Budget(400))
    (entry,) = [e for e in context.retrieved if e.position == RESULT]
    assert entry.cut is not None
    assert needle in entry.text
    assert needle in context.to_text()
    assert f"[{RESULT}, {entry.cut[0]}-{entry.cut[1]} of {len(content)} chars]" in context.to_text()
    assert context.tokens.total <= 400
