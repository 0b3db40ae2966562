"""A context as a provider's messages: one block of quoted data, then the tail as real turns.

The block is the first message and has the user's role: no recalled text gets a system message's
authority. A tail entry becomes a turn only where it was one: a user's or an assistant's message,
or a tool call with all of its results. Everything else stays in the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from memstore.render import Entry, compact, indented, label, tool_call, untagged, visible
from memstore.types import JSON, Event, TokenCounter

__all__ = ["Turn", "anthropic_messages", "count_messages", "grouped", "openai_messages", "turns"]

#: Tokens that a message costs beside its strings, and a request beside its messages: the rule of
#: the OpenAI cookbook, "How to count tokens with tiktoken". Anthropic publishes none.
PER_MESSAGE = 3
PER_REQUEST = 3

#: What both providers take as a tool's name; `orders.lookup` is replayed as `orders_lookup`.
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and its result. `id` is made from the position: valid and unique everywhere."""

    id: str
    name: str
    arguments: dict[str, JSON]
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn to replay; `last` is the position that a following part would continue."""

    role: Literal["user", "assistant"]
    text: str
    last: int
    calls: tuple[Call, ...] = ()


def turns(entries: Sequence[Entry]) -> tuple[list[Turn], frozenset[int]]:
    """Split off the tail entries that can be replayed; give them and their positions.

    An assistant's text and the calls that follow it at once are one turn, as they were when
    the model made them. Where several actors have the user's role, each turn names its own.
    """
    tail = sorted((e for e in entries if e.part == "tail"), key=lambda e: e.position)
    by_position = {e.position: e for e in tail}
    speakers = {e.event.actor for e in tail if e.event.role == "user" and _spoken(e)}
    done: list[Turn] = []
    replayed: set[int] = set()
    for entry in tail:
        if entry.position in replayed:
            continue
        if entry.group:
            members = [by_position[p] for p in entry.group if p in by_position]
            if len(members) != len(entry.group) or (turn := _call_turn(members)) is None:
                continue
            replayed.update(entry.group)
        elif _spoken(entry):
            replayed.add(entry.position)
            turn = _text_turn(entry, named=len(speakers) > 1)
        else:
            continue
        before = done[-1] if done else None
        continues = before is not None and before.last + 1 == entry.position
        if before and continues and before.role == "assistant" and turn.calls and not turn.text:
            done[-1] = replace(turn, text=before.text, calls=(*before.calls, *turn.calls))
        else:
            done.append(turn)
    return done, frozenset(replayed)


def grouped(
    partners: Mapping[int, Sequence[int]], events: Mapping[int, Event]
) -> dict[int, tuple[int, ...]]:
    """Group each tool call with its results: for each position, all that go together.

    `partners` gives positions under the same correlation id. An id that several calls share (a
    trace's, say) pairs them in order: a result belongs to the first call that has none yet, or
    else to the last one. Where an event is not among `events`, its partners stay one group.
    """
    joined: dict[int, set[int]] = {}
    for position, others in partners.items():
        for other in others:
            joined.setdefault(position, set()).add(other)
            joined.setdefault(other, set()).add(position)
    groups: dict[int, tuple[int, ...]] = {}
    done: set[int] = set()
    for position in joined:
        found, waiting = {position}, [position]
        while waiting and position not in done:
            new = joined[waiting.pop()] - found
            found |= new
            waiting += new
        if position not in done:
            done |= found
            for members in _paired(sorted(found), events):
                groups |= dict.fromkeys(members, members)
    return groups


def _paired(group: Sequence[int], events: Mapping[int, Event]) -> list[tuple[int, ...]]:
    kinds = {p: events[p].event_type if p in events else "unknown" for p in group}
    group = [p for p in group if kinds[p] in ("tool_call", "tool_result", "unknown")]
    if "unknown" in kinds.values():
        return [tuple(group)]
    pairs: dict[int, list[int]] = {}
    waiting: list[int] = []
    for position in group:
        if kinds[position] == "tool_call":
            waiting.append(position)
        elif waiting:
            pairs[waiting.pop(0)] = [position]
        elif pairs:
            pairs[next(reversed(pairs))].append(position)
    return [(call, *results) for call, results in pairs.items()]


def _spoken(entry: Entry) -> bool:
    event = entry.event
    return (
        event.event_type == "message"
        and event.role in ("user", "assistant")
        and not entry.group
        and bool(event.content.strip())
    )


def _text_turn(entry: Entry, *, named: bool) -> Turn:
    if entry.event.role == "user":
        text = _turn_text(entry)
        if named:
            text = f"{label(entry.event.actor)}: {indented(text)}"
        return Turn("user", text, entry.position)
    return Turn("assistant", _turn_text(entry), entry.position)


def _call_turn(members: Sequence[Entry]) -> Turn | None:
    """Make a turn of one call and its results, or nothing where a provider would refuse it."""
    call, *results = sorted(members, key=lambda e: e.position)
    event = call.event
    if event.event_type != "tool_call" or event.role != "assistant" or call.cut or not results:
        return None
    if any(r.event.event_type != "tool_result" or r.event.role != "tool" for r in results):
        return None
    made = tool_call(event)
    if made is None or not isinstance(made[1], dict):
        return None
    name = _NOT_IN_NAMES.sub("_", made[0])
    if len(name) > _NAME_LIMIT or not name.strip("_-"):
        return None
    said = event.content.strip()
    if made[0] in said or said == compact(made[1]):
        said = ""  # the content is the call in other words
    result = "\n".join(filter(None, map(_turn_text, results)))
    failed = any(
        isinstance(r.event.payload, dict) and r.event.payload.get("is_error") is True
        for r in results
    )
    arguments = _untagged_json(made[1])
    made_call = Call(f"call_{event.position}", name, arguments, result, failed)
    return Turn("assistant", visible(said).strip(), event.position, (made_call,))


def _turn_text(entry: Entry) -> str:
    text = visible(entry.text).strip()
    if entry.cut:
        (start, stop), length = entry.cut, len(entry.body)
        before = f"[{start} characters left out] …" if start else ""
        after = f"… [{length - stop} characters left out]" if stop < length else ""
        text = before + text + after
    return text


def _untagged_json(value: JSON) -> Any:
    if isinstance(value, str):
        return untagged(value)
    if isinstance(value, dict):
        return {untagged(key): _untagged_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_untagged_json(part) for part in value]
    return value


def openai_messages(block: str, replayed: Iterable[Turn]) -> list[dict[str, Any]]:
    """Render chat-completion messages: each call is followed at once by its tool message."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": block}]
    for turn in replayed:
        message: dict[str, Any] = {"role": turn.role, "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": compact(call.arguments)},
                }
                for call in turn.calls
            ]
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": call.result} for call in turn.calls
        ]
    return messages


def anthropic_messages(block: str, replayed: Iterable[Turn]) -> list[dict[str, Any]]:
    """Render Messages-API messages: user first, roles alternate, results follow their calls.

    The block is the first text of the first user message; the caller's own system prompt is
    not touched.
    """
    messages: list[dict[str, Any]] = []

    def add(role: str, content: list[dict[str, Any]]) -> None:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += content
        else:
            messages.append({"role": role, "content": content})

    add("user", [{"type": "text", "text": block}])
    for turn in replayed:
        content: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in turn.calls
        ]
        add(turn.role, content)
        if turn.calls:
            add("user", [_tool_result(call) for call in turn.calls])
    return messages


def _tool_result(call: Call) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id}
    if call.result:  # a blank text would be refused
        result["content"] = call.result
    if call.failed:
        result["is_error"] = True
    return result


def count_messages(messages: Sequence[dict[str, Any]], counter: TokenCounter) -> int:
    """Count the tokens of messages: every string in them, tool input as JSON, and 3 a message + 3.

    No messages are 0 tokens.
    """
    if not messages:
        return 0
    strings = sum(_count(message, counter) for message in messages)
    return strings + PER_MESSAGE * len(messages) + PER_REQUEST


def _count(part: Any, counter: TokenCounter) -> int:
    if isinstance(part, str):
        return counter(part)
    if isinstance(part, dict):
        return sum(
            counter(compact(value)) if key == "input" else _count(value, counter)
            for key, value in part.items()
        )
    if isinstance(part, list):
        return sum(_count(item, counter) for item in part)
    return 0
