"""A state document as lines of text: an outline of its fields with JSON at the leaves.

Measured on a state of 1.3 KB in o200k tokens: compact JSON 378, this 383, YAML 431, indented
JSON 525. Unlike compact JSON it can be cut at lines and carry marks, and no value can forge one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from memstore.render import compact, label, literal
from memstore.types import JSON

__all__ = ["LEVELS", "StaleEntry", "outline", "stale_mark"]

#: (list items, string characters) that are kept, from everything to hardly anything.
LEVELS: tuple[tuple[float, float], ...] = (
    (math.inf, math.inf),
    (50, 2_000),
    (25, 800),
    (12, 400),
    (6, 200),
    (3, 120),
    (2, 80),
    (1, 60),
)

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_PLAIN_TEXT = re.compile(r"[^\W\d_][\w .,;:!?'/()@%&+*=$€£#-]*(?<! )")
_WORDS = {"true", "false", "null", "NaN", "Infinity"}


class StaleEntry(Protocol):
    """A part of a state that must be confirmed again, as the freshness rules give it."""

    @property
    def path(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def since(self) -> datetime | None: ...
    @property
    def age(self) -> timedelta | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def note(self) -> str | None: ...
    @property
    def question(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class _Line:
    pointer: tuple[str, ...]
    text: str


def outline(document: JSON, stale: Sequence[StaleEntry] = (), *, level: int = 0) -> list[str]:
    """Render a document as lines, each list and string cut to what `level` keeps.

    A stale part that is shown is followed by a line that begins with ``!!`` and says what to ask.
    What is left out is marked in place: ``… 12 more`` before the items that are kept (the last
    ones), ``…+340 chars`` after a string.
    """
    items, chars = LEVELS[level]
    lines = list(_lines(document, (), 0, items, chars))
    marks: dict[int, list[str]] = {}
    for entry in stale:
        pointer = tuple(
            part.replace("~1", "/").replace("~0", "~") for part in entry.path.split("/")[1:]
        )
        at = _place(lines, pointer)
        # What a level leaves out needs no mark: its nearest line is only a heading.
        if at is not None and (lines[at].pointer == pointer or not lines[at].text.endswith(":")):
            marks.setdefault(at, []).append(stale_mark(entry))
    return [text for i, line in enumerate(lines) for text in (line.text, *marks.get(i, ()))]


def stale_mark(entry: StaleEntry) -> str:
    """Render what to ask before a stale part is relied on."""
    since = f" since {entry.since.astimezone(UTC).date().isoformat()}" if entry.since else ""
    why = f" ({label(entry.reason)})" if entry.reason else ""
    note = f", note {literal(entry.note)}" if entry.note else ""
    ask = f": ask {literal(entry.question)}" if entry.question else ""
    return f"!! stale {label(entry.path)}{since}{why}{note}{ask}"


def _place(lines: Sequence[_Line], pointer: tuple[str, ...]) -> int | None:
    """Find the line of the nearest part that holds the pointer's."""
    best, length = None, 0
    for i, line in enumerate(lines):
        size = len(line.pointer)
        if length < size <= len(pointer) and pointer[:size] == line.pointer:
            best, length = i, size
    return best


def _lines(
    value: JSON, pointer: tuple[str, ...], depth: int, items: float, chars: float
) -> Iterator[_Line]:
    pad = " " * depth
    if isinstance(value, dict) and value:
        kept = list(value.items())
        if depth and len(kept) > items:  # the fields of the document itself always show
            kept = kept[-int(items) :]
            yield _Line((), f"{pad}… {len(value) - len(kept)} more")
        for key, part in kept:
            name = key if _PLAIN_KEY.fullmatch(key) else literal(key)
            at = (*pointer, key)
            if _nested(part) and depth < 8:
                yield _Line(at, f"{pad}{name}:")
                yield from _lines(part, at, depth + 1, items, chars)
            else:
                yield _Line(at, f"{pad}{name}: {_leaf(part, items, chars)}")
    elif isinstance(value, list) and value:
        first = max(0, len(value) - int(min(items, len(value))))
        if first:
            yield _Line((), f"{pad}… {first} more")
        for i, part in enumerate(value[first:], first):
            yield _Line((*pointer, str(i)), f"{pad}- {_leaf(part, items, chars)}")
    else:
        yield _Line(pointer, pad + _leaf(value, items, chars))


def _nested(value: JSON) -> bool:
    """Tell whether a value is worth lines of its own."""
    if isinstance(value, list):
        return any(isinstance(part, (dict, list)) for part in value)
    return isinstance(value, dict) and any(
        isinstance(part, dict) or _nested(part) for part in value.values() if part
    )


def _leaf(value: JSON, items: float, chars: float) -> str:
    short = isinstance(value, str) and len(value) <= chars and value not in _WORDS
    if short and _PLAIN_TEXT.fullmatch(value):
        return str(value)
    return "".join(_inline(value, items, chars))


def _inline(value: JSON, items: float, chars: float) -> Iterator[str]:
    """Write compact JSON, except that what is cut is marked outside the strings."""
    if isinstance(value, str):
        if len(value) > chars:
            yield f"{literal(value[: int(chars)])}…+{len(value) - int(chars)} chars"
        else:
            yield literal(value)
    elif isinstance(value, Mapping):
        kept = list(value.items())[-int(min(items, len(value))) :] if value else []
        left = len(value) - len(kept)
        parts: Iterable[str] = (
            f"{literal(key)}:{''.join(_inline(part, items, chars))}" for key, part in kept
        )
        yield "{" + ",".join([*([f"…{left} more"] if left else []), *parts]) + "}"
    elif isinstance(value, (list, tuple)):
        kept_items = value[-int(min(items, len(value))) :] if value else []
        left = len(value) - len(kept_items)
        parts = ("".join(_inline(part, items, chars)) for part in kept_items)
        yield "[" + ",".join([*([f"…{left} more"] if left else []), *parts]) + "]"
    else:
        yield compact(value)
