"""OpenAI's and Anthropic's messages as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memstore.types import NewEvent
from tests.imported import jsonl, read


def said(events: list[NewEvent]) -> list[tuple[str, str, str]]:
    return [(event.role, event.event_type, event.content) for event in events]


# OpenAI.

OPENAI: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "Where is it?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "track", "arguments": '{"order": "WF-1", "days": 2}'},
            },
            {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "in transit"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "noon"}]},
    {"role": "assistant", "content": "On its way.", "refusal": None},
]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(json.dumps(OPENAI), id="array on one line"),
        pytest.param(json.dumps(OPENAI, indent=2), id="array over many lines"),
        pytest.param(jsonl(*OPENAI), id="a message a line"),
        pytest.param(json.dumps({"model": "m", "messages": OPENAI}), id="wrapped"),
        pytest.param(json.dumps({"messages": OPENAI}, indent=2), id="wrapped over many lines"),
        pytest.param(jsonl({"messages": OPENAI}), id="a conversation a line"),
    ],
)
def test_reads_openai_messages_in_every_wrapping(data: bytes | str) -> None:
    events = read(data)
    assert said(events) == [
        ("system", "message", "Be brief."),
        ("user", "message", "Where is it?"),
        ("assistant", "tool_call", 'track(order="WF-1", days=2)'),
        ("assistant", "tool_call", "now()"),
        ("tool", "tool_result", "in transit"),
        ("tool", "tool_result", "noon"),
        ("assistant", "message", "On its way."),
    ]
    assert [event.actor for event in events] == [
        "developer",
        "Ada",
        "assistant",
        "assistant",
        "track",
        "now",
        "assistant",
    ]
    assert [event.correlation_id for event in events[2:6]] == ["call_1", "call_2"] * 2
    assert events[2].payload == {"name": "track", "arguments": {"order": "WF-1", "days": 2}}
    assert {event.session_id for event in events} == {"chat"}


def test_words_before_a_tool_call_are_an_event_of_their_own() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "not JSON"}}
    events = read([{"role": "assistant", "content": "Let me look.", "tool_calls": [call]}])
    assert said(events) == [
        ("assistant", "message", "Let me look."),
        ("assistant", "tool_call", "f(not JSON)"),
    ]
    assert events[1].payload == {"name": "f", "arguments": "not JSON"}


def test_joins_the_older_function_calls_to_their_results() -> None:
    events = read(
        [
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "1"},
            },
            {"role": "function", "name": "f", "content": "one"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "2"},
            },
            {"role": "function", "name": "f", "content": "two"},
        ]
    )
    first, second = events[0].correlation_id, events[2].correlation_id
    assert [event.correlation_id for event in events] == [first, first, second, second]
    assert first != second
    assert [event.actor for event in events] == ["assistant", "f"] * 2


def test_reads_items_of_the_responses_api() -> None:
    events = read(
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a greeting"}]},
            {"type": "function_call", "call_id": "c", "name": "wave", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "waved"},
        ]
    )
    assert said(events) == [
        ("user", "message", "hi"),
        ("assistant", "thinking", "a greeting"),
        ("assistant", "tool_call", "wave()"),
        ("tool", "tool_result", "waved"),
    ]


def test_what_is_not_text_leaves_a_mark_and_not_its_bytes() -> None:
    (event,) = read(
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                    {"type": "file", "file": {"filename": "plan.pdf", "file_data": "AAAA"}},
                    {"type": "hologram", "data": "AAAA"},
                ],
            }
        ]
    )
    assert event.content.split("\n") == [
        "See",
        "[image_url: https://x.example/a.png]",
        "[image_url]",
        "[input_audio]",
        "[file: plan.pdf]",
        "[hologram]",
    ]


@pytest.mark.parametrize("content", [None, "", []])
def test_a_message_without_content_is_kept(content: Any) -> None:
    assert said(read([{"role": "assistant", "content": content}])) == [("assistant", "message", "")]


def test_a_refusal_is_what_was_said() -> None:
    for content in (None, ""):
        events = read([{"role": "assistant", "content": content, "refusal": "I won't."}])
        assert [event.content for event in events] == ["I won't."]
    events = read([{"role": "assistant", "content": None, "refusal": "I won't."}])
    assert said(events) == [("assistant", "message", "I won't.")]


# Anthropic.


def test_reads_anthropic_blocks_in_their_order() -> None:
    request = {
        "model": "m",
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Where is it?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "An order.", "signature": "s"},
                    {"type": "redacted_thinking", "data": "AAAA"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "t1", "name": "track", "input": {"order": "é"}},
                    {"type": "text", "text": "And the clock."},
                    {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [
                            {"type": "text", "text": "in transit"},
                            {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
                        ],
                    },
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no"},
                    {"type": "tool_result", "tool_use_id": "t2"},
                    {"type": "text", "text": "And now?"},
                    {"type": "document", "title": "Plan", "source": {"type": "text"}},
                ],
            },
        ],
    }
    events = read(request)
    assert said(events) == [
        ("system", "message", "Be kind."),
        ("user", "message", "Where is it?"),
        ("assistant", "thinking", "An order."),
        ("assistant", "thinking", "[redacted thinking]"),
        ("assistant", "message", "Let me look."),
        ("assistant", "tool_call", 'track(order="é")'),
        ("assistant", "message", "And the clock."),
        ("assistant", "tool_call", "now()"),
        ("tool", "tool_result", "in transit\n[image]"),
        ("tool", "tool_result", "no"),
        ("tool", "tool_result", ""),
        ("user", "message", "And now?\n[document: Plan]"),
    ]
    joined = {event.content: (event.correlation_id, event.actor) for event in events}
    assert joined["in transit\n[image]"] == ("t1", "track")
    assert joined['track(order="é")'] == ("t1", "assistant")
    assert joined["no"] == ("t2", "now")
    assert [event.payload for event in events if event.content == "no"] == [{"is_error": True}]


def test_reads_what_a_server_tool_did() -> None:
    events = read(
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "s",
                        "content": {"error_code": "unavailable"},
                    },
                ],
            }
        ]
    )
    assert said(events) == [
        ("assistant", "tool_call", "web_search(q=1)"),
        ("tool", "tool_result", '{"error_code": "unavailable"}'),
    ]
