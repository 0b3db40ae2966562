"""Loading LoCoMo and LongMemEval as they were published."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from eval.datasets import Conversation, Message, Query, with_caption
from memstore import NewEvent, Role

LOCOMO_TURN = re.compile(r"D(\d+):(\d+)")
LOCOMO_SESSION = re.compile(r"session_(\d+)")
LOCOMO_ADVERSARIAL = "5"


def locomo(path: Path) -> list[Conversation]:
    """Read LoCoMo's file. Category 5 (adversarial) is left out, as in the literature.

    Its evidence strings hold a few malformed references: every well-formed id in them counts.
    """
    conversations = []
    for number, sample in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        talk = sample["conversation"]
        conversation = Conversation(str(sample.get("sample_id", number)))
        for session in sorted(int(m[1]) for key in talk if (m := LOCOMO_SESSION.fullmatch(key))):
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
            category = str(asked["category"])
            if category != LOCOMO_ADVERSARIAL:
                turns = LOCOMO_TURN.findall(str(asked.get("evidence")))
                conversation.queries.append(
                    Query(
                        qid=f"{conversation.id}/{index}",
                        question=asked["question"],
                        evidence=tuple(f"D{int(a)}:{int(b)}" for a, b in turns),
                        category=category,
                    )
                )
        conversations.append(conversation)
    return conversations


def longmemeval(path: Path) -> list[Conversation]:
    """Read LongMemEval's file: one memory a question. ``_abs`` ids are left out.

    The evidence is the turns marked `has_answer`, or where none is, every turn of the sessions
    in `answer_session_ids`; those sessions are the evidence at session level.
    """
    return [
        _question(item)
        for item in json.loads(path.read_text(encoding="utf-8"))
        if not str(item["question_id"]).endswith("_abs")
    ]


def _question(item: dict[str, Any]) -> Conversation:
    conversation = Conversation(str(item["question_id"]))
    sessions = item["haystack_sessions"]
    ids = [str(s) for s in item.get("haystack_session_ids") or range(len(sessions))]
    answering = {str(session) for session in item.get("answer_session_ids") or ()}
    marked, fallback = [], []
    seen: Counter[str] = Counter()
    for session, stamp, turns in zip(ids, item["haystack_dates"], sessions, strict=True):
        seen[session] += 1
        name = session if seen[session] == 1 else f"{session} ({seen[session]})"
        start = _longmemeval_time(stamp)
        for number, turn in enumerate(turns):
            role: Role = "assistant" if turn["role"] == "assistant" else "user"
            event = NewEvent(
                content=turn["content"],
                role=role,
                session_id=name,
                occurred_at=start + timedelta(seconds=number),
            )
            message = Message(f"{name}/{number}", event)
            conversation.messages.append(message)
            if turn.get("has_answer"):
                marked.append(message.id)
            if session in answering:
                fallback.append(message.id)
    asked = item.get("question_date")
    conversation.queries.append(
        Query(
            qid=conversation.id,
            question=item["question"],
            evidence=tuple(marked or fallback),
            answers=(str(item["answer"]),) if item.get("answer") is not None else (),
            sessions=tuple(s for s in dict.fromkeys(ids) if s in answering),
            category=str(item.get("question_type", "")),
            asked_at=_longmemeval_time(asked) if asked else None,
        )
    )
    return conversation


def _longmemeval_time(stamp: str) -> datetime:
    """Read a time such as ``2023/05/30 (Tue) 23:40``."""
    plain = re.sub(r"\s*\([^)]*\)\s*", " ", stamp).strip().replace("/", "-")
    return datetime.fromisoformat(plain).replace(tzinfo=UTC)
