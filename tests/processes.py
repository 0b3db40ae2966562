"""Other processes, and the sessions and servers that tests end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.encoders import PATIENCE

ROOT = Path(__file__).parent.parent


def eventually(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := check()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return found


@contextmanager
def python(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a process of its own, its streams at hand; it is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], *words: object) -> None:
    assert process.stdin is not None
    process.stdin.write(" ".join(map(str, words)) + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "the process ended instead of answering"
    return line


@contextmanager
def administration(url: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(url, autocommit=True)) as conn:
        yield conn


def sessions(url: str, where: str = "true") -> list[int]:
    """List the stores' backends in a database."""
    with administration(url) as conn:
        found = conn.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'memstore'"
            f" AND datname = current_database() AND {where}".encode()
        )
        return [pid for (pid,) in found]


def end_sessions(url: str, where: str = "true") -> int:
    ended = sessions(url, where)
    with administration(url) as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (ended,))
    eventually(lambda: not set(ended) & set(sessions(url)))
    return len(ended)


def kill_server(data_dir: Path) -> list[psutil.Process]:
    """Kill a server, and return its processes: its sessions end a moment after it."""
    lines = (data_dir / "postgres" / "postmaster.pid").read_text().splitlines()
    postmaster = psutil.Process(int(lines[0]))
    family = [postmaster, *postmaster.children()]
    postmaster.kill()
    return family


def is_dead(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True
