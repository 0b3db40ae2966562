"""What goes into a log, and what a context shows of it."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import memstore.demo
from memstore import (
    Context,
    NewEvent,
)

THREAD = Path(memstore.demo.__file__).with_name("support_thread.jsonl")
BUDGETS = (0, 16, 64, 256, 1024, 4096)


def positions(entries: Any) -> list[int]:
    return [entry.position for entry in entries]


def shown(context: Context) -> list[int]:
    return positions([*context.tail, *context.retrieved])


def check_pairs(context: Context) -> None:
    """Each call is followed at once by its result, and no result comes without its call."""
    openai = context.to_messages("openai")
    for index, message in enumerate(openai):
        calls = [call["id"] for call in message.get("tool_calls", ())]
        following = openai[index + 1 : index + 1 + len(calls)]
        assert [m.get("tool_call_id") for m in following] == calls
        if message["role"] == "tool":
            before = [m for m in openai[:index] if m["role"] != "tool"][-1]
            assert message["tool_call_id"] in [call["id"] for call in before["tool_calls"]]
    anthropic = context.to_messages("anthropic")
    roles = [message["role"] for message in anthropic]
    assert roles == [("user", "assistant")[n % 2] for n in range(len(roles))]
    for sent, answer in zip_longest(anthropic, anthropic[1:]):
        used = [part["id"] for part in sent["content"] if part["type"] == "tool_use"]
        if used:
            assert answer is not None
            results = [p for p in answer["content"] if p["type"] == "tool_result"]
            assert [part["tool_use_id"] for part in results] == used
    entries = [*context.tail, *context.retrieved]
    ids: dict[str, set[str]] = {}
    for entry in entries:
        if entry.event.correlation_id:
            ids.setdefault(entry.event.correlation_id, set()).add(entry.event.event_type)
    assert all(kinds == {"tool_call", "tool_result"} for kinds in ids.values())


def words(text: str) -> int:
    return len(text.split())


def call(name: str, result: str, key: str) -> list[NewEvent]:
    return [
        NewEvent(
            role="assistant",
            event_type="tool_call",
            content=f"{name}()",
            payload={"name": name, "arguments": {}},
            correlation_id=key,
            session_id="s",
        ),
        NewEvent(
            role="tool",
            actor=name,
            event_type="tool_result",
            content=result,
            correlation_id=key,
            session_id="s",
        ),
    ]
