"""Loading anybody's own data: a folder of ``messages.jsonl`` and ``queries.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval.datasets import Conversation, Message, Query, with_caption
from memstore import NewEvent, Role

#: What other formats call the roles.
ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}


def load(path: Path) -> list[Conversation]:
    """Read a folder.

    Messages: `conv`, `id`, `text`, and where known `session`, `ts`, `speaker` or `role`,
    `event_type`, `caption`, `payload`, `correlation_id`. Queries: `qid`, `conv`, `question`,
    `evidence` (message ids), and where known `answers` (accepted ones, word for word),
    `category`, `ts`. An optional ``states.jsonl`` gives memories a state of the default schema:
    `conv`, `state`. Times without an offset are read as UTC.

    Raises `ValueError`, with the file and line, on what cannot be read.
    """
    found: dict[str, Conversation] = {}

    def conversation(line: dict[str, Any]) -> Conversation:
        name = str(line["conv"])
        return found.setdefault(name, Conversation(name))

    def message(line: dict[str, Any]) -> None:
        conversation(line).messages.append(Message(str(line["id"]), _event(line)))

    def query(line: dict[str, Any]) -> None:
        conversation(line).queries.append(_query(line))

    def state(line: dict[str, Any]) -> None:
        conversation(line).state = line["state"]

    _each(path / "messages.jsonl", message)
    _each(path / "queries.jsonl", query)
    if (path / "states.jsonl").exists():
        _each(path / "states.jsonl", state)
    return list(found.values())


def _event(line: dict[str, Any]) -> NewEvent:
    who = line.get("role") or line.get("speaker") or ""
    session = line.get("session")
    return NewEvent(
        content=with_caption(line["text"] or "", line.get("caption")),
        role=ROLES.get(str(who).lower(), "user"),
        actor=line.get("speaker") or line.get("role") or None,
        session_id=None if session in (None, "") else str(session),
        occurred_at=_time(line.get("ts")),
        event_type=line.get("event_type") or "message",
        payload=line.get("payload"),
        correlation_id=line.get("correlation_id"),
    )


def _query(line: dict[str, Any]) -> Query:
    return Query(
        qid=str(line["qid"]),
        question=line.get("question") or "",
        evidence=tuple(map(str, line.get("evidence") or ())),
        answers=tuple(map(str, line.get("answers") or ())),
        category=str(line.get("category") or ""),
        asked_at=_time(line.get("ts")),
    )


def _each(path: Path, take: Callable[[dict[str, Any]], None]) -> None:
    """Read a file's lines one by one; say which one cannot be read."""
    with path.open(encoding="utf-8") as stream:
        for number, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                take(json.loads(text))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"{path.name}, line {number}: {reason}") from error


def _time(stamp: str | None) -> datetime | None:
    if not stamp:
        return None
    moment = datetime.fromisoformat(stamp)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
