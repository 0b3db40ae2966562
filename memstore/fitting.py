"""Making entries fit: cutting long ones to the passage that matters, and spotting repeats."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from memstore.render import Entry
from memstore.types import Event

__all__ = ["Seen", "cut", "shares", "too_long_to_count"]

_WORD = re.compile(r"\w+")
_WHITE = re.compile(r"\s")
_SNAP = 24
_COMPARED = 20_000
#: More characters to a token than any ordinary text has; beyond it a text is not even counted.
_CHARS_PER_TOKEN = 16


def too_long_to_count(length: int, limit: int) -> bool:
    """Tell whether a text of `length` characters can be taken to exceed `limit` tokens."""
    return length > limit * _CHARS_PER_TOKEN + 1_000


def cut(entry: Entry, limit: int, cost: Callable[[Entry], int]) -> Entry | None:
    """Cut an entry to the longest passage (about) that costs at most `limit`, or give None.

    The passage is grown round the hit's span, or else starts at the beginning; it ends at
    spaces where there are any near.
    """
    text = entry.body
    span = entry.hit.span if entry.hit and entry.event.content.strip() else None
    size = min(len(text), max(1, limit * 6))
    while size > 0:
        window = _window(text, span, size)
        candidate = replace(entry, cut=None if window == (0, len(text)) else window)
        spent = cost(candidate)
        if spent <= limit:
            return candidate
        size = min(size - 1, int(size * 0.9 * min(1.0, max(limit, 0) / spent)) or size // 2)
    return None


def _window(text: str, span: tuple[int, int] | None, size: int) -> tuple[int, int]:
    length = len(text)
    start = min(max(span[0], 0), length - 1) if span else 0
    if span and (spare := size - (min(span[1], length) - start)) > 0:
        start = max(0, start - spare // 2)
    start = max(0, min(start, length - size))
    stop = min(length, start + size)
    latest = max(start, min(span[0], stop - 1)) if span else start
    if start > 0 and (space := _WHITE.search(text, start, min(start + _SNAP, latest))):
        start = space.end()
    if stop < length:
        tail = text[max(start + 1, stop - _SNAP) : stop]
        if (at := max(map(tail.rfind, " \n\t"))) >= 0:
            stop -= len(tail) - at
    return start, stop


def shares(costs: list[int], limit: int) -> list[int]:
    """Divide `limit` among costs: the small ones whole, the rest in equal parts."""
    given = [0] * len(costs)
    left, waiting = limit, len(costs)
    for i in sorted(range(len(costs)), key=costs.__getitem__):
        given[i] = min(costs[i], left // waiting)
        left -= given[i]
        waiting -= 1
    return given


@dataclass(slots=True)
class Seen:
    """The texts that a context has already, to skip what would say the same again.

    An entry repeats another of the same role when both have the same words in the same order,
    or when it is long (12 distinct words), says no word that the other does not say, has the
    same numbers, and leaves out a tenth at most. A changed word or number is never a repeat.
    """

    _exact: dict[tuple[str, str], int] = field(default_factory=dict)
    _words: dict[tuple[str, int], list[tuple[int, frozenset[str]]]] = field(default_factory=dict)

    def repeats(self, event: Event, text: str) -> int | None:
        """Give the position of the entry that this one, of the given text, repeats."""
        key, words = _signature(event.role, text)
        if key in self._exact:
            return self._exact[key]
        if len(words) < 12:
            return None
        for size in range(len(words), len(words) * 10 // 9 + 1):
            for position, other in self._words.get((event.role, size), ()):
                if words <= other and not any(word.isdigit() for word in other - words):
                    return position
        return None

    def add(self, event: Event, text: str) -> None:
        """Remember an entry's text."""
        key, words = _signature(event.role, text)
        if key[1]:
            self._exact.setdefault(key, event.position)
            self._words.setdefault((event.role, len(words)), []).append((event.position, words))


def _signature(role: str, text: str) -> tuple[tuple[str, str], frozenset[str]]:
    if len(text) > _COMPARED:
        return (role, text), frozenset()  # repeats only the very same
    words = _WORD.findall(text.casefold())
    return (role, " ".join(words)), frozenset(words)
