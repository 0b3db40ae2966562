"""Users' own files as streams of events: JSONL, a JSON document, one conversation or many.

Lines are read one at a time, so a file may be larger than memory; a JSON document is read
whole. Whatever is wrong is an InvalidInput that names the file and the line (or the item of a
document), and nothing is guessed about times. Every event carries an idempotency key that
depends on the file's name and content alone, so that importing a file again adds only what it
gained meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from memstore.errors import InvalidInput
from memstore.text import body_digest, check_id, loads, prepare_event
from memstore.transcripts import Transcript
from memstore.types import JSON, NewEvent

__all__ = ["read_events"]


def read_events(
    source: str | Path | BinaryIO,
    *,
    name: str | None = None,
    session: str | None = None,
    tz: tzinfo | None = None,
) -> Iterator[NewEvent]:
    """Read a file's events in the order of the file.

    `source` is a path or an open binary stream. The form is found from the content: one JSON
    value a line, or one JSON document; each value a record, a list of records, or an object
    with `messages` (and Anthropic's `system`). A record is memstore's own (`text` or
    `content`; where known `role`, `actor` or `speaker`, `session`, `ts`, `event_type`,
    `correlation_id`, `payload`, `conv`, `id`), or a message as OpenAI or Anthropic write it.

    `name` stands for the file in errors and in idempotency keys; by default it is the file's
    name without its folders. `session` is the session of records that name none; by default
    the name's stem, with a number after it from a file's second conversation on. `tz` is the
    zone of times without an offset, which are refused otherwise; a date alone is midnight.

    A record's `id`, where it has one, and its content make its key. Without an id, all that
    precedes it in the file does: equal messages stay apart, and a file that grew at its end
    keeps its keys.
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        try:
            stream = path.open("rb")
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror}", path=str(path)) from error
        with stream:
            yield from read_events(stream, name=name or path.name, session=session, tz=tz)
        return
    name = name or PurePath(str(getattr(source, "name", "") or "stream")).name
    default = session or PurePath(name).stem
    transcript = Transcript(session=default, tz=tz)
    keys = _Keys(name)
    conversations = 0
    for where, item in _items(source, name):
        for at, record, starts in _records(item, where):
            if starts:
                conversations += 1
                own = f"{default}-{conversations}" if conversations > 1 else default
                transcript.session = starts if isinstance(starts, str) else own
            try:
                for index, event in enumerate(transcript.events(record)):
                    yield keys.give(prepare_event(event), record.get("id"), index)
            except InvalidInput as error:
                raise InvalidInput(str(error), path=at) from error


class _Keys:
    """Idempotency keys: stable between two readings of a file, apart within one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._chain = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=16).digest()

    def give(self, event: NewEvent, identifier: JSON, index: int) -> NewEvent:
        if event.idempotency_key is not None:
            # One record may be several events; its own key can only name the first.
            key = event.idempotency_key + (f"/{index}" if index else "")
            return replace(event, idempotency_key=check_id(key, "idempotency_key"))
        body = body_digest(event)
        if isinstance(identifier, (str, int)):
            own = json.dumps([self._name, event.session_id, identifier, index])
            digest = hashlib.blake2b(own.encode() + body, digest_size=16).digest()
        else:
            digest = self._chain = hashlib.blake2b(self._chain + body, digest_size=16).digest()
        return replace(event, idempotency_key=f"import:{digest.hex()}")


def _items(stream: BinaryIO, name: str) -> Iterator[tuple[str, JSON]]:
    """The file's JSON values, each with where it stands: one a line, or one in all."""
    number = 0
    first = True
    for raw in stream:
        number += 1
        text = _decode(raw, name, number).strip()
        if not text:
            continue
        where = f"{name}, line {number}"
        try:
            value = loads(text)
        except InvalidInput as error:
            if not first or text[0] not in "[{":
                raise InvalidInput(_reason(error), path=where) from error
            # Perhaps a document over many lines; read all of it, line numbers kept.
            following = enumerate(stream, start=number + 1)
            rest = [_decode(line, name, at).rstrip("\r\n") for at, line in following]
            yield _document([text, *rest], name, number, error)
            return
        first = False
        yield where, value


def _document(lines: list[str], name: str, number: int, alone: InvalidInput) -> tuple[str, JSON]:
    try:
        return name, loads("\n".join(lines))
    except InvalidInput as error:
        following = next((line.strip() for line in lines[1:] if line.strip()), "")
        if lines[0][0] == following[:1] == "{":  # lines after all, the first of them broken
            raise InvalidInput(_reason(alone), path=f"{name}, line {number}") from error
        cause = error.__context__
        at = number - 1 + cause.lineno if isinstance(cause, json.JSONDecodeError) else number
        raise InvalidInput(_reason(error), path=f"{name}, line {at}") from error


def _decode(raw: bytes, name: str, number: int) -> str:
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InvalidInput("is UTF-16; save it as UTF-8", path=name)
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start + 1} of the line"
        raise InvalidInput(reason, path=f"{name}, line {number}") from error


def _reason(error: InvalidInput) -> str:
    cause = error.__context__
    if isinstance(cause, json.JSONDecodeError):
        return f"not valid JSON: {cause.msg} at column {cause.colno}"
    return str(error)


def _records(item: JSON, where: str) -> Iterator[tuple[str, dict[str, Any], str | bool]]:
    """The records in a JSON value: where, the record, and whether it begins a conversation.

    The last is the conversation's own identifier where it has one. Records that stand alone
    on their lines begin none: together they are one conversation.
    """
    begins: str | bool = True
    if isinstance(item, dict) and isinstance(item.get("messages"), list):
        messages = item["messages"]
        names = (item.get(key) for key in ("session", "session_id", "conversation_id", "id"))
        begins = next((str(name) for name in names if name is not None), True)
        if (system := item.get("system")) is not None:
            yield f"{where}, system", {"role": "system", "content": system}, begins
            begins = False
    elif isinstance(item, list):
        messages = item
    elif isinstance(item, dict):
        yield where, item, False
        return
    else:
        raise InvalidInput("must be an object or a list", path=where)
    for number, message in enumerate(messages, start=1):
        at = f"{where}, item {number}"
        if not isinstance(message, dict):
            raise InvalidInput(f"must be an object, not {type(message).__name__}", path=at)
        if isinstance(message.get("messages"), list):
            yield from _records(message, at)
        else:
            yield at, message, begins
            begins = False
