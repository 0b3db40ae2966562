"""Registered schemas through both stores and both clients, over HTTP alone, and in the database."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import psycopg
import pytest

from memstore import (
    DEFAULT_SCHEMA,
    AsyncRemoteSchemas,
    AsyncSchemas,
    Definition,
    InvalidInput,
    JsonState,
    MemoryStore,
    MigrationFailed,
    NewerSchema,
    NotFound,
    RemoteSchemas,
    SchemaConflict,
    SchemaError,
    Schemas,
)
from memstore.checking import Checker
from memstore.http import MERGE_TYPE
from tests.serving import KINDS, application, asked, opened
from tests.stores import QUIET

FIRST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "address": {"type": ["string", "null"], "x-fresh": "P90D"},
        "task": {"type": "string", "x-cue": 0},
    },
    "additionalProperties": False,
}
SECOND = FIRST | {
    "properties": {
        "addresses": {
            "type": "array",
            "items": {"type": "string"},
            "x-fresh": {"for": "P90D", "question": "Still at {value}?"},
        },
        "task": {"type": "string", "x-cue": 0},
    },
    "required": ["addresses"],
}
TO_SECOND = [
    {"op": "add", "path": "/addresses", "value": []},
    {"op": "move", "from": "/address", "path": "/addresses/0", "optional": True},
]
THIRD = SECOND | {"required": ["addresses", "task"]}
TO_THIRD = [{"op": "test", "path": "/addresses/0", "value": "A"}]
M = "/v1/agents/a/users/u"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with opened(request.param, database_url) as found:
        yield found


def second(schemas: Any) -> None:
    schemas.register("desk", 2, SECOND, migration=TO_SECOND, initial={"addresses": []})


def test_versions_are_registered_once_and_never_change(store: Any) -> None:
    schemas = store.schemas
    first = schemas.register("desk", 1, FIRST)
    assert isinstance(first, Definition)
    assert (first.name, first.version, first.schema) == ("desk", 1, FIRST)
    assert schemas.register("desk", 1, dict(reversed(FIRST.items()))) == first
    with pytest.raises(SchemaConflict) as raised:
        schemas.register("desk", 1, SECOND, initial={"addresses": []})
    assert (raised.value.schema, raised.value.version) == ("desk", 1)
    with pytest.raises(SchemaConflict):
        schemas.register("desk", 1, FIRST, initial={"task": "x"})
    with pytest.raises(SchemaError, match="next version is 2"):
        schemas.register("desk", 3, THIRD, migration=[])
    second(schemas)
    schemas.register("other", 1, {})
    assert [(d.name, d.version) for d in schemas.registered()] == [("desk", 2), ("other", 1)]
    assert schemas.registered()[0].migration == TO_SECOND
    assert (schemas.get("desk").version, schemas.get("desk", 1).version) == (2, 1)
    assert [(d.version, d.migration) for d in schemas.versions("desk")] == [
        (1, None),
        (2, TO_SECOND),
    ]
    assert schemas.versions("desk", 1) == [first]
    for name, version in (("nothing", None), ("desk", 3)):
        for read in (schemas.get, schemas.versions):
            with pytest.raises(NotFound):
                read(name, version)


@pytest.mark.parametrize(
    ("local", "remote"), [(Schemas, RemoteSchemas), (AsyncSchemas, AsyncRemoteSchemas)]
)
def test_clients_have_the_stores_methods(local: type, remote: type) -> None:
    for name, _ in inspect.getmembers(local, callable):
        if not name.startswith("_") and name != "add":  # which serves the server
            here, there = (inspect.signature(getattr(one, name)) for one in (remote, local))
            assert here == there, name


@pytest.mark.parametrize("name", ["", "a b", "/", "é" * 101, "a\x00", "\udc97", "agent"])
def test_names_that_can_not_be_are_refused(store: Any, name: str) -> None:
    # traps 1, 2 and 4
    with pytest.raises(InvalidInput):
        store.schemas.register(name, 1, {})
    assert store.schemas.registered() == []


def test_a_schema_is_checked_before_it_is_registered(store: Any) -> None:
    for schema, path in (
        ({"type": "thing"}, "schema/type"),
        ({"properties": {"a": {"$ref": "http://x.example"}}}, "schema/properties/a"),
        ({"required": ["a"]}, "initial"),
    ):
        with pytest.raises(SchemaError) as raised:
            store.schemas.register("desk", 1, schema)
        assert raised.value.path == path
    assert store.schemas.registered() == []


def test_a_memory_with_a_registered_schema(store: Any) -> None:
    store.schemas.register("desk", 1, FIRST)
    memory = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
    assert memory.state().document == {}
    memory.append(content="Rua do Souto is in Porto", role="user")
    memory.save(JsonState({"task": "visit the souto"}), expected_version=0)
    state = memory.update(lambda s: s.root.update(address="Rua do Souto 14"))
    assert state.document == {"task": "visit the souto", "address": "Rua do Souto 14"}
    assert (state.schema_name, state.schema_version) == ("desk", 1)
    for one in (state, memory.state()):
        one.value.root["task"] = "another"  # is the caller's own
        assert one.document["task"] == "visit the souto"
    for wrong, path in (
        ({"address": 5}, "/address"),
        ({"phone": "1"}, "/phone"),
        ([{"op": "add", "path": "/address", "value": []}], "/address"),
    ):
        with pytest.raises(SchemaError) as raised:
            memory.patch(wrong)
        assert raised.value.path == path
        assert [error["path"] for error in raised.value.errors] == [path]
    assert memory.state().version == 2
    (flagged,) = memory.flag("/address", "a parcel came back").stale
    assert flagged.path == "/address"
    assert memory.confirm("/address").stale == ()
    assert [change.path for change in memory.diff(1, 2)] == ["/address"]
    context = memory.resume(budget=500)
    assert "Rua do Souto 14" in context.to_text()
    assert [entry.event.position for entry in context.retrieved + context.tail]  # by its cue
    assert memory.revert(to=1).document == {"task": "visit the souto"}
    with pytest.raises(SchemaError, match="desk"):
        store.memory(agent="a", user="u").state()


def test_a_state_is_migrated_step_by_step_and_an_older_reader_refuses_it(store: Any) -> None:
    # trap 32
    store.schemas.register("desk", 1, FIRST)
    old = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
    old.patch({"address": "A", "task": "t"})
    store.memory(agent="b", user="u", schema=store.schemas.get("desk")).patch({"task": "t"})
    second(store.schemas)
    store.schemas.register(
        "desk", 3, THIRD, migration=TO_THIRD, initial={"addresses": [], "task": ""}
    )
    memory = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
    state = memory.state()
    assert state.document == {"addresses": ["A"], "task": "t"}
    assert (state.version, state.schema_version) == (1, 1)
    assert old.state().document == {"address": "A", "task": "t"}  # by its own version still
    saved = memory.patch({"task": "t2"})
    assert (saved.schema_version, saved.document["addresses"]) == (3, ["A"])
    with pytest.raises(NewerSchema) as raised:
        old.state()
    assert (raised.value.stored, raised.value.known) == (3, 1)
    with pytest.raises(NewerSchema):
        old.patch({"task": "t3"})
    # trap 33: one that can't be migrated is named, and stays as it was
    failing = store.memory(agent="b", user="u", schema=store.schemas.get("desk"))
    with pytest.raises(MigrationFailed) as failed:
        failing.state()
    assert failed.value.version == 1
    assert failed.value.step == (2, 3)
    assert failed.value.path == "/addresses/0"
    assert failed.value.memory.endswith("b/u")
    with pytest.raises(MigrationFailed):
        failing.patch({"task": "t3"})
    kept = store.memory(agent="b", user="u", schema=store.schemas.get("desk", 2)).state()
    assert (kept.version, kept.document) == (1, {"addresses": [], "task": "t"})


def test_a_version_is_tried_out_before_it_is_registered(store: Any) -> None:
    # trap 33
    store.schemas.register("desk", 1, FIRST)
    for agent, state in (("a", {"address": "A"}), ("b", {}), ("c", {"address": None})):
        memory = store.memory(agent=agent, user="u", schema=store.schemas.get("desk"))
        memory.save(JsonState(state), expected_version=0)
    report = store.schemas.trial("desk", 2, SECOND, migration=TO_SECOND, initial={"addresses": []})
    assert (report.tried, report.outdated, report.migrated, report.complete) == (3, 2, 0, True)
    (failure,) = report.failures
    assert isinstance(failure, MigrationFailed)
    assert failure.memory.endswith("c/u")
    assert failure.path == "/addresses/0"
    some = store.schemas.trial(
        "desk", 2, SECOND, migration=TO_SECOND, initial={"addresses": []}, limit=2
    )
    assert (some.tried, some.complete) == (2, False)
    assert [d.version for d in store.schemas.registered()] == [1]


def test_states_are_migrated_all_at_once_too(database_url: str) -> None:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        store.schemas.register("desk", 1, FIRST)
        memory = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
        memory.patch({"address": "A"})
        second(store.schemas)
        report = store.migrate_states(store.schemas.get("desk"))
        assert (report.migrated, report.failures) == (1, ())
        newer = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
        assert (newer.state().version, newer.state().schema_version) == (2, 2)


def test_a_state_goes_from_python_to_json_schema_unchanged(database_url: str) -> None:
    """What a Pydantic model wrote, its own JSON Schema reads, with the same marks."""
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        initial = DEFAULT_SCHEMA.dump(DEFAULT_SCHEMA.initial())
        store.schemas.register("twin", 1, DEFAULT_SCHEMA.json_schema(), initial=initial)
        twin = store.schemas.get("twin")
        memory = store.memory(agent="a", user="u")
        state = memory.patch({"user_preferences": {"zone": "CET"}})
        copy = store.memory(agent="b", user="u", schema=twin)
        copied = copy.save(JsonState(state.document), expected_version=0)
        assert copied.document == state.document
        assert copied.marks.keys() == state.marks.keys()
        assert memory.flag("/user_preferences/zone", "?").stale[0].question == (
            copy.flag("/user_preferences/zone", "?").stale[0].question
        )


# the walls


def test_a_tenant_sees_its_own_schemas_alone(database_url: str) -> None:
    # trap 22
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        store.create_tenant("other")
        other = store.for_tenant("other")
        store.schemas.register("desk", 1, FIRST)
        assert store.schemas.get("desk").version == 1
        assert other.schemas.registered() == []
        with pytest.raises(NotFound):
            other.schemas.get("desk")
        other.schemas.register("desk", 1, {})  # its own
        assert store.schemas.get("desk").definition.schema == FIRST


def test_the_database_walls_them_too_and_lets_none_be_changed(database_url: str) -> None:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        store.schemas.register("desk", 1, FIRST)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("SET ROLE memstore_server")
        rows = conn.execute("SELECT * FROM memstore.state_schemas").fetchall()
        assert rows == []  # no tenant is set
        conn.execute("SET memstore.tenant = '1'")
        assert len(conn.execute("SELECT * FROM memstore.state_schemas").fetchall()) == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(
                "INSERT INTO memstore.state_schemas (tenant_id, name, version, schema)"
                " VALUES (2, 'x', 1, '{}')"
            )
        for change in (
            "UPDATE memstore.state_schemas SET schema = '{}'",
            "DELETE FROM memstore.state_schemas",
            "TRUNCATE memstore.state_schemas",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(change.encode())


# over HTTP


@pytest.fixture
async def http(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with asked(application(database_url, insecure=True)) as client:
        yield client


async def test_without_python_a_state_is_validated_and_migrated(http: httpx.AsyncClient) -> None:
    made = await http.put("/v1/schemas/desk/versions/1", json={"schema": FIRST})
    assert made.status_code == 201, made.text
    again = await http.put("/v1/schemas/desk/versions/1", json={"schema": FIRST})
    assert (again.status_code, again.json()) == (200, made.json())
    other = await http.put("/v1/schemas/desk/versions/1", json={"schema": {}})
    assert other.status_code == 409
    assert other.json()["type"] == "urn:memstore:error:schema-conflict"
    wrong = await http.put("/v1/schemas/desk/versions/2", json={"schema": {"type": 1}})
    assert (wrong.status_code, wrong.json()["path"]) == (422, "migration")

    async def patch(change: Any, **params: Any) -> httpx.Response:
        return await http.patch(
            f"{M}/state",
            params={"schema": "desk"} | params,
            content=json.dumps(change),
            headers={"Content-Type": MERGE_TYPE},
        )

    assert (await patch({"address": "A"})).json()["document"] == {"address": "A"}
    refused = await patch({"address": 1, "phone": 2})
    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    problem = refused.json()
    assert problem["type"] == "urn:memstore:error:schema"
    assert [error["path"] for error in problem["errors"]] == ["/address", "/phone"]
    body = {"schema": SECOND, "migration": TO_SECOND, "initial": {"addresses": []}}
    trial = await http.post("/v1/schemas/desk/versions/2/trial", json=body)
    assert (trial.status_code, trial.json()["outdated"]) == (200, 1)
    await http.put("/v1/schemas/desk/versions/2", json=body)
    state = (await http.get(f"{M}/state", params={"schema": "desk"})).json()
    assert state["document"] == {"addresses": ["A"]}
    assert (state["document_version"], state["schema_version"]) == (2, 1)
    await patch({"task": "t"})
    older = await http.get(f"{M}/state", params={"schema": "desk", "schema_version": 1})
    assert older.status_code == 409
    assert older.json()["type"] == "urn:memstore:error:newer-schema"
    listed = (await http.get("/v1/schemas/desk")).json()["schemas"]
    assert [one["version"] for one in listed] == [1, 2]
    upto = (await http.get("/v1/schemas/desk", params={"version": 1})).json()["schemas"]
    assert upto == listed[:1]
    assert (await http.get("/v1/schemas")).json()["schemas"] == listed[1:]
    assert (await http.get("/v1/schemas/nothing")).status_code == 404
    for params in (
        {"schema": "desk", "schema_version": "9"},
        {"schema": "nothing"},
        {"schema": "a\x00"},
        {"schema_version": "1"},
    ):
        answer = await http.get(f"{M}/state", params=params)
        assert answer.status_code == 422, answer.text


async def test_a_schema_is_known_to_every_server_at_once(database_url: str) -> None:
    one, two = (application(database_url, insecure=True) for _ in range(2))
    async with asked(one) as first, asked(two) as other:
        params = {"schema": "desk"}
        await first.put("/v1/schemas/desk/versions/1", json={"schema": FIRST})
        assert (await other.get(f"{M}/state", params=params)).json()["document_version"] == 1
        body = {"schema": SECOND, "migration": TO_SECOND, "initial": {"addresses": []}}
        await first.put("/v1/schemas/desk/versions/2", json=body)
        assert (await other.get(f"{M}/state", params=params)).json()["document_version"] == 2


async def test_only_an_unbound_administrator_registers(database_url: str) -> None:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        keys = {
            "read": store.create_key("k", scopes=["read"]),
            "write": store.create_key("k", scopes=["write"]),
            "bound": store.create_key("k", scopes=["admin"], agents=["a"]),
            "admin": store.create_key("k", scopes=["admin"]),
        }
    app = application(database_url)
    async with asked(app) as http:
        for name, key in keys.items():
            headers = {"Authorization": f"Bearer {key.token}"}
            wanted = 201 if name == "admin" else 403
            put = await http.put(
                "/v1/schemas/desk/versions/1", json={"schema": FIRST}, headers=headers
            )
            assert put.status_code == wanted, name
            trial = await http.post(
                "/v1/schemas/more/versions/1/trial", json={"schema": FIRST}, headers=headers
            )
            assert trial.status_code == (200 if name == "admin" else 403), name
            listed = await http.get("/v1/schemas", headers=headers)
            assert listed.status_code == (403 if name == "write" else 200), name


async def test_a_schema_that_takes_its_time_holds_up_nobody_else(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # trap 37
    await http.put("/v1/schemas/desk/versions/1", json={"schema": FIRST})
    asked, may = threading.Event(), threading.Event()

    def slow(checker: Checker, document: Any) -> None:
        asked.set()
        assert may.wait(30)

    monkeypatch.setattr(Checker, "check", slow)
    for method, path, body in (
        ("GET", "state", None),
        ("PATCH", "state", {"address": "A"}),
        ("POST", "commit", {"patch": {"address": "B"}}),
        ("PUT", "state", {"document": {"address": "C"}}),
        ("POST", "confirm", {"path": ""}),
    ):
        asked.clear()
        may.clear()
        headers = {"Content-Type": MERGE_TYPE if method == "PATCH" else "application/json"}
        headers |= {"If-Match": "*"} if method == "PUT" else {}
        asking = asyncio.create_task(
            http.request(
                method,
                f"{M}/{path}",
                params={"schema": "desk"},
                content=json.dumps(body) if body else None,
                headers=headers,
            )
        )
        assert await asyncio.to_thread(asked.wait, 30)
        assert (await http.get("/healthz")).status_code == 200  # the loop is free
        may.set()
        assert (await asking).status_code == 200, (method, path)
