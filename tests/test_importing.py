"""Users' files become events: every style, every way a line can be wrong, and keys that hold."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.errors import InvalidInput
from memstore.importing import read_events
from memstore.types import NewEvent


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read(data: bytes | str | list[Any] | dict[str, Any], **options: Any) -> list[NewEvent]:
    if not isinstance(data, (bytes, str)):
        data = json.dumps(data, indent=1)
    raw = data.encode() if isinstance(data, str) else data
    return list(read_events(io.BytesIO(raw), **({"name": "chat.jsonl"} | options)))


def said(events: list[NewEvent]) -> list[tuple[str, str, str]]:
    return [(event.role, event.event_type, event.content) for event in events]


# The generic form.


def test_reads_every_field_of_the_generic_form() -> None:
    events = read(
        jsonl(
            {
                "id": "m1",
                "session": 7,
                "ts": "2026-03-03T09:04:12-03:00",
                "role": "tool",
                "actor": "orders.lookup",
                "event_type": "error",
                "text": "no such order",
                "correlation_id": "call-1",
                "payload": {"code": 404},
            }
        )
    )
    (event,) = events
    assert event == NewEvent(
        content="no such order",
        role="tool",
        event_type="error",
        actor="orders.lookup",
        session_id="7",
        occurred_at=datetime(2026, 3, 3, 12, 4, 12, tzinfo=UTC),
        payload={"code": 404},
        correlation_id="call-1",
        idempotency_key=event.idempotency_key,
    )


def test_a_speaker_is_the_actor_and_a_user_unless_named_like_a_role() -> None:
    events = read(
        jsonl(
            {"text": "hi", "speaker": "Caroline"},
            {"text": "hello", "speaker": "assistant"},
            {"text": "plain"},
        )
    )
    assert [(event.role, event.actor) for event in events] == [
        ("user", "Caroline"),
        ("assistant", "assistant"),
        ("user", "user"),
    ]


def test_a_caption_stands_in_for_its_picture() -> None:
    (event,) = read(jsonl({"text": "look", "caption": "a dog on a beach"}))
    assert event.content == "look\n[image: a dog on a beach]"


def test_conversations_in_one_file_stay_apart_by_session() -> None:
    events = read(
        jsonl(
            {"text": "a", "conv": "c1", "session": 1},
            {"text": "a", "conv": "c2", "session": 1},
            {"text": "a", "conv": "c3"},
            {"text": "a"},
        )
    )
    assert [event.session_id for event in events] == ["c1/1", "c2/1", "c3", "chat"]


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


# Conversations, sessions, times.


def test_each_conversation_of_a_file_is_a_session() -> None:
    turn = {"role": "user", "content": "hi"}
    lines = jsonl({"messages": [turn]}, {"id": "own", "messages": [turn]}, {"messages": [turn]})
    assert [event.session_id for event in read(lines)] == ["chat", "own", "chat-3"]
    array = [{"messages": [turn]}, {"session_id": 4, "messages": [turn]}, {"messages": [turn]}]
    assert [event.session_id for event in read(array)] == ["chat", "4", "chat-3"]
    assert [event.session_id for event in read(lines, session="s")] == ["s", "own", "s-3"]


def test_a_chat_keeps_the_times_and_sessions_that_it_knows() -> None:
    (event,) = read(
        jsonl({"role": "user", "content": "hi", "session_id": "s", "created_at": 1_772_528_652})
    )
    assert event.session_id == "s"
    assert event.occurred_at == datetime(2026, 3, 3, 9, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "instant"),
    [
        ("2026-03-03T09:04:12Z", datetime(2026, 3, 3, 9, 4, 12, tzinfo=UTC)),
        ("2026-03-03 09:04:12.5+05:30", datetime(2026, 3, 3, 3, 34, 12, 500_000, tzinfo=UTC)),
        ("2026-03-03", datetime(2026, 3, 3, tzinfo=UTC)),
        (1_772_528_652, datetime(2026, 3, 3, 9, 4, 12, tzinfo=UTC)),
        (1_772_528_652_250, datetime(2026, 3, 3, 9, 4, 12, 250_000, tzinfo=UTC)),
        (None, None),
    ],
)
def test_times_that_name_an_instant(given: Any, instant: datetime | None) -> None:
    (event,) = read(jsonl({"text": "x", "ts": given}))
    assert event.occurred_at == instant


def test_a_time_without_an_offset_is_refused_unless_its_zone_is_given() -> None:
    # trap 23
    lines = jsonl({"text": "x"}, {"text": "x", "ts": "2026-07-01T12:00:00"})
    with pytest.raises(InvalidInput, match=r"chat.jsonl, line 2.*no offset"):
        read(lines)
    event = read(lines, tz=ZoneInfo("Europe/Lisbon"))[1]
    assert event.occurred_at == datetime(2026, 7, 1, 11, tzinfo=UTC)
    (day,) = read(jsonl({"text": "x", "ts": "2026-07-01"}), tz=timezone(timedelta(hours=2)))
    assert day.occurred_at == datetime(2026, 6, 30, 22, tzinfo=UTC)
    (aware,) = read(jsonl({"text": "x", "ts": "2026-07-01T12:00Z"}), tz=ZoneInfo("Asia/Tokyo"))
    assert aware.occurred_at == datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("given", ["soon", "", "1:56 pm on 8 May, 2023", True, [], 1e300, -1e300])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"line 1: ts: .*not a time"):
        read(jsonl({"text": "x", "ts": given}))


# Files as they come.


def test_reads_marks_line_ends_and_blank_lines_of_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\r\n{"text": "a"}\r\n\r\n   \r\n{"text": "b\xe2\x80\xa8c"}')
    assert [event.content for event in read_events(path)] == ["a", "b\u2028c"]
    path.write_bytes(b'\xef\xbb\xbf[\r\n{"text": "a"},\r\n{"text": "b"}\r\n]\r\n')
    assert [event.content for event in read_events(str(path))] == ["a", "b"]
    path.write_bytes(b"")
    assert list(read_events(path)) == []


def test_what_a_database_cannot_hold_is_mended() -> None:
    # traps 1 and 2
    half = {"text": "a\0b\ud83d", "payload": {"\0": "\udc00"}}
    (event,) = read(jsonl(half))
    assert event.content == "a\ufffdb\ufffd"
    assert event.payload == {"\ufffd": "\ufffd"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "not valid JSON"),
        (b"hello", "not valid JSON"),
        (b'{"text": "a"} {"text": "b"}', "not valid JSON"),
        (b'{"text": NaN}', "NaN"),
        (b'{"text": "x", "payload": 1e999}', "too large"),
        (b'{"text": "x", "payload": ' + b"9" * 5_000 + b"}", "JSON"),
        (b'{"text": "x", "payload": ' + b"[" * 70 + b"]" * 70 + b"}", "payload.*deeper"),
        (b"[" * 100_000, "nested|JSON"),
        (b'{"text": "\xff"}', "not UTF-8 at byte 11"),
        (b'"just a string"', "object or a list"),
        (b"[1]", "item 1: must be an object, not int"),
        (b'{"note": "x"}', "neither an event"),
        (b'{"role": "wizard", "content": "x"}', "role: 'wizard' is none of"),
        (b'{"text": 5}', "content: must be a string or a list"),
        (b'{"content": [{"text": "x"}]}', "content/0: must be an object with a type"),
        (b'{"content": [{"type": "text"}]}', "content/0: a block of text must have a text"),
        (b'{"role": "assistant", "tool_calls": {}}', None),
        (b'{"role": "assistant", "tool_calls": "f"}', "tool_calls: must be a list"),
        (b'{"role": "assistant", "tool_calls": [1]}', "tool_calls/0: must be an object"),
        (b'{"role": "assistant", "tool_calls": [{"id": "c"}]}', "must have a name"),
        (b'{"text": "x", "session": "' + b"s" * 600 + b'"}', "session_id: must take"),
        (b'{"text": "' + b"x" * 1_048_577 + b'"}', "content: 1,048,577 bytes"),
    ],
)
def test_a_broken_line_is_named(line: bytes, reason: str | None) -> None:
    # traps 4, 30 and 31, found while reading instead of in the middle of a write
    events = read_events(io.BytesIO(b'{"text": "fine"}\n\n' + line + b"\n"), name="a.jsonl")
    assert next(events).content == "fine"
    if reason is None:
        assert next(events).content == ""
        return
    with pytest.raises(InvalidInput, match=rf"^a.jsonl, line 3.*({reason})"):
        next(events)


def test_a_broken_first_line_is_named_though_it_could_begin_a_document() -> None:
    with pytest.raises(InvalidInput, match=r"^chat.jsonl, line 1: .*column 13$"):
        read(b'{"text": "a"\n{"text": "b"}\n')
    with pytest.raises(InvalidInput, match=r"^chat.jsonl, line 1: not valid JSON"):
        read(b"hello\n")


def test_a_broken_document_is_named_by_line_and_item() -> None:
    with pytest.raises(InvalidInput, match=r"^c.json, line 4: not valid JSON"):
        read(
            '\n[\n{"role": "user", "content": "a"},\n{"role": "user" "content": "b"}\n]',
            name="c.json",
        )
    with pytest.raises(InvalidInput, match=r"^c.json, item 2: role: 'wizard'"):
        read('[{"text": "a"},\n{"text": "b", "role": "wizard"}]', name="c.json")


def test_refuses_utf_16_and_a_missing_file_in_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="UTF-16"):
        read('{"text": "a"}'.encode("utf-16"))
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(read_events(tmp_path / "absent.jsonl"))


def test_lines_are_read_as_they_are_needed() -> None:
    class Endless(io.RawIOBase):
        served = 0

        def __next__(self) -> bytes:
            self.served += 1
            return b'{"text": "line %d"}\n' % self.served

    stream = Endless()
    events = read_events(stream, name="endless.jsonl")  # type: ignore[arg-type]
    assert [next(events).content for _ in range(3)] == ["line 1", "line 2", "line 3"]
    assert stream.served == 3


# Keys: trap 28.


def keys(data: bytes, **options: Any) -> list[str]:
    found = [event.idempotency_key for event in read(data, **options)]
    assert all(found)
    return [key for key in found if key]


def test_a_second_reading_has_the_same_keys_and_equal_messages_differ() -> None:
    lines = jsonl(*[{"role": "user", "content": "ok"}] * 3)
    assert keys(lines) == keys(lines)
    assert len(set(keys(lines))) == 3


def test_a_file_that_grew_keeps_its_keys() -> None:
    turn = {"role": "user", "content": "ok"}
    assert keys(jsonl(turn, turn, turn))[:2] == keys(jsonl(turn, turn))


def test_files_of_other_names_do_not_share_keys_and_folders_do_not_matter(tmp_path: Path) -> None:
    line = jsonl({"role": "user", "content": "ok"})
    assert keys(line, name="a.jsonl") != keys(line, name="b.jsonl")
    found = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "a.jsonl"
        path.write_bytes(line)
        found += [event.idempotency_key for event in read_events(path)]
    assert found == [keys(line, name="a.jsonl")[0]] * 2


def test_records_with_ids_keep_their_keys_when_others_come_or_go() -> None:
    one, two, three = ({"id": str(n), "conv": "c", "text": "ok"} for n in range(3))
    assert keys(jsonl(one, three)) == [keys(jsonl(one, two, three))[index] for index in (0, 2)]
    assert keys(jsonl(one)) != keys(jsonl({**one, "conv": "d"}))
    assert keys(jsonl(one)) != keys(jsonl({**one, "text": "edited"}))


def test_a_key_of_the_records_own_is_kept() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": ""}}
    record = {"role": "assistant", "content": "a", "tool_calls": [call], "idempotency_key": "k"}
    assert keys(jsonl(record)) == ["k", "k/1"]


@given(st.lists(st.sampled_from(["ok", "yes", "no"]), max_size=12), st.booleans())
def test_keys_are_distinct_and_repeatable(words: list[str], document: bool) -> None:
    records = [{"role": "user", "content": word} for word in words]
    data = json.dumps(records).encode() if document else jsonl(*records)
    assert keys(data) == keys(data)
    assert len(set(keys(data))) == len(words)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_name(raw: bytes) -> None:
    try:
        read(raw)
    except InvalidInput as error:
        assert error.path.startswith("chat.jsonl")  # noqa: PT017
