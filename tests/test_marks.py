"""Marks on values: which are tracked, and where they go when a document changes."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    Field,
    RootModel,
    field_serializer,
    field_validator,
)
from typing_extensions import TypeAliasType, TypedDict

from memstore.documents import get, same
from memstore.freshness import carry_marks, confirm, flag, migrate_marks, stale
from memstore.schema import StateSchema
from tests.profiles import (
    DAY,
    FRESH,
    LATER,
    NOW,
    PROFILE,
    PROFILES,
    STAMP,
    Marks,
    carry,
    marked,
    written,
)

# What is tracked


def test_a_first_document_marks_each_tracked_value() -> None:
    document = written(likes=["tea", "jazz"], prefs={"zone": "UTC", "a/b": [1]}, free={"x": 1})
    assert marked(document) == {
        "/likes/0": {"since": STAMP},
        "/likes/1": {"since": STAMP},
        "/name": {"since": STAMP},
        "/prefs/a~1b": {"since": STAMP},
        "/prefs/zone": {"since": STAMP},
    }


def test_null_claims_nothing() -> None:
    empty, filled = written(home=None), written(home="Rome")
    assert "/home" not in marked(empty)
    marks = carry(empty, marked(empty), filled)
    assert marks["/home"] == {"since": LATER.isoformat()}
    assert "/home" not in carry(filled, marks, empty)


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
    old = written(home="Rome", prefs={"a": 1, "b": {"x": [1]}, "c": 3})
    new = written(home="Oslo", prefs={"a": 1.0, "b": {"x": [2]}, "d": 4})
    assert carry(old, marked(old), new) == {
        "/home": {"since": LATER.isoformat()},
        "/name": {"since": STAMP},
        "/prefs/a": {"since": STAMP},
        "/prefs/b": {"since": LATER.isoformat()},
        "/prefs/d": {"since": LATER.isoformat()},
    }


def test_true_is_another_value_than_one() -> None:
    old, new = written(prefs={"a": 1}), written(prefs={"a": True})
    assert carry(old, marked(old), new)["/prefs/a"] == {"since": LATER.isoformat()}


def test_marks_follow_entries_that_moved() -> None:
    old = written(likes=["a", "b", "c"])
    marks: Marks = {f"/likes/{n}": {"since": (NOW - n * DAY).isoformat()} for n in range(3)}
    new = written(likes=["x", "c", "a"])
    carried = carry(old, marks, new)
    assert carried["/likes/0"] == {"since": LATER.isoformat()}
    assert carried["/likes/1"] == marks["/likes/2"]
    assert carried["/likes/2"] == marks["/likes/0"]
    assert "/likes/3" not in carried


def test_equal_entries_are_matched_one_to_one() -> None:
    old = written(likes=["a", "b", "a"])
    marks: Marks = {f"/likes/{n}": {"since": (NOW - n * DAY).isoformat()} for n in range(3)}
    carried = carry(old, marks, written(likes=["b", "a", "a", "a"]))
    assert carried["/likes/0"] == marks["/likes/1"]
    assert carried["/likes/1"] == marks["/likes/0"]
    assert carried["/likes/2"] == marks["/likes/2"]
    assert carried["/likes/3"] == {"since": LATER.isoformat()}


def test_a_flag_stays_until_the_value_changes() -> None:
    old = written(home="Rome", free={"a": {"b": 1}}, entries=[{"text": "x"}, {"text": "y"}])
    marks = flag(old, marked(old), "/home", "moved?", NOW)
    marks = flag(old, marks, "/free/a/b", "odd", NOW)
    marks = flag(old, marks, "/entries/1/text", "typo?", NOW)
    moved = written(home="Rome", free={"a": {"b": 1, "c": 2}}, entries=[{"text": "y"}])
    carried = carry(old, marks, moved)
    assert carried["/home"]["reason"] == "moved?"
    assert carried["/free/a/b"]["reason"] == "odd"
    assert carried["/entries/0/text"]["reason"] == "typo?"
    changed = written(home="Oslo", free={"a": {"b": 2}}, entries=[{"text": "z"}])
    carried = carry(moved, carried, changed)
    assert carried == {
        "/entries/0": {"since": LATER.isoformat()},
        "/home": {"since": LATER.isoformat()},
        "/name": {"since": STAMP},
    }


def test_a_flag_inside_an_entry_survives_a_change_beside_it() -> None:
    entries = [{"text": "x", "said": STAMP, "n": n} for n in range(3)]
    old = written(entries=entries)
    marks = flag(old, marked(old), "/entries/2/text", "typo?", NOW)
    new = written(entries=[{**entries[2], "said": None}, {"text": "new"}])
    assert carry(old, marks, new)["/entries/0/text"]["reason"] == "typo?"


def test_a_value_that_goes_and_comes_back_is_new() -> None:
    here, gone = written(prefs={"a": 1}), written()
    marks = carry(here, marked(here), gone, NOW + DAY)
    assert "/prefs/a" not in marks
    assert carry(gone, marks, here, NOW + 2 * DAY)["/prefs/a"]["since"] != STAMP


def test_values_that_were_not_tracked_before_date_from_the_old_version() -> None:
    old, new = written(home="Rome", prefs={"a": 1}), written(home="Rome", prefs={"a": 2})
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
    migrated = written(prefs={"lang": "it", "zone": "UTC"}, free={"a": {"b": 1}, "c": 3})
    assert migrate_marks(PROFILE, stored, marks, migrated, LATER) == {
        "/free/a/b": marks["/notes/a/b"],
        "/name": {"since": LATER.isoformat()},
        "/prefs/lang": marks["/preferences/lang"],
        "/prefs/zone": marks["/preferences/zone"],
    }


def test_outside_a_migration_a_new_key_is_a_new_value() -> None:
    old, new = written(prefs={"likes cats": "yes"}), written(prefs={"likes dogs": "yes"})
    assert carry(old, marked(old), new)["/prefs/likes dogs"]["since"] == LATER.isoformat()


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
    document = written(home="Rome", likes=["a"])
    marks = {"/name": {"since": STAMP}, path: mark}
    stale(PROFILE, document, marks, NOW)
    carried = carry_marks(PROFILE, document, marks, document, NOW)
    assert carried["/name"] == {"since": STAMP}
    assert confirm(PROFILE, document, marks, "/name", NOW)["/name"]["confirmed"] == STAMP
    flag(document, marks, "/name", "why", NOW)


@given(PROFILES, PROFILES, st.randoms(use_true_random=False))
def test_marks_belong_to_values(first: Any, second: Any, random: Any) -> None:
    old, new = written(**first), written(**second)
    marks = marked(old)
    for number, path in enumerate(marks):
        marks[path]["since"] = (NOW - number * DAY).isoformat()
    for path in random.sample(sorted(marks), min(2, len(marks))):
        marks = flag(old, marks, path, f"doubt about {path}", NOW)
    before = json.dumps([old, marks, new])
    carried = carry(old, marks, new)
    assert json.dumps([old, marks, new]) == before
    assert list(carried) == sorted(carried)
    assert carried.keys() == marked(new).keys()
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
    old = written(**profile)
    marks = marked(old)
    for number, path in enumerate(marks):
        marks[path]["since"] = (NOW - number * DAY).isoformat()
    new = deepcopy(old)
    random.shuffle(new["likes"])
    random.shuffle(new["entries"])
    carried = carry(old, marks, new)
    assert sorted(map(json.dumps, carried.values())) == sorted(map(json.dumps, marks.values()))


@given(PROFILES)
def test_an_unchanged_document_keeps_its_marks(profile: Any) -> None:
    document = written(**profile)
    marks = marked(document)
    assert carry(document, marks, document) == marks
