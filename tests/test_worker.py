"""The worker: it encodes whatever waits, once, and outlives what its encoder and database do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memstore import (
    ConfigurationError,
    Encoder,
    EncoderFailed,
    MemoryStore,
    NotFound,
    Settings,
)
from tests.backlogs import WORKING, batch, encoded, said
from tests.encoders import PATIENCE, Gated, HashEncoder, Recording
from tests.processes import administration, eventually
from tests.stores import KINDS, QUIET, connected


def named(name: str) -> Recording:
    encoder = Recording()
    encoder.name = name
    return encoder


@pytest.mark.parametrize("kind", KINDS)
def test_the_thread_encodes_what_is_appended(database_url: str, kind: str) -> None:
    encoder = Recording()
    with connected(kind, database_url, encoder, WORKING) as store:
        memory = store.memory(agent="a", user="u")
        for round_ in range(3):
            memory.append(batch(100, f"round{round_}"))
            eventually(lambda: memory.unencoded() == 0)
        memory.commit(events=batch(1, "last"), state={"user_preferences": {"a": 1}})
        eventually(lambda: memory.unencoded() == 0)
        assert memory.search("round1 7").leg_hits["vector"] > 0
    assert encoded(database_url) == len(encoder.texts) - 1 == 301  # and one query


def test_closing_a_store_stops_its_thread(database_url: str) -> None:
    def running() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "memstore-encoder"]

    with connected("sync", database_url, HashEncoder(), WORKING):
        assert running()
    assert not running()


def test_one_worker_serves_every_tenant(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        store.create_tenant("other")
        theirs = QUIET.model_copy(update={"tenant": "other"})
        with connected("sync", database_url, HashEncoder(), theirs) as other:
            for one in (store, other):
                one.memory(agent="a", user="u").append(batch(3))
            assert store.make_worker().drain() == 6
            for one in (store, other):
                memory = one.memory(agent="a", user="u")
                assert memory.unencoded() == 0
                assert len(memory.search("tea", k=10)) == 3


def test_a_large_import_keeps_no_other_memory_waiting(database_url: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        store.memory(agent="a", user="large").append(batch(1_200, "imported"))
        for user in range(3):
            store.memory(agent="a", user=f"small-{user}").append(content=f"said by {user}")
        encoder = Recording()
        store.fill_space(encoder)
    later = [at for at, text in enumerate(encoder.texts) if "said by" in text]
    assert len(later) == 3
    assert max(later) < 200


def test_workers_at_once_encode_each_entry_once(database_url: str) -> None:
    encoder = Recording()
    users, each = 6, 80
    with connected("sync", database_url, encoder) as store:
        for user in range(users):
            store.memory(agent="a", user=f"u{user}").append(batch(each, f"user{user}"))
        workers = [store.make_worker() for _ in range(4)]
        for worker in workers:
            worker.start()
        eventually(lambda: encoded(database_url) == users * each)
        for worker in workers:
            worker.stop()
            assert not worker.alive
        for user in range(users):
            assert store.memory(agent="a", user=f"u{user}").unencoded() == 0
    assert len(encoder.texts) == users * each
    assert set(Counter(encoder.texts).values()) == {1}


def test_a_flush_leaves_to_a_worker_what_that_has_claimed(database_url: str) -> None:
    slow = Gated()
    with connected("sync", database_url, slow) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(batch(70))
        worker = store.make_worker()
        worker.start()
        assert slow.asked.wait(PATIENCE)
        quick = Recording()
        with connected("sync", database_url, quick) as other:
            left: list[int] = []

            def look(waiting: int) -> None:
                left.append(waiting)
                slow.may.set()  # the worker goes on once the flush has done the rest

            other.memory(agent="a", user="u").flush(progress=look)
        assert (left[0], left[-1]) == (64, 0)
        assert len(quick.texts) == 6
        worker.stop()


# what the encoder does


def test_an_encoder_that_fails_for_a_while_holds_nothing_up_for_good(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    # trap 14
    encoder = Recording()
    encoder.broken = True
    with connected("sync", database_url, encoder, WORKING) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(batch(3))
        eventually(lambda: said(caplog, "held up"))
        assert memory.unencoded() == 3
        assert memory.search("tea 1").hits[0].event.position == 2  # by its words
        encoder.broken = False
        memory.append(batch(1, "fresh"))  # due at once, the others when their delay is over
        eventually(lambda: memory.unencoded() == 0)


def test_delays_grow_with_each_failure_up_to_an_hour(database_url: str) -> None:
    # trap 14
    encoder = Recording()
    encoder.broken = True
    with (
        connected("sync", database_url, encoder) as store,
        administration(database_url) as conn,
    ):
        memory = store.memory(agent="a", user="u")
        memory.append(batch(1))
        for before, longest in ((4, 32), (5, 64), (8, 512), (10, 2048), (11, 3600), (400, 3600)):
            conn.execute("UPDATE memstore.encoding_queue SET attempts = %s", (before,))
            with pytest.raises(EncoderFailed):
                memory.flush()
            row = conn.execute(
                "SELECT attempts, extract(epoch FROM available_at - now())::float, last_error"
                " FROM memstore.encoding_queue"
            ).fetchone()
            assert row is not None
            assert row[0] == before + 1
            assert longest / 2 < row[1] <= longest
            assert row[2] == "RuntimeError: no encoder today"
        calls = encoder.calls
        assert store.make_worker().drain() == 0  # it is not due
        assert encoder.calls == calls
        encoder.broken = False
        memory.flush()  # asks at once all the same
        assert memory.unencoded() == 0


class Choosy(Recording):
    """Fails on what has the word "poison"."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("poison" in text for text in texts):
            raise ValueError("not this one")
        return super().encode(texts)


def test_a_failing_entry_is_postponed_alone(database_url: str) -> None:
    # trap 14
    with (
        connected("sync", database_url, Choosy()) as store,
        administration(database_url) as conn,
    ):
        memory = store.memory(agent="a", user="u")
        memory.append([*batch(5), *batch(1, "poison"), *batch(5, "road")])
        assert store.make_worker().drain() == 10
        rows = conn.execute(
            "SELECT position, attempts, last_error FROM memstore.encoding_queue"
        ).fetchall()
        assert rows == [(6, 1, "ValueError: not this one")]


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Raising(HashEncoder):
    """Raises what it is told to for texts with the word "poison"."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("poison" in text for text in texts):
            raise self.error
        return super().encode(texts)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("bad \0 text"), "ValueError: bad \ufffd text"),
        (ValueError("half \ud83d"), "ValueError: half \ufffd"),
        (UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "no"), None),
        (Unsayable(), "Unsayable"),
        (ValueError("long " * 1_000), None),
        (MemoryError(), "MemoryError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_an_encoder_says_holds_nothing_up(
    database_url: str, error: Exception, words: str | None
) -> None:
    # traps 1, 2, 14: its words may quote the text that it failed on
    with (
        connected("sync", database_url, Raising(error)) as store,
        administration(database_url) as conn,
    ):
        memory = store.memory(agent="a", user="u")
        memory.append([*batch(2, "poison"), *batch(3, "road")])
        assert store.make_worker().drain() == 3
        rows = conn.execute("SELECT position, last_error FROM memstore.encoding_queue").fetchall()
        assert [position for position, _ in rows] == [1, 2]
        assert words is None or {said for _, said in rows} == {words}
        with pytest.raises(EncoderFailed):
            memory.flush()
        assert memory.unencoded() == 2


class Stalling(Gated):
    """Waits, then fails."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        super().encode(texts)
        raise RuntimeError("too late")


def test_a_worker_whose_lease_ran_out_leaves_the_next_ones_claim_alone(database_url: str) -> None:
    # trap 14: it goes by its claim, not by the entry's position
    stalling, slow = Stalling(), Gated()
    brief = Settings(encode_in_background=False, lease_seconds=1)
    long = Settings(encode_in_background=False, lease_seconds=3600)
    with (
        connected("sync", database_url, stalling, brief) as store,
        connected("sync", database_url, slow, long) as other,
        administration(database_url) as conn,
    ):

        def claim() -> tuple[Any, ...] | None:
            return conn.execute(
                "SELECT attempts, last_error, available_at FROM memstore.encoding_queue"
            ).fetchone()

        memory = store.memory(agent="a", user="u")
        memory.append(batch(1))
        said: list[str] = []

        def fail() -> None:
            with pytest.raises(EncoderFailed, match="too late") as failed:
                store.make_worker().drain()
            said.append(str(failed.value))

        first, second = threading.Thread(target=fail), other.make_worker()
        first.start()
        assert stalling.asked.wait(PATIENCE)
        second.start()
        assert slow.asked.wait(PATIENCE)  # the lease has run out
        held = claim()
        assert held is not None
        assert held[:2] == (2, None)
        stalling.may.set()
        first.join(PATIENCE)
        assert said
        assert claim() == held
        slow.may.set()
        eventually(lambda: memory.unencoded() == 0)
        second.stop()
    assert encoded(database_url) == 1


class Lying(HashEncoder):
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().encode(texts)[:, :32]


class Other(HashEncoder):
    dimension = 32


@pytest.mark.parametrize("encoder", [Lying(), Other()], ids=["vectors", "dimension"])
def test_a_worker_whose_encoder_does_not_fit_ends(
    database_url: str, caplog: pytest.LogCaptureFixture, encoder: Encoder
) -> None:
    # trap 12
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    with MemoryStore.connect(database_url, encoder=encoder, settings=QUIET) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(batch(1))
        worker = store.make_worker()
        worker.start()
        eventually(lambda: not worker.alive)
        assert "encoding stops" in caplog.text
        assert memory.unencoded() == 1
    assert encoded(database_url) == 0


# other encoders' spaces


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_that_is_filled_has_a_worker_of_its_own(database_url: str, kind: str) -> None:
    # trap 15
    old, new = Recording(), named("newer")
    with connected(kind, database_url, old) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(batch(70))
        memory.flush()
        with pytest.raises(NotFound, match="memstore space add newer"):
            store.make_worker(new)
        store.add_space(new)
        worker = store.make_worker(new)
        worker.start()
        eventually(lambda: encoded(database_url, 2) == 70)
        memory.append(batch(5, "road"))
        with pytest.raises(ConfigurationError, match="memstore worker --encoder newer"):
            store.switch_space("newer")
        worker.wake()
        eventually(lambda: encoded(database_url, 2) == 75)
        worker.stop()
        assert memory.unencoded() == 5  # those of the space that serves: its worker's own
        memory.flush()
        assert len(old.texts) == len(new.texts) == 75
        eventually(lambda: store.switch_space("newer").status == "serving")
    with connected(kind, database_url, new) as store:
        assert store.memory(agent="a", user="u").search("road 3").leg_hits["vector"] == 75


def test_a_store_without_an_encoder_has_no_worker(database_url: str) -> None:
    with connected("sync", database_url, settings=WORKING) as store:
        for encoder in (None, "none"):
            with pytest.raises(ConfigurationError, match="no encoder"):
                store.make_worker(encoder)
        assert store.memory(agent="a", user="u").append(content="tea").position == 1


def memstore(*arguments: str) -> str:
    command = [sys.executable, "-c", "from memstore.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_encodes_what_is_due_and_ends(database_url: str, encoder: Encoder) -> None:
    name = "all-MiniLM-L6-v2"
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(batch(3))
        store.add_space(encoder)
        once = ("worker", "--once", "--url", database_url, "--encoder", name)
        assert memstore(*once) == "3 entries encoded\n"
        assert memstore(*once, "--json").split() == ["{", '"encoded":', "0", "}"]
        assert store.switch_space(name).status == "serving"
        assert (encoded(database_url, 1), encoded(database_url, 2)) == (0, 3)
