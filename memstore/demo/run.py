"""The demo's driver: starts the agent, kills it in mid-conversation, restarts it and checks.

Every figure that it shows was measured in the run that shows it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from memstore import AgentState, Memory, MemoryStore, MemstoreError, NotFound, Settings
from memstore.demo import show
from memstore.demo.agent import AGENT, USER
from memstore.demo.thread import Thread, load, weeks_to
from memstore.embedded import default_data_dir

#: The longest that the kill waits after the agent began to work on the message, in seconds: an
#: append takes about as long, so it may hit before, during or after the commit.
LONGEST_WAIT = 0.004


@dataclass(slots=True)
class Run:
    """One process of the agent, as seen from outside."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    seconds: float = 0.0
    resumed: dict[str, Any] | None = None


class AgentDied(MemstoreError):
    """The agent's process ended on its own, which was not the plan."""


def main(
    console: Console | None = None,
    *,
    budget: int = 2048,
    data_dir: Path | str | None = None,
) -> int:
    """Run the demo in a folder of its own (its memory of an earlier run is erased first).

    Returns 0 when nothing that was acknowledged is missing and nothing is stored twice.
    """
    console = console or Console()
    folder = Path(data_dir) if data_dir else default_data_dir().with_name("memstore-demo")
    thread = load(weeks_to(date.today()))
    show.introduction(console, thread)
    try:
        return _run(console, thread, folder, budget)
    except MemstoreError as error:
        console.print(f"[red]{type(error).__name__}[/]: {error}", highlight=False)
        return 1


def _run(console: Console, thread: Thread, folder: Path, budget: int) -> int:
    show.step(console, "Set-up")
    # The agent's own process is to encode; this one only looks on.
    settings = Settings().model_copy(update={"encode_in_background": False})
    begun = time.perf_counter()
    with show.waiting(console, "Starting an embedded Postgres"):
        store = MemoryStore.embedded(folder, settings=settings)
    with store:
        show.done(
            console,
            f"Postgres with pgvector in {show.shortest(folder)}",
            time.perf_counter() - begun,
        )
        begun = time.perf_counter()
        loading = "Loading the encoder (at its first use it is exported, half a minute)"
        with show.waiting(console, loading):
            encoder = store.encoder()
        if encoder:
            show.done(console, f"encoder {encoder.name}", time.perf_counter() - begun)
        memory = store.memory(agent=AGENT, user=USER)
        with suppress(NotFound):
            memory.erase(reason="the demo begins anew", author="demo")

        show.step(console, "A conversation, and an end to it")
        command = [f"--data-dir={folder}", f"--weeks={thread.weeks}", f"--budget={budget}"]
        first = _until_killed(console, thread, [*command, f"--hold={thread.killed_at}"])
        newest = memory.events(newest_first=True, limit=1)
        show.killed(console, thread, first, newest[0].idempotency_key if newest else None)

        show.step(console, "The restart")
        keys = [str(event.idempotency_key) for event in thread.events]
        unanswered = next(key for key in keys if key not in first.acknowledged)
        second = _restarted(console, thread, [*command, f"--first={unanswered}"])

        show.step(console, "The thread went on to its end: what the log holds now")
        code = _check(console, thread, memory, first, second)
        show.hints(console, f"--agent {AGENT} --user {USER}", folder)
        return code


def _until_killed(console: Console, thread: Thread, command: list[str]) -> Run:
    """Run the agent until it works on the message at which it has to die."""
    run = Run()
    wait = random.uniform(0, LONGEST_WAIT)
    begun = time.perf_counter()
    with _progress(console, thread.index(thread.killed_at)) as advance, _agent(command) as agent:
        for message in _messages(agent):
            _note(run, message, advance)
            if message.get("begin") == thread.killed_at:
                time.sleep(wait)
                agent.kill()
        if agent.wait() >= 0:
            raise AgentDied("it was to be killed, but it ended before")
    run.seconds = time.perf_counter() - begun
    return run


def _restarted(console: Console, thread: Thread, command: list[str]) -> Run:
    """Start the agent again; show what it got back, and let it go on to the thread's end."""
    run = Run()
    spawned = time.time()
    with _agent([*command, f"--spawned={spawned}"]) as agent:
        messages = _messages(agent)
        with show.waiting(console, "A new process asks its memory"):
            for message in messages:
                if "resumed" in message:
                    run.resumed = message
                    break
        if run.resumed is None:
            raise AgentDied("it did not find its memory")
        show.resumed(console, thread, run.resumed)
        begun = time.perf_counter()
        left = len(thread.events) - thread.index(thread.killed_at)
        with _progress(console, left) as advance:
            for message in messages:
                _note(run, message, advance)
        run.seconds = time.perf_counter() - begun
        if agent.wait():
            raise AgentDied(f"it ended with status {agent.returncode}")
    return run


def _check(
    console: Console, thread: Thread, memory: Memory[AgentState], first: Run, second: Run
) -> int:
    """Compare the log with what was acknowledged and with what was sent."""
    events = memory.events(limit=10_000)
    state = memory.state()
    keys = [event.idempotency_key for event in events]
    sent = [event.idempotency_key for event in thread.events]
    acknowledged = first.acknowledged | second.acknowledged
    by_position = {event.position: event.idempotency_key for event in events}
    lost = [key for key, position in acknowledged.items() if by_position.get(position) != key]
    same = all(
        (event.content, event.actor, event.occurred_at, event.payload)
        == (was.content, was.actor, was.occurred_at, was.payload)
        for event, was in zip(events, thread.events, strict=False)
    )
    versions = [version.version for version in memory.history(limit=1_000)]
    twice = len(keys) - len(set(keys))
    resent = len(second.repeated)
    checks = {
        f"{len(acknowledged)} messages were acknowledged, {len(lost)} of them missing": not lost,
        f"{len(keys)} entries, {twice} of them twice; of those sent again {resent} had been stored "
        "before": not twice,
        "the log is the thread, word for word and in its order": keys == sent and same,
        f"positions 1 to {len(events)} without a gap": list(by_position)
        == list(range(1, len(events) + 1)),
        f"{len(versions)} versions of the state; the last has absorbed the log up to "
        f"{state.log_position}": versions == list(range(len(versions), 0, -1))
        and state.log_position == len(events),
    }
    show.checks(console, checks)
    return 0 if all(checks.values()) else 1


@contextmanager
def _agent(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Start the agent's process; whatever happens here, it does not stay behind."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "memstore.demo.agent", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
        try:
            yield process
        except AgentDied as error:
            process.kill()
            process.wait()
            errors.seek(0)
            raise AgentDied(f"{error}: {errors.read().strip() or 'it said nothing'}") from error
        finally:
            process.kill()
            process.wait()
            stdout: IO[str] | None = process.stdout
            if stdout:
                stdout.close()


def _messages(agent: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert agent.stdout is not None
    for line in agent.stdout:
        # What the kill cut short says nothing, nor do a library's own words.
        if line.startswith("{") and line.endswith("}\n"):
            yield json.loads(line)


def _note(run: Run, message: dict[str, Any], show_progress: Callable[[str, int], None]) -> None:
    if "ack" in message:
        run.acknowledged[message["ack"]] = message["position"]
        if message["repeated"]:
            run.repeated.append(message["ack"])
        show_progress(f"{message['ack']} acknowledged", 1)
    elif "encoding" in message:
        show_progress(f"encoding {message['encoding']}", 0)


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[str, int], None]]:
    if not console.is_terminal:
        with show.waiting(console, f"The agent takes {total} messages"):
            yield lambda text, steps: None
        return
    columns = (
        SpinnerColumn(),
        MofNCompleteColumn(),
        BarColumn(bar_width=40),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("the agent starts", total=total)
        yield lambda text, steps: progress.update(task, advance=steps, description=text)


if __name__ == "__main__":
    sys.exit(main())
