"""The sanitiser: every input that a database or a later reader would choke on."""

from __future__ import annotations

import enum
import json
import math
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.errors import InvalidInput
from memstore.text import (
    MAX_CONTENT_BYTES,
    MAX_ID_BYTES,
    Limits,
    body_digest,
    check_id,
    check_time,
    clean_json,
    clean_text,
    dumps,
    loads,
    prepare_event,
)
from memstore.types import ROLES, NewEvent

# Hypothesis leaves surrogates out unless they are asked for.
any_text = st.text(st.characters(exclude_categories=()))
surrogates = st.text(st.characters(categories=["Cs"], include_characters="a\0é😀"))
plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type at every level: 1, 1.0 and True are three things."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


# Text


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("a\0b", "a\ufffdb"),  # trap 1
        ("\0", "\ufffd"),
        ("\udc97", "\ufffd"),  # trap 2
        ("a\ud83d", "a\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\0\ude00", "\ufffd\ufffd\ufffd"),
        ("é\ud83dx\udc00é", "é\ufffdx\ufffdé"),
    ],
)
def test_what_cannot_be_stored_is_replaced(given_text: str, kept: str) -> None:
    assert clean_text(given_text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        " padded\n",
        "café",
        "cafe\u0301",  # trap 3: stored as given
        "ＦＵＬＬ",
        "\ufb01",
        "😀👩\u200d💻",
        "\ufeffbom",
        "\u202eright to left",
        "\ufffd",
        "\uffff\U0010ffff",
        "\x01\x1b[31m\x7f\x85",
    ],
)
def test_everything_else_is_kept_as_given(text: str) -> None:
    assert clean_text(text) == text


@given(any_text | surrogates)
def test_clean_text_is_storable_and_idempotent(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned
    assert len(cleaned) <= len(text)


@given(st.text())
def test_pairs_of_surrogates_are_joined(text: str) -> None:
    halves = text.encode("utf-16-be", "surrogatepass")
    split = "".join(chr(int.from_bytes(halves[i : i + 2])) for i in range(0, len(halves), 2))
    assert clean_text(split) == clean_text(text)


def test_subclasses_become_plain_strings() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    assert type(clean_text(Colour.RED)) is str
    assert clean_text(Colour.RED) == "red"


@pytest.mark.parametrize("value", [None, 1, b"bytes"])
def test_text_must_be_text(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a string"):
        clean_text(value)


# JSON


@given(plain_json)
def test_json_is_read_back_as_it_was_written(value: Any) -> None:  # trap 31
    cleaned = clean_json(value)
    assert same(loads(dumps(cleaned)), cleaned)
    assert same(clean_json(cleaned), cleaned)


@given(plain_json)
def test_storable_json_is_not_changed(value: Any) -> None:
    text = dumps(value)
    if "\\u0000" not in text:
        assert same(clean_json(value), value)


def test_text_is_cleaned_in_keys_and_values() -> None:  # traps 1, 2
    assert clean_json({"\0": ["a\0", {"k\udc97": "\ud83d\ude00"}]}) == {
        "\ufffd": ["a\ufffd", {"k\ufffd": "😀"}]
    }


def test_keys_that_collide_once_cleaned_are_refused() -> None:
    with pytest.raises(InvalidInput) as error:
        clean_json({"a": {"x\0": 1, "x\ufffd": 2}})
    assert error.value.path == "/a/x\ufffd"


class Number(enum.IntEnum):
    ONE = 1


def test_subclasses_become_plain_values() -> None:
    class Text(str):
        pass

    class Mapping(dict[str, Any]):
        pass

    value = Mapping({Text("k"): (Number.ONE, np.float64(0.5), Text("v"), True)})
    assert same(clean_json(value), {"k": [1, 0.5, "v", True]})


def test_the_result_shares_nothing_with_what_was_given() -> None:
    value: dict[str, Any] = {"a": [{}]}
    cleaned = clean_json(value)
    value["a"][0]["b"] = 1
    assert cleaned == {"a": [{}]}


@pytest.mark.parametrize(
    ("value", "path"),
    [  # trap 30
        (math.nan, ""),
        ({"a": [1, math.inf]}, "/a/1"),
        ({"a": -math.inf}, "/a"),
        ({"a/b": {"c~d": {1}}}, "/a~1b/c~0d"),
        ([frozenset()], "/0"),
        ([b"bytes"], "/0"),
        ([bytearray()], "/0"),
        ({"a": {1: "b"}}, "/a"),
        ({"a": {None: "b"}}, "/a"),
        ({"a": {b"k": "b"}}, "/a"),
        ({"a": {("x", "y"): "b"}}, "/a"),
        ({"when": datetime.now(UTC)}, "/when"),
        ({"when": date(2026, 4, 28)}, "/when"),
        ({"id": uuid4()}, "/id"),
        ({"price": Decimal("1.5")}, "/price"),
        ({"n": np.int64(1)}, "/n"),
        ({"n": np.float64("nan")}, "/n"),
        ({"n": 1j}, "/n"),
        ({"n": object()}, "/n"),
        ({"n": (item for item in "abc")}, "/n"),
        ({"n": ...}, "/n"),
        ([10**4300], "/0"),  # trap 31
        ([-(10**4300)], "/0"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as error:
        clean_json(value)
    assert error.value.path == path
    with pytest.raises(InvalidInput) as error:
        clean_json(value, path="payload")
    assert error.value.path == "payload" + path


def test_the_longest_integers_are_kept() -> None:
    value = [10**4300 - 1, -(10**4300 - 1)]
    assert clean_json(value) == value


def test_an_interpreter_with_a_lower_limit_of_digits_refuses_instead_of_failing() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(InvalidInput) as error:
            clean_json([10**1000], path="payload")
    finally:
        sys.set_int_max_str_digits(before)
    assert error.value.path == "payload"


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def test_depth_is_limited() -> None:  # trap 31
    assert clean_json(nested(64)) == nested(64)
    for levels in (65, 1_000, 100_000):
        with pytest.raises(InvalidInput, match="deeper than 64"):
            clean_json(nested(levels))
    with pytest.raises(InvalidInput, match="deeper than 2"):
        clean_json(nested(3), limits=Limits(depth=2))


def test_a_document_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidInput, match="deeper"):
        clean_json(value)


def test_a_document_that_shares_its_parts_a_billion_times_is_refused() -> None:
    value: Any = ["lol"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(InvalidInput, match="50,000 bytes"):
        clean_json(value, limits=Limits(bytes=50_000))


@pytest.mark.parametrize("letter", ["a", "é", '"', "\n", "\0", "\x01", "😀"])
def test_size_is_counted_in_bytes_as_written(letter: str) -> None:
    size = len(dumps([clean_text(letter * 100)]).encode())
    assert clean_json([letter * 100], limits=Limits(bytes=size))
    with pytest.raises(InvalidInput) as error:
        clean_json([letter * 100], limits=Limits(bytes=size - 1), path="payload")
    assert error.value.path == "payload"


@pytest.mark.parametrize("value", [{}, [], [[]], {"a": 1, "b": [True, None, ""]}, "", 0])
def test_the_size_limit_is_exact(value: Any) -> None:
    size = len(dumps(value))
    assert clean_json(value, limits=Limits(bytes=size)) == value
    with pytest.raises(InvalidInput):
        clean_json(value, limits=Limits(bytes=size - 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "NaN",
        "[Infinity]",
        '{"a": -Infinity}',
        '{"a": 1e5000}',  # trap 31
        "[-1e999]",
        "1" * 5_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        "{'a': 1}",
        '["\t"]',
    ],
)
def test_loads_is_strict(text: str) -> None:
    with pytest.raises(InvalidInput):
        loads(text)


def test_loads_then_clean_json_mends_halves_of_emoji() -> None:  # trap 2
    assert clean_json(loads(r'{"a": "\ud83d", "b": "\ud83d\ude00"}')) == {"a": "\ufffd", "b": "😀"}


def test_dumps_is_compact_and_readable() -> None:
    assert dumps({"clé": [1.0, True, None]}) == '{"clé":[1.0,true,null]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(math.nan)


# Identifiers


@pytest.mark.parametrize(
    "value", ["a", " ", "a:b/c%_", "é" * 256, "x" * MAX_ID_BYTES, "\ufffd", "cafe\u0301"]
)
def test_identifiers_are_kept_exactly(value: str) -> None:  # trap 3
    assert check_id(value, "agent_id") == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a\0b",  # trap 1
        "\udc97",  # trap 2
        "\ufffd\0",
        "x" * (MAX_ID_BYTES + 1),  # trap 4
        "é" * 257,
        "😀" * 129,
        None,
        7,
        b"a",
    ],
)
def test_identifiers_are_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        check_id(value, "agent_id")
    assert error.value.path == "agent_id"
    assert "agent_id" in str(error.value)


@given(any_text | surrogates)
def test_an_identifier_is_storable_or_refused(value: str) -> None:
    try:
        kept = check_id(value, "session_id")
    except InvalidInput:
        return
    assert 1 <= len(kept.encode()) <= MAX_ID_BYTES
    assert "\0" not in kept


# Times


def test_times_become_utc() -> None:  # trap 24
    new_york = datetime(2026, 4, 28, 9, 30, tzinfo=ZoneInfo("America/New_York"))
    kept = check_time(new_york, "since")
    assert kept == new_york
    assert kept.tzinfo is UTC
    assert kept.isoformat() == "2026-04-28T13:30:00+00:00"


def test_the_second_of_two_equal_wall_clock_times_stays_the_second() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=zone) for fold in (0, 1))
    assert check_time(second, "at") - check_time(first, "at") == timedelta(hours=1)


class NoOffset(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> None:
        return None

    def dst(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 4, 28),  # trap 23
        datetime(2026, 4, 28, tzinfo=NoOffset()),
        date(2026, 4, 28),
        "2026-04-28T00:00:00Z",
        0,
        None,
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_times_that_name_no_instant_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        check_time(value, "since")
    assert error.value.path == "since"


def test_subclasses_of_datetime_become_plain() -> None:
    class Stamp(datetime):
        pass

    kept = check_time(Stamp(2026, 4, 28, 1, 2, 3, 4, tzinfo=UTC), "at")
    assert type(kept) is datetime
    assert kept == datetime(2026, 4, 28, 1, 2, 3, 4, tzinfo=UTC)


# Events


def test_an_event_is_cleaned_in_every_field() -> None:
    event = prepare_event(
        NewEvent(
            content="a\0b",
            role="tool",
            event_type="tool_result",
            session_id="s",
            occurred_at=datetime(2026, 4, 28, tzinfo=timezone(timedelta(hours=2))),
            payload={"k\0": ("v",)},
            correlation_id="c",
            idempotency_key="i",
        )
    )
    assert event == NewEvent(
        content="a\ufffdb",
        role="tool",
        event_type="tool_result",
        actor="tool",
        session_id="s",
        occurred_at=datetime(2026, 4, 27, 22, tzinfo=UTC),
        payload={"k\ufffd": ["v"]},
        correlation_id="c",
        idempotency_key="i",
    )
    assert prepare_event(event) == event


@pytest.mark.parametrize("role", ROLES)
def test_the_actor_is_the_role_unless_given(role: Any) -> None:
    assert prepare_event(NewEvent(role=role)).actor == role
    assert prepare_event(NewEvent(role=role, actor="Ann")).actor == "Ann"


def test_a_role_may_be_an_enumeration_and_is_stored_plain() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    event = prepare_event(NewEvent(role=Role.USER))  # type: ignore[arg-type]
    assert type(event.role) is str
    assert type(event.actor) is str


@pytest.mark.parametrize(
    "change",
    [
        {"role": "robot"},
        {"role": None},
        {"role": ["user"]},
        {"content": None},
        {"content": b"bytes"},
        {"event_type": ""},
        {"event_type": None},
        {"actor": ""},
        {"actor": "a\0"},
        {"session_id": "x" * 513},
        {"occurred_at": datetime(2026, 4, 28)},
        {"correlation_id": ""},
        {"idempotency_key": "\ud800"},
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as error:
        prepare_event(replace(NewEvent(content="x"), **change))
    assert error.value.path == next(iter(change))


def test_a_payload_that_does_not_fit_is_refused_by_pointer() -> None:
    with pytest.raises(InvalidInput) as error:
        prepare_event(NewEvent(payload={"a": [math.nan]}))
    assert error.value.path == "payload/a/0"


@pytest.mark.parametrize("letter", ["a", "é", "\0"])
def test_content_is_limited_in_bytes(letter: str) -> None:
    fits = letter * (MAX_CONTENT_BYTES // len(clean_text(letter).encode()))
    assert prepare_event(NewEvent(content=fits)).content == clean_text(fits)
    with pytest.raises(InvalidInput) as error:
        prepare_event(NewEvent(content=fits + letter))
    assert error.value.path == "content"


def test_falsy_payloads_are_kept() -> None:
    falsy: tuple[Any, ...] = (False, 0, "", [], {})
    for payload in falsy:
        assert same(prepare_event(NewEvent(payload=payload)).payload, payload)


# Digests


BODY = prepare_event(
    NewEvent(
        content="hello",
        session_id="s",
        occurred_at=datetime(2026, 4, 28, tzinfo=UTC),
        payload={"a": 1, "b": [2]},
        correlation_id="c",
        idempotency_key="k",
    )
)


def test_a_retry_has_the_same_digest() -> None:  # trap 28
    assert len(body_digest(BODY)) == 16
    zone = ZoneInfo("Asia/Kolkata")
    again = replace(
        BODY,
        idempotency_key="another",
        payload={"b": [2], "a": 1},
        occurred_at=BODY.occurred_at and BODY.occurred_at.astimezone(zone),
    )
    assert body_digest(again) == body_digest(BODY)


def test_the_digest_stays_the_same_from_release_to_release() -> None:
    assert body_digest(BODY).hex() == "d414512b0d88f9db32d2f80ca946ff45"


@pytest.mark.parametrize(
    "change",
    [
        {"content": "hello "},
        {"role": "system"},
        {"event_type": "decision"},
        {"actor": "Ann"},
        {"session_id": "c", "correlation_id": "s"},
        {"session_id": None},
        {"occurred_at": None},
        {"occurred_at": datetime(2026, 4, 28, microsecond=1, tzinfo=UTC)},
        {"payload": None},
        {"payload": {"a": 1, "b": ["2"]}},
        {"payload": {"a": True, "b": [2]}},
        {"payload": {"a": 1.0, "b": [2]}},
        {"payload": json.dumps({"a": 1, "b": [2]})},
        {"correlation_id": None},
    ],
)
def test_another_body_has_another_digest(change: dict[str, Any]) -> None:
    assert body_digest(replace(BODY, **change)) != body_digest(BODY)
