"""Events, hits and states to make contexts of, and what every context must keep to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from memstore.budget import Budget
from memstore.context import Context, ContextInputs, StateDocument
from memstore.render import Entry, body, indented, label, visible
from memstore.types import Event, Hit, TokenCounter

NOW = datetime(2026, 7, 30, 9, 12, tzinfo=UTC)
START = datetime(2026, 4, 28, 9, 0, tzinfo=UTC)


def message_tokens(messages: Sequence[dict[str, Any]], counter: TokenCounter) -> int:
    """Count messages as documented, written a second time."""
    if not messages:
        return 0
    total = 3

    def strings(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            for item in part:
                yield from strings(item)
        elif isinstance(part, dict):
            for key, value in part.items():
                if key == "input":
                    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                else:
                    yield from strings(value)

    for message in messages:
        total += 3 + sum(counter(text) for text in strings(message))
    return total


def check_openai(messages: list[dict[str, Any]]) -> None:
    """Check what the API refuses: orphaned or unanswered calls, empty or unknown messages."""
    ids: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        assert message["role"] in ("user", "assistant", "tool")
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            continue
        assert not waiting
        calls = message.get("tool_calls", [])
        assert calls or message["content"].strip()
        for call in calls:
            assert message["role"] == "assistant"
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call["id"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["id"] not in ids
            ids.add(call["id"])
            waiting.append(call["id"])
    assert not waiting
    if messages:
        assert messages[0]["role"] == "user"


def check_anthropic(messages: list[dict[str, Any]]) -> None:
    """Check what the API refuses: order of roles, dangling calls, blank texts."""
    ids: set[str] = set()
    waiting: set[str] = set()
    for i, message in enumerate(messages):
        assert message["role"] == ("assistant" if i % 2 else "user")
        assert message["content"]
        answered = {b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"}
        assert answered == waiting
        assert all(b["type"] == "tool_result" for b in message["content"][: len(waiting)])
        waiting = set()
        for part in message["content"]:
            if part["type"] == "text":
                assert part["text"].strip()
                assert message["role"] == "user" or part["text"] == part["text"].rstrip()
            elif part["type"] == "tool_use":
                assert message["role"] == "assistant"
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", part["id"])
                assert isinstance(part["input"], dict)
                assert part["id"] not in ids
                ids.add(part["id"])
                waiting.add(part["id"])
            else:
                assert part.get("content", "x").strip()
    assert not waiting


def check(context: Context, inputs: ContextInputs, budget: Budget, counter: TokenCounter) -> None:
    """Check all that holds for every context."""
    text = context.to_text()
    openai, anthropic = context.to_messages("openai"), context.to_messages("anthropic")
    sizes = {
        "text": counter(text) if text else 0,
        "openai": message_tokens(openai, counter),
        "anthropic": message_tokens(anthropic, counter),
    }
    assert max(sizes.values()) <= budget.total  # trap 38
    assert {key: context.tokens[key] for key in sizes} == sizes
    assert context.tokens.total == max(sizes.values())
    assert bool(text) == bool(openai) == bool(anthropic)
    check_openai(openai)
    check_anthropic(anthropic)
    if text:
        assert text.count("<recalled") == text.count("</recalled") == 1
    for messages in (openai, anthropic):
        assert json.dumps(messages, ensure_ascii=False).count("</recalled") == bool(messages)

    shown = {entry.position: entry for entry in (*context.tail, *context.retrieved)}
    assert len(shown) == len(context.tail) + len(context.retrieved)
    for position, others in inputs.partners.items():  # trap 40
        assert (position in shown) == all(other in shown for other in others)
    dropped = {item.position for item in context.dropped}
    for event in (*inputs.tail, *(hit.event for hit in inputs.hits)):
        assert (event.position in shown) != (event.position in dropped)
    after = {event.position for event in inputs.tail}
    for entry in context.tail:
        assert entry.position in after or set(entry.group) & after
    for message in openai[1:]:  # each turn has the role of an entry that says so
        said = [spoken(e) for e in context.tail if e.event.role == message["role"]]
        named = [f"{label(e.event.actor)}: {indented(spoken(e))}" for e in context.tail]
        if message["role"] == "tool":
            assert not said or any(message["content"].startswith(text) for text in said)
        elif "tool_calls" not in message:
            assert message["content"] in said + named * (message["role"] == "user")


def spoken(entry: Entry) -> str:
    """What an entry says as a turn, marks where it was cut included."""
    text, length = visible(entry.text).strip(), len(body(entry.event))
    if entry.cut and entry.cut[0]:
        text = f"[{entry.cut[0]} characters left out] …{text}"
    if entry.cut and entry.cut[1] < length:
        text += f"… [{length - entry.cut[1]} characters left out]"
    return text


def event(position: int, content: str = "", **given: Any) -> Event:
    moment = given.pop("at", START + timedelta(minutes=position))
    role = given.get("role", "user" if position % 2 else "assistant")
    fields: dict[str, Any] = {
        "session_id": "s-1",
        "actor": role,
        "role": role,
        "event_type": "message",
        "occurred_at": moment,
        "recorded_at": moment,
        "content": content or f"Entry number {position} says {position * 37}.",
        **given,
    }
    return Event(position=position, **fields)


def hit(event: Event, span: tuple[int, int] | None = None) -> Hit:
    return Hit(event=event, score=1.0, legs={}, reasons=("lexical #1",), span=span)


def state(document: dict[str, Any], log_position: int = 0) -> StateDocument:
    return StateDocument(
        document=document, schema="agent", schema_version=1, version=2, log_position=log_position
    )


def call(position: int, result: int, **given: Any) -> tuple[Event, Event, dict[int, tuple[int]]]:
    payload = given.pop("payload", {"name": "search", "arguments": {"q": "disk"}})
    made = event(
        position, given.pop("said", " "), role="assistant", event_type="tool_call", payload=payload
    )
    got = event(result, given.pop("got", "40 % full"), role="tool", event_type="tool_result")
    return made, got, {position: (result,), result: (position,)}
