"""A worker whose database goes away, and one that is told to stop."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memstore import (
    MemoryStore,
    Settings,
    StorageError,
    migrate,
)
from memstore.embedded import EmbeddedServer
from tests.backlogs import WORKING, batch, encoded, said
from tests.encoders import PATIENCE, Gated, HashEncoder, Recording
from tests.processes import end_sessions, eventually, is_dead, kill_server
from tests.stores import connected

# what the database does


def test_a_worker_outlives_its_sessions(database_url: str) -> None:
    encoder = Recording()
    with connected("sync", database_url, encoder, WORKING) as store:
        memory = store.memory(agent="a", user="u")
        for _ in range(3):
            memory.append(batch(1))
            eventually(lambda: memory.unencoded() == 0)
            assert end_sessions(database_url)
    assert encoded(database_url) == 3


@pytest.fixture
def own_server(scratch: Path) -> Iterator[EmbeddedServer]:
    """A server that may be killed, with a database that a store can be connected to."""
    with (
        tempfile.TemporaryDirectory(dir=scratch) as folder,
        EmbeddedServer.acquire(Path(folder) / "data") as server,
    ):
        migrate(server.url)
        yield server


def kill(server: EmbeddedServer) -> None:
    family = kill_server(server.data_dir)
    eventually(lambda: all(map(is_dead, family)))


def test_a_worker_outlives_a_database_that_is_away(
    own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    # Connected, not embedded: nothing here starts the server but the test.
    settings = Settings(encode_in_background=False, connect_timeout=0.5, lease_seconds=1)
    with connected("sync", own_server.url, Recording(), settings) as store:
        memory = store.memory(agent="a", user="u")
        worker = store.make_worker()
        for away in ("held up", "no connection within 0.5 s"):
            worker.start()
            if away == "held up":  # the first worker had a server once
                memory.append(batch(1))
                worker.wake()
                eventually(lambda: memory.unencoded() == 0)
                kill(own_server)
            eventually(partial(said, caplog, away))
            with pytest.raises(StorageError):
                memory.append(batch(1))
            own_server.ensure_running()
            eventually(lambda: appended(memory))
            worker.wake()
            eventually(lambda: memory.unencoded() == 0)
            worker.stop()
            assert not worker.alive
            kill(own_server)
            caplog.clear()
            worker = store.make_worker()
        own_server.ensure_running()


def appended(memory: Any) -> bool:
    """Append once the pool has noticed that the server is back."""
    try:
        memory.append(batch(1))
    except StorageError:
        return False
    return True


def test_a_server_killed_while_a_batch_is_encoded_takes_its_vectors_later(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Gated()
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        place = Path(folder) / "data"
        # A lease that no test waits for: what was encoded is written without another claim.
        settings = Settings(encode_in_background=True, lease_seconds=3600)
        with MemoryStore.embedded(place, encoder=encoder, settings=settings) as store:
            memory = store.memory(agent="a", user="u")
            memory.append(batch(3))
            assert encoder.asked.wait(PATIENCE)
            kill_server(place)
            encoder.may.set()
            eventually(lambda: memory_unencoded(memory) == 0)


def memory_unencoded(memory: Any) -> int | None:
    try:
        return int(memory.unencoded())
    except StorageError:
        return None


# stopping


class Stopping(Recording):
    """Stops its worker while that encodes."""

    worker: Any = None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.worker is not None:
            self.worker.stop()
        return super().encode(texts)


def test_a_worker_stops_after_the_batch_at_hand(database_url: str) -> None:
    encoder = Stopping()
    with connected("sync", database_url, encoder) as store:
        memories = [store.memory(agent="a", user=f"u{n}") for n in range(5)]
        for memory in memories:
            memory.append(batch(70))
        encoder.worker = store.make_worker()
        encoder.worker.start()
        eventually(lambda: not encoder.worker.alive)
        assert len(encoder.texts) == encoded(database_url) == 64
        encoder.worker = None
        assert store.make_worker().drain() == 5 * 70 - 64


def test_an_idle_worker_stops_at_once_and_twice(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        worker = store.make_worker()
        worker.stop()
        assert not worker.alive
        worker = store.make_worker()
        worker.start()
        assert worker.alive
        worker.stop()
        worker.stop()
        assert not worker.alive
