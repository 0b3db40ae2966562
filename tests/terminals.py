"""The command line, run against one database as a terminal runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from click.testing import CliRunner

from memstore import AgentState, MemoryStore
from memstore.cli import main
from tests.stores import QUIET

SCRIPT = Path(sys.executable).with_name("memstore")
WHO = ("--agent", "research", "--user", "u-17")

RECORDS = [
    {"role": "user", "text": "I'm on New York time", "session": "s1", "ts": "2026-04-28T09:00:00Z"},
    {
        "role": "assistant",
        "text": "Shall we settle on pgvector?",
        "session": "s1",
        "ts": "2026-04-28T09:01:00Z",
    },
    {
        "role": "user",
        "actor": "Ada",
        "event_type": "decision",
        "text": "Yes, pgvector it is; the zymurgy report can wait.",
        "session": "s2",
        "ts": "2026-04-29T10:00:00+02:00",
    },
]
OPENAI = {
    "messages": [
        {"role": "system", "content": "You help with travel."},
        {"role": "user", "content": "Is there a train to Lyon on Friday?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "trains", "arguments": '{"to": "Lyon"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "TGV 6607, 09:58"},
        {"role": "assistant", "content": "Yes, at 09:58."},
    ]
}
ANTHROPIC = {
    "system": "You help with travel.",
    "messages": [
        {"role": "user", "content": "Is there a train to Lyon on Friday?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I'll look."},
                {"type": "tool_use", "id": "toolu_1", "name": "trains", "input": {"to": "Lyon"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "TGV 6607, 09:58"}
            ],
        },
    ],
}


@dataclass(frozen=True, slots=True)
class Terminal:
    """Runs commands against one database; without an encoder unless a test says so."""

    url: str

    def run(self, *args: str, code: int = 0, encoder: str | None = "none") -> str:
        """Run a command and return its standard output."""
        return self.both(*args, code=code, encoder=encoder)[0]

    def both(self, *args: str, code: int, encoder: str | None = "none") -> tuple[str, str]:
        more = ["--url", self.url] + (["--encoder", encoder] if encoder else [])
        done = CliRunner().invoke(main, [*args, *more], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.stdout, done.stderr

    def json(self, *args: str, code: int = 0, encoder: str | None = "none") -> Any:
        """Run a command with --json and return the one value on its standard output."""
        return json.loads(self.run(*args, "--json", code=code, encoder=encoder))

    def error(self, *args: str, encoder: str | None = "none") -> str:
        """Run a command that must fail: exit code 1, one line, nothing on standard output."""
        out, error = self.both(*args, code=1, encoder=encoder)
        assert out == ""
        line = error[error.index("Error: ") :]
        assert line.count("\n") == 1
        return line.removeprefix("Error: ").rstrip()


def write(name: str, *values: Any) -> str:
    Path(name).write_text("".join(json.dumps(v) + "\n" for v in values), encoding="utf-8")
    return name


def saved(url: str, change: Callable[[AgentState], object], **options: Any) -> None:
    with MemoryStore.connect(url, encoder=None, settings=QUIET) as store:
        store.memory(agent="research", user="u-17").update(change, **options)


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
