"""A labelled set in a folder: what was said, what is asked of it, and which messages help.

It is what a budget is tuned on and what an evaluation measures: ``messages.jsonl``,
``queries.jsonl`` and, where agents have one, ``states.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memstore.errors import InvalidInput
from memstore.transcripts import role_named
from memstore.types import NewEvent

__all__ = ["LabelledConversation", "LabelledQuery", "read_labelled"]

Line = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledQuery:
    """A question, the ids of the messages that help with it, and answers that are accepted."""

    qid: str
    question: str
    evidence: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    category: str = ""
    asked_at: datetime | None = None


@dataclass(slots=True)
class LabelledConversation:
    """One memory: its messages as (id, event) in order, what is asked of it, its state, if any."""

    id: str
    messages: list[tuple[str, NewEvent]] = field(default_factory=list)
    queries: list[LabelledQuery] = field(default_factory=list)
    state: dict[str, Any] | None = None


def read_labelled(folder: Path) -> list[LabelledConversation]:
    """Read a folder, as it stands: evidence may name messages that do not exist.

    Messages: `conv`, `id`, `text`, and where known `session`, `ts`, `speaker` or `role`,
    `event_type`, `caption`, `payload`, `correlation_id`. Queries: `conv`, and where known
    `question`, `qid` (else the line's number), `evidence` (message ids), `answers` (accepted ones,
    word for word), `category`, `ts`. States: `conv`, `state`, of the default schema. Times without
    an offset are in UTC. Raises `InvalidInput` that names the file and the line.
    """
    found: dict[str, LabelledConversation] = {}

    def conversation(line: Line) -> LabelledConversation:
        name = str(line["conv"])
        return found.setdefault(name, LabelledConversation(name))

    def message(line: Line, number: int) -> None:
        conversation(line).messages.append((str(line["id"]), _event(line)))

    def query(line: Line, number: int) -> None:
        conversation(line).queries.append(_query(line, number))

    def state(line: Line, number: int) -> None:
        conversation(line).state = line["state"]

    _each(folder / "messages.jsonl", message)
    _each(folder / "queries.jsonl", query)
    if (folder / "states.jsonl").exists():
        _each(folder / "states.jsonl", state)
    return list(found.values())


def _event(line: Line) -> NewEvent:
    text, caption, session = line["text"] or "", line.get("caption"), line.get("session")
    return NewEvent(
        content=f"{text} [image: {caption}]" if caption else text,
        role=role_named(str(line.get("role") or line.get("speaker") or "")),
        actor=line.get("speaker") or line.get("role") or None,
        session_id=None if session in (None, "") else str(session),
        occurred_at=_time(line.get("ts")),
        event_type=line.get("event_type") or "message",
        payload=line.get("payload"),
        correlation_id=line.get("correlation_id"),
    )


def _query(line: Line, number: int) -> LabelledQuery:
    return LabelledQuery(
        qid=str(line.get("qid", number)),
        question=line.get("question") or "",
        evidence=tuple(map(str, line.get("evidence") or ())),
        answers=tuple(map(str, line.get("answers") or ())),
        category=str(line.get("category") or ""),
        asked_at=_time(line.get("ts")),
    )


def _time(stamp: str | None) -> datetime | None:
    if not stamp:
        return None
    moment = datetime.fromisoformat(stamp)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _each(path: Path, take: Callable[[Line, int], None]) -> None:
    """Read a file's lines one by one; say which one cannot be read."""
    try:
        stream = path.open(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", path=str(path)) from error
    with stream:
        for number, text in enumerate(stream, 1):
            if text.strip():
                try:
                    take(json.loads(text), number)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                    raise InvalidInput(reason, path=f"{path.name}, line {number}") from error
