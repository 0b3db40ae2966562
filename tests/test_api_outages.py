"""A server whose database goes away, or has no connection to spare: it says so, and recovers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest

from memstore import (
    Client,
    MemoryStore,
    MemstoreError,
    ServiceError,
    StorageError,
    TooBusy,
    migrate,
)
from memstore.embedded import EmbeddedServer
from tests.processes import eventually, is_dead, kill_server, sessions
from tests.serving import application, running
from tests.stores import QUIET
from tests.test_api_serving import serving

LONGEST = 120.0
WRITERS = 4
FIT = "/v1/agents/a/users/u/state"


@pytest.fixture
def own(scratch: Path) -> Iterator[EmbeddedServer]:
    """A database server that a test may stop."""
    with EmbeddedServer.acquire(scratch / "own") as found:
        migrate(found.url)
        yield found


class Writers:
    """Agents that commit turn after turn, and repeat each until it is acknowledged."""

    def __init__(self, address: str) -> None:
        self.acknowledged = {f"agent-{n}": 0 for n in range(WRITERS)}
        self.refused: list[MemstoreError] = []
        self.broken: list[Exception] = []
        self.ended = threading.Event()
        self._address = address
        self._threads = [
            threading.Thread(target=self._write, args=(agent,)) for agent in self.acknowledged
        ]

    def _write(self, agent: str) -> None:
        with Client(self._address, attempts=1, timeout=LONGEST) as client:
            memory = client.memory(agent=agent, user="u")
            while not self.ended.is_set():
                turn = self.acknowledged[agent]
                try:
                    memory.commit(
                        events=[{"content": str(turn)}],
                        state={"user_preferences": {"turn": turn}},
                        idempotency_key=f"turn-{turn}",
                    )
                except (StorageError, TooBusy) as error:
                    self.refused.append(error)
                except Exception as error:
                    self.broken.append(error)
                    return
                else:
                    self.acknowledged[agent] = turn + 1

    def all_reach(self, more: int) -> None:
        """Wait until every writer has had so many more turns acknowledged."""
        goal = {agent: turn + more for agent, turn in self.acknowledged.items()}
        eventually(
            lambda: self.broken or all(self.acknowledged[a] >= turn for a, turn in goal.items())
        )
        assert not self.broken

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(LONGEST)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_database_that_restarts_under_load(
    own: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("MEMSTORE_CONNECT_TIMEOUT", "0.5")
    monkeypatch.setenv("MEMSTORE_RATE", "1e6")
    monkeypatch.setenv("MEMSTORE_BURST", "1000000")
    given = ("--url", own.url, "--encoder", "none", "--insecure")
    with serving(*given, folder=tmp_path) as (process, address), Writers(address) as writers:
        writers.all_reach(3)
        if how == "killed":
            family = kill_server(own.data_dir)
            eventually(lambda: all(map(is_dead, family)))
        else:
            own._cluster.stop(LONGEST)
        with httpx.Client(base_url=address, timeout=LONGEST) as http:
            for _ in range(3):
                away = http.get(FIT)
                assert away.status_code == 503, away.text
                assert int(away.headers["Retry-After"]) >= 1
                assert away.headers["Content-Type"] == "application/problem+json"
            assert http.get("/healthz").status_code == 200
            unfit = http.get("/readyz")
            assert (unfit.status_code, unfit.json()["ready"]) == (503, False)
            eventually(lambda: len(writers.refused) >= WRITERS)
            own.ensure_running()
            writers.all_reach(3)
            assert eventually(lambda: http.get("/readyz").status_code == 200)
        assert process.poll() is None
    assert not writers.broken
    with MemoryStore.connect(own.url, encoder=None, settings=QUIET) as store:
        for agent, turns in writers.acknowledged.items():
            memory = store.memory(agent=agent, user="u")
            stored = [int(event.content) for event in memory.events(limit=10_000)]
            # A commit whose answer was lost was repeated under its key, not stored twice.
            assert stored in (list(range(turns)), list(range(turns + 1)))
            state = memory.state()
            assert state.value.user_preferences == {"turn": len(stored) - 1}
            assert (state.version, state.log_position) == (len(stored), len(stored))
            memory.erase()


def test_a_pool_without_a_free_connection_says_so_and_nothing_piles_up(database_url: str) -> None:
    app = application(
        database_url, insecure=True, pool_size=2, connect_timeout=0.3, max_requests=12
    )
    with (
        MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store,
        running(app) as address,
        httpx.Client(base_url=address, timeout=LONGEST) as http,
        ThreadPoolExecutor(40) as threads,
        psycopg.connect(database_url) as other,
    ):
        store.memory(agent="a", user="u").append(content="here")
        other.execute("SELECT FROM memstore.memories FOR UPDATE")
        path = "/v1/agents/a/users/u/events"
        waiting = [threads.submit(http.post, path, json={"content": f"held {n}"}) for n in range(2)]
        eventually(lambda: len(sessions(database_url, "wait_event_type = 'Lock'")) == 2)
        for answer in threads.map(lambda _: http.get(FIT), range(40)):
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.json()["type"].removeprefix("urn:memstore:error:") in (
                "storage",
                "too-busy",
            )
        assert http.get("/healthz").status_code == 200
        eventually(lambda: "memstore_requests_under_way 2.0" in http.get("/metrics").text)
        other.rollback()
        assert {one.result(LONGEST).status_code for one in waiting} == {201}
        assert http.get(FIT).status_code == 200
        stored = [event.content for event in store.memory(agent="a", user="u").events()]
        assert sorted(stored) == ["held 0", "held 1", "here"]


def test_a_client_waits_out_a_pool_that_is_full(database_url: str) -> None:
    """It is told when to ask again, and does."""
    app = application(database_url, insecure=True, pool_size=1, connect_timeout=0.2)
    with (
        MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store,
        running(app) as address,
        Client(address, attempts=8) as client,
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(database_url) as other,
    ):
        store.memory(agent="a", user="u").append(content="here")
        other.execute("SELECT FROM memstore.memories FOR UPDATE")
        memory = client.memory(agent="a", user="u")
        held = threads.submit(memory.append, content="held")
        eventually(lambda: sessions(database_url, "wait_event_type = 'Lock'"))
        with Client(address, attempts=1) as impatient, pytest.raises((StorageError, ServiceError)):
            impatient.memory(agent="a", user="u").events()
        threading.Timer(0.5, other.rollback).start()
        assert [event.content for event in memory.events()] == ["here", "held"]
        assert held.result(LONGEST).positions == (2,)
