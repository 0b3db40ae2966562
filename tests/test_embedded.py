"""The embedded server survives what happens to it: real processes, real SIGKILLs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from memstore.embedded import EmbeddedServer
from memstore.errors import StorageError
from tests.encoders import PATIENCE
from tests.folders import ask, birth, family, is_down, postmaster, run, words
from tests.processes import eventually, hear, is_dead

USER = """
import os, sys
from memstore.embedded import EmbeddedServer
server = EmbeddedServer.acquire(sys.argv[1])
print(server.url, flush=True)
"""
WAITS = "sys.stdin.readline()\n"


@contextmanager
def another(data_dir: Path, then: str = WAITS, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start another process that opens the folder; it prints the server's URL and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", first + USER + then, data_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE)


# opening and closing


def test_the_first_opening_makes_a_durable_utf8_database(place: Path) -> None:
    with EmbeddedServer.acquire(place / "not" / "yet" / "there") as server:
        expected = {
            "data_checksums": "on",
            "fsync": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "synchronous_commit": "on",
            "TimeZone": "UTC",
        }
        for name, value in expected.items():
            assert ask(server.url, f"SELECT current_setting('{name}')") == value
        assert ask(server.url, "SELECT current_database()") == "memstore"
        locale = "SELECT datlocale FROM pg_database WHERE datname = current_database()"
        assert ask(server.url, locale) == "C.UTF-8"
        run(server, "CREATE EXTENSION vector")
        assert ask(server.url, "SELECT '[1,2]'::vector <-> '[1,4]'") == 2


def test_the_last_release_stops_the_server(data_dir: Path) -> None:
    first = EmbeddedServer.acquire(data_dir)
    second = EmbeddedServer.acquire(data_dir)
    processes = family(data_dir)
    first.release()
    first.release()
    assert not is_down(data_dir)
    assert birth(second.url)
    second.release()
    assert is_down(data_dir)
    assert all(is_dead(process) for process in processes)
    with pytest.raises(StorageError, match="released"):
        first.ensure_running()


def test_threads_that_open_at_once_share_one_server(place: Path) -> None:
    barrier = threading.Barrier(8)

    def use(_: int) -> object:
        barrier.wait(PATIENCE)
        with EmbeddedServer.acquire(place / "data") as server:
            born = birth(server.url)
            barrier.wait(PATIENCE)
        return born

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(use, range(8)))) == 1
    assert is_down(place / "data")


def test_processes_that_open_at_once_share_one_server(place: Path) -> None:
    data_dir = place / "data"
    with another(data_dir) as one, another(data_dir) as two, another(data_dir) as three:
        urls = [hear(process) for process in (one, two, three)]
        assert len({birth(url) for url in urls}) == 1
        one.communicate("\n", PATIENCE)
        two.communicate("\n", PATIENCE)
        assert birth(urls[2])
        three.communicate("\n", PATIENCE)
    assert is_down(data_dir)


def test_a_normal_exit_releases(data_dir: Path) -> None:
    with another(data_dir, then="") as process:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert is_down(data_dir)


def test_an_exit_does_not_wait_for_a_lock_that_is_held(data_dir: Path) -> None:
    lines = """
from memstore.embedded import server as module
module.EXIT_TIMEOUT = 0.1
holder = module.DataFolder(server.data_dir).locked(1)
holder.__enter__()
"""
    with another(data_dir, then=lines) as process:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert not is_down(data_dir)
    EmbeddedServer.acquire(data_dir).release()
    assert is_down(data_dir)


# forks


def test_a_forked_child_does_not_stop_its_parents_server(data_dir: Path) -> None:
    lines = """
import os
for leave in (lambda: os._exit(0), sys.exit):
    child = os.fork()
    if child == 0:
        server.ensure_running()
        with EmbeddedServer.acquire(sys.argv[1]):
            pass
        server.release()
        leave()
    os.waitpid(child, 0)
print("forked", flush=True)
sys.stdin.readline()
"""
    with another(data_dir, lines) as parent:
        url = hear(parent)
        born = birth(url)
        assert hear(parent) == "forked"
        assert birth(url) == born
        parent.communicate("\n", PATIENCE)
    assert is_down(data_dir)


def test_a_forked_child_does_not_count_for_its_killed_parent(data_dir: Path) -> None:
    lines = """
child = os.fork()
if child == 0:
    import time
    time.sleep(600)
print(child, flush=True)
sys.stdin.readline()
"""
    with another(data_dir, lines) as parent:
        hear(parent)
        child = int(hear(parent))
        kill(parent)
        try:
            EmbeddedServer.acquire(data_dir).release()
            assert is_down(data_dir)
        finally:
            os.kill(child, signal.SIGKILL)


# kills


def test_a_killed_users_server_is_found_and_in_the_end_stopped(data_dir: Path) -> None:
    with another(data_dir) as process:
        born = birth(hear(process))
        kill(process)
    assert not is_down(data_dir)
    with EmbeddedServer.acquire(data_dir) as server:
        assert birth(server.url) == born
    assert is_down(data_dir)
    assert not list((data_dir / "users").iterdir())


def test_a_killed_server_comes_back_with_what_was_committed(data_dir: Path) -> None:
    with (
        EmbeddedServer.acquire(data_dir) as server,
        closing(psycopg.connect(server.url)) as busy,
        closing(psycopg.connect(server.url)) as idle,
    ):
        idle.execute("INSERT INTO kept VALUES ('committed')")
        idle.commit()
        idle.execute("INSERT INTO kept VALUES ('open')")

        # A backend that is computing does not notice its postmaster's death.
        def compute() -> None:
            with pytest.raises(psycopg.OperationalError):
                busy.execute("DO $$ BEGIN LOOP END LOOP; END $$")

        thread = threading.Thread(target=compute)
        thread.start()
        active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'"
        eventually(lambda: ask(server.url, active) == 1)
        born = birth(server.url)
        os.kill(postmaster(data_dir), signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            eventually(lambda: birth(server.url) != born)
        server.ensure_running()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert words(server) == "committed"
    assert is_down(data_dir)


def test_a_server_killed_while_nobody_looked_is_started_again(data_dir: Path) -> None:
    with another(data_dir) as process:
        url = hear(process)
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO kept VALUES ('before')")
        os.kill(postmaster(data_dir), signal.SIGKILL)
        kill(process)
    with EmbeddedServer.acquire(data_dir) as server:
        assert words(server) == "before"
        run(server, "INSERT INTO kept VALUES ('here')")
        assert words(server) == "before here"


def test_everything_killed_again_and_again_loses_nothing(data_dir: Path) -> None:
    expected = []
    for turn in "abc":
        with (
            another(data_dir) as process,
            closing(psycopg.connect(hear(process))) as connection,
        ):
            connection.execute("INSERT INTO kept VALUES (%s)", (turn,))
            connection.commit()
            for victim in family(data_dir):
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
            kill(process)
        expected.append(turn)
        with EmbeddedServer.acquire(data_dir) as server:
            assert words(server) == " ".join(expected)


def test_a_killed_backend_is_waited_for(data_dir: Path) -> None:
    with (
        EmbeddedServer.acquire(data_dir) as server,
        closing(psycopg.connect(server.url)) as connection,
    ):
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

        def answers() -> bool:
            server.ensure_running()
            with suppress(psycopg.OperationalError):
                return bool(birth(server.url))
            return False

        eventually(answers)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.3])
def test_a_starter_killed_at_any_moment_leaves_a_folder_that_opens(
    data_dir: Path, delay: float
) -> None:
    with another(data_dir) as process:
        eventually(lambda: list((data_dir / "users").iterdir()) or not is_down(data_dir))
        time.sleep(delay)
        kill(process)
    with EmbeddedServer.acquire(data_dir) as server:
        run(server, "INSERT INTO kept VALUES ('here')")
        assert words(server) == "here"
    assert is_down(data_dir)


@pytest.mark.parametrize("step", ["PG_VERSION", "base/1/PG_VERSION", "all but the name"])
def test_a_first_opening_killed_half_way_is_made_anew(place: Path, step: str) -> None:
    data_dir = place / "data"
    dies = "import os, pathlib; pathlib.Path.rename = lambda *_: os.kill(os.getpid(), 9)"
    with another(data_dir, first=dies) as process:
        eventually(
            lambda: list(data_dir.glob(f"postgres.new-*/{step}")) or process.poll() is not None
        )
        kill(process)
    assert not (data_dir / "postgres").exists()
    with EmbeddedServer.acquire(data_dir) as server:
        assert ask(server.url, "SELECT current_database()") == "memstore"

    def cleared() -> bool:
        # The initdb of the one that was killed may still write; each opening clears what is left.
        with EmbeddedServer.acquire(data_dir):
            return not list(data_dir.glob("postgres.new-*"))

    eventually(cleared)
