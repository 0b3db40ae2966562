"""Load: what a server answers, and how fast, while requests arrive at a rate of their own.

The client is an open loop: it sends when a request is due, whatever became of those before, and
a request's latency counts from when it was due. A client that waits for each answer would slow
down with the server, and hide how long others would have waited.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rich.table import Table

from memstore import Client, MemstoreError
from memstore.demo.thread import load as load_thread

#: How often each is asked for, of ten requests.
MIX = {"append": 4, "search": 3, "resume": 1, "state": 1, "patch": 1}
KEEPS_UP = 0.95  # of the requests offered, answered within the time that they arrive in
MOST_FAILED = 0.01
STARTS = 120.0
MEMSTORE = (sys.executable, "-c", "from memstore.cli import main; main()")

Send = Callable[[str], Awaitable[int]]
"""Sends a request of a kind, and returns the status; 0 where there was no answer."""


@dataclass(slots=True)
class Step:
    """What came of one rate: latencies in seconds by kind, statuses, and the client's own delay."""

    rate: float
    seconds: float
    latencies: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)
    took: float = 0.0

    @property
    def offered(self) -> int:
        return self.statuses.total()

    @property
    def achieved(self) -> float:
        """Requests answered well, a second."""
        return self.statuses["ok"] / max(self.took, self.seconds)

    @property
    def keeps_up(self) -> bool:
        failed = self.offered - self.statuses["ok"]
        enough = self.achieved >= KEEPS_UP * self.offered / self.seconds
        return enough and failed <= MOST_FAILED * self.offered

    def quantile(self, share: float, kind: str | None = None) -> float:
        """Return a quantile of the latency in milliseconds, of all kinds or of one."""
        kinds = self.latencies if kind is None else [kind]
        return 1000 * quantile([x for k in kinds for x in self.latencies.get(k, [])], share)

    def to_json(self) -> dict[str, Any]:
        def shares(kind: str | None) -> dict[str, float]:
            return {f"p{share}": self.quantile(share / 100, kind) for share in (50, 95, 99)}

        return {
            "rate": self.rate,
            "seconds": self.seconds,
            "offered": self.offered,
            "achieved": self.achieved,
            "keeps_up": self.keeps_up,
            "milliseconds": shares(None),
            "by_kind": {kind: shares(kind) for kind in self.latencies},
            "answers": dict(self.statuses),
            "client_late_p99": 1000 * quantile(self.delays, 0.99),
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that a share of them does not exceed; NaN of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Draw when requests arrive, as a Poisson process does: each for itself."""
    drawn, found, now = random.Random(seed), list[float](), 0.0
    while (now := now + drawn.expovariate(rate)) < seconds:
        found.append(now)
    return found


def named(status: int) -> str:
    """Name what became of a request."""
    return {0: "no answer", 429: "429", 503: "503"}.get(
        status, "ok" if 200 <= status < 300 else f"other {status}"
    )


async def offer(send: Send, rate: float, seconds: float, *, most: int, seed: int = 1) -> Step:
    """Send requests as they arrive. Beyond `most` under way they are counted, and not sent."""
    step, under_way = Step(rate, seconds), set[asyncio.Task[None]]()
    kinds = random.Random(seed).choices(
        list(MIX), list(MIX.values()), k=len(due := arrivals(rate, seconds, seed))
    )
    began = time.perf_counter()

    async def one(kind: str, at: float) -> None:
        step.delays.append(time.perf_counter() - at)
        status = await send(kind)
        step.statuses[named(status)] += 1
        if 200 <= status < 300:
            step.latencies.setdefault(kind, []).append(time.perf_counter() - at)

    for kind, at in zip(kinds, due, strict=True):
        if (pause := began + at - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        if len(under_way) >= most:
            step.statuses["not sent"] += 1
            continue
        task = asyncio.create_task(one(kind, began + at))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    step.took = time.perf_counter() - began
    return step


class Requests:
    """Makes requests on memories that are filled, drawn at random."""

    def __init__(self, http: httpx.AsyncClient, memories: int, seed: int = 2) -> None:
        self._http = http
        self._random = random.Random(seed)
        self._memories = memories
        thread = load_thread()
        self._texts = [event.content for event in thread.events if event.content.strip()]

    async def send(self, kind: str) -> int:
        memory = f"/v1/agents/load/users/{self._random.randrange(self._memories)}"
        text = self._random.choice(self._texts)
        ask: dict[str, tuple[str, str, Any]] = {
            "append": ("POST", "/events", {"content": text, "role": "user"}),
            "search": ("POST", "/search", {"query": " ".join(text.split()[:8])}),
            "resume": ("POST", "/resume", {"task": " ".join(text.split()[:12]), "budget": 1024}),
            "state": ("GET", "/state", None),
            "patch": ("PATCH", "/state", {"user_preferences": {"note": text[:80]}}),
        }
        method, path, body = ask[kind]
        media_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            answer = await self._http.request(
                method,
                memory + path,
                content=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": media_type},
            )
        except httpx.HTTPError:
            return 0
        return answer.status_code


@contextmanager
def serving(folder: Path, encoder: str) -> Iterator[str]:
    """Run ``memstore serve`` over an embedded Postgres in a folder; without limits to a key."""
    environment = os.environ | {
        "MEMSTORE_RATE": "1e9",
        "MEMSTORE_BURST": "1000000000",
        "MEMSTORE_ENCODER": encoder,
        "MEMSTORE_DATA_DIR": str(folder / "data"),
    }
    environment.pop("MEMSTORE_URL", None)
    log = folder / "server.log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [*MEMSTORE, "serve", "--insecure", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
            env=environment,
        )
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", said := process.stdout.readline())
        if found is None:
            last = (log.read_text().splitlines() or [said])[-1]
            raise click.ClickException(f"the server did not start: {last}")
        yield found[0]
    finally:
        process.terminate()
        process.wait(STARTS)
        process.stdout.close()


def fill(address: str, memories: int, size: int, told: Callable[[str], None]) -> None:
    """Give every memory its entries and a state, and wait until they are encoded."""
    thread = load_thread()
    texts = [event for event in thread.events if event.content.strip()]
    with Client(address, timeout=STARTS) as client:
        made = [client.memory(agent="load", user=str(n)) for n in range(memories)]
        for number, memory in enumerate(made):
            told(f"filling memory {number + 1} of {memories}")
            for start in range(0, size, 500):
                memory.append(
                    [
                        {"content": texts[n % len(texts)].content, "session_id": str(n // 40)}
                        for n in range(start, min(start + 500, size))
                    ]
                )
            memory.patch({"active_task": {"description": thread.task[:200]}})
        for memory in made:
            memory.flush(progress=lambda left: told(f"encoding, {left} entries of one memory left"))


async def measure(
    address: str,
    rates: Sequence[float],
    seconds: float,
    memories: int,
    most: int,
    told: Callable[[Step], None],
) -> list[Step]:
    """Offer each rate in turn, up to the first that the server does not keep up with."""
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
    steps: list[Step] = []
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30) as http:
        requests = Requests(http, memories)
        for kind in MIX:  # each once, unmeasured: connections, plans, the encoder
            await requests.send(kind)
        for rate in rates:
            steps.append(await offer(requests.send, rate, seconds, most=most))
            told(steps[-1])
            if not steps[-1].keeps_up:
                break
    return steps


@click.command()
@click.option(
    "--rates", default="10,20,40,80,160,320", show_default=True, help="Requests a second."
)
@click.option("--seconds", default=20.0, show_default=True, help="How long each rate is offered.")
@click.option("--memories", default=10, show_default=True, help="Memories that are asked.")
@click.option("--size", default=500, show_default=True, help="Entries in each of them.")
@click.option("--most", default=500, show_default=True, help="Requests under way at most.")
@click.option("--encoder", default="all-MiniLM-L6-v2", show_default=True, help="Or 'none'.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def load(
    rates: str,
    seconds: float,
    memories: int,
    size: int,
    most: int,
    encoder: str,
    as_json: bool,
) -> None:
    """Put a server of its own under load, at rising rates, until it does not keep up."""
    try:
        wanted = sorted(float(rate) for rate in rates.split(","))
    except ValueError:
        wanted = [0.0]
    if min(wanted) <= 0:
        raise click.BadParameter(f"{rates!r} are no rates such as 10,20", param_hint="--rates")
    console, err = Console(highlight=False), Console(stderr=True, highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="memstore-load-", ignore_cleanup_errors=True) as folder,
        err.status("starting a server") as status,
        serving(Path(folder), encoder) as address,
    ):
        try:
            fill(address, memories, size, status.update)
        except MemstoreError as error:
            raise click.ClickException(str(error)) from error
        status.update(f"offering {wanted[0]:g} requests a second")

        def told(step: Step) -> None:
            status.update(f"{step.rate:g} a second: p99 {step.quantile(0.99):.0f} ms")

        steps = asyncio.run(measure(address, wanted, seconds, memories, most, told))
    if as_json:
        click.echo(json.dumps({"steps": [s.to_json() for s in steps], **verdict(steps)}, indent=1))
    else:
        show(steps, console)


def verdict(steps: Sequence[Step]) -> dict[str, float | None]:
    """Say up to which rate the server kept up, and from which one it did not."""
    kept = [step.rate for step in steps if step.keeps_up]
    lost = [step.rate for step in steps if not step.keeps_up]
    return {"keeps_up_at": max(kept, default=None), "saturated_at": min(lost, default=None)}


def show(steps: Sequence[Step], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("offered/s", "ok/s", "p50 ms", "p95", "p99", "429", "503", "other", "late p99"):
        table.add_column(column, justify="right")
    for step in steps:
        other = step.offered - sum(step.statuses[name] for name in ("ok", "429", "503"))
        table.add_row(
            f"{step.rate:g}",
            f"{step.achieved:.1f}",
            *(f"{step.quantile(share):.1f}" for share in (0.5, 0.95, 0.99)),
            *(str(step.statuses[name]) for name in ("429", "503")),
            str(other),
            f"{1000 * quantile(step.delays, 0.99):.1f}",
        )
    console.print(table)
    said = verdict(steps)
    kept, lost = said["keeps_up_at"], said["saturated_at"]
    if lost is None:
        console.print(f"\nIt keeps up at {kept:g} requests a second, the highest rate offered.")
    elif kept is None:
        console.print(f"\nIt is saturated at {lost:g} requests a second, the lowest rate offered.")
    else:
        console.print(f"\nIt keeps up at {kept:g} requests a second, and is saturated at {lost:g}.")
    console.print(
        "Latency counts from when a request was due; 'late' is how much of it is the client's own."
    )
