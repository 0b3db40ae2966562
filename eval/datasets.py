"""Loading data sets: LoCoMo and LongMemEval as published, and a generic folder of JSONL.

Every loader gives conversations (one memory each) with their messages as events and the
questions asked of them, with the ids of the messages that hold the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memstore import NewEvent, Role


@dataclass(frozen=True, slots=True)
class Message:
    """One message under its id in the data set."""

    id: str
    event: NewEvent


@dataclass(frozen=True, slots=True)
class Query:
    """A question and the ids of the messages that answer it; `asked_at` where it is known."""

    qid: str
    question: str
    evidence: tuple[str, ...]
    category: str = ""
    asked_at: datetime | None = None


@dataclass(slots=True)
class Conversation:
    """One memory: its messages in order, and the questions asked of it."""

    id: str
    messages: list[Message] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)

    def keep_answerable(self) -> Conversation:
        """Drop evidence that does not exist, and questions that are left without any."""
        known = {message.id for message in self.messages}
        kept = []
        for query in self.queries:
            evidence = tuple(dict.fromkeys(e for e in query.evidence if e in known))
            if evidence:
                kept.append(
                    Query(query.qid, query.question, evidence, query.category, query.asked_at)
                )
        self.queries = kept
        return self


@dataclass(frozen=True, slots=True)
class Dataset:
    """A name and its conversations; `dropped` questions had no evidence to be found."""

    name: str
    conversations: list[Conversation]
    dropped: int = 0

    @property
    def queries(self) -> Iterator[Query]:
        return (query for conversation in self.conversations for query in conversation.queries)


def load(name: str, path: Path) -> Dataset:
    """Load a data set by its form: locomo, longmemeval or generic."""
    conversations = LOADERS[name](path)
    before = sum(len(conversation.queries) for conversation in conversations)
    kept = [conversation.keep_answerable() for conversation in conversations]
    after = sum(len(conversation.queries) for conversation in kept)
    if not after:
        raise ValueError(f"{path} holds no question with evidence")
    return Dataset(name, [c for c in kept if c.queries], before - after)


def with_caption(text: str, caption: str | None) -> str:
    return f"{text} [image: {caption}]" if caption else text


LOCOMO_TURN = re.compile(r"D(\d+):(\d+)")
LOCOMO_ADVERSARIAL = 5


def locomo(path: Path) -> list[Conversation]:
    """Read LoCoMo's published file. Category 5 (adversarial) is left out, as in the literature.

    Its evidence strings hold a few malformed references: every well-formed id in them counts.
    """
    conversations = []
    for number, sample in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        talk = sample["conversation"]
        conversation = Conversation(str(sample.get("sample_id", number)))
        sessions = sorted(
            int(match[1]) for key in talk if (match := re.fullmatch(r"session_(\d+)", key))
        )
        for session in sessions:
            stamp = talk[f"session_{session}_date_time"]
            start = datetime.strptime(stamp, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            for turn in talk[f"session_{session}"]:
                event = NewEvent(
                    content=with_caption(turn["text"], turn.get("blip_caption")),
                    actor=turn["speaker"],
                    session_id=str(session),
                    occurred_at=start,
                )
                conversation.messages.append(Message(turn["dia_id"], event))
        for index, asked in enumerate(sample["qa"]):
            if asked["category"] == LOCOMO_ADVERSARIAL:
                continue
            turns = LOCOMO_TURN.findall(" ".join(map(str, asked.get("evidence", []))))
            conversation.queries.append(
                Query(
                    f"{conversation.id}/{index}",
                    asked["question"],
                    tuple(f"D{int(a)}:{int(b)}" for a, b in turns),
                    str(asked["category"]),
                )
            )
        conversations.append(conversation)
    return conversations


def _longmemeval_time(stamp: str) -> datetime:
    """Read a time such as ``2023/05/30 (Tue) 23:40``."""
    plain = re.sub(r"\s*\([^)]*\)\s*", " ", stamp).strip()
    for form in ("%Y/%m/%d %H:%M", "%Y/%m/%d"):
        try:
            return datetime.strptime(plain, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return datetime.fromisoformat(plain).replace(tzinfo=UTC)


def longmemeval(path: Path) -> list[Conversation]:
    """Read LongMemEval's published file: one memory a question. ``_abs`` ids are left out.

    The evidence is the turns marked `has_answer`; where none is, every turn of the sessions in
    `answer_session_ids`.
    """
    conversations = []
    for item in json.loads(path.read_text(encoding="utf-8")):
        qid = str(item["question_id"])
        if qid.endswith("_abs"):
            continue
        conversation = Conversation(qid)
        ids = item.get("haystack_session_ids") or [
            str(n) for n in range(len(item["haystack_sessions"]))
        ]
        marked: list[str] = []
        fallback: list[str] = []
        answers = {str(session) for session in item.get("answer_session_ids", [])}
        for session, stamp, turns in zip(
            ids, item["haystack_dates"], item["haystack_sessions"], strict=True
        ):
            start = _longmemeval_time(stamp)
            for number, turn in enumerate(turns):
                event = NewEvent(
                    content=turn["content"],
                    role=turn["role"],
                    session_id=str(session),
                    occurred_at=start + timedelta(seconds=number),
                )
                message = Message(f"{session}/{number}", event)
                conversation.messages.append(message)
                if turn.get("has_answer"):
                    marked.append(message.id)
                if str(session) in answers:
                    fallback.append(message.id)
        conversation.queries.append(
            Query(
                qid,
                item["question"],
                tuple(marked or fallback),
                str(item.get("question_type", "")),
                _longmemeval_time(item["question_date"]) if item.get("question_date") else None,
            )
        )
        conversations.append(conversation)
    return conversations


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: {error}") from error


def _time(stamp: str | None) -> datetime | None:
    if stamp is None:
        return None
    moment = datetime.fromisoformat(stamp)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}


def generic(path: Path) -> list[Conversation]:
    """Read a folder of ``messages.jsonl`` and ``queries.jsonl``.

    Messages: `conv`, `id`, `text`, and where known `session`, `ts`, `speaker` or `role`,
    `event_type`, `caption`. Queries: `qid`, `conv`, `question`, `evidence`, and where known
    `category`, `ts`. Times without an offset are read as UTC.
    """
    found: dict[str, Conversation] = {}
    for line in _lines(path / "messages.jsonl"):
        conversation = found.setdefault(str(line["conv"]), Conversation(str(line["conv"])))
        session = line.get("session")
        event = NewEvent(
            content=with_caption(line["text"], line.get("caption")),
            role=ROLES.get(line.get("role", ""), "user"),
            actor=line.get("speaker") or line.get("role"),
            session_id=None if session is None else str(session),
            occurred_at=_time(line.get("ts")),
            event_type=line.get("event_type") or "message",
        )
        conversation.messages.append(Message(str(line["id"]), event))
    for line in _lines(path / "queries.jsonl"):
        conversation = found.setdefault(str(line["conv"]), Conversation(str(line["conv"])))
        conversation.queries.append(
            Query(
                str(line["qid"]),
                line["question"],
                tuple(map(str, line.get("evidence", []))),
                str(line.get("category", "")),
                _time(line.get("ts")),
            )
        )
    return list(found.values())


LOADERS: dict[str, Callable[[Path], list[Conversation]]] = {
    "locomo": locomo,
    "longmemeval": longmemeval,
    "generic": generic,
}
