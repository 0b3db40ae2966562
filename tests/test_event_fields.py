"""Identifiers, times and events: kept exactly, mended or refused by name."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from memstore.errors import InvalidInput
from memstore.text import (
    MAX_CONTENT_BYTES,
    MAX_ID_BYTES,
    body_digest,
    check_id,
    check_time,
    clean_text,
    prepare_event,
)
from memstore.types import ROLES, NewEvent
from tests.anything import any_text, same, surrogates

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
