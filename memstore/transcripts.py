"""Records of other people's transcripts as events: generic, OpenAI-style, Anthropic-style.

One message may hold several things that happened (a sentence, two tool calls, a result); each
becomes an event of its own, in the order given. Every record is read by its own shape, so a
file may mix styles. What cannot be text (an image, a sound) leaves a mark in brackets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, tzinfo
from typing import Any

from memstore.errors import InvalidInput
from memstore.text import loads
from memstore.types import JSON, NewEvent, Role

__all__ = ["Transcript", "call_text", "parse_time", "role_named"]

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_SESSION = ("session", "session_id", "conversation_id", "thread_id")
_ACTOR = ("actor", "speaker", "name")
_TIME = ("ts", "occurred_at", "timestamp", "created_at", "time")
#: A failed call's result stays a result, so that the two are shown together.
_FAILED = {"is_error": True}
_BODY = ("content", "text", "tool_calls", "function_call", "refusal")


def parse_time(value: JSON, *, tz: tzinfo | None = None) -> datetime:
    """Read an instant: ISO 8601 with an offset, or a number of seconds since 1970.

    A date alone is its midnight, in UTC or in `tz`. A time without an offset names no
    instant: it is InvalidInput, unless `tz` says which zone its clock was in. Numbers from
    100,000,000,000 on are milliseconds.
    """
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1_000 if value >= 1e11 else value, UTC)
        if isinstance(value, str):
            text = value.strip()
            with suppress(ValueError):
                return datetime.combine(date.fromisoformat(text), time(), tz or UTC)
            when = datetime.fromisoformat(text)
            if when.utcoffset() is None and tz is None:
                raise InvalidInput(
                    f"{value!r:.40} has no offset; say its time zone: --tz, in Python tz="
                )
            return when if when.utcoffset() is not None else when.replace(tzinfo=tz)
    raise InvalidInput(f"{value!r:.40} is not a time (ISO 8601, or seconds since 1970)")


def role_named(name: str) -> Role:
    """Return the role that logs call by a name, in any case; any other name is a user's own."""
    return _ROLES.get(name.casefold(), "user")


def call_text(name: str, arguments: JSON) -> str:
    """Write a tool call as one line of text: ``orders.lookup(order="WF-20418")``."""
    if isinstance(arguments, dict):
        inside = ", ".join(f"{key}={_json(value)}" for key, value in arguments.items())
    elif arguments is None or arguments == "":
        inside = ""
    else:
        inside = arguments if isinstance(arguments, str) else _json(arguments)
    return f"{name}({inside})"


class Transcript:
    """Reads the records of one file; remembers the name of each tool that was called.

    `session` is the session of records that name none; `tz` the zone of times without an
    offset.
    """

    def __init__(self, *, session: str | None = None, tz: tzinfo | None = None) -> None:
        self.session = session
        self._tz = tz
        self._tools: dict[str, str] = {}
        self._unanswered: dict[str, str] = {}  # legacy function calls have no id

    def events(self, record: Mapping[str, Any]) -> list[NewEvent]:
        """Turn one record into the events it holds; InvalidInput names the field at fault."""
        kind = record.get("type")
        common = NewEvent(
            session_id=self._session(record),
            occurred_at=self._time(record),
            idempotency_key=_optional(record, "idempotency_key"),
        )
        if isinstance(kind, str) and "role" not in record:  # an item of OpenAI's Responses API
            if kind.endswith("_call_output"):
                return [self._result(common, record.get("call_id"), record.get("output"))]
            if kind in ("function_call", "custom_tool_call"):
                arguments = record.get("arguments", record.get("input"))
                return [self._call(common, record.get("call_id"), record.get("name"), arguments)]
            if kind == "reasoning":
                thought = _text(record.get("summary"), "summary")
                return [replace(common, role="assistant", event_type="thinking", content=thought)]
        if not any(name in record for name in _BODY):
            raise InvalidInput("neither an event (with text) nor a message (role and content)")
        actor = next((str(record[name]) for name in _ACTOR if record.get(name) is not None), None)
        role = _role(record.get("role"), actor)
        if role == "tool":
            return [self._tool_message(common, record, actor)]
        # A developer's instructions are not the system's own words: keep who gave them.
        if actor is None and record.get("role") == "developer":
            actor = "developer"
        common = replace(common, role=role, actor=actor)
        return [*self._parts(common, record), *self._calls(common, record)]

    def _parts(self, common: NewEvent, record: Mapping[str, Any]) -> Iterator[NewEvent]:
        """The message's own words, with Anthropic's blocks for tools and thoughts split off."""
        message = replace(
            common,
            event_type=_optional(record, "event_type") or "message",
            payload=record.get("payload"),
            correlation_id=_optional(record, "correlation_id"),
        )
        said: list[str] = []
        silent = not (record.get("tool_calls") or record.get("function_call"))
        for index, block in enumerate(_blocks(_body(record), "content")):
            other = self._block(common, block)
            if other is None:
                said.append(_describe(block, f"content/{index}"))
                continue
            if said:
                yield replace(message, content="\n".join(filter(None, said)))
            yield other
            said, silent = [], False
        if caption := record.get("caption"):
            said.append(f"[image: {caption}]")
        if isinstance(refusal := record.get("refusal"), str):
            said.append(refusal)
        if said or silent:
            yield replace(message, content="\n".join(filter(None, said)))

    def _block(self, common: NewEvent, block: Mapping[str, Any]) -> NewEvent | None:
        """The event of a block that is not words: a tool's call or result, or a thought."""
        kind: str = block["type"]
        if kind.endswith("tool_use"):
            return self._call(common, block.get("id"), block.get("name"), block.get("input"))
        if kind.endswith("tool_result"):
            event = self._result(common, block.get("tool_use_id"), block.get("content"))
            return replace(event, payload=_FAILED) if block.get("is_error") is True else event
        if kind in ("thinking", "redacted_thinking"):
            thought = str(block.get("thinking", "[redacted thinking]"))
            return replace(common, event_type="thinking", content=thought)
        return None

    def _calls(self, common: NewEvent, record: Mapping[str, Any]) -> Iterator[NewEvent]:
        """OpenAI's tool calls, which stand beside the content."""
        calls = record.get("tool_calls") or []
        if not isinstance(calls, list):
            raise InvalidInput("must be a list", path="tool_calls")
        for index, call in enumerate(calls):
            if not isinstance(call, dict):
                raise InvalidInput("must be an object", path=f"tool_calls/{index}")
            function = call.get("function") or call.get("custom") or call
            arguments = function.get("arguments", function.get("input", function.get("args")))
            yield self._call(common, call.get("id"), function.get("name"), arguments)
        if isinstance(call := record.get("function_call"), dict):
            name = str(call.get("name"))
            identifier = f"{name}-{len(self._tools) + 1}"
            self._unanswered[name] = identifier
            yield self._call(common, identifier, name, call.get("arguments"))

    def _tool_message(
        self, common: NewEvent, record: Mapping[str, Any], actor: str | None
    ) -> NewEvent:
        called = record.get("tool_call_id", record.get("correlation_id"))
        if called is None and actor:
            called = self._unanswered.pop(actor, None)
        event = self._result(common, called, _body(record))
        return replace(
            event,
            actor=actor or event.actor,
            event_type=_optional(record, "event_type") or event.event_type,
            payload=record.get("payload"),
        )

    def _call(self, common: NewEvent, identifier: JSON, name: JSON, arguments: JSON) -> NewEvent:
        if not isinstance(name, str) or not name:
            raise InvalidInput("a tool call must have a name", path="name")
        if isinstance(arguments, str):  # OpenAI sends JSON in a string, and not always valid
            with suppress(InvalidInput):
                arguments = loads(arguments)
        called = None if identifier is None else str(identifier)
        if called is not None:
            self._tools[called] = name
        return replace(
            common,
            role="assistant",
            event_type="tool_call",
            content=call_text(name, arguments),
            payload={"name": name, "arguments": arguments},
            correlation_id=called,
        )

    def _result(self, common: NewEvent, identifier: JSON, content: JSON) -> NewEvent:
        called = None if identifier is None else str(identifier)
        return replace(
            common,
            role="tool",
            actor=None if called is None else self._tools.get(called),
            event_type="tool_result",
            content=_text(content, "content"),
            correlation_id=called,
        )

    def _session(self, record: Mapping[str, Any]) -> str | None:
        given = next((record[name] for name in _SESSION if record.get(name) is not None), None)
        if (conversation := record.get("conv")) is None:
            return self.session if given is None else str(given)
        return str(conversation) if given is None else f"{conversation}/{given}"

    def _time(self, record: Mapping[str, Any]) -> datetime | None:
        for name in _TIME:
            if record.get(name) is not None:
                try:
                    return parse_time(record[name], tz=self._tz)
                except InvalidInput as error:
                    raise InvalidInput(str(error), path=name) from None
        return None


def _role(given: JSON, actor: str | None) -> Role:
    if given is None:
        return role_named(actor or "")
    if isinstance(given, str) and (role := _ROLES.get(given.casefold())):
        return role
    raise InvalidInput(f"{given!r:.40} is none of {', '.join(_ROLES)}", path="role")


def _body(record: Mapping[str, Any]) -> JSON:
    return record.get("content", record.get("text"))


def _blocks(content: JSON, path: str) -> list[dict[str, Any]]:
    """Content as a list of typed blocks, whatever form it was given in."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise InvalidInput("must be a string or a list of blocks", path=path)
    blocks = []
    for index, item in enumerate(content):
        block = {"type": "text", "text": item} if isinstance(item, str) else item
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidInput("must be an object with a type", path=f"{path}/{index}")
        blocks.append(block)
    return blocks


def _text(content: JSON, path: str) -> str:
    """The text of a result: blocks are described, any other JSON is written as it is."""
    try:
        blocks = _blocks(content, path)
        return "\n".join(_describe(block, f"{path}/{at}") for at, block in enumerate(blocks))
    except InvalidInput:
        return _json(content)


def _describe(block: Mapping[str, Any], path: str) -> str:
    """A block as text. What has no text leaves its type, and a name or an address, in brackets."""
    kind: str = block["type"]
    for name in ("text", "refusal"):
        if isinstance(text := block.get(name), str):
            return text
    if kind in ("text", "input_text", "output_text", "refusal"):
        raise InvalidInput("a block of text must have a text", path=path)
    inner = next((block[at] for at in ("image_url", "source", kind) if at in block), None)
    detail = inner if isinstance(inner, str) else None
    for holder in (inner, block):
        if detail is None and isinstance(holder, dict):
            names = ("url", "transcript", "filename", "title", "file_id")
            detail = next((str(holder[name]) for name in names if holder.get(name)), None)
    if detail is None or detail.startswith("data:"):
        return f"[{kind}]"
    return f"[{kind}: {detail}]"


def _optional(record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    return None if value is None else str(value)


def _json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)
