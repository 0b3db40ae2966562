"""Sessions that end, event loops, forks, and what happens while a model runs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from psycopg.conninfo import make_conninfo

from memstore import (
    AsyncMemoryStore,
    ConfigurationError,
    MemoryStore,
    NewEvent,
    StorageError,
)
from tests.encoders import PATIENCE, Gated, HashEncoder
from tests.processes import (
    administration,
    end_sessions,
    eventually,
    hear,
    python,
    say,
    sessions,
)
from tests.stores import KINDS, QUIET, Blocking, connected, event_loop
from tests.waiting import TALLY, WAITING, row_locked

# Sessions that end


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_that_ended_between_two_calls_are_replaced(database_url: str, kind: str) -> None:
    settings = QUIET.model_copy(update={"pool_size": 4})
    with (
        connected(kind, database_url, HashEncoder(), settings) as store,
        ThreadPoolExecutor() as threads,
    ):
        memory = store.memory(agent="a", user="u")
        memory.append(content="first")
        calls: list[Callable[[], Any]] = [
            lambda: memory.append(content="tea"),
            lambda: memory.events(),
            lambda: memory.state(),
            lambda: memory.update(lambda s: s.user_preferences.update(n=1)),
            lambda: memory.search("tea"),
            lambda: memory.resume("tea"),
            lambda: memory.flush(),
            lambda: memory.unencoded(),
            lambda: store.spaces(),
            lambda: list(store.memories()),
        ]
        for call in calls:
            with row_locked(database_url, memory):
                held = [threads.submit(memory.append, content="more") for _ in range(4)]
                eventually(lambda: len(sessions(database_url, WAITING)) == 4)
            for one in held:
                one.result(PATIENCE)
            assert end_sessions(database_url) == 4  # all that the pool holds
            call()
        assert len(memory.events()) == 2 + 4 * len(calls)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_ends_in_mid_transaction_leaves_nothing_half_written(
    database_url: str, kind: str
) -> None:
    with connected(kind, database_url) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u", schema=TALLY)
        memory.commit(events=[{"content": "one"}], state={"events": 1})
        batch = [NewEvent(content=f"{n}", idempotency_key=f"{n}") for n in range(3)]
        for call in (
            lambda: memory.append(batch),
            lambda: memory.commit(events=batch, state={"events": 4}),
            lambda: memory.patch({"events": 9}),
            lambda: memory.erase(),
        ):
            with row_locked(database_url, memory):
                running = threads.submit(call)
                eventually(lambda: sessions(database_url, WAITING))
                assert end_sessions(database_url, WAITING) == 1
                with pytest.raises(StorageError, match="terminating connection"):
                    running.result(PATIENCE)
            assert [event.content for event in memory.events()] == ["one"]
            assert (memory.state().version, memory.state().value.events) == (1, 1)
        with administration(database_url) as conn:
            left = conn.execute(
                "SELECT (SELECT count(DISTINCT position) FROM memstore.postings), last_position"
                " FROM memstore.memories"
            ).fetchone()
        assert left == (1, 1)
        assert memory.append(batch).positions == (2, 3, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exhausted_pool_is_an_error_after_its_time_out(database_url: str, kind: str) -> None:
    settings = QUIET.model_copy(update={"pool_size": 2, "connect_timeout": 0.5})
    with connected(kind, database_url, settings=settings) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u")
        memory.append(content="one")
        with row_locked(database_url, memory):
            held = [threads.submit(memory.append, content="held") for _ in range(2)]
            eventually(lambda: len(sessions(database_url, WAITING)) == 2)
            with pytest.raises(StorageError, match=r"no connection was free within 0\.5 s"):
                memory.events()
        assert sorted(one.result(PATIENCE).position for one in held) == [2, 3]
        assert len(memory.events()) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_store_says_so(database_url: str, kind: str) -> None:
    with connected(kind, database_url) as store:
        memory = store.memory(agent="a", user="u")
        store.close()
        for call in (memory.events, memory.state, lambda: memory.append(content="x")):
            with pytest.raises(StorageError, match="closed"):
                call()


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none", "host=/nowhere"])
def test_a_database_that_is_not_there_is_an_error(url: str) -> None:
    settings = QUIET.model_copy(update={"connect_timeout": 0.3})
    with pytest.raises(
        StorageError, match=r"no connection within 0\.3 s: connection .* failed: .*"
    ):
        MemoryStore.connect(url, settings=settings)


def test_a_password_that_is_refused_is_told_and_not_shown(database_url: str) -> None:
    settings = QUIET.model_copy(update={"connect_timeout": 0.3})
    url = make_conninfo(database_url, user="nobody_of_this_name", password="hush")
    with pytest.raises(StorageError, match="nobody_of_this_name") as refused:
        MemoryStore.connect(url, settings=settings)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["nonsense:hush", "postgresql:/me:hush@host/db", "host=x pass word"]
)
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    # libpq's words quote it; and a pool would try again until its time was over
    settings = QUIET.model_copy(update={"connect_timeout": 1e6})
    with pytest.raises(ConfigurationError, match="neither postgresql://") as refused:
        MemoryStore.connect(url, settings=settings)
    assert "hush" not in str(refused.value)


# Event loops and forks


def test_a_store_used_from_another_event_loop_is_refused(database_url: str) -> None:
    # trap 36
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)

    async def use(memory: Any) -> None:
        for call in (
            memory.append(content="x"),
            memory.events(),
            memory.state(),
            memory.search("tea"),
            memory.resume("tea"),
            memory.flush(),
            memory.update(lambda state: None),
            store.spaces(),
            store.close(),
        ):
            with pytest.raises(ConfigurationError, match="another event loop"):
                await call

    with event_loop() as loop:
        opening = AsyncMemoryStore.connect(database_url, encoder=HashEncoder(), settings=QUIET)
        store = asyncio.run_coroutine_threadsafe(opening, loop).result()
        memory: Any = store.memory(agent="a", user="u")
        asyncio.run(use(memory))
        asyncio.run(use(memory))
        own = Blocking(memory, loop)
        assert own.append(content="x").position == 1
        asyncio.run_coroutine_threadsafe(store.close(), loop).result()
        with pytest.raises(StorageError, match="closed"):
            own.events()


FORKS = """
import os, sys
from memstore import MemoryStore, StorageError
from tests.encoders import HashEncoder
from tests.stores import QUIET

class Threaded(HashEncoder):
    def encode(self, texts):  # would hang in a child, which has none of a model's threads
        print("encodes", flush=True)
        return super().encode(texts)

with MemoryStore.connect(sys.argv[1], encoder=Threaded(), settings=QUIET) as store:
    memory = store.memory(agent="a", user="u")
    memory.append(content="tea")
    child = os.fork()
    if not child:
        for call in (memory.events, memory.state, memory.flush, lambda: memory.append(content="x"),
                     lambda: memory.search("tea"), lambda: memory.resume("tea"), store.spaces):
            try:
                call()
            except StorageError as error:
                print(error, flush=True)
        with MemoryStore.connect(sys.argv[1], encoder=HashEncoder(), settings=QUIET) as own:
            print(own.memory(agent="a", user="u").append(content="child").position, flush=True)
        sys.exit(0)  # closes the parent's store on its way, at a normal end
    os.waitpid(child, 0)
    print("parent", flush=True)
    sys.stdin.readline()
    print(len(memory.events()), flush=True)
"""


def test_a_forked_child_is_refused_and_does_not_disturb_its_parent(database_url: str) -> None:
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    with python(FORKS, database_url) as process:
        for _ in range(7):
            assert "across fork()" in hear(process)
        assert hear(process) == "2"
        assert hear(process) == "parent"
        before = sessions(database_url)
        assert len(before) == 1  # the parent's session outlived the child
        say(process)
        assert hear(process) == "2"


# Encoders and transactions


class Watching(HashEncoder):
    """Looks, while it encodes, at what the stores' sessions are doing."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[str] = []
        self.done = threading.Event()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with administration(self.url) as conn:
            found = conn.execute(
                "SELECT state FROM pg_stat_activity"
                " WHERE application_name = 'memstore' AND datname = current_database()"
            )
            self.seen += [state for (state,) in found]
        self.done.set()
        return super().encode(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_no_transaction_is_open_while_the_encoder_runs(database_url: str, kind: str) -> None:
    # trap 34
    encoder, other = Watching(database_url), Watching(database_url)
    other.name = "other"
    with connected(kind, database_url, encoder) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content="tea"), NewEvent(content="road")])
        memory.patch({"active_task": {"description": "make tea"}})
        store.add_space(other)
        for watching, call in (
            (encoder, memory.flush),
            (encoder, lambda: memory.search("tea")),
            (encoder, lambda: memory.resume("tea")),
            (encoder, memory.resume),
            (other, lambda: store.fill_space(other)),
        ):
            watching.seen.clear()
            call()
            assert watching.seen
            assert set(watching.seen) == {"idle"}


def test_no_transaction_is_open_while_the_worker_encodes(database_url: str) -> None:
    # trap 34
    encoder = Watching(database_url)
    settings = QUIET.model_copy(update={"encode_in_background": True})
    with connected("sync", database_url, encoder, settings) as store:
        store.memory(agent="a", user="u").append([NewEvent(content=f"tea {n}") for n in range(9)])
        assert encoder.done.wait(PATIENCE)
    assert encoder.seen
    assert set(encoder.seen) == {"idle"}


HOLDER = """
import sys
from memstore import MemoryStore, Settings
from tests.encoders import HashEncoder

class Stuck(HashEncoder):
    def encode(self, texts):
        print("encoding", flush=True)
        sys.stdin.readline()

settings = Settings(encode_in_background=True, lease_seconds=float(sys.argv[2]))
with MemoryStore.connect(sys.argv[1], encoder=Stuck(), settings=settings):
    sys.stdin.readline()
"""


def test_what_a_killed_worker_had_claimed_is_due_again(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content=f"tea {n}") for n in range(70)])
        with python(HOLDER, database_url, 1.5) as worker:
            assert hear(worker) == "encoding"
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait(PATIENCE)
        with administration(database_url) as conn:
            claimed = conn.execute(
                "SELECT count(*) FROM memstore.encoding_queue WHERE attempts = 1"
            ).fetchone()
        assert claimed == (64,)  # the batch that died with it
        memory.flush()  # waits for the lease to run out
        assert memory.unencoded() == 0
        assert store.memory(agent="a", user="u").search("tea", k=70).leg_hits["vector"] == 70


def test_a_memory_erased_while_it_is_encoded_leaves_no_vectors(database_url: str) -> None:
    encoder = Gated()
    with connected("sync", database_url, encoder) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content=f"secret {n}") for n in range(3)])
        encoding = threads.submit(memory.flush)
        assert encoder.asked.wait(PATIENCE)
        memory.erase()
        encoder.may.set()
        encoding.result(PATIENCE)
        with administration(database_url) as conn:
            left = conn.execute(
                "SELECT (SELECT count(*) FROM memstore.vectors_1),"
                " (SELECT count(*) FROM memstore.encoding_queue)"
            ).fetchone()
        assert left == (0, 0)


def test_an_erased_text_does_not_become_the_vector_of_what_took_its_place(
    database_url: str,
) -> None:
    encoder = Gated()
    with connected("sync", database_url, encoder) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u")
        memory.append(content="secret")
        encoding = threads.submit(memory.flush)
        assert encoder.asked.wait(PATIENCE)
        memory.erase()
        memory.append(content="harmless", actor="user")
        encoder.may.set()
        encoding.result(PATIENCE)
        memory.flush()
        with administration(database_url) as conn:
            rows = conn.execute("SELECT embedding::text FROM memstore.vectors_1").fetchall()
        again = store.memory(agent="a", user="v")
        again.append(content="harmless", actor="user")
        again.flush()
        with administration(database_url) as conn:
            both = conn.execute(
                "SELECT count(*), count(DISTINCT embedding::text) FROM memstore.vectors_1"
            ).fetchone()
        assert len(rows) == 1
        assert both == (2, 1)


def test_a_memory_erased_while_it_is_read_is_read_before_or_after(database_url: str) -> None:
    rounds, size = 40, 30
    with connected("sync", database_url, HashEncoder()) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u")
        done = threading.Event()

        def read(call: Callable[[], int]) -> set[int]:
            found = set()
            while not done.is_set():
                found.add(call())
            return found

        readers = [
            threads.submit(read, lambda: len(memory.search("tea road", k=size))),
            threads.submit(read, lambda: len(memory.search("road 7", k=size))),
            threads.submit(read, lambda: len(memory.resume("tea", budget=10_000).tail)),
        ]
        try:
            for _ in range(rounds):
                memory.append([NewEvent(content=f"tea on road {n}") for n in range(size)])
                memory.flush()
                memory.erase()
        finally:
            done.set()
        for reader in readers:
            assert reader.result(PATIENCE) <= {0, size}


@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_isolation = 'repeatable read'",
        "client_encoding = 'LATIN1'",
        "datestyle = 'SQL, DMY'",
        "datestyle = 'German'",
        "search_path = 'nowhere'",
        "intervalstyle = 'sql_standard'",
        "bytea_output = 'escape'",
        "extra_float_digits = -15",
        "plan_cache_mode = 'force_generic_plan'",
        "jit = on",
    ],
)
def test_a_databases_own_settings_do_not_matter(database_url: str, setting: str) -> None:
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    with administration(database_url) as conn:
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET {setting}".encode())
    with connected("sync", database_url, HashEncoder()) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u")

        def event(writer: int, n: int) -> NewEvent:
            return NewEvent(
                content=f"tea é 茶 {writer} back\\slash 'q' {n}",
                payload={"a": [None, 1.1, "x\\y"]},
                idempotency_key=f"{writer}/{n}",
            )

        def write(writer: int) -> None:
            for n in range(10):
                memory.append([event(writer, n)])

        for writing in [threads.submit(write, writer) for writer in range(4)]:
            writing.result(PATIENCE)
        memory.flush()
        memory.patch({"user_preferences": {"a": "é茶\\"}})
        events = memory.events()
        assert sorted(e.content for e in events) == sorted(
            event(writer, n).content for writer in range(4) for n in range(10)
        )
        assert events[0].payload == {"a": [None, 1.1, "x\\y"]}
        assert memory.append([event(0, 0)]).repeated  # digests come back as they were
        assert len(memory.search("茶", k=50, since=events[0].occurred_at)) == 40
        assert "3" in memory.search("back 3")[0].event.content.split()
        assert memory.state().value.user_preferences == {"a": "é茶\\"}
        assert len(memory.resume("tea", budget=10_000).retrieved) > 0
