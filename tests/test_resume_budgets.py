"""Restarts within budgets: never over, more gives more, the same gives the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from memstore import (
    Budget,
    Context,
    InvalidInput,
    o200k,
)
from memstore.importing import read_events
from tests.encoders import HashEncoder
from tests.resumed import BUDGETS, THREAD, check_pairs, positions, shown, words
from tests.stores import KINDS, connected

PROVIDERS: tuple[Literal["openai", "anthropic"], ...] = ("openai", "anthropic")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with connected(request.param, database_url, HashEncoder()) as opened:
        yield opened


def count_messages(messages: list[dict[str, Any]], counter: Callable[[str], int]) -> int:
    """Count as the API does: every string, a tool's input as JSON, 3 a message and 3."""

    def strings(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            for key, value in part.items():
                if key == "input":
                    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                else:
                    yield from strings(value)
        elif isinstance(part, list):
            for item in part:
                yield from strings(item)

    if not messages:
        return 0
    return 3 + 3 * len(messages) + sum(counter(s) for m in messages for s in strings(m))


@pytest.fixture
def talk(store: Any) -> Any:
    """The support thread, with a state that has absorbed the first 150 of its entries."""
    memory = store.memory(agent="a", user="u")
    thread = list(read_events(THREAD))
    memory.append(thread[:150])
    memory.patch(
        {
            "user_preferences": {"answers": "short", "time_zone": "America/Halifax"},
            "confirmed_facts": [
                {
                    "statement": f"fact {n}: " + "the probes keep their curve " * 3,
                    "confirmed_at": "2025-03-04T09:25:00Z",
                    "positions": [n],
                }
                for n in range(1, 12)
            ],
            "active_task": {"description": "update the gateway's firmware"},
        }
    )
    memory.append(thread[150:])
    memory.flush()
    return memory


TASK = "What went wrong with the readings after the last upgrade? What is the serial number?"


@pytest.mark.parametrize("counter", [None, len, words], ids=["o200k", "characters", "words"])
def test_no_rendering_is_ever_over_the_budget(
    talk: Any, counter: Callable[[str], int] | None
) -> None:
    # trap 38
    count = counter or o200k()
    for budget in BUDGETS:
        context = talk.resume(TASK, budget=budget, counter=counter)
        assert count(context.to_text()) == context.tokens.text <= budget
        for provider in PROVIDERS:
            spent = count_messages(context.to_messages(provider), count)
            assert spent == context.tokens[provider] <= budget
        assert context.tokens.total <= budget
        parts = [context.tokens[name] for name in ("state", "tail", "retrieved", "overhead")]
        assert min(parts) >= 0
        check_pairs(context)
        if budget >= 64 and counter is not len:
            assert context.to_text()  # trap 39
        if budget >= 1024 and counter is not len:
            assert all(context.tokens[name] for name in ("state", "tail", "retrieved"))
        for entry in (*context.tail, *context.retrieved):
            start, stop = entry.cut or (0, len(entry.event.content))
            if not entry.event.payload:
                assert entry.text == entry.event.content[start:stop]
        cut = [entry for entry in (*context.tail, *context.retrieved) if entry.cut]
        assert not cut or "…" in context.to_text()


def test_more_budget_gives_more(talk: Any) -> None:
    entries = [len(shown(talk.resume(TASK, budget=budget))) for budget in (256, 1024, 4096, 32_768)]
    assert entries == sorted(entries)
    whole = talk.resume(TASK, budget=100_000)
    assert positions(whole.tail) == list(range(151, len(talk.events(limit=1000)) + 1))
    assert not [item for item in whole.dropped if item.part in ("state", "tail")]


def test_a_budget_is_a_number_or_its_shares_too(talk: Any) -> None:
    by_number = talk.resume(TASK, budget=800)
    by_value = talk.resume(TASK, budget=Budget(800))
    assert same(by_number) == same(by_value)
    much_tail = talk.resume(TASK, budget=Budget(800, state_share=0.1, tail_share=0.8))
    assert much_tail.tokens.tail > by_number.tokens.tail
    assert much_tail.tokens.state < by_number.tokens.state
    for wrong in (-1, True, 2.5, "2048"):
        with pytest.raises(InvalidInput):
            talk.resume(TASK, budget=wrong)


def same(context: Context) -> Any:
    """All of a context but the time at which it was made, and how long that took."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    selection = replace(context.selection, now=at)
    return (
        selection,
        selection.text(),
        [selection.messages(provider) for provider in PROVIDERS],
        context.state.document,
        [(part.path, part.question) for part in context.stale],
        context.tail,
        context.retrieved,
        context.dropped,
        context.tokens,
        context.search and (context.search.hits, context.search.leg_hits),
    )


def test_the_same_database_gives_the_same_context(talk: Any, database_url: str) -> None:
    first = {budget: same(talk.resume(TASK, budget=budget)) for budget in (256, 2048)}
    for kind in KINDS:
        with connected(kind, database_url, HashEncoder()) as store:
            memory = store.memory(agent="a", user="u")
            for budget, expected in first.items():
                assert same(memory.resume(TASK, budget=budget)) == expected
