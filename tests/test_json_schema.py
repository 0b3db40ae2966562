"""Schemas in JSON Schema: what is refused, the bounds, notes, migrations by JSON Patch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore import (
    DEFAULT_SCHEMA,
    ActiveTask,
    AgentState,
    ConfirmedFact,
    InvalidInput,
    Issue,
    JsonSchema,
    MigrationFailed,
    NewerSchema,
    SchemaError,
)
from memstore.documents import json_patch
from memstore.freshness import carry_marks, stale
from memstore.json_schema import Definition, defined

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=400)


def made(schema: dict[str, Any], **more: Any) -> JsonSchema:
    return JsonSchema([defined("notes", 1, schema, **more)])


def refused(schema: Any, **more: Any) -> str:
    with pytest.raises(InvalidInput) as raised:
        made(schema, **more)
    return raised.value.path


# what is taken


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("x", "schema"),
        ([], "schema"),
        ({"type": "thing"}, "schema/type"),
        ({"properties": {"a": {"minLength": -1}}}, "schema/properties/a/minLength"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "schema/$schema"),
        ({"properties": {"a": {"$schema": "x:y"}}}, "schema/properties/a/$schema"),
        ({"properties": {"a": {"$id": "x:y"}}}, "schema/properties/a/$id"),
        ({"$defs": {"a": {"$anchor": "b"}}}, "schema/$defs/a/$anchor"),
        ({"$dynamicRef": "#a"}, "schema/$dynamicRef"),
        ({"properties": {"a": {"$ref": "https://x.example/s"}}}, "schema/properties/a"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "schema/items"),
        ({"items": {"$ref": "#nowhere"}}, "schema/items"),
        ({"items": {"$ref": "#/$defs/nothing"}}, "schema/items/$ref"),
        ({"x-other": {"pattern": "("}, "items": {"$ref": "#/x-other"}}, "schema/items/$ref"),
        ({"pattern": "("}, "schema/pattern"),
        ({"patternProperties": {"[": {}}}, "schema/patternProperties"),
        ({"pattern": "a" * 1_001}, "schema/pattern"),
        ({"x-fresh": "90 days"}, "schema/x-fresh"),
        ({"x-fresh": "P0D"}, "schema/x-fresh"),
        ({"x-fresh": 90}, "schema/x-fresh"),
        ({"items": {"x-fresh": {"for": "P1D", "to": 1}}}, "schema/items/x-fresh"),
        ({"x-cue": "first"}, "schema/x-cue"),
        ({"description": "x" * 70_000}, "schema"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, ""),
    ],
)
def test_an_unsound_schema_is_refused_with_its_path(schema: Any, path: str) -> None:
    found = refused(schema)
    assert found.startswith(path or "schema/patternProperties"), found


def test_a_schema_nested_too_deeply_is_refused() -> None:
    # trap 31
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"items": schema}
    assert refused(schema).startswith("schema/items")


def test_what_only_looks_like_a_keyword_is_a_name() -> None:
    schema = made(
        {
            "properties": {"$ref": {"type": "string"}, "pattern": {"type": "integer"}},
            "enum": [{"$ref": "http://x"}, {"pattern": 1}],
        },
        initial={"pattern": 1},
    )
    assert schema.load({"$ref": "http://x"}).root == {"$ref": "http://x"}


def test_a_dialect_named_at_the_root_keeps_the_bounds() -> None:
    schema = made(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://x.example/notes",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"pattern": "^(a|a)*$"}},
        }
    )
    with pytest.raises(SchemaError, match="longer"):
        schema.load({"a": "a" * 40 + "b"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}},
        {"if": {"dependentSchemas": {"a": {"$ref": "#"}}}},
    ],
)
def test_a_schema_that_leads_back_to_itself_on_one_value_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="back to itself"):
        made(schema)


def test_a_schema_that_is_recursive_over_its_parts_is_fine() -> None:
    schema = made(
        {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}, "required": ["n"]},
        initial={"n": 0},
    )
    with pytest.raises(SchemaError) as raised:
        schema.load({"n": 1, "next": {"n": 2, "next": {"n": "x"}}})
    assert raised.value.path == "/next/next/n"


# states


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_a_state_is_an_object(document: Any) -> None:
    with pytest.raises(SchemaError, match="object"):
        made({}).load(document)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", {1: 2}])
def test_what_is_not_json_is_refused_with_its_path(value: Any) -> None:
    # trap 30
    schema = made({})
    state = schema.initial()
    state.root["a"] = [value]
    with pytest.raises(InvalidInput, match="/a/0"):
        schema.dump(state)


def test_an_initial_state_is_made_of_the_defaults_or_given() -> None:
    properties = {"a": {"default": [1]}, "b": {"type": "string"}}
    schema = made({"properties": properties})
    first, second = schema.initial(), schema.initial()
    first.root["a"].append(2)
    assert second.root == {"a": [1]}
    assert made({"properties": properties}, initial={"b": "x"}).initial().root == {"b": "x"}
    assert refused({"properties": properties, "required": ["b"]}) == "initial"
    assert refused({}, initial=[]) == "initial"


# notes


def test_a_pydantic_models_json_schema_says_the_same() -> None:
    """Its notes are the same: what is stale, what to ask, what to search by."""
    schema = made(DEFAULT_SCHEMA.json_schema())
    state = AgentState(
        user_preferences={"timezone": "UTC", "languages": ["de", "en"], "nothing": None},
        confirmed_facts=[
            ConfirmedFact(statement="old", confirmed_at=LONG_AGO),
            ConfirmedFact(statement="new", confirmed_at=NOW),
        ],
        active_task=ActiveTask(description="compare stores", last_action="ran it"),
        unresolved_issues=[Issue(description="which index?", opened_at=LONG_AGO)],
    )
    document = DEFAULT_SCHEMA.dump(state)
    assert schema.dump(schema.load(document)) == document
    assert schema.cues(schema.load(document)) == DEFAULT_SCHEMA.cues(state)
    for saved_at in (LONG_AGO, NOW):
        for marks in ({}, {"/active_task": {"since": NOW.isoformat()}}):
            found = [
                stale(one, document, marks, NOW, saved_at=saved_at)
                for one in (schema, DEFAULT_SCHEMA)
            ]
            assert found[0] == found[1]
            assert found[0]
    carried = [carry_marks(s, None, {}, document, NOW) for s in (schema, DEFAULT_SCHEMA)]
    assert carried[0] == carried[1]


@pytest.mark.parametrize(
    ("schema", "document", "paths"),
    [
        ({"properties": {"a": {"x-fresh": "P1D"}}}, {"a": 1, "b": 2}, ["/a"]),
        ({"properties": {"a": {"x-fresh": "P1D"}}}, {"a": None}, []),
        ({"properties": {"a": {"x-fresh": "P1D"}}}, {"a": [1, [2]]}, ["/a/0", "/a/1"]),
        ({"properties": {"a": {"x-fresh": "P1D"}}}, {"a": {"k/": 1}}, ["/a/k~1"]),
        (
            {"properties": {"a": {"x-fresh": "P1D", "properties": {"k": {}}}}},
            {"a": {"k": 1}},
            ["/a"],
        ),
        ({"properties": {"a": {"items": {"x-fresh": "P1D"}}}}, {"a": [1, 2]}, ["/a/0", "/a/1"]),
        (
            {"properties": {"a": {"prefixItems": [{}, {"x-fresh": "P1D"}], "items": {}}}},
            {"a": [1, 2, 3]},
            ["/a/1"],
        ),
        (
            {"patternProperties": {"^x": {"x-fresh": "P1D"}}, "additionalProperties": {}},
            {"xa": 1, "a": 1},
            ["/xa"],
        ),
        (
            {"properties": {"a": {}}, "additionalProperties": {"x-fresh": "P1D"}},
            {"a": 1, "b": 1},
            ["/b"],
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"x-fresh": "P1D"}}},
            {"a": 1},
            ["/a"],
        ),
        ({"allOf": [{"properties": {"a": {"x-fresh": "P1D"}}}]}, {"a": 1}, ["/a"]),
        (
            {"properties": {"a": {"anyOf": [{"type": "string", "x-fresh": "P1D"}, {}]}}},
            {"a": 1},
            [],
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string", "x-fresh": "P1D"}, {}]}}},
            {"a": "b"},
            ["/a"],
        ),
        (
            {
                "if": {"required": ["b"]},
                "then": {"properties": {"a": {"x-fresh": "P1D"}}},
                "else": {"properties": {"c": {"x-fresh": "P1D"}}},
            },
            {"a": 1, "c": 1},
            ["/c"],
        ),
        (
            {"dependentSchemas": {"b": {"properties": {"a": {"x-fresh": "P1D"}}}}},
            {"a": 1, "b": 1},
            ["/a"],
        ),
        (
            {"properties": {"next": {"$ref": "#"}, "a": {"x-fresh": "P1D"}}},
            {"next": {"next": {"a": 1}}},
            ["/next/next/a"],
        ),
    ],
)
def test_a_note_bears_on_what_its_schema_bears_on(
    schema: Any, document: Any, paths: list[str]
) -> None:
    found = stale(made(schema), document, {}, NOW, saved_at=LONG_AGO)
    assert sorted(one.path for one in found) == paths


# migrations


def versions(*patches: list[dict[str, Any]]) -> list[Definition]:
    """Make a schema of one integer by name, which each version renames as its patch says."""
    names = ["a", *"bcdef"][: len(patches) + 1]
    return [
        defined(
            "notes",
            n,
            {
                "properties": {name: {"type": "integer", "default": 0}},
                "required": [name],
                "additionalProperties": False,
            },
            None if n == 1 else patches[n - 2],
        )
        for n, name in enumerate(names, 1)
    ]


def moved(old: str, new: str) -> list[dict[str, Any]]:
    return [{"op": "move", "from": f"/{old}", "path": f"/{new}"}]


def read(schema: JsonSchema, document: Any, version: int) -> Any:
    return schema.read(document, version, name="notes", memory="t/a/u", state_version=7)


def test_a_document_goes_step_by_step_through_every_version() -> None:
    # trap 32
    schema = JsonSchema(versions(moved("a", "b"), moved("b", "c"), moved("c", "d")))
    stored = {"a": 5}
    value, document, steps = read(schema, stored, 1)
    assert (value.root, document, steps) == ({"d": 5}, {"d": 5}, [(1, 2), (2, 3), (3, 4)])
    assert stored == {"a": 5}
    assert read(schema, {"d": 5}, 4)[2] == []


@pytest.mark.parametrize(
    ("patches", "step", "path"),
    [
        ([moved("x", "b"), moved("b", "c")], (1, 2), "/x"),
        ([[], moved("a", "c")], (1, 2), "/a"),  # not valid in between
        ([moved("a", "b"), moved("b", "x")], (2, 3), "/x"),
        (
            [[*moved("a", "b"), {"op": "replace", "path": "/b", "value": "x"}], moved("b", "c")],
            (1, 2),
            "/b",
        ),
        ([[{"op": "test", "path": "/a", "value": 6}], moved("b", "c")], (1, 2), "/a"),
    ],
)
def test_a_failing_migration_names_memory_version_step_and_path(
    patches: Any, step: tuple[int, int], path: str
) -> None:
    # trap 33
    stored = {"a": 5}
    with pytest.raises(MigrationFailed) as raised:
        read(JsonSchema(versions(*patches)), stored, 1)
    error = raised.value
    assert (error.memory, error.version, error.step) == ("t/a/u", 7, step)
    assert error.path in (path, "")
    assert stored == {"a": 5}


def test_a_newer_document_is_refused() -> None:
    with pytest.raises(NewerSchema) as raised:
        read(JsonSchema(versions()), {"b": 1}, 2)
    assert (raised.value.stored, raised.value.known) == (2, 1)


def test_an_optional_operation_is_left_out_where_there_is_nothing_to_take() -> None:
    patch: list[dict[str, Any]] = [
        {"op": "move", "from": "/x", "path": "/a", "optional": True},
        {"op": "copy", "from": "/x", "path": "/c", "optional": True},
        {"op": "remove", "path": "/l/3", "optional": True},
        {"op": "replace", "path": "/a", "value": 9, "optional": True},
    ]
    assert json_patch({"l": [1]}, patch, optional=True) == {"l": [1]}
    assert json_patch({"x": 1, "l": []}, patch, optional=True) == {"a": 9, "l": []}
    with pytest.raises(InvalidInput):
        json_patch({"l": [1]}, patch)
    with pytest.raises(InvalidInput):
        json_patch({}, [{"op": "remove", "path": "x", "optional": True}], optional=True)


@pytest.mark.parametrize(
    ("migration", "path"),
    [
        ("x", "migration"),
        ([{}] * 257, "migration"),
        ([1], "migration/0"),
        ([{"op": "nothing", "path": "/a"}], "migration/0"),
        ([{"op": "add", "path": "/a"}], "migration/0"),
        ([{"op": "move", "path": "/a"}], "migration/0"),
        ([{"op": "remove", "path": "a"}], "migration/0/path"),
        ([{"op": "move", "from": "~2", "path": "/a"}], "migration/0/from"),
        ([{"op": "add", "path": "/a", "value": 1, "optional": True}], "migration/0/optional"),
        ([{"op": "remove", "path": "/a", "optional": "yes"}], "migration/0/optional"),
        (None, "migration"),
    ],
)
def test_a_malformed_migration_is_refused(migration: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        defined("notes", 2, {}, migration)
    assert raised.value.path == path
    with pytest.raises(SchemaError, match="first"):
        defined("notes", 1, {}, [])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    "type enum const properties items allOf anyOf not if then $ref $defs pattern required "
    "minimum format x-fresh x-cue additionalProperties uniqueItems contains".split()
)


@given(st.dictionaries(KEYWORDS, JSON_VALUES, max_size=4), JSON_VALUES)
def test_whatever_is_given_is_taken_or_refused(schema: Any, document: Any) -> None:
    try:
        found = made(schema, initial={})
        value = found.load(document)
    except InvalidInput:
        return
    assert found.dump(value) == document
    list(found.nodes(value))
