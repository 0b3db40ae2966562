"""What Pydantic models may do: aliases, extras, validators and serializers of their own."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from pydantic import (
    AliasChoices,
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
)
from pydantic.alias_generators import to_camel

from memstore.errors import SchemaError
from memstore.schema import StateSchema
from tests.schemas import JSON_VALUES, NOTES, NOW, Notes


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
