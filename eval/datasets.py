"""Data sets: conversations (one memory each), their messages as events, and questions.

A question names the messages that hold its answer, or the answers that count, or both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from memstore import NewEvent


@dataclass(frozen=True, slots=True)
class Message:
    """One message under its id in the data set."""

    id: str
    event: NewEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question and what answers it.

    `evidence` are message ids, `sessions` the sessions that count as evidence (those of the
    messages, where empty), `answers` the accepted answers, word for word. A blank `question`
    asks what the agent needs to go on from its state alone.
    """

    qid: str
    question: str
    evidence: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    category: str = ""
    asked_at: datetime | None = None


@dataclass(slots=True)
class Conversation:
    """One memory: its messages in order, the questions asked of it, and its state, if any."""

    id: str
    messages: list[Message] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    state: dict[str, Any] | None = None

    def digest(self) -> str:
        """Name the content: other messages or another state give another name."""
        hashed = hashlib.sha256(repr(self.state).encode(errors="replace"))
        for message in self.messages:
            hashed.update(repr((message.id, message.event)).encode(errors="replace"))
        return hashed.hexdigest()[:32]


@dataclass(frozen=True)
class Dataset:
    """A data set of the form `form`, from the file or folder `name`.

    `dropped` questions had nothing to be found by; `unknown` pieces of evidence do not exist.
    """

    form: str
    name: str
    conversations: list[Conversation]
    dropped: int = 0
    unknown: int = 0

    @property
    def queries(self) -> Iterator[Query]:
        return (query for conversation in self.conversations for query in conversation.queries)

    @cached_property
    def n_messages(self) -> int:
        return sum(len(conversation.messages) for conversation in self.conversations)


Loader = Callable[[Path], list[Conversation]]


def load(form: str, path: Path) -> Dataset:
    """Load a data set by its form: locomo, longmemeval or generic.

    Evidence that does not exist is dropped, and a question that is left without evidence and
    answers. Raises `ValueError` when no question is left or two messages share an id.
    """
    conversations = loaders()[form](path)
    asked = Counter(query.qid for c in conversations for query in c.queries)
    dropped = unknown = 0
    for conversation in conversations:
        known = {message.id for message in conversation.messages}
        if len(known) < len(conversation.messages):
            doubled = Counter(m.id for m in conversation.messages).most_common(1)[0][0]
            raise ValueError(f"{conversation.id}: two messages have the id {doubled!r}")
        kept = []
        for query in conversation.queries:
            evidence = tuple(dict.fromkeys(e for e in query.evidence if e in known))
            unknown += len(set(query.evidence)) - len(evidence)
            if not evidence and not query.answers:
                dropped += 1
                continue
            qid = query.qid if asked[query.qid] == 1 else f"{conversation.id}/{query.qid}"
            kept.append(replace(query, qid=qid, evidence=evidence))
        conversation.queries = kept
    with_questions = [c for c in conversations if c.queries]
    if not with_questions:
        raise ValueError("no question has evidence or answers")
    qids = Counter(query.qid for c in with_questions for query in c.queries)
    if doubled_qids := [qid for qid, count in qids.items() if count > 1]:
        raise ValueError(f"two questions have the id {doubled_qids[0]!r}")
    return Dataset(form, path.stem, with_questions, dropped, unknown)


def loaders() -> dict[str, Loader]:
    """Return the loaders by the form that they read."""
    from eval import generic, published

    return {
        "generic": generic.load,
        "locomo": published.locomo,
        "longmemeval": published.longmemeval,
    }


def with_caption(text: str, caption: str | None) -> str:
    """Put an image's caption behind the text that it came with."""
    return f"{text} [image: {caption}]" if caption else text
