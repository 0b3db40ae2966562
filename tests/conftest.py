"""What tests share: one embedded server per run, a migrated database per test, one encoder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from memstore.embedded import EmbeddedServer
from memstore.types import Encoder
from tests.stores import KINDS, connected
from tests.terminals import RECORDS, WHO, Terminal, write

# Slowness is a busy machine's, not a failure of what is tested.
settings.register_profile("memstore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("memstore")


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A folder for servers, 0700 as most homes are: in memory if that is large, else on disk.

    The servers sync as they always do; a test kills processes, never the machine.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2**31
    home = memory if roomy else Path(tempfile.gettempdir())
    prefix = f"memstore-scratch-{os.geteuid()}-"
    for left in home.glob(f"{prefix}*"):
        # A killed run's server ends by itself once its folder is gone.
        # An empty folder may be one that another run is about to lock.
        with suppress(OSError):
            if any(left.iterdir()):
                with held(left):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home) as folder, held(Path(folder)):
        yield Path(folder)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder for as long as this process lives; fail if another one does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture(scope="session")
def server(scratch: Path) -> Iterator[EmbeddedServer]:
    """A server of this run's own, with PostgreSQL's durable settings."""
    with EmbeddedServer.acquire(scratch / "server") as server:
        yield server


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    """The name of a migrated database that no test touches."""
    from memstore import migrate

    name = "template_migrated"
    administer(server, f"CREATE DATABASE {name}")
    migrate(database_of(server, name))
    return name


@pytest.fixture
def database_url(server: EmbeddedServer, template: str) -> Iterator[str]:
    """The URL of a migrated, otherwise empty database of this test's own."""
    name = f"test_{uuid4().hex}"
    administer(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield database_of(server, name)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def place(scratch: Path) -> Iterator[Path]:
    """A folder that only its owner may enter: a server of root's runs as a user who may not."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def pristine(scratch: Path) -> Path:
    """A data folder that was opened once, to be copied: a tenth of the time of a new one."""
    path = scratch / "pristine"
    with EmbeddedServer.acquire(path) as server:
        administer(server, "CREATE TABLE kept (word text)")
    return path


@pytest.fixture
def data_dir(place: Path, pristine: Path) -> Path:
    """A data folder with a table in it, closed."""
    return copied(pristine, place / "data")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    """Either store, without an encoder."""
    with connected(request.param, database_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """The default encoder; exported once per machine, not per run."""
    from memstore.encoding import load_encoder

    return load_encoder(threads=1)


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command's surroundings: an empty current folder, and none of memstore's variables."""
    for name in [name for name in os.environ if name.startswith("MEMSTORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # --schema puts the current folder on it


@pytest.fixture
def terminal(database_url: str, plain_environment: None) -> Terminal:
    return Terminal(database_url)


@pytest.fixture
def imported(terminal: Terminal) -> Terminal:
    assert terminal.json("import", write("chat.jsonl", *RECORDS), *WHO)["stored"] == len(RECORDS)
    return terminal


@pytest.fixture
def bare_url(server: EmbeddedServer) -> Iterator[str]:
    """A database in which nothing was ever done."""
    name = f"bare_{uuid4().hex}"
    administer(server, f"CREATE DATABASE {name}")
    yield database_of(server, name)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


def database_of(server: EmbeddedServer, name: str) -> str:
    return urlsplit(server.url)._replace(path=f"/{name}").geturl()


def administer(server: EmbeddedServer, statement: str) -> None:
    with closing(psycopg.connect(server.url, autocommit=True)) as connection:
        connection.execute(statement.encode())


def copied(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", source, target], check=True)
    return target
