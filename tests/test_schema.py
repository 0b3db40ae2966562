"""State schemas: sound construction, migrations, and documents that come back as they were."""

from __future__ import annotations

import enum
import json
import math
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from memstore.annotations import Cue, Fresh, cues
from memstore.default_schema import DEFAULT_SCHEMA, ActiveTask, AgentState, ConfirmedFact, Issue
from memstore.errors import InvalidInput, MigrationFailed, NewerSchema, SchemaError
from memstore.schema import StateSchema
from memstore.text import dumps

NOW = datetime(2026, 4, 28, 12, 0, tzinfo=UTC)


class Notes(BaseModel):
    title: str = ""
    anything: Any = None
    number: float = 0.0
    maybe: float | None = None


NOTES = StateSchema("notes", 1, Notes)


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    y: Decimal


class Item(BaseModel):
    name: str
    at: datetime


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


# Construction


def test_a_schema_is_frozen_and_generic() -> None:
    schema: StateSchema[Notes] = StateSchema("notes", 1, Notes)
    title: str = schema.initial().title
    assert title == ""
    with pytest.raises(AttributeError):
        schema.version = 2
    with pytest.raises(AttributeError):
        del schema.name
    with pytest.raises(TypeError):
        schema.migrations[1] = dict  # type: ignore[index]
    assert repr(schema) == "StateSchema('notes', 1, Notes)"


def test_the_given_migrations_cannot_be_changed_afterwards() -> None:
    steps = {1: dict[str, Any]}
    schema = StateSchema("notes", 2, Notes, steps)
    steps.clear()
    assert list(schema.migrations) == [1]


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a\n", "a\0", "\udc97", "x" * 101, 3, None])
def test_unsound_names(name: Any) -> None:
    with pytest.raises(SchemaError):
        StateSchema(name, 1, Notes)


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None, 2**31])
def test_unsound_versions(version: Any) -> None:
    with pytest.raises(SchemaError):
        StateSchema("notes", version, Notes)


@pytest.mark.parametrize("model", [dict, Notes(), None, "Notes", int])
def test_unsound_models(model: Any) -> None:
    with pytest.raises(SchemaError):
        StateSchema("notes", 1, model)


async def _coroutine(document: dict[str, Any]) -> dict[str, Any]:
    return document


@pytest.mark.parametrize(
    ("version", "migrations"),
    [
        (1, {1: dict}),
        (3, {1: dict}),
        (4, {1: dict, 3: dict}),
        (3, {2: dict, 3: dict}),
        (2, {0: dict, 1: dict}),
        (2, {-1: dict, 0: dict, 1: dict}),
        (2, {"1": dict}),
        (2, {True: dict}),
        (2, {1: None}),
        (2, {1: _coroutine}),
    ],
)
def test_unsound_migrations(version: int, migrations: Any) -> None:
    with pytest.raises(SchemaError):
        StateSchema("notes", version, Notes, migrations)


def test_migrations_may_start_late() -> None:
    assert sorted(StateSchema("notes", 4, Notes, {2: dict, 3: dict}).migrations) == [2, 3]
    assert StateSchema("notes", 4, Notes).version == 4


def test_a_model_with_required_fields_needs_an_initial_state() -> None:
    with pytest.raises(SchemaError, match="initial="):
        StateSchema("item", 1, Item)
    first = Item(name="a", at=NOW)
    schema = StateSchema("item", 1, Item, initial=first)
    assert schema.initial() == first
    assert schema.initial() is not first


def test_initial_states_are_shared_with_nobody() -> None:
    for schema in (
        StateSchema("notes", 1, Notes, initial=Notes(anything=[])),
        StateSchema("notes", 1, Notes, initial=lambda: Notes(anything=[])),
    ):
        schema.initial().anything.append(1)
        assert schema.initial().anything == []
    DEFAULT_SCHEMA.initial().user_preferences["a"] = 1
    assert DEFAULT_SCHEMA.initial().user_preferences == {}


@pytest.mark.parametrize("initial", [Notes(number=math.nan), lambda: 3, lambda: Item])
def test_an_initial_state_that_cannot_be_saved_is_unsound(initial: Any) -> None:
    with pytest.raises(SchemaError):
        StateSchema("notes", 1, Notes, initial=initial)


# Documents that come back as they were


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


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_any_json_comes_back_as_it_was(anything: Any) -> None:
    document = NOTES.dump(Notes(anything=anything))
    assert json.dumps(document["anything"]) == json.dumps(anything)
    assert json.dumps(NOTES.load(document).anything) == json.dumps(anything)


def test_aliases_are_the_keys_of_the_document() -> None:
    class Part(BaseModel):
        model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
        last_action: str | None = None

    class Camel(BaseModel):
        model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
        active_task: Part = Field(default_factory=Part)

    schema = StateSchema("camel", 1, Camel)
    document = schema.dump(Camel(active_task=Part(last_action="a")))
    assert document == {"activeTask": {"lastAction": "a"}}
    assert schema.load(document).active_task.last_action == "a"
    with pytest.raises(SchemaError) as caught:
        schema.load({"activeTask": {"lastAction": 3}})
    assert caught.value.path == "/activeTask/lastAction"


def test_a_model_whose_aliases_do_not_meet_is_unsound() -> None:
    class Crossed(BaseModel):
        a: int = Field(default=1, validation_alias="in", serialization_alias="out")

    class Inner(BaseModel):
        by_id: dict[str, list[Crossed | None]] = Field(default_factory=dict)

    class Old(BaseModel):
        a: int = Field(default=1, validation_alias=AliasChoices("a", "old"))
        b: int = Field(default=1, alias="bee")

    for model in (Crossed, Inner):
        with pytest.raises(SchemaError, match="'out'"):
            StateSchema("crossed", 1, model)
    schema = StateSchema("old", 1, Old)
    assert schema.dump(schema.load({"old": 3, "bee": 4})) == {"a": 3, "bee": 4}


def test_computed_private_and_excluded_fields_are_not_state() -> None:
    class Derived(BaseModel):
        model_config = ConfigDict(extra="forbid")
        a: int = 1
        cache: str = Field(default="", exclude=True)
        _seen: int = PrivateAttr(default=0)

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return self.a * 2

    value = Derived(a=2, cache="x")
    value._seen = 9
    assert StateSchema("derived", 1, Derived).dump(value) == {"a": 2}


def test_extra_members_round_trip_where_the_model_allows_them() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    schema = StateSchema("open", 1, Open)
    assert schema.dump(schema.load({"more": {"x": [1]}})) == {"more": {"x": [1]}}
    with pytest.raises(SchemaError) as caught:
        schema.dump(Open.model_validate({"more": {"x": {1}}}))
    assert caught.value.path == "/more/x"


def test_strict_models_read_their_own_documents() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        when: datetime = NOW
        uid: UUID = UUID(int=1)
        tags: set[str] = Field(default_factory=lambda: {"a"})
        pair: tuple[int, int] = (1, 2)

    schema = StateSchema("strict", 1, Strict)
    assert schema.load(schema.dump(Strict())) == Strict()


def test_bytes_under_base64_round_trip() -> None:
    class Binary(BaseModel):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        raw: bytes = b"\xff\x00"

    schema = StateSchema("binary", 1, Binary)
    assert schema.load(schema.dump(Binary())) == Binary()


def test_embedded_json_fields_round_trip() -> None:
    class Packed(BaseModel):
        data: Json[dict[str, int]] = Field(default_factory=dict)

    schema = StateSchema("packed", 1, Packed, initial=Packed.model_validate({"data": '{"a": 1}'}))
    document = schema.dump(schema.initial())
    assert schema.load(document).data == {"a": 1}


def test_root_models_and_frozen_models() -> None:
    class Names(RootModel[list[str]]):
        root: list[str] = Field(default_factory=list)

    class Fixed(BaseModel):
        model_config = ConfigDict(frozen=True)
        names: Names = Names()
        by_name: dict[str, Names] = Field(default_factory=dict)

    schema = StateSchema("fixed", 1, Fixed)
    value = Fixed(names=Names(["a"]), by_name={"x": Names(["b"])})
    assert schema.dump(value) == {"names": ["a"], "by_name": {"x": ["b"]}}
    assert schema.load(schema.dump(value)) == value


def test_a_state_is_an_object() -> None:
    # everything that reads a state reads members: patches, marks, diffs, the context
    class Names(RootModel[list[str]]):
        root: list[str] = Field(default_factory=list)

    class Written(BaseModel):
        name: str = ""

        @model_serializer
        def write(self) -> str:
            return self.name

    for model in (Names, Written):
        with pytest.raises(SchemaError, match="a state is a JSON object, not a"):
            StateSchema("names", 1, model)

    class Prices(RootModel[dict[str, int]]):
        root: dict[str, int] = Field(default_factory=dict)

    prices = StateSchema("prices", 1, Prices)
    assert prices.load(prices.dump(Prices({"a": 1}))) == Prices({"a": 1})


def test_values_a_validator_normalises_are_stored_normalised() -> None:
    class Tidy(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True)
        name: str = ""

    value = Tidy()
    value.name = "  a "
    assert StateSchema("tidy", 1, Tidy).dump(value) == {"name": "a"}


def test_a_validator_that_never_settles_is_refused() -> None:
    class Growing(BaseModel):
        name: str = ""

        @field_validator("name")
        @classmethod
        def _grow(cls, name: str) -> str:
            return name + "x"

    with pytest.raises(SchemaError):
        StateSchema("growing", 1, Growing)


def test_a_serializer_that_loses_its_value_is_refused() -> None:
    class Lossy(BaseModel):
        secret: SecretStr = SecretStr("")
        rounded: float = 0.0

        @field_serializer("rounded")
        def _round(self, value: float) -> float:
            return round(value)

    schema = StateSchema("lossy", 1, Lossy)
    for value, path in (
        (Lossy(secret=SecretStr("abc")), "/secret"),
        (Lossy(rounded=1.5), "/rounded"),
    ):
        with pytest.raises(SchemaError) as caught:
            schema.dump(value)
        assert caught.value.path == path


def test_a_serializer_that_raises_is_named() -> None:
    class Raising(BaseModel):
        items: list[int] = Field(default_factory=list)

        @field_serializer("items")
        def _write(self, items: list[int]) -> list[int]:
            if items:
                raise RuntimeError("no")
            return items

    with pytest.raises(SchemaError, match="no"):
        StateSchema("raising", 1, Raising).dump(Raising(items=[1]))


# Loading


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"confirmed_facts": [{"statement": "a"}]}, "/confirmed_facts/0/confirmed_at"),
        ({"confirmed_facts": {}}, "/confirmed_facts"),
        ({"active_task": {"description": 3}}, "/active_task/description"),
        ({"active_task": {}}, "/active_task/description"),
        ({"user_preferences": []}, "/user_preferences"),
        ({"x/y": 1}, "/x~1y"),
        ([], ""),
        (None, ""),
        ("text", ""),
        (
            {"confirmed_facts": [{"statement": "a", "confirmed_at": "2026-01-01T00:00:00"}]},
            "/confirmed_facts/0/confirmed_at",
        ),
    ],
)
def test_a_document_that_does_not_fit_is_refused_with_the_path(
    document: Any, path: str
) -> None:  # trap 23 for the last
    with pytest.raises(SchemaError) as caught:
        DEFAULT_SCHEMA.load(document)
    assert caught.value.path == path


def test_paths_leave_out_the_members_of_unions() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]
        name: str

    class Home(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
        either: list[Cat | dict[str, int]] = Field(default_factory=list)
        whole: dict[str, int] = Field(default_factory=dict)

        @model_validator(mode="after")
        def _check(self) -> Home:
            if self.whole.get("bad"):
                raise ValueError("bad")
            return self

    schema = StateSchema("home", 1, Home)
    for document, path in (
        ({"pet": {"kind": "cat", "lives": "x"}}, "/pet/lives"),
        ({"pet": {"kind": "dog"}}, "/pet/name"),
        ({"pet": {"kind": "fish"}}, "/pet"),
        ({"either": [{"a": 1}, {"a": "x"}]}, "/either/1/kind"),
        ({"whole": {"bad": 1}}, ""),
    ):
        with pytest.raises(SchemaError) as caught:
            schema.load(document)
        assert caught.value.path == path


def test_not_json_at_all_is_a_schema_error() -> None:
    for document in ({"user_preferences": {"a": math.nan}}, {"user_preferences": {"a": object()}}):
        with pytest.raises(InvalidInput):
            DEFAULT_SCHEMA.load(document)


def test_accept_refuses_what_the_model_would_ignore() -> None:
    assert NOTES.load({"titel": "x"}).title == ""
    with pytest.raises(SchemaError) as caught:
        NOTES.accept({"titel": "x"})
    assert caught.value.path == "/titel"
    assert NOTES.accept({"title": "x", "anything": {"y": 1}}).title == "x"


# Migrations


class Third(BaseModel):
    model_config = ConfigDict(extra="forbid")
    user_preferences: dict[str, str]
    confirmed_at: AwareDatetime | None = None


def _to_two(document: dict[str, Any]) -> dict[str, Any]:
    return {"preferences": document["prefs"]}


def _to_three(document: dict[str, Any]) -> None:
    document["user_preferences"] = document.pop("preferences")


THIRD = StateSchema(
    "third",
    3,
    Third,
    {1: _to_two, 2: _to_three},
    initial=Third(user_preferences={}),
)
WHO = {"memory": "acme/agent/u-17", "state_version": 9}


def test_a_document_is_migrated_through_every_step() -> None:  # trap 32
    stored = {"prefs": {"zone": "UTC"}}
    document, steps = THIRD.migrate(stored, 1, memory="m", state_version=4)
    assert steps == [(1, 2), (2, 3)]
    assert document == {"user_preferences": {"zone": "UTC"}, "confirmed_at": None}
    assert stored == {"prefs": {"zone": "UTC"}}
    value, document, steps = THIRD.read(
        {"preferences": {}}, 2, name="third", memory="m", state_version=4
    )
    assert (value.user_preferences, steps) == ({}, [(2, 3)])


def test_a_current_document_runs_no_step() -> None:
    stored = {"user_preferences": {"a": "b"}, "confirmed_at": None}
    assert THIRD.migrate(stored, 3, memory="m", state_version=1) == (stored, [])


def test_a_newer_document_is_refused() -> None:  # trap 32
    with pytest.raises(NewerSchema) as caught:
        THIRD.migrate({}, 4, memory="m", state_version=1)
    assert (caught.value.schema, caught.value.stored, caught.value.known) == ("third", 4, 3)


def test_another_schemas_document_is_refused() -> None:
    with pytest.raises(SchemaError, match="'other'"):
        THIRD.migrate({}, 3, memory="m", state_version=1, name="other")


def test_a_version_that_no_migration_leads_from() -> None:
    late = StateSchema("third", 3, Third, {2: _to_three}, initial=Third(user_preferences={}))
    for schema, version in ((late, 1), (THIRD, 0)):
        with pytest.raises(MigrationFailed, match="no migration from version"):
            schema.migrate({}, version, memory="m", state_version=1)


def _failing(document: dict[str, Any]) -> dict[str, Any]:
    document["prefs"]["zone"] = "spoiled"
    raise InvalidInput("not a zone", path="/prefs/zone")


@pytest.mark.parametrize(
    ("migrations", "stored", "step", "path", "reason"),
    [
        ({1: _failing, 2: _to_three}, {"prefs": {"zone": 1}}, (1, 2), "/prefs/zone", "not a zone"),
        ({1: _to_two, 2: _to_three}, {"other": 1}, (1, 2), "", "KeyError: 'prefs'"),
        ({1: lambda d: [d], 2: _to_three}, {"prefs": {}}, (1, 2), "", "list"),
        ({1: lambda d: {"a": {1}}, 2: _to_three}, {"prefs": {}}, (1, 2), "/a", "set"),
        ({1: lambda d: {"a": math.nan}, 2: _to_three}, {"prefs": {}}, (1, 2), "/a", "nan"),
        (
            {1: _to_two, 2: _to_three},
            {"prefs": {"zone": 1}},
            (2, 3),
            "/user_preferences/zone",
            "string",
        ),
        ({1: _to_two, 2: lambda d: d}, {"prefs": {}}, (2, 3), "/user_preferences", "required"),
    ],
)
def test_a_failing_migration_says_where_and_alters_nothing(
    migrations: Any, stored: Any, step: tuple[int, int], path: str, reason: str
) -> None:  # trap 33
    schema = StateSchema("third", 3, Third, migrations, initial=Third(user_preferences={}))
    before = deepcopy(stored)
    with pytest.raises(MigrationFailed, match=reason) as caught:
        schema.migrate(stored, 1, memory="acme/agent/u-17", state_version=9)
    error = caught.value
    assert (error.memory, error.version) == ("acme/agent/u-17", 9)
    assert (error.step, error.path) == (step, path)
    assert "acme/agent/u-17" in str(error)
    assert stored == before


def test_a_current_document_that_no_longer_fits_says_whose_it_is() -> None:
    with pytest.raises(MigrationFailed) as caught:
        THIRD.migrate({"user_preferences": 3}, 3, memory="m", state_version=7)
    error = caught.value
    assert (error.version, error.step, error.path) == (7, None, "/user_preferences")


def test_a_migration_that_leaves_a_key_behind_fails() -> None:  # trap 32
    schema = StateSchema("notes", 2, Notes, {1: lambda document: document})
    with pytest.raises(MigrationFailed) as caught:
        schema.migrate({"headline": "x"}, 1, memory="m", state_version=1)
    assert caught.value.path == "/headline"


def test_a_migration_that_keeps_hold_of_its_input_harms_nobody() -> None:
    held: list[Any] = []

    def keep(document: dict[str, Any]) -> dict[str, Any]:
        held.append(document)
        return document

    schema = StateSchema("notes", 2, Notes, {1: keep})
    document, _ = schema.migrate({"anything": [1]}, 1, memory="m", state_version=1)
    held[0]["anything"].append(2)
    assert document["anything"] == [1]


def _meddle(document: dict[str, Any]) -> None:
    for value in list(document.values()):
        if isinstance(value, dict):
            _meddle(value)
        elif isinstance(value, list):
            value.append("meddled")
    document["anything"] = {"old": deepcopy(document)}
    for key in [k for k in document if k not in Notes.model_fields]:
        del document[key]
    document["title"] = ""
    document["number"] = 0
    document["maybe"] = None


@given(st.dictionaries(st.text("ab", max_size=2), JSON_VALUES, max_size=4))
def test_migrations_never_alter_what_is_stored(stored: dict[str, Any]) -> None:
    before = json.dumps(stored)
    StateSchema("notes", 2, Notes, {1: _meddle}).migrate(stored, 1, memory="m", state_version=1)
    assert json.dumps(stored) == before


# The default schema and its cues


def test_the_default_schema_holds_a_working_agents_state() -> None:
    value = DEFAULT_SCHEMA.initial()
    value.user_preferences.update(timezone="America/New_York")
    value.confirmed_facts.append(
        ConfirmedFact(statement="The budget is 20k", confirmed_at=NOW, positions=[3, 7])
    )
    value.active_task = ActiveTask(description="compare stores", last_action="ran the benchmark")
    value.unresolved_issues.append(Issue(description="which index?", opened_at=NOW))
    assert DEFAULT_SCHEMA.load(DEFAULT_SCHEMA.dump(value)) == value


def test_the_default_schema_wants_aware_times() -> None:  # trap 23
    value = DEFAULT_SCHEMA.initial()
    value.unresolved_issues.append(Issue(description="a"))
    value.unresolved_issues[0].opened_at = datetime(2026, 1, 1)
    with pytest.raises(SchemaError) as caught:
        DEFAULT_SCHEMA.dump(value)
    assert caught.value.path == "/unresolved_issues/0/opened_at"


def test_times_in_any_offset_are_the_same_instant() -> None:  # trap 24
    there = NOW.astimezone(timezone(timedelta(hours=-5)))
    value = AgentState(confirmed_facts=[ConfirmedFact(statement="a", confirmed_at=there)])
    loaded = DEFAULT_SCHEMA.load(DEFAULT_SCHEMA.dump(value))
    assert loaded.confirmed_facts[0].confirmed_at == NOW


def test_cues_come_by_rank_without_blanks_and_repeats() -> None:
    value = AgentState(
        active_task=ActiveTask(description="compare stores", last_action=" ran it "),
        unresolved_issues=[
            Issue(description="which index?"),
            Issue(description="  "),
            Issue(description="compare stores"),
        ],
    )
    assert DEFAULT_SCHEMA.cues(value) == ["compare stores", "ran it", "which index?"]
    assert DEFAULT_SCHEMA.cues(DEFAULT_SCHEMA.initial()) == []


def test_cues_at_any_depth() -> None:
    class Step(BaseModel):
        text: str
        when: AwareDatetime = NOW
        inner: list[Step] = Field(default_factory=list)

    class Plan(BaseModel):
        goal: Annotated[str, Cue(rank=1)] = "goal"
        first: Annotated[Step, Cue()] = Step(text="a", inner=[Step(text="b")])
        words: Annotated[list[str], Cue(rank=2)] = Field(default_factory=lambda: ["w1", "w2"])
        by_name: dict[str, Annotated[str, Cue(rank=3)]] = Field(default_factory=lambda: {"x": "y"})
        maybe: list[Annotated[str, Cue(rank=4)] | int] = Field(default=[1, "m"])
        other: str = "not a cue"
        typed: Annotated[dict[str, Any], Cue(rank=5)] = Field(
            default_factory=lambda: {"a": {"b": ["deep"]}, "n": 4}
        )

    assert cues(Plan()) == ["a", "b", "goal", "w1", "w2", "y", "m", "deep"]


def test_a_since_that_no_entry_has_is_unsound() -> None:
    class Wrong(BaseModel):
        facts: Annotated[list[ConfirmedFact], Fresh(timedelta(days=1), since="confirmed")] = Field(
            default_factory=list
        )

    class Plain(BaseModel):
        inner: list[Annotated[str, Fresh(timedelta(days=1), since="at")]] = Field(
            default_factory=list
        )

    for model in (Wrong, Plain):
        with pytest.raises(SchemaError, match="no entry has a field"):
            StateSchema("wrong", 1, model)


@pytest.mark.parametrize("for_", [timedelta(0), timedelta(days=-1), 90, None])
def test_fresh_takes_a_positive_time(for_: Any) -> None:
    with pytest.raises(SchemaError):
        Fresh(for_)
    with pytest.raises(SchemaError):
        Fresh(timedelta(days=1), question=" ")
