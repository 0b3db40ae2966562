"""PgBouncer in transaction mode between memstore and Postgres: all of it works, nothing leaks.

Clients are many and server connections few, so that what one transaction leaves behind would
meet another client's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from memstore import MemoryStore, Settings
from memstore.cli import main
from memstore.embedded import EmbeddedServer
from memstore_api import ServerSettings, create_app
from tests.encoders import HashEncoder
from tests.pooler import TRACKS_PREPARED, Pooler, pooling
from tests.processes import administration, eventually
from tests.serving import asked
from tests.stores import KINDS, connected

TENANTS = ("acme", "acme-corp")
ROUNDS = 4  # a statement is prepared when it comes for the third time


@pytest.fixture(scope="module")
def narrow(server: EmbeddedServer, template: str) -> Iterator[Pooler]:
    """One server connection for all clients."""
    with pooling(server, default_pool_size=1) as pooler:
        yield pooler


@pytest.fixture(scope="module")
def wide(server: EmbeddedServer, template: str) -> Iterator[Pooler]:
    """A few: a client's next transaction is on another than its last."""
    with pooling(server, default_pool_size=3, server_round_robin=1) as pooler:
        yield pooler


@pytest.fixture(params=["narrow", "wide"])
def pooler(request: pytest.FixtureRequest) -> Pooler:
    found: Pooler = request.getfixturevalue(request.param)
    return found


def name_of(url: str) -> str:
    return url.rsplit("/", 1)[-1].split("?")[0]


def modes(pooler: Pooler) -> tuple[bool, ...]:
    """What `MEMSTORE_PREPARE` may be: an older PgBouncer knows no prepared statements."""
    return (False, True) if pooler.program.version >= TRACKS_PREPARED else (False,)


def settings(prepare: bool, tenant: str = "default") -> Settings:
    return Settings(
        tenant=tenant, prepare=prepare, encode_in_background=False, pool_size=4, budget=512
    )


def live(store: Any, agent: str) -> None:
    """Go through what an agent does, and see in each step its own words alone."""
    memory = store.memory(agent=agent, user="u")
    for n in range(1, ROUNDS + 1):
        memory.append(content=f"zebra {n} of {agent}", role="user", idempotency_key=f"{n}")
        assert memory.append(
            content=f"zebra {n} of {agent}", role="user", idempotency_key=f"{n}"
        ).repeated
        memory.commit(events=[{"content": f"heron {n}"}], state={"user_preferences": {"n": n}})
        memory.update(lambda state: state.user_preferences.update(agent=agent))
        state = memory.state()
        assert state.value.user_preferences == {"n": n, "agent": agent}
        memory.flush()
        found = memory.search(f"zebra {n}", k=2 * ROUNDS)
        told = sorted(hit.event.content for hit in found.hits)
        said = range(1, n + 1)
        assert told == sorted(
            [f"heron {i}" for i in said] + [f"zebra {i} of {agent}" for i in said]
        )
        text = memory.resume(task="zebra").to_text()
        assert f"zebra {n} of {agent}" in text
        assert text.count(" of ") == text.count(f" of {agent}")
    assert [e.position for e in memory.events()] == list(range(1, 2 * ROUNDS + 1))
    memory.revert(to=1)
    assert memory.state().value.user_preferences == {"n": 1}
    assert len(memory.history(limit=50)) == memory.state().version


@pytest.mark.parametrize("kind", KINDS)
def test_agents_of_two_tenants_live_through_it_at_once(
    database_url: str, pooler: Pooler, kind: str
) -> None:
    url = pooler.url(name_of(database_url))
    for prepare in modes(pooler):
        with ExitStack() as stack:
            stores = [
                stack.enter_context(
                    connected(kind, url, HashEncoder(), settings(prepare, tenant), database_url)
                )
                for tenant in TENANTS
            ]
            with ThreadPoolExecutor() as threads:
                # The same agents in both tenants: what would leak would be found.
                lives = [
                    threads.submit(live, store, f"agent-{n}-{prepare}".lower())
                    for store in stores
                    for n in range(2)
                ]
                for life in lives:
                    life.result()
            for store in stores:
                gone, kept = (
                    store.memory(agent=f"agent-{n}-{prepare}".lower(), user="u") for n in range(2)
                )
                gone.erase(author="t", reason="t")
                assert gone.events() == []
                assert kept.events()


def test_a_transaction_leaves_nothing_to_the_next_client(  # trap 35
    database_url: str, narrow: Pooler
) -> None:
    url = narrow.url(name_of(database_url))
    said = "SELECT current_user, current_setting('memstore.tenant', true), pg_backend_pid()"
    with ExitStack() as stack:
        other = stack.enter_context(closing(psycopg.connect(url, autocommit=True)))
        other.prepare_threshold = None
        stores = [
            stack.enter_context(
                connected("sync", url, HashEncoder(), settings(False, tenant), database_url)
            )
            for tenant in TENANTS
        ]
        backends = set()
        for n in range(ROUNDS):
            for store in stores:
                memory = store.memory(agent="a", user="u")
                memory.append(content=f"{n}")
                memory.flush()
                memory.search("1")
                user, tenant, backend = other.execute(said).fetchone() or ()
                backends.add(backend)
                assert user == narrow.user
                assert not tenant
                with other.transaction():
                    other.execute("SET LOCAL ROLE memstore_server")
                    for table in ("events", "memories", "postings", "encoding_queue"):
                        seen = other.execute(f"SELECT count(*) FROM memstore.{table}".encode())
                        assert seen.fetchone() == (0,), table
        assert len(backends) == 1
        prepared = other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert prepared == (0,)
        # That this would be seen: what is set for a session does reach the next client.
        other.execute("SET memstore.tenant = '1'")
        with closing(psycopg.connect(url, autocommit=True)) as third:
            assert (third.execute(said).fetchone() or ())[1:] == ("1", *backends)
        # And a store states its own in spite of it.
        for store in stores:
            assert len(store.memory(agent="a", user="u").events()) == ROUNDS


def test_workers_and_the_doctor_go_through_it(
    database_url: str, pooler: Pooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = pooler.url(name_of(database_url))
    with connected("sync", url, HashEncoder(), settings(False), database_url) as store:
        memories = [store.memory(agent=f"a{n}", user="u") for n in range(5)]
        for memory in memories:
            memory.append([{"content": f"note {n}"} for n in range(20)])
        workers = [store.make_worker() for _ in range(2)]
        for worker in workers:
            worker.start()
        eventually(lambda: store.backlog().entries == 0)
        for worker in workers:
            worker.stop()
        assert all(memory.search("note 3").unencoded == 0 for memory in memories)
        memories[0].append(content="one more")
        assert store.make_worker().drain() == 1
    monkeypatch.setenv("MEMSTORE_PREPARE", "false")
    arguments = ["doctor", "--url", url, "--encoder", "none", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert all(check["ok"] for check in json.loads(done.stdout)), done.output
    assert done.exit_code == 0


async def test_a_server_serves_two_tenants_through_it(database_url: str, narrow: Pooler) -> None:
    tokens = {}
    for tenant in TENANTS:
        MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=settings(True, tenant))
        with MemoryStore.connect(database_url, tenant=tenant, encoder=None) as owner:
            tokens[tenant] = owner.create_key("k", scopes=["admin"]).token
    for prepare in modes(narrow):
        chosen = ServerSettings(
            url=narrow.url(name_of(database_url)),
            tenant=TENANTS[0],
            prepare=prepare,
            encode_in_background=False,
        )
        async with asked(create_app(chosen, encoder=HashEncoder())) as http:
            for n in range(ROUNDS):
                for tenant, token in tokens.items():
                    where = f"/v1/agents/a{prepare}/users/u"
                    http.headers["Authorization"] = f"Bearer {token}"
                    sent = {"content": f"heron {n} of {tenant}"}
                    answer = await http.post(f"{where}/events", json=sent)
                    assert answer.status_code < 300, answer.text
                    answer = await http.post(f"{where}/search", json={"query": "heron", "k": 50})
                    told = [hit["event"]["content"] for hit in answer.json()["hits"]]
                    assert sorted(told) == [f"heron {i} of {tenant}" for i in range(n + 1)]
                    answer = await http.post(f"{where}/resume", json={"task": "heron"})
                    assert answer.status_code == 200, answer.text
            for probe in ("/readyz", "/healthz"):
                assert (await http.get(probe)).status_code == 200


def test_its_restart_costs_nothing_that_was_said(server: EmbeddedServer, database_url: str) -> None:
    with pooling(server, default_pool_size=2) as pooler:
        url = pooler.url(name_of(database_url))
        with connected("sync", url, HashEncoder(), settings(False), database_url) as store:
            memory = store.memory(agent="a", user="u")
            memory.append(content="before")
            pooler.stop()
            pooler.start()
            memory.append(content="after")
            assert [event.content for event in memory.events()] == ["before", "after"]


def test_few_server_connections_serve_many_clients(database_url: str, wide: Pooler) -> None:
    url = wide.url(name_of(database_url))
    with ExitStack() as stack:
        for _ in range(8):
            store = stack.enter_context(
                connected("sync", url, HashEncoder(), settings(False), database_url)
            )
            store.memory(agent="a", user="u").append(content="x")
        with administration(database_url) as conn:
            held = conn.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND usename = %s",
                (wide.user,),
            ).fetchone()
        assert held is not None
        assert held[0] <= 3
