"""How long a state is trusted: marks that follow values, and questions about stale ones."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, NotRequired

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
    RootModel,
    field_serializer,
    field_validator,
)
from typing_extensions import TypeAliasType, TypedDict

from memstore.default_schema import DEFAULT_SCHEMA, ActiveTask, AgentState, ConfirmedFact, Issue
from memstore.documents import get, same
from memstore.errors import InvalidInput, SchemaError
from memstore.freshness import Fresh, carry_marks, confirm, flag, migrate_marks, stale
from memstore.schema import StateSchema

DAY = timedelta(days=1)
NOW = datetime(2026, 4, 28, 12, 0, tzinfo=UTC)
STAMP = NOW.isoformat()
LATER = NOW + DAY
FRESH = Fresh(10 * DAY)

Marks = dict[str, dict[str, str]]


class Entry(BaseModel):
    text: str
    said: AwareDatetime | None = None
    n: int = 0


class Profile(BaseModel):
    name: Annotated[str, FRESH] = ""
    home: Annotated[str | None, FRESH] = None
    likes: Annotated[list[str], FRESH] = Field(default_factory=list)
    prefs: Annotated[dict[str, Any], FRESH] = Field(default_factory=dict)
    entries: Annotated[list[Entry], Fresh(20 * DAY, since="said")] = Field(default_factory=list)
    free: dict[str, Any] = Field(default_factory=dict)


PROFILE = StateSchema("profile", 1, Profile)


def _document(**fields: Any) -> dict[str, Any]:
    return PROFILE.dump(PROFILE.load({"name": "Ada", **fields}))


def _marked(document: Any, now: datetime = NOW) -> Marks:
    return carry_marks(PROFILE, None, {}, document, now)


def _carried(old: Any, marks: Marks, new: Any, now: datetime = LATER) -> Marks:
    return carry_marks(PROFILE, old, marks, new, now)


def _stale(document: Any, marks: Any, now: datetime) -> list[str]:
    return [found.path for found in stale(PROFILE, document, marks, now)]


# What is tracked


def test_a_first_document_marks_each_tracked_value() -> None:
    document = _document(likes=["tea", "jazz"], prefs={"zone": "UTC", "a/b": [1]}, free={"x": 1})
    assert _marked(document) == {
        "/likes/0": {"since": STAMP},
        "/likes/1": {"since": STAMP},
        "/name": {"since": STAMP},
        "/prefs/a~1b": {"since": STAMP},
        "/prefs/zone": {"since": STAMP},
    }


def test_null_claims_nothing() -> None:
    empty, filled = _document(home=None), _document(home="Rome")
    assert "/home" not in _marked(empty)
    marks = _carried(empty, _marked(empty), filled)
    assert marks["/home"] == {"since": LATER.isoformat()}
    assert "/home" not in _carried(filled, marks, empty)


class Plain(TypedDict):
    kept: Annotated[str, FRESH]
    other: str
    more: NotRequired[Annotated[str, FRESH]]


@dataclass
class Point:
    x: Annotated[int, FRESH]
    y: int


class Words(RootModel[Annotated[list[str], FRESH]]):
    pass


class Leaf(BaseModel):
    value: Annotated[int, FRESH]
    other: int = 0


Trusted = TypeAliasType("Trusted", Annotated[str, FRESH])


class Tree(BaseModel):
    leaf: Leaf
    leaves: list[Leaf]
    by_name: dict[str, Annotated[Leaf, FRESH]]
    maybe: Annotated[list[int], FRESH] | None
    either: Leaf | Annotated[str, FRESH]
    pair: tuple[Annotated[int, FRESH], str]
    many: tuple[Annotated[int, FRESH], ...]
    typed: Plain
    point: Point
    words: Words
    by_number: Annotated[dict[int, str], FRESH]
    tags: Annotated[set[str], FRESH]
    nested: Annotated[list[list[int]], FRESH]
    inner: list[Annotated[list[int], FRESH]]
    alias: Trusted
    choice: Annotated[Literal["yes", "no"], FRESH] | int
    camel: Annotated[int, FRESH] = Field(alias="camelCase")
    written: Annotated[list[int], FRESH]
    children: list[Tree] = Field(default_factory=list)
    hidden: Annotated[int, FRESH] = Field(default=1, exclude=True)

    @field_serializer("written")
    def _write(self, written: list[int]) -> str:
        return ",".join(map(str, written))

    @field_validator("written", mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        return written.split(",") if isinstance(written, str) else written


def test_what_is_tracked_at_any_depth() -> None:
    raw: dict[str, Any] = {
        "leaf": {"value": 1},
        "leaves": [{"value": 1}, {"value": 2}],
        "by_name": {"a": {"value": 1}},
        "maybe": [1],
        "either": "text",
        "pair": [1, "x"],
        "many": [1, 2],
        "typed": {"kept": "a", "other": "b", "more": "c"},
        "choice": "yes",
        "point": {"x": 1, "y": 2},
        "words": ["a"],
        "by_number": {"7": "a"},
        "tags": ["b", "a"],
        "nested": [[1, 2]],
        "inner": [[3]],
        "alias": "x",
        "camelCase": 1,
        "written": "1,2",
    }
    paths = {
        *("/leaf/value", "/leaves/0/value", "/leaves/1/value", "/by_name/a", "/by_name/a/value"),
        *("/maybe/0", "/either", "/pair/0", "/many/0", "/many/1", "/typed/kept", "/point/x"),
        *("/words/0", "/by_number/7", "/tags/0", "/tags/1", "/nested/0", "/inner/0/0", "/alias"),
        *("/camelCase", "/typed/more", "/choice"),
    }
    value = Tree.model_validate({**raw, "children": [raw]})
    schema = StateSchema("tree", 1, Tree, initial=value)
    marks = carry_marks(schema, None, {}, schema.dump(value), NOW)
    assert marks.keys() == paths | {"/children/0" + path for path in paths}


# Carrying marks over


def test_unchanged_values_keep_their_marks_and_changed_ones_start_anew() -> None:
    old = _document(home="Rome", prefs={"a": 1, "b": {"x": [1]}, "c": 3})
    new = _document(home="Oslo", prefs={"a": 1.0, "b": {"x": [2]}, "d": 4})
    assert _carried(old, _marked(old), new) == {
        "/home": {"since": LATER.isoformat()},
        "/name": {"since": STAMP},
        "/prefs/a": {"since": STAMP},
        "/prefs/b": {"since": LATER.isoformat()},
        "/prefs/d": {"since": LATER.isoformat()},
    }


def test_true_is_another_value_than_one() -> None:
    old, new = _document(prefs={"a": 1}), _document(prefs={"a": True})
    assert _carried(old, _marked(old), new)["/prefs/a"] == {"since": LATER.isoformat()}


def test_marks_follow_entries_that_moved() -> None:
    old = _document(likes=["a", "b", "c"])
    marks: Marks = {f"/likes/{n}": {"since": (NOW - n * DAY).isoformat()} for n in range(3)}
    new = _document(likes=["x", "c", "a"])
    carried = _carried(old, marks, new)
    assert carried["/likes/0"] == {"since": LATER.isoformat()}
    assert carried["/likes/1"] == marks["/likes/2"]
    assert carried["/likes/2"] == marks["/likes/0"]
    assert "/likes/3" not in carried


def test_equal_entries_are_matched_one_to_one() -> None:
    old = _document(likes=["a", "b", "a"])
    marks: Marks = {f"/likes/{n}": {"since": (NOW - n * DAY).isoformat()} for n in range(3)}
    carried = _carried(old, marks, _document(likes=["b", "a", "a", "a"]))
    assert carried["/likes/0"] == marks["/likes/1"]
    assert carried["/likes/1"] == marks["/likes/0"]
    assert carried["/likes/2"] == marks["/likes/2"]
    assert carried["/likes/3"] == {"since": LATER.isoformat()}


def test_a_flag_stays_until_the_value_changes() -> None:
    old = _document(home="Rome", free={"a": {"b": 1}}, entries=[{"text": "x"}, {"text": "y"}])
    marks = flag(old, _marked(old), "/home", "moved?", NOW)
    marks = flag(old, marks, "/free/a/b", "odd", NOW)
    marks = flag(old, marks, "/entries/1/text", "typo?", NOW)
    moved = _document(home="Rome", free={"a": {"b": 1, "c": 2}}, entries=[{"text": "y"}])
    carried = _carried(old, marks, moved)
    assert carried["/home"]["reason"] == "moved?"
    assert carried["/free/a/b"]["reason"] == "odd"
    assert carried["/entries/0/text"]["reason"] == "typo?"
    changed = _document(home="Oslo", free={"a": {"b": 2}}, entries=[{"text": "z"}])
    carried = _carried(moved, carried, changed)
    assert carried == {
        "/entries/0": {"since": LATER.isoformat()},
        "/home": {"since": LATER.isoformat()},
        "/name": {"since": STAMP},
    }


def test_a_flag_inside_an_entry_survives_a_change_beside_it() -> None:
    entries = [{"text": "x", "said": STAMP, "n": n} for n in range(3)]
    old = _document(entries=entries)
    marks = flag(old, _marked(old), "/entries/2/text", "typo?", NOW)
    new = _document(entries=[{**entries[2], "said": None}, {"text": "new"}])
    assert _carried(old, marks, new)["/entries/0/text"]["reason"] == "typo?"


def test_a_value_that_goes_and_comes_back_is_new() -> None:
    here, gone = _document(prefs={"a": 1}), _document()
    marks = _carried(here, _marked(here), gone, NOW + DAY)
    assert "/prefs/a" not in marks
    assert _carried(gone, marks, here, NOW + 2 * DAY)["/prefs/a"]["since"] != STAMP


def test_values_that_were_not_tracked_before_date_from_the_old_version() -> None:
    old, new = _document(home="Rome", prefs={"a": 1}), _document(home="Rome", prefs={"a": 2})
    marks = carry_marks(PROFILE, old, {}, new, LATER, old_saved_at=NOW - 50 * DAY)
    assert marks["/home"] == {"since": (NOW - 50 * DAY).isoformat()}
    assert marks["/prefs/a"] == {"since": LATER.isoformat()}
    older_shape = {"name": 3, "home": "Rome"}
    marks = carry_marks(PROFILE, older_shape, {}, new, LATER, old_saved_at=NOW - 50 * DAY)
    assert marks["/home"] == {"since": LATER.isoformat()}


def test_marks_follow_what_a_migration_renamed() -> None:
    stored = {
        "called": "Ada",
        "preferences": {"zone": "UTC", "lang": "it"},
        "notes": {"a": {"b": 1}, "c": 2},
    }
    marks: Marks = {
        "/preferences/zone": {"since": (NOW - 5 * DAY).isoformat()},
        "/preferences/lang": {"since": (NOW - 6 * DAY).isoformat()},
        "/notes/a/b": {"since": STAMP, "flagged": STAMP, "reason": "odd"},
        "/notes/c": {"since": STAMP, "flagged": STAMP, "reason": "odd"},
    }
    migrated = _document(prefs={"lang": "it", "zone": "UTC"}, free={"a": {"b": 1}, "c": 3})
    assert migrate_marks(PROFILE, stored, marks, migrated, LATER) == {
        "/free/a/b": marks["/notes/a/b"],
        "/name": {"since": LATER.isoformat()},
        "/prefs/lang": marks["/preferences/lang"],
        "/prefs/zone": marks["/preferences/zone"],
    }


def test_outside_a_migration_a_new_key_is_a_new_value() -> None:
    old, new = _document(prefs={"likes cats": "yes"}), _document(prefs={"likes dogs": "yes"})
    assert _carried(old, _marked(old), new)["/prefs/likes dogs"]["since"] == LATER.isoformat()


ODD_MARKS: list[Any] = [
    None,
    3,
    [],
    {},
    {"since": None},
    {"since": 7},
    {"since": "yesterday"},
    {"since": "2026-01-01T00:00:00"},
    {"since": "0001-01-01T00:00:00+14:00"},
    {"since": STAMP, "flagged": "x", "reason": 3},
    {"since": STAMP, "flagged": STAMP, "reason": None},
    {"since": STAMP, "confirmed": []},
]


@pytest.mark.parametrize("mark", ODD_MARKS)
@pytest.mark.parametrize("path", ["/home", "home", "/~", "/x/y/z", "/likes/-1", "/likes/01", ""])
def test_odd_marks_harm_nothing(mark: Any, path: str) -> None:
    document = _document(home="Rome", likes=["a"])
    marks = {"/name": {"since": STAMP}, path: mark}
    stale(PROFILE, document, marks, NOW)
    carried = carry_marks(PROFILE, document, marks, document, NOW)
    assert carried["/name"] == {"since": STAMP}
    assert confirm(PROFILE, document, marks, "/name", NOW)["/name"]["confirmed"] == STAMP
    flag(document, marks, "/name", "why", NOW)


NAMES = st.sampled_from(["a", "b", "c", "d/e", ""])
PLAIN = st.integers(0, 3) | st.booleans() | st.sampled_from(["x", "y"])
PROFILES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["Ada", "Bob"]),
        "home": st.none() | st.sampled_from(["Rome", "Oslo"]),
        "likes": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6),
        "prefs": st.dictionaries(NAMES, PLAIN | st.lists(PLAIN, max_size=2), max_size=4),
        "entries": st.lists(
            st.fixed_dictionaries(
                {"text": st.sampled_from(["s", "t", "u"]), "n": st.integers(0, 2)}
            ),
            max_size=5,
        ),
        "free": st.dictionaries(NAMES, PLAIN, max_size=3),
    }
)


@given(PROFILES, PROFILES, st.randoms(use_true_random=False))
def test_marks_belong_to_values(first: Any, second: Any, random: Any) -> None:
    old, new = _document(**first), _document(**second)
    marks = _marked(old)
    for number, path in enumerate(marks):
        marks[path]["since"] = (NOW - number * DAY).isoformat()
    for path in random.sample(sorted(marks), min(2, len(marks))):
        marks = flag(old, marks, path, f"doubt about {path}", NOW)
    before = json.dumps([old, marks, new])
    carried = _carried(old, marks, new)
    assert json.dumps([old, marks, new]) == before
    assert list(carried) == sorted(carried)
    assert carried.keys() == _marked(new).keys()
    fresh = {"since": LATER.isoformat()}
    for path, mark in carried.items():
        if mark != fresh:  # carried from an equal value of the same field
            origins = [p for p, other in marks.items() if other == mark]
            assert any(same(get(old, p), get(new, path)) for p in origins)
    for field in ("likes", "entries"):  # as many carried as there are equal entries
        for entry in new[field]:
            olds = sum(same(e, entry) for e in old[field])
            news = [i for i, e in enumerate(new[field]) if same(e, entry)]
            kept = sum(carried[f"/{field}/{i}"] != fresh for i in news)
            assert kept == min(olds, len(news))


@given(PROFILES, st.randoms(use_true_random=False))
def test_a_shuffled_list_keeps_every_mark(profile: Any, random: Any) -> None:
    old = _document(**profile)
    marks = _marked(old)
    for number, path in enumerate(marks):
        marks[path]["since"] = (NOW - number * DAY).isoformat()
    new = deepcopy(old)
    random.shuffle(new["likes"])
    random.shuffle(new["entries"])
    carried = _carried(old, marks, new)
    assert sorted(map(json.dumps, carried.values())) == sorted(map(json.dumps, marks.values()))


@given(PROFILES)
def test_an_unchanged_document_keeps_its_marks(profile: Any) -> None:
    document = _document(**profile)
    marks = _marked(document)
    assert _carried(document, marks, document) == marks


# Staleness


def test_a_value_is_stale_once_its_time_is_over() -> None:
    document = _document(home="Rome")
    marks = _marked(document)
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
    document = _document(entries=[{"text": "old", "said": said.isoformat()}, {"text": "undated"}])
    (found,) = stale(PROFILE, document, _marked(document), NOW)
    assert (found.path, found.since, found.age) == ("/entries/0", said, 30 * DAY)


def test_an_entry_dated_in_the_future_counts_from_when_it_was_saved() -> None:
    document = _document(entries=[{"text": "x", "said": "2099-01-01T00:00:00Z"}])
    assert "/entries/0" not in _stale(document, _marked(document), NOW + 19 * DAY)
    assert "/entries/0" in _stale(document, _marked(document), NOW + 20 * DAY)


def test_a_later_confirmation_overrides_an_entrys_own_date() -> None:
    document = _document(entries=[{"text": "x", "said": (NOW - 90 * DAY).isoformat()}])
    marks = _marked(document)
    assert _stale(document, marks, NOW) == ["/entries/0"]
    marks = confirm(PROFILE, document, marks, "/entries/0", NOW)
    assert _stale(document, marks, NOW) == []
    (found,) = [
        s for s in stale(PROFILE, document, marks, NOW + 20 * DAY) if s.path == "/entries/0"
    ]
    assert found.since == NOW


def test_what_has_no_date_at_all_is_not_called_stale() -> None:
    document = _document(home="Rome")
    assert stale(PROFILE, document, {}, NOW + 9_999 * DAY) == []
    found = stale(PROFILE, document, {}, NOW, saved_at=NOW - 10 * DAY)
    assert [(s.path, s.since) for s in found] == [
        ("/home", NOW - 10 * DAY),
        ("/name", NOW - 10 * DAY),
    ]


def test_flagged_comes_first_then_the_oldest() -> None:
    document = _document(home="Rome", likes=["a", "b"], free={"x": 1})
    marks: Marks = {
        "/home": {"since": (NOW - 20 * DAY).isoformat()},
        "/likes/0": {"since": (NOW - 30 * DAY).isoformat()},
        "/likes/1": {"since": (NOW - 20 * DAY).isoformat()},
    }
    marks = flag(document, marks, "/free/x", "odd", NOW)
    assert _stale(document, marks, NOW) == ["/free/x", "/likes/0", "/home", "/likes/1"]
    assert _stale(document, dict(reversed(marks.items())), NOW) == _stale(document, marks, NOW)


def test_entries_of_one_age_come_in_the_order_of_their_list() -> None:
    document = _document(likes=list("abcdefghijkl"))
    found = _stale(document, _marked(document), NOW + 10 * DAY)
    assert found == [f"/likes/{n}" for n in range(12)] + ["/name"]


def test_stale_takes_the_loaded_value_instead_of_validating_again() -> None:
    document = _document(home="Rome")
    marks, value = _marked(document), PROFILE.load(document)
    then = NOW + 99 * DAY
    assert stale(PROFILE, document, marks, then, value=value) == _all(document, marks, then)
    with pytest.raises(SchemaError):
        stale(PROFILE, {"name": 3}, {}, NOW)


def _all(document: Any, marks: Marks, now: datetime) -> Any:
    return stale(PROFILE, document, marks, now)


@given(PROFILES, st.integers(0, 40))
def test_what_is_stale_is_what_is_old(profile: Any, days: int) -> None:
    document = _document(**profile)
    marks = _marked(document)
    found = _stale(document, marks, NOW + days * DAY)
    expected = [p for p in marks if days >= (20 if p.startswith("/entries") else 10)]
    assert sorted(found) == sorted(expected)
    for path in found:
        marks = confirm(PROFILE, document, marks, path, NOW + days * DAY)
    assert _stale(document, marks, NOW + days * DAY) == []


# Confirming and flagging


def test_confirming_starts_the_time_again_and_lifts_a_flag() -> None:
    document = _document(home="Rome")
    marks = flag(document, _marked(document), "/home", " moved? ", LATER)
    (found,) = stale(PROFILE, document, marks, LATER)
    assert (found.path, found.reason, found.note) == ("/home", "flagged", "moved?")
    assert (found.since, found.age) == (NOW, DAY)
    confirmed = confirm(PROFILE, document, marks, "/home", NOW + 5 * DAY)
    assert confirmed["/home"] == {"since": STAMP, "confirmed": (NOW + 5 * DAY).isoformat()}
    assert "/home" not in _stale(document, confirmed, NOW + 14 * DAY)
    assert "/home" in _stale(document, confirmed, NOW + 15 * DAY)
    assert marks["/home"]["flagged"] == LATER.isoformat()


def test_confirming_a_container_confirms_what_is_in_it() -> None:
    document = _document(likes=["a", "b"], home="Rome", free={"x": {"y": 1}})
    marks = flag(document, _marked(document), "/likes/1", "odd", NOW)
    marks = flag(document, marks, "/free/x/y", "odd", NOW)
    later = NOW + 30 * DAY
    marks = confirm(PROFILE, document, marks, "/likes", later)
    assert _stale(document, marks, later) == ["/free/x/y", "/home", "/name"]
    assert _stale(document, confirm(PROFILE, document, marks, "", later), later) == []


def test_a_path_is_not_a_prefix() -> None:  # trap 21
    document = _document(prefs={"zone": 1, "zone2": 2, "zone/3": 3})
    later = NOW + 30 * DAY
    marks = confirm(PROFILE, document, _marked(document), "/prefs/zone", later)
    assert _stale(document, marks, later) == ["/name", "/prefs/zone2", "/prefs/zone~13"]


def test_confirmations_are_carried_with_their_values() -> None:
    document = _document(likes=["a", "b"], free={"x": 1})
    marks = confirm(PROFILE, document, _marked(document), "/likes/1", LATER)
    marks = confirm(PROFILE, document, marks, "/free/x", LATER)
    carried = _carried(document, marks, _document(likes=["b"], free={"x": 1}), LATER + DAY)
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
    document = _document(home="Rome", likes=["a", "b"])
    with pytest.raises(InvalidInput):
        confirm(PROFILE, document, {}, path, NOW)
    with pytest.raises(InvalidInput):
        flag(document, {}, path, "why", NOW)


@pytest.mark.parametrize("reason", ["", "  ", "\n", None, 3, "x" * 1_001])
def test_a_flag_needs_a_reason(reason: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        flag(_document(), {}, "/name", reason, NOW)
    assert caught.value.path == "reason"


def test_a_reason_is_cleaned() -> None:  # traps 1, 2
    marks = flag(_document(), {}, "/name", "a\0b\udc97", NOW)
    assert marks["/name"]["reason"] == "a\ufffdb\ufffd"


def test_nothing_given_is_altered() -> None:
    document = _document(home="Rome", prefs={"a": [1]})
    marks = _marked(document)
    before = json.dumps([document, marks])
    flagged = flag(document, marks, "/home", "x", NOW)
    confirmed = confirm(PROFILE, document, flagged, "", NOW)
    for result in (flagged, confirmed, _carried(document, marks, document)):
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
    document = _document(prefs={"p": value})
    found = stale(PROFILE, document, _marked(document), NOW + 10 * DAY)
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
    document = _document()
    (found,) = stale(PROFILE, document, _marked(document, since), now)
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
    document = _document(free={"last_seen": "Oslo", "list": [1, 2]})
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
    document = _document()
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
        document = _document(entries=[{"text": "x", "said": there.isoformat()}])
        marks = _marked(document, there)
        assert marks["/name"] == {"since": STAMP}
        found = stale(PROFILE, document, marks, (NOW + 20 * DAY).astimezone())
        assert [s.since for s in found] == [NOW, NOW]
        assert all("28 April" in s.question for s in found if s.path == "/name")
        assert all(s.since.tzinfo is UTC for s in found)
    finally:
        monkeypatch.undo()
        time.tzset()
