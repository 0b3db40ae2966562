"""A state in a context: an outline that nothing in it breaks out of, cut at its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memstore.outline import LEVELS, outline
from memstore.render import (
    literal,
    visible,
)
from tests.nasty import names, texts

NOW = datetime(2026, 7, 30, 9, 12, tzinfo=UTC)

documents = st.dictionaries(
    names,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@given(documents, st.integers(0, len(LEVELS) - 1))
def test_no_state_value_starts_a_line_of_its_own(document: dict[str, Any], level: int) -> None:
    for line in outline(document, level=level):
        assert visible(line) == line
        assert re.match(r' *(?:- |[A-Za-z_][\w-]*:|"(?:[^"\\]|\\.)*":|… \d+ more$)|\{\}$', line), (
            line
        )


@given(documents)
def test_the_whole_state_is_there(document: dict[str, Any]) -> None:
    def strings(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, part in value.items():
                yield key
                yield from strings(part)
        elif isinstance(value, list):
            for part in value:
                yield from strings(part)
        elif isinstance(value, str):
            yield value

    text = "\n".join(outline(document))
    for string in strings(document):
        assert string in text or literal(string) in text


def test_an_outline_reads_well() -> None:
    document = {
        "preferences": {"tone": "short", "zone": "UTC"},
        "facts": [{"fact": 'He said "no"', "at": [1, 2]}, {"fact": "plain", "at": []}],
        "task": {"status": "open", "last": {"action": "x"}},
        "note": "two words",
        "yes": "true",
        "none": None,
    }
    assert outline(document) == [
        'preferences: {"tone":"short","zone":"UTC"}',
        "facts:",
        ' - {"fact":"He said \\"no\\"","at":[1,2]}',
        ' - {"fact":"plain","at":[]}',
        "task:",
        " status: open",
        ' last: {"action":"x"}',
        "note: two words",
        'yes: "true"',
        "none: null",
    ]


def test_what_a_level_leaves_out_is_marked() -> None:
    level = next(i for i, (items, _) in enumerate(LEVELS) if items == 6)
    chars = int(LEVELS[level][1])
    document = {"facts": [{"n": i} for i in range(9)], "text": "x" * 5_000, "tags": ["a"] * 30}
    assert outline(document, level=level) == [
        "facts:",
        " … 3 more",
        *(f' - {{"n":{i}}}' for i in range(3, 9)),
        f'text: "{"x" * chars}"…+{5_000 - chars} chars',
        'tags: […24 more,"a","a","a","a","a","a"]',
    ]


def test_each_level_keeps_less() -> None:
    document = {"facts": [{"text": "y" * 9_000}] * 1_500}
    sizes = [sum(map(len, outline(document, level=level))) for level in range(len(LEVELS))]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 200


@dataclass(frozen=True)
class Doubt:
    path: str
    value: Any = None
    since: datetime | None = datetime(2026, 4, 28, tzinfo=UTC)
    age: timedelta | None = timedelta(days=93)
    reason: str = "expired"
    note: str | None = None
    question: str | None = "You said …; is that still so?"


def test_a_stale_part_is_marked_where_it_stands() -> None:
    document = {"a": {"x~/y": 1}, "facts": [{"f": "one"}, {"f": "two"}], "z": 1}
    lines = outline(
        document,
        [Doubt("/a/x~0~1y"), Doubt("/facts/1/f", note="he\nmoved", reason="flagged"), Doubt("/no")],
    )
    assert lines == [
        'a: {"x~/y":1}',
        '!! stale "/a/x~0~1y" since 2026-04-28 (expired): ask "You said …; is that still so?"',
        "facts:",
        ' - {"f":"one"}',
        ' - {"f":"two"}',
        '!! stale /facts/1/f since 2026-04-28 (flagged), note "he\\nmoved": '
        'ask "You said …; is that still so?"',
        "z: 1",
    ]
    least = outline(document, [Doubt("/facts/0/f"), Doubt("/facts")], level=len(LEVELS) - 1)
    assert [line[:15] for line in least if line.startswith("!!")] == ["!! stale /facts"]
