"""Pointers, patches and differences of plain JSON."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.documents import (
    Change,
    alike,
    diff,
    get,
    join_pointer,
    json_patch,
    merge_patch,
    same,
    split_pointer,
)
from memstore.errors import InvalidInput

KEYS = st.sampled_from(["a", "b", "c", "", "0", "-", "a/b", "m~n", "é"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.text(max_size=3).filter(lambda s: "\0" not in s)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)


# RFC 7396, appendix A
@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_rfc(document: Any, patch: Any, result: Any) -> None:
    before = deepcopy((document, patch))
    assert same(merge_patch(document, patch), result)
    assert (document, patch) == before


def test_merge_patch_keeps_siblings_at_any_depth() -> None:  # trap 27
    document = {"preferences": {"time": {"zone": "UTC", "format": 24}}, "facts": [1]}
    merged = merge_patch(document, {"preferences": {"time": {"zone": "CET"}}})
    assert merged == {"preferences": {"time": {"zone": "CET", "format": 24}}, "facts": [1]}


def test_merge_patch_creates_a_missing_parent() -> None:  # trap 27
    assert merge_patch({}, {"a": {"b": {"c": 1}}}) == {"a": {"b": {"c": 1}}}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1}, b"x", {1: 2}, object()])
def test_patches_hold_plain_json_only(bad: Any) -> None:  # trap 30
    with pytest.raises(InvalidInput):
        merge_patch({}, {"a": bad})
    with pytest.raises(InvalidInput):
        json_patch({}, [{"op": "add", "path": "/a", "value": bad}])


def test_a_patch_nested_a_thousand_deep_is_refused() -> None:  # trap 31
    deep: Any = 1
    for _ in range(1_000):
        deep = {"a": deep}
    with pytest.raises(InvalidInput):
        merge_patch({}, deep)
    with pytest.raises(InvalidInput):
        json_patch({}, [{"op": "add", "path": "/a", "value": deep}])


def test_text_in_patches_is_cleaned() -> None:  # traps 1, 2
    assert merge_patch({}, {"a\0": "\udc97"}) == {"a\ufffd": "\ufffd"}
    patch = [{"op": "add", "path": "/a", "value": "x\0y"}]
    assert json_patch({}, patch) == {"a": "x\ufffdy"}


@given(VALUES, VALUES)
def test_merge_patch_never_alters_or_shares_its_input(document: Any, patch: Any) -> None:
    before = json.dumps([document, patch])
    merged = merge_patch(document, patch)
    _spoil(merged)
    assert json.dumps([document, patch]) == before


@given(VALUES, VALUES)
def test_merging_twice_is_merging_once(document: Any, patch: Any) -> None:
    once = merge_patch(document, patch)
    assert same(merge_patch(once, patch), once)


# RFC 6902, appendix A
@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"foo": "bar"}, [["add", "/baz", "qux"]], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["a", "c"]}, [["add", "/foo/1", "b"]], {"foo": ["a", "b", "c"]}),
        ({"baz": 1, "foo": 2}, [["remove", "/baz"]], {"foo": 2}),
        ({"foo": ["a", "b", "c"]}, [["remove", "/foo/1"]], {"foo": ["a", "c"]}),
        ({"baz": 1}, [["replace", "/baz", "boo"]], {"baz": "boo"}),
        ({"a": {"b": 1}, "c": {}}, [["move", "/c/d", "/a/b"]], {"a": {}, "c": {"d": 1}}),
        ({"foo": [1, 2, 3, 4]}, [["move", "/foo/3", "/foo/1"]], {"foo": [1, 3, 4, 2]}),
        ({"a": [1]}, [["test", "/a/0", 1.0]], {"a": [1]}),
        ({"foo": "bar"}, [["add", "/child", {"x": {}}]], {"foo": "bar", "child": {"x": {}}}),
        ({"/": 9, "~1": 10}, [["test", "/~01", 10]], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [["add", "/foo/-", ["x"]]], {"foo": ["bar", ["x"]]}),
        ({"foo": None}, [["test", "/foo", None]], {"foo": None}),
        ({"a": 1}, [["add", "", {"b": 2}]], {"b": 2}),
        ({"a": [1]}, [["copy", "/a/-", "/a/0"], ["add", "/a/0", 0]], {"a": [0, 1, 1]}),
        ({"": 1}, [["replace", "/", 2]], {"": 2}),
        ({"-": 1, "01": 2}, [["remove", "/-"], ["remove", "/01"]], {}),
        ({"a": 1}, [], {"a": 1}),
    ],
)
def test_json_patch_follows_the_rfc(document: Any, patch: list[Any], result: Any) -> None:
    before = deepcopy(document)
    assert same(json_patch(document, [_operation(*op) for op in patch]), result)
    assert document == before


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (["add", "/list/-1", 0], "/list/-1"),
        (["add", "/list/01", 0], "/list/01"),
        (["add", "/list/+1", 0], "/list/+1"),
        (["add", "/list/1_0", 0], "/list/1_0"),
        (["add", "/list/ 1", 0], "/list/ 1"),
        (["add", "/list/１", 0], "/list/１"),
        (["add", "/list/1e0", 0], "/list/1e0"),
        (["add", "/list/4", 0], "/list/4"),
        (["add", "/list/" + "9" * 5_000, 0], "/list/" + "9" * 5_000),
        (["add", "/list/-/x", 0], "/list/-/x"),
        (["add", "/text/0", "x"], "/text/0"),
        (["add", "/missing/x", 0], "/missing/x"),
        (["add", "list/0", 0], "list/0"),
        (["add", "/a~2", 0], "/a~2"),
        (["add", "/a~", 0], "/a~"),
        (["remove", "/list/-"], "/list/-"),
        (["remove", "/list/-1"], "/list/-1"),
        (["remove", "/list/3"], "/list/3"),
        (["remove", "/text/0"], "/text/0"),
        (["remove", "/number/real"], "/number/real"),
        (["remove", ""], ""),
        (["replace", "/list/-", 0], "/list/-"),
        (["replace", "/list/-1", 0], "/list/-1"),
        (["replace", "/list/3", 0], "/list/3"),
        (["replace", "/missing", 0], "/missing"),
        (["test", "/list/-1", 3], "/list/-1"),
        (["test", "/list/-", 3], "/list/-"),
        (["test", "/missing", None], "/missing"),
        (["test", "/one", True], "/one"),
        (["test", "/yes", 1], "/yes"),
        (["test", "/no", 0], "/no"),
        (["test", "/nested", {"flag": 1}], "/nested"),
        (["test", "/one", "1"], "/one"),
        (["move", "/x", "/list/-1"], "/list/-1"),
        (["move", "/x", "/list/-"], "/list/-"),
        (["move", "/nested/flag/x", "/nested"], "/nested/flag/x"),
        (["move", "/x", ""], "/x"),
        (["copy", "/x", "/list/02"], "/list/02"),
        (["copy", "/list/-2", "/one"], "/list/-2"),
    ],
)
def test_what_a_json_patch_refuses(operation: list[Any], path: str) -> None:
    document = {
        "list": [1, 2, 3],
        "text": "abc",
        "number": 7,
        "one": 1,
        "yes": True,
        "no": False,
        "nested": {"flag": True},
    }
    before = deepcopy(document)
    first = {"op": "add", "path": "/list/0", "value": 0}
    back = {"op": "remove", "path": "/list/0"}
    with pytest.raises(InvalidInput) as caught:
        json_patch(document, [first, back, _operation(*operation)])
    assert caught.value.path == path
    assert "operation 2" in str(caught.value)
    assert document == before  # a failing operation applies nothing


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "add", "path": "/a", "value": 1},
        '[{"op": "add", "path": "/a", "value": 1}]',
        b"[]",
        None,
        7,
        ["add"],
        [None],
        [{}],
        [{"op": "append", "path": "/a", "value": 1}],
        [{"op": ["add"], "path": "/a", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": None, "value": 1}],
        [{"op": "add", "path": 1, "value": 1}],
        [{"op": "add", "path": ["a"], "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "replace", "path": "/x"}],
        [{"op": "test", "path": "/x"}],
        [{"op": "move", "path": "/a"}],
        [{"op": "copy", "path": "/a", "from": 1}],
    ],
)
def test_malformed_json_patches_are_refused(patch: Any) -> None:
    with pytest.raises(InvalidInput):
        json_patch({"x": 1}, patch)


def test_a_short_patch_cannot_grow_the_document_without_bound() -> None:
    bomb = [{"op": "copy", "from": "", "path": f"/{n}"} for n in range(60)]
    with pytest.raises(InvalidInput, match="copies too much"):
        json_patch({"a": "x" * 100}, bomb)


def test_what_a_patch_adds_is_not_shared_with_it() -> None:
    patch: list[Any] = [
        {"op": "add", "path": "/a", "value": [1]},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/-", "value": 2},
    ]
    assert json_patch({}, patch) == {"a": [1, 2], "b": [1]}
    assert patch[0]["value"] == [1]


@pytest.mark.parametrize(
    ("pointer", "parts"),
    [
        ("", ()),
        ("/", ("",)),
        ("//", ("", "")),
        ("/a~1b/m~0n", ("a/b", "m~n")),
        ("/~01", ("~1",)),
        ("/0/-", ("0", "-")),
    ],
)
def test_pointers_split_and_join(pointer: str, parts: tuple[str, ...]) -> None:
    assert split_pointer(pointer) == parts
    assert join_pointer(parts) == pointer


@given(st.lists(st.text(), max_size=5))
def test_any_parts_make_a_pointer(parts: list[str]) -> None:
    assert split_pointer(join_pointer(parts)) == tuple(parts)


# RFC 6901, section 5
@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_get_follows_the_rfc(pointer: str, value: Any) -> None:
    document = {
        **{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3},
        **{"g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8},
    }
    assert get(document, pointer) == value
    assert get(document, "") is document


@pytest.mark.parametrize(
    "pointer", ["/foo/-1", "/foo/-", "/foo/00", "/foo/2", "/foo/0/0", "/x", "foo", "/~", None, 3]
)
def test_get_refuses_what_leads_nowhere(pointer: Any) -> None:
    with pytest.raises(InvalidInput):
        get({"foo": ["bar", "baz"]}, pointer)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (0.0, -0.0, True),
        ([1, {"a": True}], [1.0, {"a": True}], True),
        ([1, {"a": True}], [1.0, {"a": 1}], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (None, False, False),
        ("1", 1, False),
        ([], {}, False),
        ([True], ["True"], False),
        (10**400, 1e308, False),
    ],
)
def test_json_equality(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal
    assert bool(diff(a, b)) is not equal


def test_a_difference_names_each_change_with_both_values() -> None:
    old = {"zone": "UTC", "gone": 1, "task": {"status": "open", "title": "x"}}
    new = {"zone": "CET", "added": [1], "task": {"status": "done", "title": "x"}}
    assert diff(old, new) == [
        Change("/added", "add", None, [1]),
        Change("/gone", "remove", 1, None),
        Change("/task/status", "replace", "open", "done"),
        Change("/zone", "replace", "UTC", "CET"),
    ]


def test_an_inserted_entry_is_one_change() -> None:
    facts = [{"statement": f"fact {n}", "positions": [n]} for n in range(5)]
    new = {"statement": "new", "positions": [9]}
    assert diff(facts, [new, *facts]) == [Change("/0", "add", None, new)]
    assert diff(facts, [*facts[:2], new, *facts[2:]]) == [Change("/2", "add", None, new)]
    assert diff(facts, facts[1:]) == [Change("/0", "remove", facts[0], None)]
    assert diff(facts, facts[:2] + facts[3:]) == [Change("/2", "remove", facts[2], None)]


def test_a_changed_entry_is_shown_by_what_changed_in_it() -> None:
    old = [{"id": 1, "text": "a", "open": True}, {"id": 2, "text": "b", "open": True}]
    new = [{"id": 2, "text": "b", "open": False}]
    assert diff(old, new) == [
        Change("/0", "remove", old[0], None),
        Change("/0/open", "replace", True, False),
    ]


def test_paths_of_removals_point_into_the_old_document_and_others_into_the_new() -> None:
    old = ["a", "b", "c", "d"]
    new = ["x", "a", "c", "d", "e"]
    assert diff(old, new) == [
        Change("/0", "add", None, "x"),
        Change("/1", "remove", "b", None),
        Change("/4", "add", None, "e"),
    ]


def test_true_and_one_are_a_difference() -> None:
    assert diff({"a": [1]}, {"a": [True]}) == [Change("/a/0", "replace", 1, True)]


def test_long_lists_are_compared_in_reasonable_time() -> None:
    old = [{"n": n, "m": n % 7} for n in range(3_000)]
    new = [{"n": n + 0.5, "m": n % 7} for n in range(3_000)]
    assert same(json_patch(old, _as_patch(old, new)), new)
    assert len(diff(old, [{"n": -1, "m": 0}, *old])) == 1


def _as_patch(old: Any, new: Any) -> list[dict[str, Any]]:
    """What was removed points into the old document, so it goes first, from the back."""
    changes = diff(old, new)
    removed = [c for c in reversed(changes) if c.op == "remove"]
    others = [c for c in changes if c.op != "remove"]
    return [{"op": c.op, "path": c.path, "value": c.new} for c in (*removed, *others)]


@given(VALUES, VALUES)
def test_the_changes_lead_from_one_document_to_the_other(old: Any, new: Any) -> None:
    before = json.dumps([old, new])
    assert same(json_patch(old, _as_patch(old, new)), new)
    assert bool(diff(old, new)) is not same(old, new)
    assert json.dumps([old, new]) == before


ENTRIES = st.fixed_dictionaries({"id": st.integers(0, 9), "a": st.booleans(), "b": st.text("xy")})


@given(st.lists(ENTRIES, max_size=8), st.lists(ENTRIES, max_size=8))
def test_the_changes_lead_from_one_list_of_objects_to_the_other(
    old: list[Any], new: list[Any]
) -> None:
    assert same(json_patch(old, _as_patch(old, new)), new)


@given(VALUES, VALUES)
def test_every_change_points_at_its_values(old: Any, new: Any) -> None:
    for change in diff(old, new):
        if change.op != "remove":
            assert same(get(new, change.path), change.new)
        if change.op == "remove":
            assert same(get(old, change.path), change.old)


@given(VALUES)
def test_a_document_does_not_differ_from_its_copy(document: Any) -> None:
    assert diff(document, json.loads(json.dumps(document))) == []
    assert alike(document, document)


def _operation(op: str, path: str, *rest: Any) -> dict[str, Any]:
    last = {"from" if op in ("move", "copy") else "value": value for value in rest}
    return {"op": op, "path": path, **last}


def _spoil(value: Any) -> None:
    """Change a value wherever it can be changed."""
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoiled")
