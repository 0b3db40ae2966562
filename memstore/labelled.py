"""A labelled set in a folder: ``messages.jsonl`` and ``queries.jsonl``, by conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memstore.errors import InvalidInput
from memstore.types import ROLES, NewEvent


@dataclass(slots=True)
class LabelledConversation:
    """One memory's messages, under their ids as idempotency keys, and what is asked of it.

    `queries` are (question, ids of the messages that help).
    """

    id: str
    events: list[NewEvent] = field(default_factory=list)
    queries: list[tuple[str, list[str]]] = field(default_factory=list)


def read_labelled(folder: Path) -> list[LabelledConversation]:
    """Read a labelled set; questions whose evidence does not exist are left out.

    Messages have `conv`, `id` and `text`, and where known `session`, `ts` (without an offset:
    UTC), `speaker` or `role`, `event_type`, `caption`; queries have `conv`, `question` and
    `evidence`. Raises `InvalidInput` that names the line.
    """
    found: dict[str, LabelledConversation] = {}
    for at, line in _lines(folder / "messages.jsonl"):
        try:
            name = str(line["conv"])
            conversation = found.setdefault(name, LabelledConversation(name))
            conversation.events.append(_event(line))
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidInput(f"no message: {error!r}", path=at) from error
    known = {name: {e.idempotency_key for e in c.events} for name, c in found.items()}
    for at, line in _lines(folder / "queries.jsonl"):
        try:
            name, question = str(line["conv"]), str(line["question"])
            evidence = [str(e) for e in line.get("evidence", []) if str(e) in known.get(name, ())]
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"no query: {error!r}", path=at) from error
        if evidence:
            found[name].queries.append((question, evidence))
    return list(found.values())


def _event(line: dict[str, Any]) -> NewEvent:
    text, caption, stamp = line["text"], line.get("caption"), line.get("ts")
    session = line.get("session")
    moment = datetime.fromisoformat(stamp) if stamp else None
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return NewEvent(
        content=f"{text} [image: {caption}]" if caption else text,
        role=line["role"] if line.get("role") in ROLES else "user",
        actor=line.get("speaker") or line.get("role"),
        session_id=None if session is None else str(session),
        occurred_at=moment,
        event_type=line.get("event_type") or "message",
        idempotency_key=str(line["id"]),
    )


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        stream = path.open(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", path=str(path)) from error
    with stream:
        for number, text in enumerate(stream, 1):
            if text.strip():
                at = f"{path.name}:{number}"
                try:
                    line = json.loads(text)
                except ValueError as error:
                    raise InvalidInput(f"no JSON: {error}", path=at) from error
                if not isinstance(line, dict):
                    raise InvalidInput("not an object", path=at)
                yield at, line
