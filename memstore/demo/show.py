"""What the demo prints."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from memstore.demo.thread import Fact, Thread

_TICK, _CROSS = Text("✓", style="bold green"), Text("✗", style="bold red")
_INDENT = (0, 0, 0, 2)
#: What the names of reasons mean, for whoever sees them for the first time.
_REASONS = {
    "lexical": "place by words",
    "vector": "place by meaning",
    "window": "the entries round it match",
    "session": "its conversation matches",
    "coverage": "its conversation has many of the words",
    "reply": "the reply to it matches",
    "answer": "it follows a question that matches",
    "user": "the user's own words",
    "actor": "by somebody whom the task names",
    "told": "what the agent told",
    "time": "near the time that is meant",
    "dated": "has a time in it",
    "numbered": "has a number in it",
}


def introduction(console: Console, thread: Thread) -> None:
    sessions = len({event.session_id for event in thread.events})
    first, last = thread.events[0].occurred_at, thread.events[-1].occurred_at
    assert first is not None
    assert last is not None
    console.print(
        Panel(
            f"A support thread of {len(thread.events)} messages in {sessions} conversations, "
            f"{first.day} {first:%B} to {last.day} {last:%B %Y} (its dates are moved, to end about "
            "now). An agent keeps its log and its state in Postgres. Its process is killed "
            "in the middle of a message; a new one goes on from its memory.",
            title="memstore",
            title_align="left",
            border_style="cyan",
        )
    )


def step(console: Console, title: str) -> None:
    console.print()
    console.print(Rule(Text(title, style="bold cyan"), align="left", style="cyan"))


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """Say what is waited for: while it lasts on a terminal, as a line elsewhere."""
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        console.print(Padding(f"{what} …", _INDENT), highlight=False)
        yield


def done(console: Console, what: str, seconds: float) -> None:
    took = f"  {seconds:.1f} s"
    text = Text(what)
    text.truncate(console.width - 4 - len(took), overflow="ellipsis")
    console.print(Padding(Text.assemble(("✓ ", "green"), text, (took, "dim")), _INDENT))


def killed(console: Console, thread: Thread, run: Any, newest: str | None) -> None:
    """Say what was acknowledged, and what became of the message that was in the works."""
    count = len(run.acknowledged)
    console.print(
        Padding(
            f"{count} messages stored and acknowledged in {run.seconds:.1f} s, then SIGKILL while "
            f"the agent worked on message {thread.index(thread.killed_at) + 1}:",
            _INDENT,
        ),
        highlight=False,
    )
    event = thread.events[thread.index(thread.killed_at)]
    if thread.killed_at in run.acknowledged:
        fate = "it was stored and acknowledged, a moment before"
    elif newest == thread.killed_at:
        fate = "it had been stored, but nobody was told: the retry must not store it twice"
    else:
        fate = "it had not been stored: the retry must"
    console.print(Padding(Text(f"  {event.actor}: {event.content}", style="italic"), _INDENT))
    console.print(Padding(Text(fate + ".", style="yellow"), _INDENT))


def resumed(console: Console, thread: Thread, message: Mapping[str, Any]) -> None:
    """Show all that the restarted agent was handed, what it took, and the two other ways."""
    context = message["resumed"]
    console.print(Padding(Text.assemble(("Task: ", "bold"), thread.task), _INDENT))
    console.print()
    console.print(_state(thread, context))
    console.print(
        _entries(
            f"Tail: {len(context['tail'])} entries that the state has not absorbed",
            thread,
            context["tail"],
            reasons=False,
        )
    )
    older = context["log_position"]
    console.print(
        _entries(
            f"Retrieved for the task: {len(context['retrieved'])} of {older} older entries",
            thread,
            context["retrieved"],
            reasons=True,
        )
    )
    console.print(_left_out(context))
    console.print(_costs(message))
    step(console, "Beside it: the same question, answered in other ways")
    console.print(_ways(thread, message))


def checks(console: Console, results: Mapping[str, bool]) -> None:
    table = Table.grid(padding=(0, 1))
    for text, passed in results.items():
        table.add_row(_TICK if passed else _CROSS, text)
    console.print(Padding(table, _INDENT))


def hints(console: Console, identity: str, folder: Path) -> None:
    """Say how to look at what the demo leaves behind, in lines that can be copied."""
    console.print()
    console.print(Padding(_heading("It stays there to be looked at, for instance with"), _INDENT))
    for command in ('search "who may decide?"', "history", "state"):
        for line in (f"{program()} {command} \\", f"  {identity} --data-dir {shortest(folder)}"):
            console.print(f"    {line}", soft_wrap=True, highlight=False, markup=False)


def program() -> str:
    """Name the running `memstore` as a shell finds it: by its path where it isn't on PATH."""
    found, own = shutil.which("memstore"), Path(sys.executable).with_name("memstore")
    if not own.exists() or (found and os.path.samefile(found, own)):
        return "memstore"
    path = shortest(own)
    return path if "/" in path else f"./{path}"


def shortest(path: Path) -> str:
    """Write a path for a shell: from here, from home, or whole."""
    path = path.absolute()
    if path.is_relative_to(Path.cwd()):
        return shlex.quote(str(path.relative_to(Path.cwd())))
    if path.is_relative_to(Path.home()):
        return f"~/{shlex.quote(str(path.relative_to(Path.home())))}"
    return shlex.quote(str(path))


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _state(thread: Thread, context: Mapping[str, Any]) -> RenderableType:
    document = context["document"]
    size = len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
    stale = {part["path"]: part for part in context["stale"]}
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column()
    shown: list[tuple[str, str, Text]] = []
    for key, value in document["user_preferences"].items():
        shown.append((f"/user_preferences/{key}", "prefers", Text(f"{key}: {value}")))
    for index, fact in enumerate(document["confirmed_facts"]):
        when = _day(fact["confirmed_at"])
        text = Text.assemble(fact["statement"], (f"  {when}", "dim"))
        shown.append((f"/confirmed_facts/{index}", "fact", text))
    if task := document["active_task"]:
        words = [task["description"], task["status"], task["last_action"]]
        shown.append(("/active_task", "task", Text(" · ".join(filter(None, words)))))
    for index, issue in enumerate(document["unresolved_issues"]):
        text = Text.assemble(issue["description"], (f"  {_day(issue['opened_at'])}", "dim"))
        shown.append((f"/unresolved_issues/{index}", "open", text))
    before = None
    for path, kind, text in shown:
        _mark(thread, text)
        rows.add_row(kind if kind != before else "", text)
        before = kind
        if part := stale.get(path):
            why = part.get("note") or f"{part['days']} days old"
            rows.add_row("", Text(f"stale ({why}): “{part['ask']}”", style="yellow"))
    title = (
        f"State: version {context['version']}, {size:,} bytes, absorbed {context['log_position']} "
        f"of {context['log_end']} entries; {len(stale)} parts are stale"
    )
    return Group(_heading(title), Padding(rows, _INDENT), Text())


def _entries(
    title: str, thread: Thread, entries: Sequence[Mapping[str, Any]], *, reasons: bool
) -> RenderableType:
    """List entries in a line each, but in full where one holds what the task needs."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(ratio=1)
    for entry in entries:
        text = Text.assemble((f"{entry['actor']}  ", "cyan"), " ".join(entry["text"].split()))
        if entry["cut"]:
            text.append(" (cut)", "dim")
        if not _mark(thread, text):
            text.no_wrap, text.overflow = True, "ellipsis"
        table.add_row(str(entry["position"]), _day(entry["at"]), text)
        if reasons:
            table.add_row("", "", Text(entry["reason"], style="dim italic"))
    parts: list[RenderableType] = [_heading(title), Padding(table, _INDENT)]
    if reasons and (meanings := _meanings([entry["reason"] for entry in entries])):
        parts.append(Padding(Text(meanings, style="dim"), _INDENT))
    return Group(*parts, Text())


def _meanings(reasons: Sequence[str]) -> str:
    """Explain the names in some entries' reasons, in a line."""
    given = {reason.split(" #")[0] for line in reasons for reason in line.split("; ")}
    return "; ".join(f"{name}: {what}" for name, what in _REASONS.items() if name in given)


def _mark(thread: Thread, text: Text) -> bool:
    """Mark what the task needs in a text; tell whether there was any."""
    words = [words for fact in thread.needed for words in fact.texts]
    return text.highlight_words(words, "bold green") > 0


def _left_out(context: Mapping[str, Any]) -> RenderableType:
    counts: dict[str, int] = {}
    for item in context["dropped"]:
        where = f"{item['part']}: {item['reason']}"
        counts[where] = counts.get(where, 0) + 1
    notes = [f"{count} × {where}" for where, count in counts.items()]
    if context["unencoded"]:
        notes.append(f"{context['unencoded']} entries had no vector yet (found by words alone)")
    if context["degraded"]:
        notes.append(context["degraded"])
    text = "; ".join(notes) or "nothing"
    return Group(Text.assemble(("Left out: ", "bold"), text), Text())


def _costs(message: Mapping[str, Any]) -> RenderableType:
    context, budget = message["resumed"], message["budget"]
    tokens = context["tokens"]
    parts = Table.grid(padding=(0, 1))
    parts.add_column(no_wrap=True)
    parts.add_column(justify="right")
    parts.add_column(no_wrap=True)
    for name in ("state", "tail", "retrieved", "overhead"):
        bar = "█" * round(tokens[name] / budget * 24)
        parts.add_row(name, f"{tokens[name]:,}", Text(bar, style="cyan"))
    parts.add_row(_heading("total"), _heading(f"{tokens['total']:,}"), f"of {budget:,}")
    steps = Table.grid(padding=(0, 1))
    steps.add_column(no_wrap=True)
    steps.add_column(justify="right")
    own, took = context["milliseconds"], message["ways"][0]["milliseconds"]
    for name, value in {**message["started"], **own}.items():
        steps.add_row(name, f"{value:,.1f}")
    total = sum(message["started"].values()) + took
    steps.add_row(_heading("from python to context"), _heading(f"{total:,.1f}"))
    both = Table.grid(padding=(0, 6))
    both.add_row(_heading("Tokens by part"), _heading("Milliseconds by step"))
    both.add_row(parts, steps)
    legend = Text("overhead: headings, marks and the frame round it all", style="dim")
    return Group(both, legend)


def _ways(thread: Thread, message: Mapping[str, Any]) -> RenderableType:
    ways = message["ways"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("needed for the task", no_wrap=True)
    table.add_column("said\nin", no_wrap=True)
    for way in ways:
        own = way["name"] == "memstore"
        name = way["name"] if own else way["name"].replace(" ", "\n")
        table.add_column(name, justify="right", style="bold" if own else "", no_wrap=True)
    for index, fact in enumerate(thread.needed):
        numbers = [thread.index(message) + 1 for message in fact.messages]
        said = "–".join(map(str, dict.fromkeys((min(numbers), max(numbers)))))
        marks = [_TICK if way["inside"][index] else _CROSS for way in ways]
        if ways[0]["inside"][index]:
            marks[0] = Text.assemble((f"{_part(fact, message['resumed'])} ", "dim"), _TICK)
        table.add_row(fact.name, Text(said, style="dim"), *marks)
    table.add_section()
    counts = [f"{sum(way['inside'])} of {len(thread.needed)}" for way in ways]
    table.add_row("facts inside", "", *counts)
    table.add_row("tokens", "", *[f"{way['tokens']:,}" for way in ways])
    table.add_row("ms in a new process", "", *[f"{way['milliseconds']:,.0f}" for way in ways])
    table.add_row("ms once more", "", *[f"{way['again']:,.0f}" for way in ways])
    return Padding(table, _INDENT)


def _part(fact: Fact, context: Mapping[str, Any]) -> str:
    """Which part of the context holds a fact."""
    texts = {
        "state": json.dumps(context["document"], ensure_ascii=False),
        "tail": " ".join(entry["text"] for entry in context["tail"]),
        "retrieved": " ".join(entry["text"] for entry in context["retrieved"]),
    }
    return next((part for part, text in texts.items() if fact.inside(text)), "")


def _day(moment: str) -> str:
    at = datetime.fromisoformat(moment)
    return f"{at.day} {at:%b}"
