"""The support thread: what was said, what the agent noted, and what it is asked at the end.

The files hold a thread of spring 2025. `load` moves all of its dates by whole weeks, so that it
happens in the weeks up to a given day and a state ages as it would have; weekdays stay true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib.resources import files
from io import BytesIO
from typing import Any

from memstore.importing import read_events
from memstore.types import NewEvent

# In a file's raw text a date may follow an escape, as in "\\n2025-03-10".
_DATE = re.compile(r"(?<!\d)20\d\d-\d\d-\d\d(?!\d)")


@dataclass(frozen=True, slots=True)
class Note:
    """A change of state that the agent saves together with a message: a JSON Patch and why.

    `flag` is a path that it doubts from then on, `because` the reason.
    """

    patch: list[dict[str, Any]]
    reason: str
    flag: str | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that the task cannot be done without: any of `texts` in the context shows it."""

    name: str
    messages: tuple[str, ...]
    texts: tuple[str, ...]

    def inside(self, context: str) -> bool:
        flat = " ".join(context.split())
        return any(text in flat for text in self.texts)


@dataclass(frozen=True, slots=True)
class Thread:
    """The thread, dates moved by `weeks`. Message ids are the events' idempotency keys."""

    events: list[NewEvent]
    notes: Mapping[str, Note]
    killed_at: str
    task: str
    needed: tuple[Fact, ...]
    weeks: int

    def index(self, identifier: str) -> int:
        """Where a message stands in `events`."""
        return next(i for i, e in enumerate(self.events) if e.idempotency_key == identifier)


def weeks_to(day: date) -> int:
    """How many weeks bring the message at which the agent dies closest before a day."""
    question = json.loads(_read("support_question.json"))
    for line in _read("support_thread.jsonl").splitlines():
        record = json.loads(line)
        if record["id"] == question["killed_at"]:
            died = datetime.fromisoformat(record["ts"]).date()
            # A day's margin: no time zone's clock may be behind the thread's.
            return max(0, (day - died).days - 1) // 7
    raise AssertionError("the question names a message of the thread")


def load(weeks: int = 0) -> Thread:
    """Load the thread with its dates moved later by whole weeks."""
    lines = []
    for line in _moved(_read("support_thread.jsonl"), weeks).splitlines():
        record = json.loads(line)
        lines.append(json.dumps(record | {"idempotency_key": record["id"]}))
    stream = BytesIO("\n".join(lines).encode())
    notes = {}
    for line in _moved(_read("support_states.jsonl"), weeks).splitlines():
        note = json.loads(line)
        after = note.pop("after")
        notes[after] = Note(**note)
    question = json.loads(_read("support_question.json"))
    return Thread(
        events=list(read_events(stream, name="support_thread.jsonl")),
        notes=notes,
        killed_at=question["killed_at"],
        task=question["task"],
        needed=tuple(
            Fact(item["fact"], tuple(item["messages"]), tuple(item["text"]))
            for item in question["needed"]
        ),
        weeks=weeks,
    )


def _read(name: str) -> str:
    return files("memstore.demo").joinpath(name).read_text(encoding="utf-8")


def _moved(text: str, weeks: int) -> str:
    """Move every ISO date in a text, in times, log lines and arguments alike."""

    def later(match: re.Match[str]) -> str:
        return (date.fromisoformat(match[0]) + timedelta(weeks=weeks)).isoformat()

    return _DATE.sub(later, text) if weeks else text
