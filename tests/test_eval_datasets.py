"""Loading data sets: LoCoMo and LongMemEval as published, and anybody's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eval import datasets
from memstore import NewEvent


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def folder(
    path: Path, messages: list[dict[str, Any]], queries: list[dict[str, Any]]
) -> datasets.Dataset:
    write(path / "messages.jsonl", messages)
    write(path / "queries.jsonl", queries)
    return datasets.load("generic", path)


SAID = {"conv": "c", "id": "1", "text": "The key is under the mat."}
ASKED = {"qid": "q", "conv": "c", "question": "Where is the key?", "evidence": ["1"]}


# generic


def test_what_a_message_may_say(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"conv": "c", "id": 7, "text": "Hi", "session": 3, "ts": "2026-01-02T03:04:05+02:00"}
        | {"speaker": "Ada", "caption": "a cat", "event_type": "observation"},
        {"conv": "c", "id": "8", "text": None, "role": "tool", "event_type": "tool_result"}
        | {"correlation_id": "x", "payload": {"ok": True}, "session": "", "ts": "2026-01-02"},
    ]
    data = folder(tmp_path, messages, [ASKED | {"evidence": [7]}])
    first, second = (message.event for message in data.conversations[0].messages)
    assert (first.content, first.actor, first.role) == ("Hi [image: a cat]", "Ada", "user")
    assert (first.session_id, first.event_type) == ("3", "observation")
    assert first.occurred_at == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert (second.content, second.actor, second.role) == ("", "tool", "tool")
    assert (second.session_id, second.correlation_id, second.payload) == (None, "x", {"ok": True})
    assert second.occurred_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert next(data.queries).evidence == ("7",)


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ({"role": "assistant"}, "assistant"),
        ({"role": "AI"}, "assistant"),
        ({"speaker": "human"}, "user"),
        ({"speaker": "assistant"}, "assistant"),
        ({"role": "function"}, "tool"),
        ({"speaker": "Ada"}, "user"),
        ({}, "user"),
    ],
)
def test_roles_by_the_names_that_logs_use(tmp_path: Path, line: dict[str, str], role: str) -> None:
    data = folder(tmp_path, [SAID | line], [ASKED])
    assert data.conversations[0].messages[0].event.role == role


def test_a_question_needs_evidence_or_answers(tmp_path: Path) -> None:
    queries = [
        ASKED,
        ASKED | {"qid": "gone", "evidence": ["99"]},
        ASKED | {"qid": "half", "evidence": ["1", "99", "1"]},
        ASKED | {"qid": "answer", "evidence": [], "answers": ["mat"]},
        ASKED | {"qid": "none", "evidence": []},
    ]
    data = folder(tmp_path, [SAID], queries)
    assert [query.qid for query in data.queries] == ["q", "half", "answer"]
    assert [query.evidence for query in data.queries] == [("1",), ("1",), ()]
    assert (data.dropped, data.unknown) == (2, 2)


def test_question_ids_of_two_conversations_are_told_apart(tmp_path: Path) -> None:
    data = folder(tmp_path, [SAID, SAID | {"conv": "d"}], [ASKED, ASKED | {"conv": "d"}])
    assert [query.qid for query in data.queries] == ["c/q", "d/q"]


def test_a_state_may_be_given(tmp_path: Path) -> None:
    state = {"active_task": {"description": "find the key"}}
    write(tmp_path / "states.jsonl", [{"conv": "c", "state": state}])
    data = folder(tmp_path, [SAID], [{"qid": "q", "conv": "c", "evidence": ["1"]}])
    assert data.conversations[0].state == state
    assert next(data.queries).question == ""


@pytest.mark.parametrize(
    ("messages", "queries", "reason"),
    [
        ([SAID], [ASKED | {"evidence": []}], "no question"),
        ([SAID, SAID], [ASKED], "two messages have the id '1'"),
        ([SAID], [ASKED, ASKED], "two questions have the id"),
        ([{"conv": "c", "id": "1"}], [ASKED], "messages.jsonl, line 1: no 'text'"),
        ([SAID | {"ts": "soon"}], [ASKED], "messages.jsonl, line 1: .*soon"),
        ([SAID], [ASKED, {"qid": "q"}], "queries.jsonl, line 2: no 'conv'"),
        ([SAID], [ASKED | {"evidence": 4}], "queries.jsonl, line 1"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path,
    messages: list[dict[str, Any]],
    queries: list[dict[str, Any]],
    reason: str,
) -> None:
    with pytest.raises(ValueError, match=reason):
        folder(tmp_path, messages, queries)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "messages.jsonl").write_text(f"{json.dumps(SAID)}\n\n[1]\n")
    with pytest.raises(ValueError, match=r"messages\.jsonl, line 3"):
        datasets.load("generic", tmp_path)


def test_the_content_names_a_conversation() -> None:
    """Two data sets in one kept store never share a memory, whatever their names."""

    def digest(text: str, state: dict[str, Any] | None = None) -> str:
        message = datasets.Message("1", NewEvent(content=text))
        return datasets.Conversation("c", [message], state=state).digest()

    assert digest("a") == digest("a")
    assert len({digest("a"), digest("b"), digest("a\udc97"), digest("a", {"x": 1})}) == 4


# LoCoMo

LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "session_2_date_time": "12:09 am on 13 September, 2023",
            "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "Later."}],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a dog"},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Nice."},
            ],
            "session_3_date_time": "1:00 pm on 9 October, 2023",
        },
        "qa": [
            {"question": "1", "evidence": ["D1:1; D2:01"], "category": 1, "answer": 3},
            {"question": "2", "evidence": ["D:11:26", "D", "D1:2", "D9:9"], "category": 2},
            {"question": "3", "evidence": ["D"], "category": 3},
            {"question": "4", "category": 4},
            {"question": "5", "evidence": ["D1:1"], "category": 5},
            {"question": "6", "evidence": "D1:1", "category": 4},
        ],
    }
]


def test_locomo(tmp_path: Path) -> None:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(LOCOMO))
    data = datasets.load("locomo", path)
    (conversation,) = data.conversations
    assert [m.id for m in conversation.messages] == ["D1:1", "D1:2", "D2:1"]
    first, _, last = (message.event for message in conversation.messages)
    assert (first.content, first.actor, first.session_id) == ("Look! [image: a dog]", "Ann", "1")
    assert first.occurred_at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert last.occurred_at == datetime(2023, 9, 13, 0, 9, tzinfo=UTC)
    assert {q.question: q.evidence for q in data.queries} == {
        "1": ("D1:1", "D2:1"),  # two ids in one string, a leading zero
        "2": ("D1:2",),  # malformed references, and an id that does not exist
        "6": ("D1:1",),
    }
    assert [q.category for q in data.queries] == ["1", "2", "4"]
    assert data.dropped == 2


# LongMemEval


def question(qid: str, **other: Any) -> dict[str, Any]:
    return {
        "question_id": qid,
        "question_type": "temporal-reasoning",
        "question": "How many days passed?",
        "answer": 12,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/22 (Mon) 10:00"],
        "haystack_sessions": [
            [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
            [
                {"role": "user", "content": "I start today", "has_answer": True},
                {"role": "assistant", "content": "Good luck", "has_answer": False},
            ],
        ],
        "answer_session_ids": ["s2"],
    } | other


def longmemeval(tmp_path: Path, *items: dict[str, Any]) -> datasets.Dataset:
    path = tmp_path / "longmemeval.json"
    path.write_text(json.dumps(items))
    return datasets.load("longmemeval", path)


def test_longmemeval(tmp_path: Path) -> None:
    data = longmemeval(tmp_path, question("a"), question("b_abs"), question("c", answer="two"))
    assert [conversation.id for conversation in data.conversations] == ["a", "c"]
    conversation = data.conversations[0]
    (query,) = conversation.queries
    assert query.evidence == ("s2/0",)
    assert (query.sessions, query.category) == (("s2",), "temporal-reasoning")
    assert query.asked_at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert [q.answers for q in data.queries] == [("12",), ("two",)]
    assert [(m.event.role, m.event.session_id) for m in conversation.messages] == [
        ("user", "s1"),
        ("assistant", "s1"),
        ("user", "s2"),
        ("assistant", "s2"),
    ]
    times = [message.event.occurred_at for message in conversation.messages]
    assert times[0] == datetime(2023, 5, 20, 2, 21, tzinfo=UTC)
    assert times[2] == datetime(2023, 5, 22, 10, tzinfo=UTC)
    assert times == sorted(times, key=str)


def test_without_marked_turns_the_whole_session_is_the_evidence(tmp_path: Path) -> None:
    sessions = [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}] * 2]
    data = longmemeval(tmp_path, question("a", haystack_sessions=sessions))
    assert next(data.queries).evidence == ("s2/0", "s2/1")


def test_a_session_id_may_come_twice_and_ids_may_be_missing(tmp_path: Path) -> None:
    twice = question("a", haystack_session_ids=["s2", "s2"])
    without = question("b", haystack_session_ids=None, answer_session_ids=None, question_date=None)
    data = longmemeval(tmp_path, twice, without)
    assert [[m.id for m in c.messages] for c in data.conversations] == [
        ["s2/0", "s2/1", "s2 (2)/0", "s2 (2)/1"],
        ["0/0", "0/1", "1/0", "1/1"],
    ]
    assert [q.evidence for q in data.queries] == [("s2 (2)/0",), ("1/0",)]
