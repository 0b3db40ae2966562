"""Speed, as ratios to floors that are taken in the same run, call by call in turn.

A floor is what the same driver needs, on the same server, for the least that the call must do:
one SELECT by primary key, one durable INSERT, one exact scan of the vectors, one new process.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import uuid4

import click
import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from memstore import AgentState, Memory, MemoryStore, MemstoreError, NewEvent, Settings, migrate
from memstore.demo.thread import load

QUIET = Settings(encode_in_background=False)
STATE_BYTES = 2_000
BATCH = 500

RESUME = """
import sys, time
begun, started = float(sys.argv[1]), time.monotonic()
from memstore import MemoryStore
imported = time.monotonic()
store = getattr(MemoryStore, sys.argv[2])(sys.argv[3])
opened = time.monotonic()
store.encoder()
loaded = time.monotonic()
store.memory(agent="bench", user="resume").resume(sys.argv[4])
done = time.monotonic()
import json
laps = [begun, started, imported, opened, loaded, done]
print(json.dumps({"laps": laps, "torch": "torch" in sys.modules}))
store.close()
"""
PARTS = ("interpreter", "imports", "open", "encoder", "resume")
CONNECT = """
import sys, time
import psycopg
psycopg.connect(sys.argv[1]).execute("SELECT 1").fetchone()
print(time.monotonic())
"""


@dataclass(slots=True)
class Measured:
    """Milliseconds of calls and of their floors, taken in turn, and the most that is wanted."""

    name: str
    floor_name: str
    most_ratio: float | None = None
    most_milliseconds: float | None = None
    calls: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.calls)

    @property
    def floor(self) -> float:
        return statistics.median(self.floors)

    @property
    def ratio(self) -> float:
        return self.median / self.floor

    @property
    def within(self) -> bool:
        return (self.most_ratio is None or self.ratio <= self.most_ratio) and (
            self.most_milliseconds is None or self.median <= self.most_milliseconds
        )

    def add_part(self, name: str, milliseconds: float) -> None:
        self.parts.setdefault(name, []).append(milliseconds)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "floor_name": self.floor_name,
            "milliseconds": self.median,
            "floor_milliseconds": self.floor,
            "ratio": self.ratio,
            "most_ratio": self.most_ratio,
            "most_milliseconds": self.most_milliseconds,
            "within": self.within,
            "parts": {name: statistics.median(values) for name, values in self.parts.items()},
            "calls": len(self.calls),
        }


class RandomEncoder:
    """A unit vector at random for each text: what search costs does not depend on what it finds."""

    name = "bench-random"
    dimension = 384

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=384) for text in texts]
        array = np.array(rows, np.float32)
        unit: NDArray[np.float32] = array / np.linalg.norm(array, axis=1, keepdims=True)
        return unit

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        return [(0, len(text))]


class Words:
    """Messages of words of the demo's thread, drawn with Zipf's distribution."""

    def __init__(self, seed: int) -> None:
        self.thread = load()
        counts = Counter(w for e in self.thread.events for w in e.content.split())
        self._words = np.array([word for word, _ in counts.most_common()], object)
        weights = 1 / (np.arange(len(self._words)) + 2.7)
        self._weights = weights / weights.sum()
        self._random = np.random.default_rng(seed)

    def message(self) -> str:
        length = int(self._random.integers(4, 40))
        return " ".join(self._random.choice(self._words, length, p=self._weights))

    def questions(self) -> list[str]:
        """What was really asked in the thread, as far as it is short."""
        ends = (e.content.strip() for e in self.thread.events if e.role in ("user", "assistant"))
        return [text for text in ends if text.endswith("?") and len(text) < 160]


def timed(call: Callable[[], object], into: list[float]) -> None:
    begun = time.perf_counter()
    call()
    into.append((time.perf_counter() - begun) * 1000)


def in_turn(
    measured: Measured, calls: int, call: Callable[[], object], floor: Callable[[], object]
) -> Measured:
    """Call both in turn, after a few calls that do not count; the order alternates."""
    for _ in range(5):
        floor()
        call()
    for number in range(calls):
        pair = [(floor, measured.floors), (call, measured.calls)]
        for function, into in pair if number % 2 else reversed(pair):
            timed(function, into)
    return measured


# What is measured


def state(memory: Memory[AgentState], floor: psycopg.Connection[Any], calls: int) -> Measured:
    """Load a state of some 2 KB, in its own transaction, checked, with what is stale in it."""
    document = fill_state(memory)
    key = uuid4()
    floor.execute("CREATE TABLE bench.states (id uuid PRIMARY KEY, document json NOT NULL)")
    floor.execute("INSERT INTO bench.states VALUES (%s, %s)", (key, document))
    select: LiteralString = "SELECT document FROM bench.states WHERE id = %s"
    return in_turn(
        Measured(f"load a state of {len(document):,} bytes", "SELECT by primary key", 3),
        calls,
        memory.state,
        lambda: floor.execute(select, (key,)).fetchone(),
    )


def fill_state(memory: Memory[AgentState]) -> str:
    """Save the state that the demo's agent has in the end, as far as it takes 2 KB."""
    words = Words(seed=3)
    note = words.thread.notes[""]
    saved = memory.patch(note.patch)
    number = 0
    while len(json.dumps(saved.document)) < STATE_BYTES:
        number += 1
        extra = {f"note_{number}": words.message()}
        saved = memory.patch({"user_preferences": extra})
    return json.dumps(saved.document, ensure_ascii=False)


def append(
    memory: Memory[AgentState], floor: psycopg.Connection[Any], words: Words, calls: int
) -> Measured:
    """Append one message, with its postings and its place in the encoder's queue."""
    floor.execute(
        "CREATE TABLE bench.messages "
        "(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, content text NOT NULL)"
    )
    texts = [words.message() for _ in range(100)]
    ours, theirs = itertools.cycle(texts), itertools.cycle(texts)
    insert: LiteralString = "INSERT INTO bench.messages (content) VALUES (%s)"
    return in_turn(
        Measured("append a message, durably", "INSERT of its text, durably", 4),
        calls,
        lambda: memory.append(content=next(ours), role="user", session="s"),
        lambda: floor.execute(insert, (next(theirs),)),
    )


def search(
    memory: Memory[AgentState],
    store: MemoryStore,
    floor: psycopg.Connection[Any],
    words: Words,
    calls: int,
    size: int,
) -> Measured:
    """Search by words and by vectors; what the encoder takes is not counted."""
    (serving,) = (space for space in store.spaces() if space.status == "serving")
    scan = sql.SQL(
        "SELECT position FROM {} WHERE memory_id = %s ORDER BY embedding <#> %s::halfvec LIMIT 100"
    ).format(serving.vectors)
    measured = Measured(
        f"search in {size:,} entries, both legs", "SELECT, exact scan of the vectors"
    )
    if size == 10_000:
        measured.most_milliseconds = 15
    encoder = RandomEncoder()
    queries = words.questions()
    vectors = [str(encoder.encode([query])[0].tolist()) for query in queries]
    memory_id = memory.identity.memory_id
    encoding: list[float] = []

    def call(number: int) -> None:
        result = memory.search(queries[number % len(queries)])
        encoding.append(result.milliseconds["encode"])
        for step, milliseconds in result.milliseconds.items():
            measured.add_part(step, milliseconds)

    def select(number: int) -> None:
        floor.execute(scan, (memory_id, vectors[number % len(vectors)])).fetchall()

    numbers, others = itertools.count(), itertools.count()
    in_turn(measured, calls, lambda: call(next(numbers)), lambda: select(next(others)))
    encoded = encoding[-calls:]
    measured.calls = [c - e for c, e in zip(measured.calls, encoded, strict=True)]
    del measured.parts["encode"]
    return measured


def resume(
    how: str, where: str, url: str, task: str, processes: int, progress: Callable[[], object]
) -> Measured:
    """Resume in new processes, from their start to the context."""
    measured = Measured(
        "resume in a new process", "a new process, SELECT 1", most_milliseconds=1500
    )
    for number in range(processes + 1):
        begun = time.monotonic()
        floor = float(child(CONNECT, url))
        if number:  # the first one fills the system's caches
            measured.floors.append((floor - begun) * 1000)
        begun = time.monotonic()
        answer = json.loads(child(RESUME, str(begun), how, where, task))
        if answer["torch"]:
            raise click.ClickException("resume imported torch")
        laps = answer["laps"]
        if number:
            measured.calls.append((laps[-1] - laps[0]) * 1000)
            for name, (start, stop) in zip(PARTS, itertools.pairwise(laps), strict=True):
                measured.add_part(name, (stop - start) * 1000)
        progress()
    return measured


def child(code: str, *arguments: str) -> str:
    # Compiled modules are kept, as they are for everyone who starts a second time.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise click.ClickException(f"the new process failed: {done.stderr.strip()}")
    return done.stdout


# Setting up


@contextmanager
def database(url: str) -> Iterator[str]:
    """Make a migrated database with the random encoder's space, and drop it in the end."""
    name = sql.Identifier(f"memstore_bench_{uuid4().hex[:8]}")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            made = make_conninfo(url, dbname=name.as_string().strip('"'))
            migrate(made)
            MemoryStore.prepare(made, encoder=RandomEncoder(), settings=QUIET)
            yield made
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def fill(memory: Memory[AgentState], texts: list[str], progress: Callable[[int], object]) -> None:
    """Append texts as a conversation of two, in sessions of forty, and encode them."""
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        memory.append(
            NewEvent(
                content=text,
                role="assistant" if number % 2 else "user",
                session_id=f"s{number // 40}",
            )
            for number, text in enumerate(batch, start)
        )
        memory.flush()
        progress(len(batch))


def measure(
    url: str, how: str, where: str, size: int, calls: int, processes: int, progress: Progress
) -> Iterator[Measured]:
    """Take every measure on a server. `how` and `where` open the store with the real encoder."""
    words = Words(seed=1)
    filling = progress.add_task(f"a memory of {size:,}", total=size)
    with (
        database(url) as made,
        MemoryStore.connect(made, encoder=RandomEncoder(), settings=QUIET) as store,
    ):
        memories = {user: store.memory(agent="bench", user=user) for user in ("one", "large")}
        texts = [words.message() for _ in range(size)]
        fill(memories["large"], texts, lambda done: progress.advance(filling, done))
        with psycopg.connect(made, autocommit=True, prepare_threshold=2) as floor:
            floor.execute("VACUUM ANALYZE")
            floor.execute("CREATE SCHEMA bench")
            measuring = progress.add_task("state, append, search", total=3)
            yield state(memories["one"], floor, calls)
            progress.advance(measuring)
            yield append(memories["one"], floor, words, calls)
            progress.advance(measuring)
            yield search(memories["large"], store, floor, words, calls, size)
            progress.advance(measuring)
    spawning = progress.add_task("new processes", total=processes + 1)
    with getattr(MemoryStore, how)(where, settings=QUIET) as store:
        memory = store.memory(agent="bench", user="resume")
        memory.append(words.thread.events)
        memory.flush()
        if not memory.state().version:
            fill_state(memory)
        yield resume(
            how, where, url, words.thread.task, processes, lambda: progress.advance(spawning)
        )


@click.command()
@click.option("--url", help="A Postgres in which a database may be made; else an embedded one.")
@click.option("--size", default=10_000, show_default=True, help="Entries in the large memory.")
@click.option("--calls", default=200, show_default=True, help="Calls of each kind.")
@click.option("--processes", default=7, show_default=True, help="New processes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def bench(url: str | None, size: int, calls: int, processes: int, as_json: bool) -> None:
    """Measure speed, as ratios to floors taken in the same run."""
    with (
        tempfile.TemporaryDirectory(prefix="memstore-bench-", ignore_cleanup_errors=True) as folder,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        how, where = ("connect", url) if url else ("embedded", folder)
        try:
            with getattr(MemoryStore, how)(where, settings=QUIET) as store:
                done = list(measure(store.url, how, where, size, calls, processes, progress))
        except MemstoreError as error:
            raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps([one.to_json() for one in done], indent=1))
    else:
        show(done)


def show(done: Sequence[Measured]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("", "ms", "floor ms", "ratio", "at most", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    for one in done:
        wanted = f"{one.most_ratio:g} ×" if one.most_ratio else ""
        if one.most_milliseconds:
            wanted = f"{one.most_milliseconds:,.0f} ms"
        mark = "" if not wanted else "[green]within[/]" if one.within else "[red]above[/]"
        table.add_row(
            one.name, f"{one.median:.2f}", f"{one.floor:.2f}", f"{one.ratio:.1f}", wanted, mark
        )
    console = Console(highlight=False)
    console.print(table)
    console.print("\nMedians. The floors: " + "; ".join(one.floor_name for one in done) + ".")
    for one in done:
        if one.parts:
            parts = (f"{k} {statistics.median(v):.1f}" for k, v in one.parts.items())
            console.print(f"{one.name}, ms by part: {', '.join(parts)}")


if __name__ == "__main__":
    bench()
