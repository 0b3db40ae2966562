"""Every command, really run: what it prints, its one JSON value, its errors and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import psycopg
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from memstore import AgentState, ConfirmedFact, MemoryStore, Settings, StateSchema
from memstore.cli import main
from memstore.embedded import EmbeddedServer
from tests.conftest import administer, database_of
from tests.encoders import HashEncoder

SCRIPT = Path(sys.executable).with_name("memstore")
QUIET = Settings(encode_in_background=False)
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


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MEMSTORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # --schema puts the current folder on it


@pytest.fixture
def terminal(database_url: str) -> Terminal:
    return Terminal(database_url)


@pytest.fixture
def bare_url(server: EmbeddedServer) -> Iterator[str]:
    """A database in which nothing was ever done."""
    name = f"bare_{uuid4().hex}"
    administer(server, f"CREATE DATABASE {name}")
    yield database_of(server, name)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def imported(terminal: Terminal) -> Terminal:
    assert terminal.json("import", write("chat.jsonl", *RECORDS), *WHO)["stored"] == len(RECORDS)
    return terminal


def write(name: str, *values: Any) -> str:
    Path(name).write_text("".join(json.dumps(v) + "\n" for v in values), encoding="utf-8")
    return name


def saved(url: str, change: Callable[[AgentState], object], **options: Any) -> None:
    with MemoryStore.connect(url, encoder=None, settings=QUIET) as store:
        store.memory(agent="research", user="u-17").update(change, **options)


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk(child, (*path, name))


# every command


@pytest.mark.parametrize("path", list(walk(main)), ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*path, "--help"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout.startswith("Usage: ")


def test_the_installed_command_runs() -> None:
    done = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("memstore")


# import


@pytest.mark.parametrize(
    ("name", "values", "stored"),
    [
        ("chat.jsonl", RECORDS, 3),
        ("openai.json", [OPENAI], 5),
        ("anthropic.json", [ANTHROPIC], 5),
    ],
)
def test_a_file_is_imported_once(
    terminal: Terminal, name: str, values: list[Any], stored: int
) -> None:
    file = write(name, *values)
    assert terminal.json("import", file, *WHO) == {"stored": stored, "repeated": 0}
    assert terminal.json("import", file, *WHO) == {"stored": 0, "repeated": stored}
    assert "0 events stored, " in terminal.run("import", file, *WHO)
    events = terminal.json("log", *WHO)
    assert [event["position"] for event in events] == list(range(1, stored + 1))


def test_what_a_file_gained_is_added(imported: Terminal) -> None:
    file = write("chat.jsonl", *RECORDS, {"role": "user", "text": "One more", "ts": "2026-05-01"})
    result = imported.json("import", file, *WHO, "--tz", "Europe/Berlin")
    assert result == {"stored": 1, "repeated": 3}
    (event,) = imported.json("log", *WHO, "--after", "3")
    assert event["occurred_at"] == "2026-04-30T22:00:00+00:00"
    assert event["session_id"] == "chat"


def test_tool_calls_are_joined_with_their_results(terminal: Terminal) -> None:
    terminal.run("import", write("openai.json", OPENAI), *WHO, "--session", "trip")
    events = terminal.json("log", *WHO)
    assert {event["session_id"] for event in events} == {"trip"}
    assert [e["event_type"] for e in events if e["correlation_id"] == "call_1"] == [
        "tool_call",
        "tool_result",
    ]


def test_standard_input_is_imported(terminal: Terminal) -> None:
    command = ["import", "-", *WHO, "--json", "--url", terminal.url, "--encoder", "none"]
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    for expected in ({"stored": 3, "repeated": 0}, {"stored": 0, "repeated": 3}):
        done = CliRunner().invoke(main, command, input=lines, catch_exceptions=False)
        assert json.loads(done.stdout) == expected
    done = CliRunner().invoke(main, command, input="{")
    assert done.exit_code == 1
    assert "stdin, line 1" in done.stderr


def test_a_time_without_an_offset_asks_for_its_zone(terminal: Terminal) -> None:  # trap 23
    file = write("chat.jsonl", {"text": "We ship.", "ts": "2026-04-28 09:00"})
    assert "--tz" in terminal.error("import", file, *WHO)
    assert terminal.json("import", file, *WHO, "--tz", "UTC")["stored"] == 1


def test_a_broken_line_is_named(terminal: Terminal) -> None:
    Path("bad.jsonl").write_text('{"role": "user", "text": "fine"}\n{"role": \n', encoding="utf-8")
    assert terminal.error("import", "bad.jsonl", *WHO).startswith("bad.jsonl, line 2: ")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "America", "../etc/passwd", ""])
def test_an_unknown_zone_is_refused(terminal: Terminal, zone: str) -> None:
    file = write("chat.jsonl", *RECORDS)
    _, error = terminal.both("import", file, *WHO, "--tz", zone, code=2)
    assert f"there is no time zone {zone!r}" in error


# log and search


@pytest.mark.parametrize(
    ("tags", "positions"),
    [
        ((), [1, 2, 3]),
        (("--session", "s1"), [1, 2]),
        (("--session", "s1", "--session", "s2"), [1, 2, 3]),
        (("--actor", "Ada"), [3]),
        (("--role", "assistant"), [2]),
        (("--event-type", "decision"), [3]),
        (("--since", "2026-04-29"), [3]),
        (("--since", "2026-04-28T09:01:00Z", "--until", "2026-04-29T08:00:00+00:00"), [2]),
        (("--until", "2026-04-28T11:01:00+02:00"), [1]),
        (("--after", "1", "--before", "3"), [2]),
        (("--newest-first", "--limit", "2"), [3, 2]),
        (("--session", "s"), []),
    ],
)
def test_log(imported: Terminal, tags: tuple[str, ...], positions: list[int]) -> None:
    events = imported.json("log", *WHO, *tags)
    assert [event["position"] for event in events] == positions
    shown = imported.run("log", *WHO, *tags)
    assert ("zymurgy" in shown) == (3 in positions)


@pytest.mark.parametrize("time", ["yesterday", "2026-04-28T09:00:00", "2026-13-01"])
def test_a_time_needs_its_offset(terminal: Terminal, time: str) -> None:  # trap 23
    _, error = terminal.both("log", *WHO, "--since", time, code=2)
    assert "Invalid value for '--since'" in error


def test_what_the_log_holds_is_neither_markup_nor_control_code(terminal: Terminal) -> None:
    record = {"role": "user", "text": "[bold]red\x1b[31m[/bold]", "session": "\x9b2J", "actor": "a"}
    terminal.run("import", write("chat.jsonl", record), *WHO)
    for shown in (terminal.run("log", *WHO), terminal.run("search", "red", *WHO)):
        assert "[bold]red [31m[/bold]" in shown
        assert "\x1b" not in shown
        assert "\x9b" not in shown
    assert terminal.json("log", *WHO)[0]["content"] == record["text"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_cannot_show_a_text_gets_its_code(
    encoding: str, terminal: Terminal
) -> None:
    text = "caf\u00e9 \u4f60\u597d \U0001f600 \u202egnp.exe"
    terminal.run("import", write("chat.jsonl", {"role": "user", "text": text}), *WHO)
    for command in (["log"], ["search", "caf\u00e9"], ["resume"], ["log", "--json"]):
        done = subprocess.run(
            [SCRIPT, *command, *WHO, "--url", terminal.url, "--encoder", "none"],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        )
        assert b"Traceback" not in done.stderr
        assert b"caf" in done.stdout
        if command == ["log"]:
            shown = text.replace("\u202e", " ")  # it would turn the text round
            assert shown.encode(encoding, "backslashreplace") in done.stdout


def test_search(imported: Terminal) -> None:
    result = imported.json("search", "when is the zymurgy report due?", *WHO, "-k", "1")
    (hit,) = result["hits"]
    assert hit["event"]["position"] == 3
    assert hit["legs"]["lexical"]["rank"] == 1
    assert result["leg_hits"] == {"lexical": 1, "vector": 0}
    assert "zymurgy" in imported.run("search", "zymurgy report", *WHO)
    users = imported.json("search", "pgvector", *WHO, "--role", "user")["hits"]
    assert {hit["event"]["role"] for hit in users} == {"user"}
    assert imported.json("search", "zymurgy:* -- | '", *WHO)["hits"]  # trap 6
    assert imported.json("search", "", *WHO)["leg_hits"]["lexical"] == 0  # trap 8


def test_search_says_what_has_no_vector_yet(imported: Terminal) -> None:
    imported.run("migrate", encoder=None)  # from now on there is an encoder, and a backlog
    result = imported.json("search", "which database?", *WHO, encoder=None)
    assert result["unencoded"] == 3
    assert "3 entries have no vector yet" in imported.run(
        "search", "which database?", *WHO, encoder=None
    )
    assert imported.json("worker", "--once", encoder=None) == {"encoded": 3}
    result = imported.json("search", "which database?", *WHO, encoder=None)
    assert (result["unencoded"], result["leg_hits"]["vector"]) == (0, 3)
    assert "vector #1" in imported.run("search", "which database?", *WHO, encoder=None)


# resume


def test_resume(imported: Terminal) -> None:
    saved(imported.url, lambda state: state.user_preferences.update(timezone="America/New_York"))
    imported.run("import", write("more.jsonl", {"role": "user", "text": "And the report?"}), *WHO)
    arguments = ("resume", *WHO, "--task", "zymurgy report", "--budget", "600")
    text, report = imported.both(*arguments, code=0)
    assert "America/New_York" in text
    assert "And the report?" in text
    assert "zymurgy" in text
    assert "of 600 tokens" in report
    value = imported.json(*arguments)
    assert value["tail"] == [4]
    assert 3 in [entry["position"] for entry in value["retrieved"]]
    assert value["tokens"]["total"] <= 600


def test_a_resume_without_a_budget_has_the_settings(
    imported: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "of 2048 tokens" in imported.both("resume", *WHO, code=0)[1]
    monkeypatch.setenv("MEMSTORE_BUDGET", "60")
    assert "of 60 tokens" in imported.both("resume", *WHO, code=0)[1]
    assert imported.json("resume", *WHO)["tokens"]["total"] <= 60
    assert "of 700 tokens" in imported.both("resume", *WHO, "--budget", "700", code=0)[1]


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_resume_as_messages(imported: Terminal, form: str) -> None:
    arguments = ("resume", *WHO, "--task", "zymurgy", "--format", form)
    messages = json.loads(imported.run(*arguments))
    assert messages[0]["role"] == "user"
    assert imported.json(*arguments)["context"] == messages


def test_resume_of_nothing(terminal: Terminal) -> None:
    value = terminal.json("resume", *WHO)
    assert (value["tail"], value["retrieved"]) == ([], [])


def test_a_budget_below_nothing_is_refused(imported: Terminal) -> None:
    _, error = imported.both("resume", *WHO, "--budget", "-5", code=2)
    assert "Invalid value for '--budget': -5" in error


@pytest.mark.parametrize(
    "command", [("search", "zymurgy"), ("log",), ("history",), ("resume",), ("state",)]
)
def test_a_mistyped_name_is_said_on_standard_error(
    imported: Terminal, command: tuple[str, ...]
) -> None:
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"))
    said = "no memory of agent 'research' and user 'u-71' in tenant 'default'"
    wrong = ("--agent", "research", "--user", "u-71")
    for more in ((), ("--json",)):
        out, error = imported.both(*command, *wrong, *more, code=0)
        assert said in error.splitlines()
        assert said not in out
        if more:
            json.loads(out)
        assert said not in imported.both(*command, *WHO, *more, code=0)[1]
    # a memory of which the tags leave nothing is no missing one
    assert imported.both("log", *WHO, "--session", "none", code=0)[1] == ""


# states


def test_state(imported: Terminal) -> None:
    assert imported.json("state", *WHO)["version"] == 0
    assert "saved never" in imported.run("state", *WHO)
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"), author="a")
    found = imported.json("state", *WHO)
    assert (found["version"], found["log_position"], found["author"]) == (1, 3, "a")
    assert found["value"]["user_preferences"] == {"tone": "short"}
    shown = imported.run("state", *WHO)
    assert "version 1, schema agent 1" in shown
    assert '"tone": "short"' in shown


def test_an_earlier_state(imported: Terminal) -> None:
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"))
    imported.run("import", write("more.jsonl", {"role": "user", "text": "Longer!"}), *WHO)
    saved(imported.url, lambda state: state.user_preferences.update(tone="long"))
    first = imported.json("state", *WHO, "--version", "1")
    assert imported.json("state", *WHO)["value"]["user_preferences"] == {"tone": "long"}
    for option, value in [
        ("--version", "1"),
        ("--position", "3"),
        ("--as-of", first["created_at"]),
    ]:
        found = imported.json("state", *WHO, option, value)
        assert found["value"]["user_preferences"] == {"tone": "short"}, option
    assert imported.error("state", *WHO, "--version", "9").endswith("no state at version 9")
    assert imported.error("state", *WHO, "--as-of", "2020-01-01").startswith("default/research/")
    assert imported.error("state", *WHO, "--version", "1", "--position", "3").startswith("state: ")


def test_a_state_shows_what_is_stale(terminal: Terminal) -> None:
    fact = ConfirmedFact.model_validate(
        {"statement": "the port is 5433", "confirmed_at": "2020-04-28T00:00:00Z"}
    )
    saved(terminal.url, lambda state: state.confirmed_facts.append(fact))
    (stale,) = terminal.json("state", *WHO)["stale"]
    assert stale["path"] == "/confirmed_facts/0"
    assert "the port is 5433" in stale["question"]
    assert "is that still so?" in " ".join(terminal.run("state", *WHO).split())


def test_whose_state_must_be_said(terminal: Terminal) -> None:
    _, error = terminal.both("state", "--agent", "research", code=2)
    assert "--agent and --user are needed" in error


def test_history_and_diff(imported: Terminal) -> None:
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"))
    saved(imported.url, lambda state: state.user_preferences.update(tone="[i]long"), reason="[b]")
    versions = imported.json("history", *WHO)
    assert [(v["version"], v["reason"]) for v in versions] == [(2, "[b]"), (1, None)]
    assert len(imported.json("history", *WHO, "--limit", "1")) == 1
    assert "[b]" in imported.run("history", *WHO)
    (change,) = imported.json("history", *WHO, "--diff", "1", "2")
    assert (change["path"], change["old"], change["new"]) == (
        "/user_preferences/tone",
        "short",
        "[i]long",
    )
    assert "[i]long" in imported.run("history", *WHO, "--diff", "1", "2")
    assert imported.json("history", *WHO, "--diff", "0", "1")
    assert imported.error("history", *WHO, "--diff", "1", "7").endswith("no state at version 7")


class Notes(BaseModel):
    title: str = ""


NOTES = StateSchema("notes", 1, Notes)
SECOND_VERSION = """
from pydantic import BaseModel
from memstore import StateSchema

class Notes(BaseModel):
    number: int = 0

NOTES = StateSchema("notes", 2, Notes, {1: lambda old: {"number": int(old["title"])}})
NUMBER = 5
"""


def test_migrating_states_names_the_memory_that_fails(terminal: Terminal) -> None:  # trap 33
    with MemoryStore.connect(terminal.url, encoder=None, settings=QUIET) as store:
        for user, title in (("good", "12"), ("bad", "twelve")):
            memory = store.memory(agent="research", user=user, schema=NOTES)
            memory.save(Notes(title=title), expected_version=0)
    Path("second_version.py").write_text(SECOND_VERSION, encoding="utf-8")
    arguments = ("state", "migrate", "--schema", "second_version:NOTES")
    for how in (("--dry-run",), ()):
        report = terminal.json(*arguments, *how, code=1)
        assert (report["tried"], report["outdated"], report["migrated"]) == (2, 1, 0)
        (failure,) = report["failures"]
        assert failure.startswith("default/research/bad: state version 1, step 1 -> 2")
        assert "fails: default/research/bad" in terminal.run(*arguments, *how, code=1)
    with MemoryStore.connect(terminal.url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="research", user="bad", schema=NOTES)
        assert memory.update(lambda notes: setattr(notes, "title", "13")).version == 2
    report = terminal.json(*arguments, "--dry-run")
    assert (report["migrated"], len(report["history_failures"])) == (0, 1)
    report = terminal.json(*arguments)
    assert (report["migrated"], report["failures"]) == (2, [])
    who = ("--agent", "research", "--user", "bad")
    assert terminal.json("state", *who, "--schema", "second_version:NOTES")["value"] == {
        "number": 13
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:NOTES", "ModuleNotFoundError"),
        ("second_version:OTHER", "AttributeError"),
        ("second_version:NUMBER", "is no StateSchema"),
        ("second:version:", "can't be imported"),
        ("broken_module:NOTES", "ZeroDivisionError"),
        (":", "can't be imported"),
    ],
)
def test_a_schema_that_is_none(terminal: Terminal, name: str, message: str) -> None:
    Path("second_version.py").write_text(SECOND_VERSION, encoding="utf-8")
    Path("broken_module.py").write_text("1 / 0", encoding="utf-8")
    _, error = terminal.both("state", *WHO, "--schema", name, code=2)
    assert message in error
    assert "Traceback" not in error


def test_a_state_of_another_schema_is_refused(terminal: Terminal) -> None:
    saved(terminal.url, lambda state: state.user_preferences.update(tone="short"))
    Path("second_version.py").write_text(SECOND_VERSION, encoding="utf-8")
    error = terminal.error("state", *WHO, "--schema", "second_version:NOTES")
    assert "is of schema 'agent', not 'notes'" in error


FIRST_DESK = {
    "properties": {"address": {"type": "string", "x-fresh": "P90D"}},
    "additionalProperties": False,
}
SECOND_DESK = {
    "properties": {"addresses": {"type": "array", "default": []}},
    "required": ["addresses"],
}
TO_SECOND = [{"op": "move", "from": "/address", "path": "/addresses"}]


def test_schemas_are_registered_tried_and_migrated_to(terminal: Terminal) -> None:
    for name, value in (("1", FIRST_DESK), ("2", SECOND_DESK), ("to2", TO_SECOND), ("i", {})):
        Path(f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    told = terminal.run("schema", "register", "desk", "1.json", "--initial", "i.json")
    assert told == "desk 1 is registered\n"
    again = terminal.json("schema", "register", "desk", "1.json", "--initial", "i.json")
    assert again["schema"] == FIRST_DESK
    assert "another body" in terminal.error("schema", "register", "desk", "1.json")
    with MemoryStore.connect(terminal.url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
        memory.patch({"address": "A"})
    new = ("schema", "register", "desk", "2.json", "--version", "2", "--migration", "to2.json")
    told = terminal.run(*new, "--dry-run", code=1)
    assert "fails: default/a/u: state version 1" in told or "at /addresses" in told
    Path("to2.json").write_text(
        '[{"op": "add", "path": "/addresses", "value": []},'
        ' {"op": "move", "from": "/address", "path": "/addresses/0", "optional": true}]',
        encoding="utf-8",
    )
    report = terminal.json(*new, "--dry-run")
    assert (report["tried"], report["outdated"], report["failures"]) == (1, 1, [])
    terminal.run(*new)
    who = ("--agent", "a", "--user", "u")
    assert terminal.json("state", *who, "--schema", "desk")["value"] == {"addresses": ["A"]}
    assert terminal.json("state", *who, "--schema", "desk@1")["value"] == {"address": "A"}
    assert "A" in terminal.run("resume", *who, "--schema", "desk")
    assert terminal.json("state", "migrate", "--schema", "desk")["migrated"] == 1
    assert "knows up to 1" in terminal.error("state", *who, "--schema", "desk@1")
    assert "no schema" in terminal.error("state", *who, "--schema", "nothing")
    _, error = terminal.both("state", *who, "--schema", "desk@x", code=2)
    assert "a version is a number" in error
    assert len(terminal.json("history", *who, "--schema", "desk")) == 2
    listed = terminal.json("schema", "list")
    assert [(one["name"], one["version"]) for one in listed] == [("desk", 2)]
    assert "desk" in terminal.run("schema", "list")
    assert json.loads(terminal.run("schema", "show", "desk")) == SECOND_DESK
    assert terminal.json("schema", "show", "desk", "--version", "1")["schema"] == FIRST_DESK
    Path("bad.json").write_text("{", encoding="utf-8")
    _, error = terminal.both("schema", "register", "x", "bad.json", code=2)
    assert "is not JSON" in error


# the database


def test_migrate_makes_a_bare_database_fit(bare_url: str) -> None:
    bare = Terminal(bare_url)
    assert "run 'memstore migrate'" in bare.error("log", *WHO)
    applied = bare.json("migrate", encoder=None)["applied"]
    assert applied[0] == "0001_core"
    assert bare.json("migrate", encoder=None) == {"applied": []}
    assert bare.run("migrate", encoder=None) == "up to date\n"
    assert bare.json("log", *WHO, encoder=None) == []
    assert all(check["ok"] for check in bare.json("doctor", encoder=None))
    assert "no tenant 'acme'" in bare.error("log", *WHO, "--tenant", "acme", encoder=None)
    bare.run("migrate", "--tenant", "acme", encoder=None)
    assert bare.json("log", *WHO, "--tenant", "acme", encoder=None) == []


def test_migrate_says_what_it_applied(bare_url: str) -> None:
    assert Terminal(bare_url).run("migrate").startswith("applied 0001 core\n")


def findings(checks: list[dict[str, Any]]) -> dict[str, str]:
    return {check["name"]: check["detail"] for check in checks if not check["ok"]}


def test_doctor_finds_a_healthy_database(terminal: Terminal) -> None:
    checks = terminal.json("doctor")
    assert findings(checks) == {}
    assert [check["name"] for check in checks] == [
        "connection",
        "pgvector",
        "migrations",
        "append-only",
        "tenant",
        "spaces",
        "queue",
        "orphans",
    ]
    assert terminal.run("doctor").count("ok  ") == len(checks)


def test_doctor_finds_that_pgvector_is_missing(bare_url: str) -> None:
    found = findings(Terminal(bare_url).json("doctor", code=1))
    assert list(found) == ["pgvector"]
    assert "memstore migrate" in found["pgvector"]


def test_doctor_finds_pending_migrations(bare_url: str) -> None:
    execute(bare_url, "CREATE EXTENSION vector")
    found = findings(Terminal(bare_url).json("doctor", code=1))
    assert list(found) == ["migrations"]
    assert "memstore migrate" in found["migrations"]


@pytest.mark.parametrize(
    ("statement", "name", "advice"),
    [
        ("GRANT UPDATE ON memstore.events TO memstore_server", "append-only", "revoke"),
        ("DELETE FROM memstore.tenants", "tenant", "there is no tenant 'default'"),
        (
            "INSERT INTO memstore.postings SELECT gen_random_uuid(), 1, tenant_id, 1, 1, 'word' "
            "FROM memstore.tenants",
            "orphans",
            "1 memories have derived rows",
        ),
        (
            "INSERT INTO memstore.encoding_queue "
            "(memory_id, space_id, position, tenant_id, enqueued_at) "
            "SELECT gen_random_uuid(), 1, 1, tenant_id, now() - interval '1 hour' "
            "FROM memstore.tenants",
            "queue",
            "memstore worker",
        ),
    ],
)
def test_doctor_finds(terminal: Terminal, statement: str, name: str, advice: str) -> None:
    execute(terminal.url, statement)
    found = findings(terminal.json("doctor", code=1))
    assert list(found) == [name]
    assert advice in found[name]
    assert f"FAIL {name}: " in terminal.run("doctor", code=1)


def test_doctor_finds_that_another_encoder_serves(terminal: Terminal) -> None:
    MemoryStore.prepare(terminal.url, encoder=HashEncoder(), settings=QUIET)
    found = findings(terminal.json("doctor", code=1, encoder=None))
    assert list(found) == ["spaces"]
    assert "memstore space add all-MiniLM-L6-v2" in found["spaces"]
    error = terminal.error("search", "x", *WHO, encoder=None)  # trap 12
    assert "vectors are from 'hash', not 'all-MiniLM-L6-v2'" in error


def test_doctor_finds_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_CONNECT_TIMEOUT", "0.5")
    nobody = Terminal("postgresql://nobody@127.0.0.1:1/nothing")
    assert list(findings(nobody.json("doctor", code=1))) == ["connection"]


def test_a_wrong_url_is_one_line_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_CONNECT_TIMEOUT", "0.5")
    nobody = Terminal("postgresql://nobody@127.0.0.1:1/nothing")
    for command in (("log", *WHO), ("state", *WHO), ("space", "list"), ("worker", "--once")):
        assert "no connection within 0.5 s" in nobody.error(*command)
    assert "refused" in nobody.error("log", *WHO)
    assert "refused" in nobody.error("migrate")
    for text in ("postgresql://[", "nonsense", "host=x port=none"):
        assert Terminal(text).error("log", *WHO)


def test_a_setting_that_is_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_POOL_SIZE", "many")
    assert terminal.error("log", *WHO).startswith("MEMSTORE_POOL_SIZE: ")


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # as a folder it would be the current one, as a URL whatever libpq finds
    unset = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"MEMSTORE_{name.upper()}", "")
    assert Settings() == unset


def test_spaces(imported: Terminal) -> None:
    assert imported.json("space", "list") == []
    MemoryStore.prepare(imported.url, encoder=HashEncoder(), settings=QUIET)
    name = "all-MiniLM-L6-v2"
    added = imported.json("space", "add", name)
    assert (added["space"]["status"], added["encoded"]) == ("filling", 3)
    assert "entries still wait" not in imported.run("space", "list")
    assert imported.json("space", "switch", name)["status"] == "serving"
    assert {s["encoder"]: s["status"] for s in imported.json("space", "list")} == {
        "hash": "retained",
        name: "serving",
    }
    assert f"serving   {name} (384)" in imported.run("space", "list")
    assert imported.json("search", "which database?", *WHO, encoder=None)["leg_hits"]["vector"] == 3
    assert "serves: switch to another first" in imported.error("space", "drop", name)
    assert "there is no space" in imported.error("space", "switch", "other")
    assert imported.json("space", "drop", "hash") == {"dropped": "hash"}
    assert "there is no space" in imported.error("space", "drop", "hash")
    assert "0 entries encoded" in imported.run("space", "add", name)
    assert f"{name} serves" in imported.run("space", "switch", name)


def test_an_encoder_that_is_none(terminal: Terminal) -> None:
    error = terminal.error("space", "add", "./nothing")
    assert "is not a model" in error


# the worker


def test_worker_encodes_what_waits_and_stops_when_told(terminal: Terminal) -> None:
    terminal.run("migrate", encoder=None)
    terminal.run("import", write("chat.jsonl", *RECORDS), *WHO)
    with (
        MemoryStore.connect(terminal.url, settings=QUIET) as store,
        subprocess.Popen(
            [SCRIPT, "worker", "--url", terminal.url], stderr=subprocess.PIPE, text=True
        ) as worker,
    ):
        memory = store.memory(agent="research", user="u-17")
        try:
            assert worker.stderr is not None
            assert "encoding" in worker.stderr.readline()
            while memory.unencoded():
                assert worker.poll() is None
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    assert "0 entries encoded" in terminal.run("worker", "--once", encoder=None)


def test_worker_ends_when_its_encoder_does_not_fit(terminal: Terminal) -> None:  # trap 12
    MemoryStore.prepare(terminal.url, encoder=HashEncoder(), settings=QUIET)
    execute(terminal.url, "UPDATE memstore.spaces SET encoder = 'all-MiniLM-L6-v2'")
    terminal.run("import", write("chat.jsonl", *RECORDS), *WHO)
    done = subprocess.run(
        [SCRIPT, "worker", "--url", terminal.url], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "Error: encoding stopped" in done.stderr
    assert "Traceback" not in done.stderr


def test_worker_needs_an_encoder(terminal: Terminal) -> None:
    assert "no encoder" in terminal.error("worker")
    assert "no encoder" in terminal.error("worker", "--once")


# the embedded server


def test_the_embedded_server_serves_one_command_after_another(scratch: Path) -> None:
    folder = scratch / f"cli-{uuid4().hex[:8]}"
    file = write("chat.jsonl", *RECORDS)
    where = ("--data-dir", str(folder), "--encoder", "none", "--json")
    answers = []
    for command in (["import", file], ["log"]):
        done = subprocess.run(
            [SCRIPT, *command, *WHO, *where], capture_output=True, text=True, check=True
        )
        answers.append(json.loads(done.stdout))
    assert answers[0] == {"stored": 3, "repeated": 0}
    assert [event["position"] for event in answers[1]] == [1, 2, 3]
    done = subprocess.run([SCRIPT, "doctor", *where], capture_output=True, text=True)
    assert all(check["ok"] for check in json.loads(done.stdout)), done.stdout


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below", Path("/proc/memstore")):
        done = CliRunner().invoke(main, ["log", *WHO, "--data-dir", str(place)])
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
