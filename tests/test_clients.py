"""The contract over stores and clients, and what only clients do: repeat, time out, be refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from memstore import (
    AccessDenied,
    AgentState,
    AsyncClient,
    AsyncMemory,
    AsyncRemoteMemory,
    Client,
    IdempotencyConflict,
    InvalidInput,
    Memory,
    MemstoreError,
    MigrationFailed,
    NewerSchema,
    RemoteMemory,
    ServiceError,
    StateConflict,
    StateSchema,
    StorageError,
    TooBusy,
)
from memstore.problems import KINDS as ERROR_KINDS
from memstore.problems import from_problem, to_problem
from tests.contract import ISSUE, Contract
from tests.serving import KINDS, WordEncoder, application, opened, running
from tests.test_arguments import MAY_BE_LEFT_OUT, NO_WHOLE_NUMBERS, WHOLE

SERVER = "http://server"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with opened(request.param, database_url, WordEncoder()) as found:
        yield found


@pytest.fixture
def memory(store: Any) -> Any:
    return store.memory(agent="agent", user="user")


class TestContract(Contract):
    """Over `MemoryStore`, `AsyncMemoryStore`, `Client` and `AsyncClient`."""


@pytest.mark.parametrize(
    ("local", "remote"), [(Memory, RemoteMemory), (AsyncMemory, AsyncRemoteMemory)]
)
def test_clients_have_the_stores_methods_and_parameters(local: type, remote: type) -> None:
    for name, method in inspect.getmembers(local, callable):
        if name.startswith("_"):
            continue
        here = inspect.signature(getattr(remote, name)).parameters
        there = inspect.signature(method).parameters
        assert there.keys() - here.keys() <= {"ranking", "counter"}, name
        common = {n: str(parameter) for n, parameter in there.items() if n in here}
        assert common == {n: str(parameter) for n, parameter in here.items()}, name


def test_wrong_arguments_are_refused_as_the_store_refuses_them(memory: Any) -> None:
    memory.patch({"user_preferences": {"zone": "CET"}})
    for name, call in WHOLE:
        for wrong in NO_WHOLE_NUMBERS:
            if wrong is None and name in MAY_BE_LEFT_OUT | {"before", "version"}:
                continue
            with pytest.raises(InvalidInput) as refused:
                call(memory, wrong)
            assert refused.value.path == name
    for wrong in ("", "x", "../..", "\0", None):
        with pytest.raises(InvalidInput) as refused:
            memory.feedback(wrong, [1])
        assert refused.value.path == "context_id"
    for write in (memory.append, lambda events, **key: memory.commit(events=events, **key)):
        with pytest.raises(InvalidInput, match="at most 507 bytes") as refused:
            write([{"content": "x"}], idempotency_key="k" * 508)
        assert refused.value.path == "idempotency_key"
    assert memory.append([{"content": "x"}], idempotency_key="k" * 507).positions == (1,)
    assert memory.append(content="x", idempotency_key="k" * 512).positions == (2,)


# when the way to the server fails


class Faulty(httpx.HTTPTransport):
    """A way to a real server that fails as it is told: before sending, or after the answer."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self.faults = faults
        self.sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "unsent":
            raise httpx.ConnectError("refused", request=request)
        self.sent += 1
        response = super().handle_request(request)
        if fault == "unanswered":
            response.read()
            raise httpx.ReadTimeout("too slow", request=request)
        return response


@pytest.fixture
def address(database_url: str) -> Iterator[str]:
    with running(application(database_url, insecure=True)) as url:
        yield url


Act = Callable[[RemoteMemory[AgentState]], object]
ACTS: dict[str, Act] = {
    "append": lambda m: m.append(content="x"),
    "append many": lambda m: m.append([{"content": "x"}, {"content": "y"}]),
    "append under a key": lambda m: m.append([{"content": "x"}], idempotency_key="k"),
    "save": lambda m: m.save(AgentState(), expected_version=0),
    "patch": lambda m: m.patch(ISSUE),
    "commit": lambda m: m.commit(events=[{"content": "x"}], state=ISSUE),
    "update": lambda m: m.update(lambda s: s.user_preferences.update(a=1)),
    "read": lambda m: m.events(),
    "resume": lambda m: m.resume("x"),
}


def test_an_answer_lost_on_the_way_does_nothing_twice(address: str) -> None:
    # trap 28
    for name, act in ACTS.items():
        way = Faulty(["unanswered", "unsent"])
        with Client(address, transport=way) as client, Client(address) as other:
            act(client.memory(agent=name, user="hurt"))
            act(other.memory(agent=name, user="whole"))
            hurt, whole = (other.memory(agent=name, user=user) for user in ("hurt", "whole"))
            assert [e.content for e in hurt.events()] == [e.content for e in whole.events()], name
            assert hurt.state().value == whole.state().value, name
            assert hurt.state().version == whole.state().version, name


def test_a_mark_is_not_made_twice(address: str) -> None:
    with Client(address) as client:
        client.memory(agent="a", user="u").patch({"user_preferences": {"a": 1}})
    way = Faulty(["unsent", "unanswered"])
    with Client(address, transport=way) as client:
        memory = client.memory(agent="a", user="u")
        with pytest.raises(ServiceError, match="can't be reached"):
            memory.flag("/user_preferences/a", "why")
        assert way.sent == 1
        assert [v.kind for v in memory.history()] == ["flag", "save"]


def test_attempts_end(address: str) -> None:
    way = Faulty(["unsent"] * 9)
    with Client(address, attempts=2, transport=way) as client, pytest.raises(ServiceError):
        client.memory(agent="a", user="u").events()
    assert len(way.faults) == 7


def answers(*responses: httpx.Response) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    left, seen = list(responses), list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return left.pop(0)

    return httpx.MockTransport(answer), seen


def problem(error: MemstoreError) -> httpx.Response:
    body = to_problem(error)
    headers = {"Content-Type": "application/problem+json"}
    return httpx.Response(body["status"], json=body, headers=headers)


def test_a_busy_server_is_asked_again_even_for_a_mark() -> None:
    transport, seen = answers(
        problem(TooBusy("later", retry_after=0.01)),
        problem(TooBusy("later", retry_after=0.01, limited=True)),
        problem(InvalidInput("no", path="path")),
    )
    with Client(SERVER, transport=transport) as client, pytest.raises(InvalidInput):
        client.memory(agent="a", user="u").confirm("/x")
    assert len(seen) == 3


def test_a_server_that_is_busy_for_long_is_not_waited_for() -> None:
    transport, seen = answers(problem(TooBusy("later", retry_after=3600)))
    with Client(SERVER, transport=transport) as client, pytest.raises(TooBusy) as raised:
        client.memory(agent="a", user="u").events()
    assert raised.value.retry_after == 3600
    assert len(seen) == 1


def test_the_key_is_sent_and_shown_nowhere() -> None:
    transport, seen = answers(problem(AccessDenied("unknown", known=False)))
    with Client(SERVER, key="mem_secret", transport=transport) as client:
        with pytest.raises(AccessDenied) as raised:
            client.memory(agent="a", user="u").events()
        assert seen[0].headers["Authorization"] == "Bearer mem_secret"
        assert raised.value.known is False
        assert "secret" not in repr(client) + str(raised.value)


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, text="<html>hello</html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"events": [{"position": 1}]}),
        httpx.Response(204),
        httpx.Response(302, headers={"Location": "http://elsewhere"}),
        httpx.Response(404, text="nothing here"),
        httpx.Response(418, json={"type": 1}, headers={"Content-Type": "application/problem+json"}),
        httpx.Response(500, text="oops"),
    ],
    ids=lambda response: str(response.status_code),
)
def test_an_answer_without_sense_is_a_service_error(response: httpx.Response) -> None:
    transport, _ = answers(response)
    with Client(SERVER, transport=transport) as client, pytest.raises(ServiceError):
        client.memory(agent="a", user="u").events()


class Broken(httpx.SyncByteStream):
    """An answer that ends before it is whole."""

    def __iter__(self) -> Iterator[bytes]:
        yield b'{"agent": "a", "user": "u"}\n{"agent"'
        raise httpx.ReadError("gone")


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: httpx.Response(200, text="<html>hello</html>"),
        lambda _: httpx.Response(200, text='{"agent": 1}\n'),
        lambda _: httpx.Response(200, text='{"agent": "a", "user": "u"}\n{"agent"'),
        lambda _: httpx.Response(200, stream=Broken()),
        lambda _: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Broken()),
        lambda _: httpx.Response(500, stream=Broken()),
        lambda _: httpx.Response(500, text="oops"),
        refused,
    ],
)
def test_memories_end_in_the_clients_own_errors_too(
    answer: Callable[[httpx.Request], httpx.Response],
) -> None:
    transport = httpx.MockTransport(answer)
    with Client(SERVER, transport=transport) as client, pytest.raises(ServiceError):
        list(client.memories())


@pytest.mark.parametrize("agent", ["a\u2028b", "a\u0085b", "a\rb", "a\x1cb"])
def test_an_id_is_a_memorys_whatever_ends_a_line_elsewhere(address: str, agent: str) -> None:
    with Client(address) as client:
        client.memory(agent=agent, user="u").append(content="x")
        assert [(one.agent_id, one.user_id) for one in client.memories()] == [(agent, "u")]


@pytest.mark.parametrize("part", ["schema", "migration", "initial"])
@pytest.mark.parametrize("wrong", [float("nan"), {1}, b"x"], ids=["nan", "set", "bytes"])
def test_a_schema_that_is_not_json_is_refused_as_the_store_refuses_it(
    part: str, wrong: Any
) -> None:
    """trap 30"""
    given: dict[str, Any] = {"schema": {}, "migration": [], "initial": {}} | {part: [{"a": wrong}]}
    transport, seen = answers()
    with Client(SERVER, transport=transport) as client:
        for method in (client.schemas.register, client.schemas.trial):
            with pytest.raises(InvalidInput) as raised:
                method("desk", 2, **given)
            assert raised.value.path == f"{part}/0/a"
    assert not seen


ERRORS: list[MemstoreError] = [
    InvalidInput("no", path="/a"),
    StateConflict(expected_version=1, actual_version=2),
    IdempotencyConflict(key="k", position=3),
    MigrationFailed("why", memory="m", version=1, step=(1, 2), path="/x"),
    NewerSchema(schema="s", stored=3, known=2),
    AccessDenied("no", known=True),
    TooBusy("later", retry_after=2.5, limited=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_come_back_as_they_were(error: MemstoreError) -> None:
    back = from_problem(to_problem(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.__dict__ == error.__dict__


def test_every_error_has_a_kind_and_the_servers_own_affairs_stay_there() -> None:
    named = {kind.error for kind in ERROR_KINDS}
    ours = {e for e in MemstoreError.__subclasses__() if e.__module__ == "memstore.errors"}
    assert ours - named == {ServiceError}  # its base's kind fits
    secret = StorageError("connection to 10.0.0.1 as postgres failed: password=hunter2")
    told = to_problem(secret)
    assert told["status"] == 503
    assert "hunter2" not in str(told)
    assert "10.0.0.1" not in str(told)
    assert isinstance(from_problem(told), StorageError)


def test_a_schema_that_is_not_served_is_refused(address: str) -> None:
    class Other(AgentState):
        pass

    schema = StateSchema("other", 1, Other)
    with Client(address) as client, pytest.raises(InvalidInput, match="schema"):
        client.memory(agent="a", user="u", schema=schema).state()


async def test_the_async_client_closes_with_its_context(address: str) -> None:
    async with AsyncClient(address) as client:
        memory = client.memory(agent="a", user="u")
        await memory.append(content="x")
        assert [i.agent_id async for i in client.memories()] == ["a"]
    with pytest.raises(RuntimeError):
        await memory.events()
