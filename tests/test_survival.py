"""What the store survives, really done: killed writers, killed servers, ended sessions, forks."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memstore import (
    AsyncMemoryStore,
    MemoryStore,
    NewEvent,
    Settings,
    StorageError,
)
from tests.encoders import PATIENCE, HashEncoder
from tests.processes import (
    eventually,
    hear,
    is_dead,
    kill_server,
    python,
    say,
    sessions,
)
from tests.stores import KINDS, QUIET, Blocking, connected, event_loop
from tests.waiting import TALLY, WAITING, Tally, row_locked


def all_dead(family: list[Any]) -> bool:
    return all(map(is_dead, family))


def counted(acknowledged: list[Any], least: int) -> bool:
    return sum(map(len, acknowledged)) >= least


# A writer that is killed


WRITER = """
import os, sys
from memstore import MemoryStore, NewEvent
from tests.stores import QUIET
from tests.test_survival import TALLY, Tally

def event(number):
    return NewEvent(content=f"event {number}", payload=number, idempotency_key=f"key {number}")

def acknowledge(number, position):
    os.write(1, f"{number} {position}\\n".encode())

def absorb(memory):
    state = memory.state()
    tail = memory.events(after=state.log_position, limit=10_000)
    value = Tally(events=state.value.events + len(tail),
                  total=state.value.total + sum(e.payload for e in tail))
    return state, value

def write(url, first, last):
    with MemoryStore.connect(url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="a", user="u", schema=TALLY)
        # It may be there already, if the one before died between the commit and its answer.
        acknowledge(first, memory.append([event(first)]).position)
        for number in range(first + 1, last + 1):
            if number % 3:
                receipt = memory.append([event(number)])
            else:
                state, value = absorb(memory)
                value = Tally(events=value.events + 1, total=value.total + number)
                receipt = memory.commit(
                    events=[event(number)], state=value, expected_version=state.version).events
            acknowledge(number, receipt.position)

for line in sys.stdin:
    first, last = map(int, line.split())
    child = os.fork()
    if not child:
        os.write(1, f"{os.getpid()}\\n".encode())
        write(sys.argv[1], first, last)
        os._exit(0)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


def test_a_writer_killed_again_and_again_loses_and_repeats_nothing(database_url: str) -> None:
    kills, chance = 25, random.Random()
    acknowledged: dict[int, int] = {}
    with python(WRITER, database_url) as process:
        for run in range(kills + 1):
            first = len(acknowledged) + 1
            say(process, first, first + 8 if run == kills else 10**9)
            writer = int(hear(process))
            if run < kills:
                answers = chance.randrange(12)
                for _ in range(answers):
                    number, position = map(int, hear(process).split())
                    acknowledged[number] = position
                time.sleep(chance.random() * (0.008 if answers else 0.1))
                os.kill(writer, signal.SIGKILL)
            while (line := hear(process)) != "ended":
                number, position = map(int, line.split())
                acknowledged[number] = position
    assert sorted(acknowledged) == list(range(1, len(acknowledged) + 1))
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u", schema=TALLY)
        events = memory.events(limit=10_000)
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        assert [event.payload for event in events] == list(acknowledged)  # each once, in order
        assert {event.payload: event.position for event in events} == acknowledged
        versions = memory.history(limit=10_000)
        assert [v.version for v in versions] == list(range(len(versions), 0, -1))
        assert len(versions) >= len(events) // 3 - kills
        for version in versions:
            absorbed = events[: version.log_position]
            value = memory.state(version=version.version).value
            assert version.log_position <= len(events)
            assert value == Tally(events=len(absorbed), total=sum(e.payload for e in absorbed))
        context = memory.resume("go on", budget=100_000)
        assert [entry.position for entry in context.tail] == list(
            range(versions[0].log_position + 1, len(events) + 1)
        )


# A server that is killed


@pytest.fixture(scope="module")
def pristine(scratch: Path) -> Path:
    """The data folder of a store that was opened once, to be copied."""
    path = scratch / "store"
    MemoryStore.embedded(path, encoder=HashEncoder(), settings=QUIET).close()
    return path


@pytest.fixture
def data_dir(scratch: Path, pristine: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        subprocess.run(["cp", "-a", pristine, f"{folder}/data"], check=True)
        yield Path(folder) / "data"


@contextmanager
def embedded(kind: str, data_dir: Path, settings: Settings = QUIET) -> Iterator[Any]:
    if kind == "sync":
        with MemoryStore.embedded(data_dir, encoder=HashEncoder(), settings=settings) as store:
            yield store
        return
    with event_loop() as loop:
        opening = AsyncMemoryStore.embedded(data_dir, encoder=HashEncoder(), settings=settings)
        blocking = Blocking(asyncio.run_coroutine_threadsafe(opening, loop).result(), loop)
        try:
            yield blocking
        finally:
            blocking.close()


@pytest.mark.parametrize("background", [False, True], ids=["alone", "with-its-worker"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_is_started_again_by_the_next_call(
    kind: str, background: bool, data_dir: Path
) -> None:
    settings = Settings(encode_in_background=background, lease_seconds=1)
    with embedded(kind, data_dir, settings) as store:
        memory = store.memory(agent="a", user="u", schema=TALLY)
        memory.commit(events=[{"content": "tea"}], state={"events": 1})
        for run in range(2, 4):
            # A call while the sessions still end would be one in mid-flight.
            family = kill_server(data_dir)
            eventually(partial(all_dead, family))
            assert memory.append(content="road").position == run
            assert memory.state().value == Tally(events=1)
        memory.flush()
        assert memory.search("tea").hits[0].event.position == 1
        assert memory.resume("tea").state.version == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_killed_in_mid_transaction_fails_that_call_alone(
    kind: str, data_dir: Path
) -> None:
    # The pool has no connection left then, and none comes by itself.
    with embedded(kind, data_dir) as store, ThreadPoolExecutor() as threads:
        memory = store.memory(agent="a", user="u")
        memory.append(content="one", idempotency_key="1")
        for number in ("2", "3"):
            with row_locked(store.url, memory):
                call = threads.submit(memory.append, content=number, idempotency_key=number)
                eventually(lambda: sessions(store.url, WAITING))
                kill_server(data_dir)
                with pytest.raises(StorageError):
                    call.result(PATIENCE)
            receipt = memory.append(content=number, idempotency_key=number)
            assert (receipt.position, receipt.repeated) == (int(number), ())
        assert [event.content for event in memory.events()] == ["one", "2", "3"]


def test_writers_go_on_through_a_server_that_is_killed_again_and_again(data_dir: Path) -> None:
    writers, each = 4, 40
    acknowledged: list[list[int]] = [[] for _ in range(writers)]
    with embedded("sync", data_dir) as store, ThreadPoolExecutor() as threads:

        def write(writer: int) -> None:
            memory = store.memory(agent="a", user="u")
            for n in range(each):
                event = NewEvent(content=f"{writer}/{n}", idempotency_key=f"{writer}/{n}")
                for _ in range(20):
                    try:
                        acknowledged[writer].append(memory.append([event]).position)
                        break
                    except StorageError:
                        pass

        running = [threads.submit(write, writer) for writer in range(writers)]
        for done in (10, 50, 90):
            eventually(partial(counted, acknowledged, done))
            kill_server(data_dir)
        for one in running:
            one.result(PATIENCE)
        events = store.memory(agent="a", user="u").events(limit=10_000)
    assert [e.position for e in events] == list(range(1, writers * each + 1))
    found = {e.content: e.position for e in events}
    for writer, positions in enumerate(acknowledged):
        assert positions == [found[f"{writer}/{n}"] for n in range(each)]


TWO = """
import sys
from memstore import MemoryStore
from tests.encoders import HashEncoder
from tests.stores import QUIET
print("ready", flush=True)
sys.stdin.readline()
with MemoryStore.embedded(sys.argv[1], encoder=HashEncoder(), settings=QUIET) as store:
    memory = store.memory(agent="a", user="u")
    for n in range(30):
        memory.append(content=f"{sys.argv[2]} {n}", idempotency_key=f"{sys.argv[2]} {n}")
        memory.update(lambda s: s.user_preferences.update({f"{sys.argv[2]} {n}": n}))
    memory.flush()
    print("done", flush=True)
    sys.stdin.readline()
"""


def test_two_processes_make_and_open_one_folder_at_once(scratch: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir=scratch) as folder,
        python(TWO, f"{folder}/new", "left") as left,
        python(TWO, f"{folder}/new", "right") as right,
    ):
        both = (left, right)
        for expected in ("ready", "done"):
            assert [hear(process) for process in both] == [expected] * 2
            if expected == "ready":
                for process in both:
                    say(process)
        with MemoryStore.embedded(f"{folder}/new", encoder=HashEncoder(), settings=QUIET) as store:
            memory = store.memory(agent="a", user="u")
            events = memory.events(limit=100)
            assert [e.position for e in events] == list(range(1, 61))
            for name in ("left", "right"):
                said = [e.content for e in events if e.content.startswith(name)]
                assert said == [f"{name} {n}" for n in range(30)]
            state = memory.state()
            assert (state.version, len(state.value.user_preferences)) == (60, 60)
            for process in both:
                say(process)
                assert process.wait(PATIENCE) == 0
            assert memory.search("left 7").unencoded == 0  # the last one out stops the server
