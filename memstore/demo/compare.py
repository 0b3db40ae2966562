"""The two other ways to restart an agent: give it everything again, or the last messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memstore import AgentState, Event, Memory, o200k
from memstore.demo.thread import Thread

LAST = 20
PAGE = 500


@dataclass(frozen=True, slots=True)
class Way:
    """One way to restart: what it costs, and for each needed fact whether it is inside.

    `milliseconds` is the first time in the process, `again` the second time.
    """

    name: str
    tokens: int
    milliseconds: float
    again: float
    inside: tuple[bool, ...]


def measure(name: str, thread: Thread, make: Callable[[], tuple[str, int]]) -> Way:
    """Make a context, as a text and its tokens, twice; look for the needed facts in it."""
    begun = time.perf_counter()
    text, tokens = make()
    first = time.perf_counter()
    make()
    second = time.perf_counter()
    inside = tuple(fact.inside(text) for fact in thread.needed)
    return Way(name, tokens, (first - begun) * 1000, (second - first) * 1000, inside)


def other_ways(memory: Memory[AgentState], thread: Thread, budget: int) -> list[Way]:
    """Measure, on the same log: its last messages, as many as fit the budget, and all of it."""
    return [
        measure(f"last {LAST}", thread, lambda: written(newest(memory, LAST))),
        measure("last fitting", thread, lambda: written(fitting(memory, budget))),
        measure("replay all", thread, lambda: written(everything(memory))),
    ]


def newest(memory: Memory[AgentState], number: int) -> list[Event]:
    return memory.events(newest_first=True, limit=number)[::-1]


def fitting(memory: Memory[AgentState], budget: int) -> list[Event]:
    """Read the newest messages that take no more than a number of tokens."""
    count = o200k()
    events: list[Event] = []
    for event in memory.events(newest_first=True, limit=PAGE):
        budget -= count(line(event) + "\n")
        if budget < 0:
            break
        events.append(event)
    return events[::-1]


def everything(memory: Memory[AgentState]) -> list[Event]:
    events = page = memory.events(limit=PAGE)
    while page:
        page = memory.events(after=page[-1].position, limit=PAGE)
        events = events + page
    return events


def written(events: Sequence[Event]) -> tuple[str, int]:
    text = "\n".join(map(line, events))
    return text, o200k()(text)


def line(event: Event) -> str:
    """Write an entry as plainly as one can: when, who, what."""
    return f"[{event.occurred_at:%Y-%m-%d %H:%M}] {event.actor}: {event.content}"
