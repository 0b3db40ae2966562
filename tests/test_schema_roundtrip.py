"""What a schema saves is what it loads: declared types, odd values, limits."""

from __future__ import annotations

import enum
import json
import math
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    Field,
)

from memstore.default_schema import DEFAULT_SCHEMA, AgentState, ConfirmedFact
from memstore.errors import InvalidInput, SchemaError
from memstore.schema import StateSchema
from memstore.text import dumps
from tests.schemas import NOTES, NOW, Item, Notes


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    y: Decimal


class Rich(BaseModel):
    when: datetime
    day: date
    span: timedelta
    uid: UUID
    price: Decimal
    color: Color
    level: Level
    raw: bytes
    tags: set[str]
    frozen: frozenset[int]
    pair: tuple[int, str]
    row: tuple[Decimal, ...]
    by_number: dict[int, str]
    by_uid: dict[UUID, date]
    by_day: dict[date, list[Item]]
    items: list[Item]
    point: Point
    either: Item | str | None
    kind: Literal["a", "b"]
    where: Path


RICH = StateSchema(
    "rich",
    1,
    Rich,
    initial=lambda: Rich(
        when=NOW,
        day=NOW.date(),
        span=timedelta(days=1, microseconds=3),
        uid=UUID(int=7),
        price=Decimal("12.340"),
        color=Color.RED,
        level=Level.LOW,
        raw=b"abc",
        tags={"x", "y"},
        frozen=frozenset({1}),
        pair=(1, "a"),
        row=(Decimal("0.1"),),
        by_number={1: "a"},
        by_uid={UUID(int=7): NOW.date()},
        by_day={NOW.date(): [Item(name="n", at=NOW)]},
        items=[Item(name="n", at=NOW)],
        point=Point(1, Decimal("2.50")),
        either=Item(name="n", at=NOW),
        kind="a",
        where=Path("/tmp/x"),
    ),
)


def test_declared_types_round_trip() -> None:  # trap 30
    value = RICH.initial()
    document = RICH.dump(value)
    again = RICH.load(json.loads(json.dumps(document)))
    assert again == value
    assert isinstance(again.price, Decimal)
    assert str(again.price) == "12.340"
    assert isinstance(again.by_day[NOW.date()][0].at, datetime)
    assert document["uid"] == str(value.uid)
    assert RICH.dump(again) == document


@given(
    st.datetimes(min_value=datetime(1990, 1, 1), timezones=st.timezones()),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.timedeltas(),
    st.sets(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4), max_size=5),
)
def test_any_declared_value_round_trips(
    when: datetime, price: Decimal, span: timedelta, tags: set[str]
) -> None:
    value = RICH.initial().model_copy(
        update={"when": when, "price": price, "span": span, "tags": tags, "uid": uuid4()}
    )
    document = RICH.dump(value)
    loaded = RICH.load(document)
    assert loaded.when.astimezone(UTC) == when.astimezone(UTC)
    assert loaded.model_copy(update={"when": when}) == value
    assert document["tags"] == sorted(document["tags"], key=dumps)


def test_an_offset_that_cannot_be_written_is_refused() -> None:  # trap 24
    value = RICH.initial()
    value.when = datetime(1930, 1, 1, tzinfo=timezone(timedelta(hours=2, minutes=6, seconds=28)))
    with pytest.raises(SchemaError) as caught:
        RICH.dump(value)
    assert caught.value.path == "/when"


def test_a_time_that_the_clocks_skip_is_an_instant_too() -> None:  # trap 24
    for fold in (0, 1):
        value = RICH.initial()
        value.when = datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Rome"), fold=fold)
        assert RICH.load(RICH.dump(value)).when.timestamp() == value.when.timestamp()


def test_sets_are_written_in_one_order() -> None:
    class Tagged(BaseModel):
        tags: set[str] = Field(default_factory=set)
        inner: dict[str, list[frozenset[int]]] = Field(default_factory=dict)

    schema = StateSchema("tagged", 1, Tagged)
    words = [f"w{n}" for n in range(40)]
    backwards = sorted(words, reverse=True)
    one = Tagged(tags=set(words), inner={"a": [frozenset(range(40))]})
    other = Tagged(tags=set(backwards), inner={"a": [frozenset(range(39, -1, -1))]})
    assert schema.dump(one) == schema.dump(other)
    assert schema.dump(one)["tags"] == sorted(words)


class Opaque:
    pass


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("bad", "below"),
    [
        (math.nan, ""),
        (math.inf, ""),
        (-math.inf, ""),
        ({1, 2}, ""),
        (frozenset("a"), ""),
        (b"bytes", ""),
        (b"\xff", ""),
        (bytearray(b"x"), ""),
        ((1, 2), ""),
        (NOW, ""),
        (NOW.date(), ""),
        (timedelta(1), ""),
        (UUID(int=1), ""),
        (Decimal("1.5"), ""),
        (Decimal("NaN"), ""),
        (Color.RED, ""),
        (1 + 2j, ""),
        (Path("x"), ""),
        (Notes(), ""),
        (Point(1, Decimal(1)), ""),
        (Opaque(), ""),
        (Opaque, ""),
        (len, ""),
        ({1: "a"}, "/1"),
        ({None: "a"}, "/None"),
        ({True: "a"}, "/true"),
        ({1.5: "a"}, "/1.5"),
        ({(1, 2): "a"}, "/1,2"),
        ({"a": 1, 1: 2, "1": 3}, "/1"),
        ({NOW.date(): 1}, "/2026-04-28"),
    ],
)
@pytest.mark.parametrize("place", ["", "/deep/0/er"])
def test_what_would_not_come_back_is_refused_with_its_path(
    bad: Any, below: str, place: str
) -> None:  # traps 30, 31
    value = Notes(title="kept")
    value.anything = {"deep": [{"er": bad}]} if place else bad
    with pytest.raises(InvalidInput) as caught:
        NOTES.dump(value)
    assert caught.value.path == "/anything" + place + below


@pytest.mark.parametrize("bad", [_cycle(), _nested(1_000), _nested(200), _nested(64)])
def test_bottomless_values_are_refused(bad: Any) -> None:  # trap 31
    with pytest.raises(InvalidInput) as caught:
        NOTES.dump(Notes(anything={"x": bad}))
    assert caught.value.path.startswith("/anything/x")


def test_a_value_larger_than_the_limit_is_refused() -> None:  # trap 31
    with pytest.raises(InvalidInput) as caught:
        NOTES.dump(Notes(anything=[10**5_000]))
    assert caught.value.path == "/anything/0"
    with pytest.raises(InvalidInput):
        NOTES.dump(Notes(title="x" * 1_100_000))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["number", "maybe"])
def test_not_a_number_in_a_declared_float(field: str, bad: float) -> None:  # trap 30
    with pytest.raises(InvalidInput) as caught:
        NOTES.dump(Notes().model_copy(update={field: bad}))
    assert caught.value.path == f"/{field}"


def test_a_value_of_a_wrong_type_is_refused_with_its_path() -> None:
    value = AgentState(confirmed_facts=[ConfirmedFact(statement="a", confirmed_at=NOW)])
    value.confirmed_facts[0].positions = ["x"]  # type: ignore[list-item]
    with pytest.raises(SchemaError) as caught:
        DEFAULT_SCHEMA.dump(value)
    assert caught.value.path == "/confirmed_facts/0/positions/0"


def test_a_value_of_another_model_is_refused() -> None:
    with pytest.raises(SchemaError, match="AgentState"):
        DEFAULT_SCHEMA.dump(Notes())  # type: ignore[arg-type]
    with pytest.raises(SchemaError):
        DEFAULT_SCHEMA.dump({"user_preferences": {}})  # type: ignore[arg-type]


def test_plain_json_is_read_as_the_declared_type() -> None:
    value = DEFAULT_SCHEMA.initial()
    fact: Any = {"statement": "a", "confirmed_at": "2026-04-28T12:00:00Z"}
    value.confirmed_facts.append(fact)
    document = DEFAULT_SCHEMA.dump(value)
    assert DEFAULT_SCHEMA.load(document).confirmed_facts[0].confirmed_at == NOW
    assert document["confirmed_facts"][0]["positions"] == []


def test_a_misspelt_member_is_refused_rather_than_dropped() -> None:
    class Book(BaseModel):
        entries: list[Item] = Field(default_factory=list)

    book = Book()
    entry: Any = {"name": "a", "at": NOW.isoformat(), "colour": "red"}
    book.entries.append(entry)
    with pytest.raises(SchemaError) as caught:
        StateSchema("book", 1, Book).dump(book)
    assert caught.value.path == "/entries/0/colour"


def test_a_subclass_whose_fields_would_be_dropped_is_refused() -> None:
    class Book(BaseModel):
        entries: list[Item] = Field(default_factory=list)

    class Special(Item):
        extra: int = 1

    with pytest.raises(SchemaError) as caught:
        StateSchema("book", 1, Book).dump(Book(entries=[Special(name="a", at=NOW)]))
    assert caught.value.path == "/entries/0"


@pytest.mark.parametrize("text", ["a\0b", "\udc97", "x\udc00y"])
def test_text_is_cleaned_in_values_and_keys(text: str) -> None:  # traps 1, 2
    value = Notes(anything={"k": [text], f"key {text}": 1})
    value.title = text
    document = NOTES.dump(value)
    written = json.dumps(document, ensure_ascii=False)
    assert "\ufffd" in document["title"]
    written.encode()
    assert "\0" not in written
    assert NOTES.load(document).title == document["title"]


def test_a_valid_surrogate_pair_survives() -> None:  # trap 2
    value = Notes(anything={"\ud83d\ude00": "\ud83d\ude00"})
    assert NOTES.dump(value)["anything"] == {"\U0001f600": "\U0001f600"}


def test_keys_that_collide_once_cleaned_are_refused() -> None:  # trap 1
    with pytest.raises(InvalidInput):
        NOTES.dump(Notes(anything={"a\0": 1, "a\ufffd": 2}))
    with pytest.raises(InvalidInput):
        NOTES.dump(Notes(anything={chr(0xDC97): 1, chr(0xDC98): 2}))


def test_true_is_not_taken_for_one() -> None:
    value = Notes(anything={"flag": True, "count": 1, "none": None})
    document = NOTES.dump(value)
    assert document["anything"]["flag"] is True
    assert NOTES.load(document).anything["flag"] is True


def test_dumping_alters_nothing() -> None:
    value = RICH.initial()
    before = deepcopy(value)
    document = RICH.dump(value)
    document["items"].clear()
    document["by_number"]["9"] = "x"
    assert value == before
