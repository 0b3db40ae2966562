"""How long a state is trusted: what is stale, confirmations, flags, and the questions to ask."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    Field,
)

from memstore.default_schema import DEFAULT_SCHEMA, ActiveTask, AgentState, ConfirmedFact, Issue
from memstore.errors import InvalidInput, SchemaError
from memstore.freshness import Fresh, carry_marks, confirm, flag, migrate_marks, stale
from memstore.schema import StateSchema
from tests.profiles import (
    DAY,
    LATER,
    NOW,
    PROFILE,
    PROFILES,
    STAMP,
    Entry,
    Marks,
    carry,
    marked,
    written,
)


def _stale(document: Any, marks: Any, now: datetime) -> list[str]:
    return [found.path for found in stale(PROFILE, document, marks, now)]


# Staleness


def test_a_value_is_stale_once_its_time_is_over() -> None:
    document = written(home="Rome")
    marks = marked(document)
    assert stale(PROFILE, document, marks, NOW + 10 * DAY - timedelta(seconds=1)) == []
    found = stale(PROFILE, document, marks, NOW + 10 * DAY)
    assert [(s.path, s.value, s.reason, s.note) for s in found] == [
        ("/home", "Rome", "expired", None),
        ("/name", "Ada", "expired", None),
    ]
    assert found[0].since == NOW
    assert found[0].age == 10 * DAY
    assert found[0].question == "You said on 28 April that Rome; is that still so?"


def test_an_entrys_own_date_counts() -> None:
    said = NOW - 30 * DAY
    document = written(entries=[{"text": "old", "said": said.isoformat()}, {"text": "undated"}])
    (found,) = stale(PROFILE, document, marked(document), NOW)
    assert (found.path, found.since, found.age) == ("/entries/0", said, 30 * DAY)


def test_an_entry_dated_in_the_future_counts_from_when_it_was_saved() -> None:
    document = written(entries=[{"text": "x", "said": "2099-01-01T00:00:00Z"}])
    assert "/entries/0" not in _stale(document, marked(document), NOW + 19 * DAY)
    assert "/entries/0" in _stale(document, marked(document), NOW + 20 * DAY)


def test_a_later_confirmation_overrides_an_entrys_own_date() -> None:
    document = written(entries=[{"text": "x", "said": (NOW - 90 * DAY).isoformat()}])
    marks = marked(document)
    assert _stale(document, marks, NOW) == ["/entries/0"]
    marks = confirm(PROFILE, document, marks, "/entries/0", NOW)
    assert _stale(document, marks, NOW) == []
    (found,) = [
        s for s in stale(PROFILE, document, marks, NOW + 20 * DAY) if s.path == "/entries/0"
    ]
    assert found.since == NOW


def test_what_has_no_date_at_all_is_not_called_stale() -> None:
    document = written(home="Rome")
    assert stale(PROFILE, document, {}, NOW + 9_999 * DAY) == []
    found = stale(PROFILE, document, {}, NOW, saved_at=NOW - 10 * DAY)
    assert [(s.path, s.since) for s in found] == [
        ("/home", NOW - 10 * DAY),
        ("/name", NOW - 10 * DAY),
    ]


def test_flagged_comes_first_then_the_oldest() -> None:
    document = written(home="Rome", likes=["a", "b"], free={"x": 1})
    marks: Marks = {
        "/home": {"since": (NOW - 20 * DAY).isoformat()},
        "/likes/0": {"since": (NOW - 30 * DAY).isoformat()},
        "/likes/1": {"since": (NOW - 20 * DAY).isoformat()},
    }
    marks = flag(document, marks, "/free/x", "odd", NOW)
    assert _stale(document, marks, NOW) == ["/free/x", "/likes/0", "/home", "/likes/1"]
    assert _stale(document, dict(reversed(marks.items())), NOW) == _stale(document, marks, NOW)


def test_entries_of_one_age_come_in_the_order_of_their_list() -> None:
    document = written(likes=list("abcdefghijkl"))
    found = _stale(document, marked(document), NOW + 10 * DAY)
    assert found == [f"/likes/{n}" for n in range(12)] + ["/name"]


def test_stale_takes_the_loaded_value_instead_of_validating_again() -> None:
    document = written(home="Rome")
    marks, value = marked(document), PROFILE.load(document)
    then = NOW + 99 * DAY
    assert stale(PROFILE, document, marks, then, value=value) == _all(document, marks, then)
    with pytest.raises(SchemaError):
        stale(PROFILE, {"name": 3}, {}, NOW)


def _all(document: Any, marks: Marks, now: datetime) -> Any:
    return stale(PROFILE, document, marks, now)


@given(PROFILES, st.integers(0, 40))
def test_what_is_stale_is_what_is_old(profile: Any, days: int) -> None:
    document = written(**profile)
    marks = marked(document)
    found = _stale(document, marks, NOW + days * DAY)
    expected = [p for p in marks if days >= (20 if p.startswith("/entries") else 10)]
    assert sorted(found) == sorted(expected)
    for path in found:
        marks = confirm(PROFILE, document, marks, path, NOW + days * DAY)
    assert _stale(document, marks, NOW + days * DAY) == []


# Confirming and flagging


def test_confirming_starts_the_time_again_and_lifts_a_flag() -> None:
    document = written(home="Rome")
    marks = flag(document, marked(document), "/home", " moved? ", LATER)
    (found,) = stale(PROFILE, document, marks, LATER)
    assert (found.path, found.reason, found.note) == ("/home", "flagged", "moved?")
    assert (found.since, found.age) == (NOW, DAY)
    confirmed = confirm(PROFILE, document, marks, "/home", NOW + 5 * DAY)
    assert confirmed["/home"] == {"since": STAMP, "confirmed": (NOW + 5 * DAY).isoformat()}
    assert "/home" not in _stale(document, confirmed, NOW + 14 * DAY)
    assert "/home" in _stale(document, confirmed, NOW + 15 * DAY)
    assert marks["/home"]["flagged"] == LATER.isoformat()


def test_confirming_a_container_confirms_what_is_in_it() -> None:
    document = written(likes=["a", "b"], home="Rome", free={"x": {"y": 1}})
    marks = flag(document, marked(document), "/likes/1", "odd", NOW)
    marks = flag(document, marks, "/free/x/y", "odd", NOW)
    later = NOW + 30 * DAY
    marks = confirm(PROFILE, document, marks, "/likes", later)
    assert _stale(document, marks, later) == ["/free/x/y", "/home", "/name"]
    assert _stale(document, confirm(PROFILE, document, marks, "", later), later) == []


def test_a_path_is_not_a_prefix() -> None:  # trap 21
    document = written(prefs={"zone": 1, "zone2": 2, "zone/3": 3})
    later = NOW + 30 * DAY
    marks = confirm(PROFILE, document, marked(document), "/prefs/zone", later)
    assert _stale(document, marks, later) == ["/name", "/prefs/zone2", "/prefs/zone~13"]


def test_confirmations_are_carried_with_their_values() -> None:
    document = written(likes=["a", "b"], free={"x": 1})
    marks = confirm(PROFILE, document, marked(document), "/likes/1", LATER)
    marks = confirm(PROFILE, document, marks, "/free/x", LATER)
    carried = carry(document, marks, written(likes=["b"], free={"x": 1}), LATER + DAY)
    assert carried["/likes/0"]["confirmed"] == LATER.isoformat()
    assert carried["/free/x"]["confirmed"] == LATER.isoformat()


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/likes/-",
        "/likes/-1",
        "/likes/00",
        "/likes/2",
        "home",
        "/home/0",
        "/~",
        None,
        3,
    ],
)
def test_paths_that_lead_nowhere_are_refused(path: Any) -> None:
    document = written(home="Rome", likes=["a", "b"])
    with pytest.raises(InvalidInput):
        confirm(PROFILE, document, {}, path, NOW)
    with pytest.raises(InvalidInput):
        flag(document, {}, path, "why", NOW)


@pytest.mark.parametrize("reason", ["", "  ", "\n", None, 3, "x" * 1_001])
def test_a_flag_needs_a_reason(reason: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        flag(written(), {}, "/name", reason, NOW)
    assert caught.value.path == "reason"


def test_a_reason_is_cleaned() -> None:  # traps 1, 2
    marks = flag(written(), {}, "/name", "a\0b\udc97", NOW)
    assert marks["/name"]["reason"] == "a\ufffdb\ufffd"


def test_nothing_given_is_altered() -> None:
    document = written(home="Rome", prefs={"a": [1]})
    marks = marked(document)
    before = json.dumps([document, marks])
    flagged = flag(document, marks, "/home", "x", NOW)
    confirmed = confirm(PROFILE, document, flagged, "", NOW)
    for result in (flagged, confirmed, carry(document, marks, document)):
        for mark in result.values():
            mark["since"] = "spoiled"
    for found in stale(PROFILE, document, marks, NOW + 99 * DAY):
        if isinstance(found.value, list):
            found.value.append(2)
    assert json.dumps([document, marks]) == before


# Questions


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Rome.", "Rome"),
        ("a\n\n b\tc", "a b c"),
        ("...", "..."),
        (True, "true"),
        (0, "0"),
        ([1, "é"], '[1,"é"]'),
        ({"a": {"b": None}}, '{"a":{"b":null}}'),
        ("{date} {value} {0} %s {", "{date} {value} {0} %s {"),
        ("", ""),
        ("x" * 500, "x" * 159 + "…"),
    ],
)
def test_values_in_questions(value: Any, shown: str) -> None:
    document = written(prefs={"p": value})
    found = stale(PROFILE, document, marked(document), NOW + 10 * DAY)
    questions = {s.path: s.question for s in found}
    assert questions["/prefs/p"] == f"You said on 28 April that {shown}; is that still so?"


@pytest.mark.parametrize(
    ("since", "now", "date"),
    [
        (NOW, NOW + 30 * DAY, "28 April"),
        (NOW, datetime(2027, 1, 1, tzinfo=UTC), "28 April 2026"),
        (datetime(2025, 12, 31, 23, 59, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC), None),
        (datetime(2026, 1, 1, 1, 0, tzinfo=timezone(3 * timedelta(hours=1))), NOW, None),
    ],
)
def test_dates_in_questions(since: datetime, now: datetime, date: str | None) -> None:
    document = written()
    (found,) = stale(PROFILE, document, marked(document, since), now)
    assert f"on {date or '31 December 2025'} that" in found.question


def test_a_question_may_name_members_of_the_entry() -> None:
    class Facts(BaseModel):
        facts: Annotated[
            list[Entry], Fresh(DAY, question="{text} ({n}, {name}, {missing}, {said.year}, {})?")
        ] = Field(default_factory=list)

    schema = StateSchema("facts", 1, Facts)
    document = schema.dump(Facts(facts=[Entry(text="It rains", n=3)]))
    marks = carry_marks(schema, None, {}, document, NOW)
    (found,) = stale(schema, document, marks, NOW + DAY)
    assert found.question == "It rains (3, facts, {missing}, {said.year}, {})?"


def test_a_flag_on_what_is_not_tracked_asks_too() -> None:
    document = written(free={"last_seen": "Oslo", "list": [1, 2]})
    marks = flag(document, {}, "/free/last_seen", "odd", NOW)
    marks = flag(document, marks, "/free/list/1", "odd", NOW)
    marks = flag(document, marks, "", "all odd", NOW)
    found = {s.path: s.question for s in stale(PROFILE, document, marks, NOW)}
    assert found["/free/last_seen"] == "On 28 April, last seen was: Oslo; is that still so?"
    assert found["/free/list/1"] == "On 28 April, list was: 2; is that still so?"
    assert found[""].startswith("On 28 April, the state was: {")


def test_the_default_schema_asks_about_each_part() -> None:
    value = AgentState(
        user_preferences={"timezone": "America/New_York"},
        confirmed_facts=[ConfirmedFact(statement="The budget is 20k.", confirmed_at=NOW)],
        active_task=ActiveTask(description="compare stores"),
        unresolved_issues=[Issue(description="which index?", opened_at=NOW)],
    )
    document = DEFAULT_SCHEMA.dump(value)
    marks = carry_marks(DEFAULT_SCHEMA, None, {}, document, NOW)
    assert stale(DEFAULT_SCHEMA, document, marks, NOW + 29 * DAY) == []
    found = stale(DEFAULT_SCHEMA, document, marks, NOW + 180 * DAY)
    assert {s.path: s.question for s in found} == {
        "/active_task": "On 28 April we were working on this: compare stores; "
        "is that still the task?",
        "/confirmed_facts/0": "You said on 28 April that The budget is 20k; is that still so?",
        "/unresolved_issues/0": "On 28 April this was still open: which index?; "
        "is it still unresolved?",
        "/user_preferences/timezone": "On 28 April you gave your preference for timezone as "
        "America/New_York; is that still so?",
    }


# Time


@pytest.mark.parametrize("now", [datetime(2026, 1, 1), None, "2026-01-01", 7])
def test_times_are_aware(now: Any) -> None:  # trap 23
    document = written()
    before: Any = now or 0
    for call in (
        lambda: carry_marks(PROFILE, None, {}, document, now),
        lambda: carry_marks(PROFILE, document, {}, document, NOW, old_saved_at=before),
        lambda: stale(PROFILE, document, {}, now),
        lambda: stale(PROFILE, document, {}, NOW, saved_at=before),
        lambda: migrate_marks(PROFILE, {}, {}, document, now),
        lambda: confirm(PROFILE, document, {}, "/name", now),
        lambda: flag(document, {}, "/name", "x", now),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_the_machines_time_zone_changes_nothing(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # traps 23, 24
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        there = NOW.astimezone(timezone(timedelta(hours=-11)))
        document = written(entries=[{"text": "x", "said": there.isoformat()}])
        marks = marked(document, there)
        assert marks["/name"] == {"since": STAMP}
        found = stale(PROFILE, document, marks, (NOW + 20 * DAY).astimezone())
        assert [s.since for s in found] == [NOW, NOW]
        assert all("28 April" in s.question for s in found if s.path == "/name")
        assert all(s.since.tzinfo is UTC for s in found)
    finally:
        monkeypatch.undo()
        time.tzset()
