"""State schemas: sound construction, loading, the default schema and its cues."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
    model_validator,
)

from memstore.annotations import Cue, Fresh, cues
from memstore.default_schema import DEFAULT_SCHEMA, ActiveTask, AgentState, ConfirmedFact, Issue
from memstore.errors import InvalidInput, SchemaError
from memstore.schema import StateSchema
from tests.schemas import NOTES, NOW, Item, Notes

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
