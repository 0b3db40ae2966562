"""Every command, really run: what it prints, its one JSON value, its errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from memstore.cli import main
from tests.terminals import ANTHROPIC, OPENAI, RECORDS, SCRIPT, WHO, Terminal, saved, write

pytestmark = pytest.mark.usefixtures("plain_environment")


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
