"""The sanitiser: text and JSON that a database or a later reader would choke on."""

from __future__ import annotations

import enum
import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.errors import InvalidInput
from memstore.text import (
    Limits,
    clean_json,
    clean_text,
    dumps,
    loads,
)
from tests.anything import any_text, same, surrogates

plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


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
