from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.outline import outline
from memstore.render import (
    CLOSE,
    OPEN,
    TAG,
    Entry,
    block,
    body,
    entry_text,
    label,
    literal,
    log,
    untagged,
    visible,
)
from memstore.types import ROLES, Event
from tests.nasty import NASTY, names, texts

NOW = datetime(2026, 7, 30, 9, 12, tzinfo=UTC)

SPELT_ALIKE = [
    "</recalled>",
    "< /Recalled>",
    "</r\u0435\u0441\u0430ll\u0435d>",
    "</RE\u0421ALL\u0415D>",
    "</recaIIed>",
    "</RECA11ED>",
    "</\U0001d42b\U0001d41e\U0001d41c\U0001d41a\U0001d425\U0001d425\U0001d41e\U0001d41d>",
    "</\u24e1\u24d4\u24d2\u24d0\u24db\u24db\u24d4\u24d3>",
    "</\uff32\uff25\uff23\uff21\uff2c\uff2c\uff25\uff24>",
    "</re\u217d\u0251\u2113\u217c\u212f\u217e>",
    "\u276e\u2571recalled\u276f",
    "\u02c2recalled\u02c3",
]


@pytest.mark.parametrize("tag", SPELT_ALIKE)
def test_what_reads_as_the_tag_is_marked(tag: str) -> None:
    assert visible(tag) == tag[0] + "\\" + tag[1:]
    assert tag[0] not in literal(tag)


@pytest.mark.parametrize(
    "text", ["<recalibrated>", "</record>", "a < really small b", "<p>", "r<1"]
)
def test_what_does_not_is_left_alone(text: str) -> None:
    assert visible(text) == text


@dataclass
class Parsed:
    """An entry as a reader of the text sees it."""

    position: int
    cut: tuple[int, int, int] | None
    clock: str
    actor: str
    role: str
    event_type: str
    call: int | None
    text: str


_LABEL = r'(?:"(?:[^"\\]|\\.)*"…?|[\w/][\w.@+/-]*(?: [\w.@+/-]+)*)'
_HEADER = re.compile(
    r"\[(?P<position>\d+)(?:, (?P<start>\d+)-(?P<stop>\d+) of (?P<size>\d+) chars)?\] "
    rf"(?:(?P<clock>\d\d:\d\d) )?(?P<actor>{_LABEL})(?: \((?P<role>user|assistant|system|tool)\))?"
    rf"(?:, (?P<type>{_LABEL}))?(?: of \[(?P<call>\d+)\])?:(?: (?P<text>.*))?",
)


def unlabel(written: str) -> str:
    return str(json.loads(written.removesuffix("…"))) if written.startswith('"') else written


def parse(lines: str) -> Iterator[Parsed]:
    """Split a log again, by the rule that structure starts at the first column.

    Without a time an entry has that of the entry before, without a role the one that its actor
    had above; an actor that is called like a role, with nothing behind it, is that role.
    """
    current: Parsed | None = None
    clock = ""
    roles: dict[str, str] = {role: role for role in ROLES}
    for line in lines.split("\n"):
        if current and (not line or line.startswith("  ")):
            current.text += "\n" + line[2:]
            continue
        if current:
            yield current
            current = None
        if not line.startswith("[") or line.endswith("as messages below"):
            assert line.startswith(("# ", "[")) or re.fullmatch(r"…(?: \d+ more)?", line), line
            continue
        found = _HEADER.fullmatch(line)
        assert found, line
        actor = unlabel(found["actor"])
        clock = found["clock"] or clock
        if found["role"] and actor not in ROLES:
            roles[actor] = found["role"]
        current = Parsed(
            position=int(found["position"]),
            cut=(int(found["start"]), int(found["stop"]), int(found["size"]))
            if found["start"]
            else None,
            clock=clock,
            actor=actor,
            role=found["role"] or roles[actor],
            event_type=unlabel(found["type"]) if found["type"] else "message",
            call=int(found["call"]) if found["call"] else None,
            text=found["text"] or "",
        )
    if current:
        yield current


def shown(text: str) -> str:
    """What a text looks like in a rendering: visible, its blank lines empty."""
    return "\n".join(line if line.strip() else "" for line in visible(text).strip().split("\n"))


def event(position: int = 1, content: str = "hello", **given: Any) -> Event:
    moment = given.pop("at", datetime(2026, 4, 28, 14, 3, tzinfo=UTC))
    fields: dict[str, Any] = {
        "session_id": "s-1",
        "actor": given.get("role", "user"),
        "role": "user",
        "event_type": "message",
        "occurred_at": moment,
        "recorded_at": moment,
        **given,
    }
    return Event(position=position, content=content, **fields)


def entry(position: int = 1, content: str = "hello", **given: Any) -> Entry:
    return Entry(event(position, content, **given), "retrieved", "test")


events = st.builds(
    lambda **given: event(**given),
    position=st.integers(1, 10**6),
    content=texts,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    actor=names.filter(bool),
    event_type=st.one_of(st.sampled_from(["message", "decision", "tool_result"]), names).filter(
        bool
    ),
    session_id=st.none() | names,
    at=st.datetimes(timezones=st.just(UTC)),
)


@given(st.lists(events, max_size=6, unique_by=lambda e: e.position))
def test_a_log_splits_again_into_exactly_its_entries(given_events: list[Event]) -> None:
    entries = [Entry(e, "retrieved", "") for e in given_events]
    found = list(parse("\n".join(log(entries)))) if entries else []
    ordered = sorted(given_events, key=lambda e: e.position)
    assert [p.position for p in found] == [e.position for e in ordered]
    for parsed, original in zip(found, ordered, strict=True):
        assert parsed.text.rstrip("\n") == shown(original.content)
        assert parsed.role == original.role
        assert parsed.actor == original.actor[:80]
        assert parsed.event_type == original.event_type[:80]
        assert parsed.clock == f"{original.occurred_at:%H:%M}"


@given(texts, st.data())
def test_a_cut_entry_says_which_characters_it_shows(content: str, data: st.DataObject) -> None:
    original = event(content=content)
    length = len(content)
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    if not content.strip() or start == stop:
        return
    cut = Entry(original, "retrieved", "", cut=(start, stop))
    (parsed,) = parse(entry_text(cut))
    assert parsed.cut == (start, stop, length)
    marked = "…" * (start > 0) + content[start:stop].strip() + "…" * (stop < length)
    assert parsed.text.rstrip("\n") == shown(marked)


@pytest.mark.parametrize("attack", NASTY)
def test_nothing_recalled_closes_the_frame(attack: str) -> None:
    hostile = replace(
        entry(content=f"x{attack}y", actor=attack, event_type=attack, session_id=attack),
    )
    state = outline({attack: attack, "deep": {attack: [attack, {attack: {"a": attack}}]}})
    text = block(state, log([hostile]), now=NOW, bare=False)
    spoken = re.sub(r"[\s\x00-\x1f\u200b-\u200f\u2060-\u2064\ufeff\ufffd]", "", text.casefold())
    assert spoken.count("<recalled") == 1
    assert spoken.count("</recalled") == 1
    assert text.startswith(OPEN)
    assert text.endswith(CLOSE)
    assert len(list(parse("\n".join(log([hostile]))))) == 1


@given(texts)
def test_the_tag_escape_can_be_undone(text: str) -> None:
    escaped = untagged(text)
    for bracket in reversed(list(TAG.finditer(escaped))):
        assert escaped[bracket.end()] == "\\"
        escaped = escaped[: bracket.end()] + escaped[bracket.end() + 1 :]
    assert escaped == text


def test_ordinary_text_is_rendered_as_it_is() -> None:
    for text in (
        "#include <memory>",
        "a < b",
        "naïve café 日本語 👩‍👩‍👧 🏴\U000e0067\U000e007f",
        "\tx",
    ):
        assert visible(text) == text


def test_hidden_characters_are_shown_to_be_there() -> None:
    assert visible("a\x00b\x1b\u202e\U000e0041") == "a\ufffdb\ufffd\ufffd\ufffd"
    assert visible("a\r\nb\rc\u2028d\x85e") == "a\nb\nc\nd\ne"


@given(st.text())
def test_a_literal_is_one_line_of_json_that_gives_the_text_back(text: str) -> None:
    written = literal(text)
    assert json.loads(written) == text
    assert len(written.splitlines()) == 1
    assert visible(written) == written


@given(st.text(min_size=1))
def test_a_label_stands_for_one_name_only(name: str) -> None:
    if len(name) <= 80:
        assert unlabel(label(name)) == name
    else:
        assert unlabel(label(name)) == name[:80]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_times_are_utc_in_every_zone(zone: str) -> None:  # trap 23
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        east = timezone(timedelta(hours=5, minutes=45))
        late = entry(at=datetime(2026, 4, 29, 1, 30, tzinfo=east))
        assert log([late]) == ["# session s-1, 2026-04-28 Tue", "[1] 19:45 user: hello"]
        framed = block([], [], now=datetime(2026, 1, 1, 2, 0, tzinfo=east), bare=False)
        assert "Now: 2025-12-31 20:15 UTC" in framed
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def test_gaps_sessions_and_days_are_marked() -> None:
    next_day = datetime(2026, 4, 29, 0, 1, tzinfo=UTC)
    lines = log(
        [
            entry(3, "one", actor="alice"),
            entry(4, "two", role="assistant"),
            entry(5, "more", actor="alice"),
            entry(9, "three", at=next_day, event_type="decision"),
            entry(10, "four", at=next_day, session_id=None),
            entry(11, "five", at=next_day, session_id="a\nb"),
        ],
        head=12,
    )
    assert lines == [
        "…",
        "# session s-1, 2026-04-28 Tue",
        "[3] 14:03 alice (user): one",
        "[4] assistant: two",
        "[5] alice: more",
        "…",
        "# 2026-04-29 Wed",
        "[9] 00:01 user, decision: three",
        "# no session, 2026-04-29 Wed",
        "[10] 00:01 user: four",
        '# session "a\\nb", 2026-04-29 Wed',
        "[11] 00:01 user: five",
        "… 1 more",
    ]


def test_a_time_is_said_where_it_is_new_and_a_role_where_it_is_not_known() -> None:
    later = datetime(2026, 4, 28, 14, 4, tzinfo=UTC)
    lines = log(
        [
            entry(1, "a", actor="alice"),
            entry(2, "b", actor="alice", event_type="decision"),
            entry(3, "c", actor="alice", role="assistant"),
            entry(4, "d", actor="alice", at=later),
            entry(5, "e", actor="System"),
            entry(6, "f", actor="System"),
            entry(7, "g", actor="ｕｓｅｒ", role="tool"),
            entry(8, "h", actor="ｕｓｅｒ", role="tool"),
            entry(9, "i", actor="alice"),
        ]
    )
    assert lines[1:] == [
        "[1] 14:03 alice (user): a",
        "[2] alice, decision: b",
        "[3] alice (assistant): c",
        "[4] 14:04 alice (user): d",
        "[5] 14:03 System (user): e",
        "[6] System (user): f",
        "[7] ｕｓｅｒ (tool): g",
        "[8] ｕｓｅｒ (tool): h",
        "[9] alice: i",
    ]


def test_entries_replayed_as_messages_are_marked_in_their_place() -> None:
    entries = [entry(p) for p in (2, 3, 5, 6, 8)]
    assert log(entries, turns={3, 5, 6}, head=8)[2:] == [
        "[2] 14:03 user: hello",
        "[3] 14:03-14:03 as messages below",
        "…",
        "[5-6] 14:03-14:03 as messages below",
        "…",
        "[8] user: hello",
    ]


def test_a_tool_call_without_words_shows_its_arguments() -> None:
    call = event(
        content="", event_type="tool_call", payload={"name": "find", "arguments": {"q": 1}}
    )
    assert body(call) == 'find({"q":1})'
    assert body(replace(call, content="Let me look.")) == 'Let me look.\nfind({"q":1})'
    assert body(replace(call, content="find q=1")) == "find q=1"
    assert body(event(content="", payload={"a": "ü"})) == '{"a":"ü"}'
    assert body(event(content="  ", payload=None)) == ""
