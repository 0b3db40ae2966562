"""The demo's thread is what it claims to be, and the demo runs: kill, restart, check."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memstore import DEFAULT_SCHEMA, MemoryStore, o200k
from memstore.demo import run, show
from memstore.demo.agent import AGENT, USER, placed
from memstore.demo.compare import LAST
from memstore.demo.thread import Fact, Thread, load, weeks_to
from memstore.documents import json_patch


@pytest.fixture(scope="module")
def thread() -> Thread:
    return load()


def states(thread: Thread) -> dict[str, dict[str, Any]]:
    """The state after each message that changes it; positions are those of a log of its own."""
    positions = {str(e.idempotency_key): n for n, e in enumerate(thread.events, start=1)}
    document: Any = DEFAULT_SCHEMA.dump(DEFAULT_SCHEMA.initial())
    found = {}
    for identifier in ["", *positions]:
        if note := thread.notes.get(identifier):
            patched = json_patch(document, placed(note.patch, positions))
            document = DEFAULT_SCHEMA.dump(DEFAULT_SCHEMA.accept(patched))
            found[identifier] = document
    return found


def at_the_kill(thread: Thread) -> tuple[Mapping[str, Any], int]:
    """The state that the killed agent left, and how many messages it had absorbed."""
    saved = states(thread)
    absorbed = [thread.index(identifier) + 1 for identifier in saved if identifier]
    last = max(n for n in absorbed if n <= thread.index(thread.killed_at))
    return saved[str(thread.events[last - 1].idempotency_key)], last


def test_the_thread_is_in_order_and_its_tool_calls_have_their_results(thread: Thread) -> None:
    assert 190 <= len(thread.events) <= 230
    times = [event.occurred_at for event in thread.events if event.occurred_at]
    assert times == sorted(times)
    assert len(set(times)) == len(thread.events)
    assert {event.role for event in thread.events} == {"user", "assistant", "system", "tool"}
    waiting = None
    for event in thread.events:
        if event.event_type == "tool_call":
            assert waiting is None
            waiting = event.correlation_id
        elif event.role == "tool":
            assert event.correlation_id == waiting
            waiting = None
    assert waiting is None


def test_no_two_messages_say_the_same(thread: Thread) -> None:
    said = [e.content for e in thread.events if e.role in ("user", "assistant")]
    repeated = {text for text in said if said.count(text) > 1}
    assert all(text.endswith(")") for text in repeated)  # only calls of tools are made again


def test_replaying_the_thread_costs_many_times_the_budget(thread: Thread) -> None:
    count = o200k()
    assert sum(count(event.content) for event in thread.events) > 3 * 2048


def test_every_note_belongs_to_a_message_and_makes_a_valid_state(thread: Thread) -> None:
    saved = states(thread)
    assert saved.keys() == thread.notes.keys()
    for note in thread.notes.values():
        assert note.reason
        assert (note.flag is None) == (not note.because)


def test_the_state_at_the_kill_is_about_two_kilobytes_and_has_a_tail(thread: Thread) -> None:
    document, absorbed = at_the_kill(thread)
    size = len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
    assert 1_500 <= size <= 2_500
    assert 5 <= thread.index(thread.killed_at) - absorbed <= 30


def test_what_the_task_needs_is_in_the_state_in_the_tail_and_in_old_entries(
    thread: Thread,
) -> None:
    document, absorbed = at_the_kill(thread)
    state = json.dumps(document, ensure_ascii=False)
    killed = thread.index(thread.killed_at)
    contents = [event.content for event in thread.events[:killed]]
    where = set()
    for fact in thread.needed:
        for identifier in fact.messages:
            assert thread.index(identifier) < killed
            assert fact.inside(thread.events[thread.index(identifier)].content)
        assert not fact.inside(thread.task)
        if fact.inside(state):
            where.add("state")
        elif any(map(fact.inside, contents[absorbed:])):
            where.add("tail")
        else:
            where.add("log")
    assert where == {"state", "tail", "log"}
    inside = [fact.inside("\n".join(contents[-LAST:])) for fact in thread.needed]
    assert 0 < sum(inside) < len(inside) / 2


def test_a_fact_is_found_across_the_lines_of_a_rendering() -> None:
    fact = Fact("f", ("m1",), ("Rua da Estação 52",))
    assert fact.inside("to Rua da\n  Estação 52, Braga")
    assert not fact.inside("to Rua do Souto 14")


def test_dates_move_by_whole_weeks_in_times_texts_and_states(thread: Thread) -> None:
    moved = load(10)
    assert moved.weeks == 10
    for was, now in zip(thread.events, moved.events, strict=True):
        assert was.occurred_at
        assert now.occurred_at == was.occurred_at + timedelta(weeks=10)
        assert was.idempotency_key == now.idempotency_key
    texts = "\n".join(event.content for event in moved.events)
    assert "2025-05-19T12:57:02Z" in texts  # ten weeks after 10 March
    assert "2025-03-10" not in texts
    call = moved.events[moved.index("m198") + 1]
    assert "2025-06-25" in json.dumps(call.payload)
    assert "2025-06-18" in json.dumps(moved.notes["m142"].patch)


def test_the_thread_ends_before_the_day_that_it_is_moved_to() -> None:
    for day in (date(2025, 1, 1), date(2025, 4, 16), date(2026, 11, 30), date(2027, 2, 28)):
        died = load(weeks_to(day))
        when = died.events[died.index(died.killed_at)].occurred_at
        assert when
        if day > date(2025, 4, 15):
            assert timedelta(0) < day - when.date() <= timedelta(days=7)


def output(**options: Any) -> tuple[int, str]:
    screen = io.StringIO()
    code = run.main(Console(file=screen, width=90), **options)
    return code, screen.getvalue()


@pytest.fixture
def by_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The encoder has its own tests; here it would take the most time and change nothing.
    monkeypatch.setenv("MEMSTORE_ENCODER", "none")


@pytest.mark.usefixtures("by_words_alone")
def test_kills_restarts_and_finds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # where the virtual environment isn't active
    code, shown = output(budget=2048)
    assert (tmp_path / "memstore-demo").is_dir()
    assert not (tmp_path / "memstore").exists()  # it would not be empty for whoever comes next
    assert code == 0, shown
    assert "SIGKILL" in shown
    assert "216 messages were acknowledged, 0 of them missing" in " ".join(shown.split())
    assert "of 2,048" in shown
    assert shown.count("stale (") == 2
    # With or without the message that was in the works: the kill may have come after its commit.
    assert "Tail: 14 entries" in shown or "Tail: 15 entries" in shown
    assert "fitting" in shown
    assert "137–141" in shown
    for name in ("lexical", "window", "session", "overhead"):
        assert f" {name}: " in f" {' '.join(shown.split())}"
    for step in ("Starting an embedded Postgres", "The agent takes", "A new process asks"):
        assert step in shown  # in a pipe too
    lines = [line for line in shown.splitlines() if "memstore" not in line]
    assert max(map(len, lines)) <= 90
    found, versions, state = run_as_printed(shown)
    assert "may decide" in found
    assert len(versions.splitlines()) > 20
    assert "version " in state


def run_as_printed(shown: str) -> list[str]:
    """Run the commands that the demo ends with, in a shell, and give what they print."""
    hints = shown[shown.index("It stays there to be looked at") :].splitlines()[1:]
    commands = "\n".join(hints).replace("\\\n", " ").splitlines()
    assert len(commands) == 3
    return [
        subprocess.run(["/bin/sh", "-c", line], check=True, capture_output=True, text=True).stdout
        for line in commands
    ]


def test_a_path_is_written_as_short_as_a_shell_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "here").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "here")
    assert show.shortest(home / "here" / ".venv" / "bin" / "memstore") == ".venv/bin/memstore"
    assert show.shortest(home / "my data") == "~/'my data'"
    assert show.shortest(Path("/var/lib/x")) == "/var/lib/x"


def test_the_commands_name_the_program_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "venv" / "bin", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "memstore").touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(own / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(own))
    assert show.program() == "memstore"
    for path in ("/nowhere", str(other)):  # none is found, or another project's
        monkeypatch.setenv("PATH", path)
        assert show.program() == "venv/bin/memstore"
    monkeypatch.chdir(own)
    assert show.program() == "./memstore"


def test_a_long_folder_leaves_room_for_the_time() -> None:
    screen = io.StringIO()
    show.done(Console(file=screen, width=80), f"Postgres in {'/folder' * 20}", 12.34)
    (line,) = screen.getvalue().splitlines()
    assert line.endswith("…  12.3 s")
    assert len(line) <= 80


@pytest.mark.usefixtures("by_words_alone")
def test_a_kill_while_words_and_state_are_saved_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: Thread
) -> None:
    """Message m161 comes with a change of state: neither may be lost or made twice."""
    monkeypatch.setattr(run, "load", lambda weeks: replace(thread, killed_at="m161"))
    monkeypatch.setattr(run, "weeks_to", lambda day: 0)
    monkeypatch.setattr("memstore.demo.run.random.uniform", lambda low, high: 0.01)
    code, shown = output(data_dir=tmp_path / "data")
    assert code == 0, shown
    with MemoryStore.embedded(tmp_path / "data") as store:
        memory = store.memory(agent=AGENT, user=USER)
        assert memory.state().document == states(thread)["m216"]


def test_an_agent_that_dies_by_itself_says_why() -> None:
    with pytest.raises(run.AgentDied, match=r"(?s)ended early: .*required: --data-dir"):
        watch_one_that_lacks_its_arguments()


def watch_one_that_lacks_its_arguments() -> None:
    with run._agent([]) as agent:
        assert agent.wait() == 2
        raise run.AgentDied("it ended early")


def test_what_fails_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    code, shown = output(data_dir=tmp_path / "data")
    assert code == 1
    assert "Error" in shown
