"""Printing: one JSON value for programs, tables and text for people."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memstore import Event, Memory, State

WIDEST = 100
#: Controls, and what turns the direction of the text around it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def console() -> Console:
    """Return a console on standard output; piped, it is as wide as a terminal usually is."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDEST)


def progress_console() -> Console:
    """Return a console on standard error, so that progress never mixes with a result."""
    return Console(stderr=True, highlight=False)


def plain(value: Any) -> Any:
    """Turn what the store returns into plain JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, State):
        told = [f.name for f in dataclasses.fields(value) if f.name != "find_stale"]
        return {name: plain(getattr(value, name)) for name in (*told, "stale")}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Exception):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def print_json(value: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def when(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M")


def shown(text: str) -> Text:
    """Show a text from the log: neither markup nor a control in it does anything."""
    return Text(_CONTROL.sub(" ", text))


def shortened(text: str, limit: int = 240) -> Text:
    """Show a text on few lines."""
    flat = " ".join(text.split())
    return shown(flat if len(flat) <= limit else flat[: limit - 1] + "…")


def events_table(events: Sequence[Event]) -> Table:
    made = table("", "#", "when", "session", "who", "text")
    for event in events:
        who = event.actor if event.event_type == "message" else f"{event.actor} {event.event_type}"
        made.add_row(
            str(event.position),
            when(event.occurred_at),
            shown(event.session_id or ""),
            shown(who),
            shortened(event.content),
        )
    return made


def none_found(memory: Memory[Any]) -> None:
    """Say on standard error, where a memory holds nothing, whose it is: a name may be mistyped."""
    if memory.events(limit=1) or memory.history(limit=1):
        return
    who = memory.identity
    click.echo(
        f"no memory of agent {who.agent_id!r} and user {who.user_id!r} in tenant {who.tenant!r}",
        err=True,
    )


def milliseconds(steps: Mapping[str, float]) -> str:
    return ", ".join(f"{step} {value:.1f}" for step, value in steps.items()) + " ms"
