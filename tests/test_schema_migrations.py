"""Migrations of documents: through every step, refused by name, never altering what is stored."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
)

from memstore.errors import InvalidInput, MigrationFailed, NewerSchema, SchemaError
from memstore.schema import StateSchema
from tests.schemas import JSON_VALUES, Notes


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
