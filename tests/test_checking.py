"""Documents against JSON Schemas: within bounds, with formats, and what is told of a misfit."""

from __future__ import annotations

from typing import Any

import pytest

from memstore import DEFAULT_SCHEMA, JsonSchema, SchemaError
from memstore.json_schema import defined


def made(schema: dict[str, Any], **more: Any) -> JsonSchema:
    return JsonSchema([defined("notes", 1, schema, **more)])


# bounds


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    levels_ = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": levels_ | {f"d{levels}": {"minProperties": 0}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_grows_without_bound_is_refused(keyword: str) -> None:
    with pytest.raises(SchemaError, match="bear on one value"):
        made(doubling(keyword, 30))


def test_a_schema_that_grows_with_the_document_is_stopped() -> None:
    twice = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
    document: dict[str, Any] = {}
    for _ in range(40):
        document = {"a": document}
    schema = made(twice)
    with pytest.raises(SchemaError, match="steps"):
        schema.load(document)


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 60 + "b"}),
        ({"patternProperties": {"^(a|a|aa)+$": {}}}, {"a" * 90 + "b": 1}),
        (
            {"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False},
            {"a" * 90 + "b": 1},
        ),
        ({"propertyNames": {"pattern": "(x+x+)+y"}}, {"x" * 60: 1}),
        (
            {"properties": {"a": {"items": {"pattern": "^(a+)+$"}}}},
            {"a": ["a" * 20 + "b"] * 20_000},
        ),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(60_000)]}),
        ({"properties": {"a": {"items": {"enum": list(range(2_000))}}}}, {"a": [-1] * 20_000}),
        ({"properties": {"a": {"items": {}}}}, {"a": [0] * 200_000}),
    ],
)
def test_what_would_take_for_ever_is_stopped(schema: Any, document: Any) -> None:
    with pytest.raises(SchemaError, match=r"steps|longer|does not match"):
        made(schema).load(document)


def test_a_long_text_is_not_of_any_format() -> None:
    schema = made({"properties": {"a": {"format": "uri"}}})
    assert schema.load({"a": "https://x.example/" + "y" * 1_000})
    with pytest.raises(SchemaError, match="uri"):
        schema.load({"a": "https://x.example/" + "y" * 3_000})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2026-04-28T09:30:00-04:00", "2026-04-28 09:30"),
        ("date", "2026-04-28", "2026-02-30"),
        ("time", "09:30:00Z", "25:00:00Z"),
        ("duration", "P90D", "90 days"),
        ("email", "a@b.example", "a.example"),
        ("hostname", "a.example", "-a.example"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "::1", ":::1"),
        ("json-pointer", "/a/0", "a"),
        ("uri", "https://a.example/", "//a"),
        ("uri-reference", "/a?b", "\\\\a"),
        ("uuid", "6f1c0d0e-3b1f-4f0e-9a6e-0f3b5f1f2a10", "6f1c"),
    ],
)
def test_formats_are_checked(name: str, good: str, bad: str) -> None:
    schema = made({"properties": {"a": {"format": name}}})
    assert schema.load({"a": good}).root == {"a": good}
    assert schema.load({"a": 5})  # not of a text
    with pytest.raises(SchemaError) as raised:
        schema.load({"a": bad})
    assert raised.value.path == "/a"


def test_numbers_without_end_are_no_failure() -> None:
    # trap 31
    schema = made({"properties": {"a": {"multipleOf": 0.1, "maximum": 10**300}}})
    for number in (10**400, -(10**4_000), 1e308):
        with pytest.raises(SchemaError):
            schema.load({"a": number, "b": number} | {"a": number + 1})


# what a document is told


def test_all_that_does_not_fit_is_told_without_the_documents_words() -> None:
    schema = made(
        {
            "properties": {
                "n": {"type": "integer", "maximum": 5},
                "s": {"type": "string", "maxLength": 3, "pattern": "^a"},
                "e": {"enum": ["x", "y"]},
                "o": {"anyOf": [{"type": "object", "required": ["k"]}, {"type": "null"}]},
                "l": {"items": False},
                "no": False,
                "gone": {},
            },
            "required": ["n", "gone"],
            "additionalProperties": False,
        },
        initial={"n": 1, "gone": 1},
    )
    marked = {
        "n": 6,
        "s": "zanzibar",
        "e": "zanzibar",
        "o": {"zanzibar": 1},
        "l": ["zanzibar"],
        "no": "zanzibar",
        "a/b": "zanzibar",
    }
    with pytest.raises(SchemaError) as raised:
        schema.load(marked)
    told = {error["path"]: error["detail"] for error in raised.value.errors}
    assert told.keys() == {"", "/n", "/s", "/e", "/o", "/l", "/no", "/a~1b"}
    assert "gone" in told[""]
    assert told["/a~1b"] == "the schema has no such field"
    assert "'k'" in told["/o"]
    assert "zanzibar" not in str(raised.value) + str(raised.value.errors)


def test_pydantic_tells_all_of_it_too() -> None:
    with pytest.raises(SchemaError) as raised:
        DEFAULT_SCHEMA.accept({"user_preferences": 1, "active_task": {"status": 1}})
    paths = [error["path"] for error in raised.value.errors]
    assert "/user_preferences" in paths
    assert "/active_task/description" in paths
    assert raised.value.path == paths[0]
