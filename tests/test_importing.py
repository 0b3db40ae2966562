"""Users' files become events: conversations, times, every way a line can be wrong, and keys."""

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
from tests.imported import jsonl, read

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


def test_a_key_too_long_for_what_follows_from_it_is_named_with_its_line() -> None:
    # trap 4
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    record = {"role": "assistant", "content": "a", "tool_calls": [call]}
    lines = "\n".join(json.dumps(record | {"idempotency_key": "k" * n}) for n in (510, 511))
    with pytest.raises(InvalidInput, match="line 2: idempotency_key"):
        read(lines)


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
