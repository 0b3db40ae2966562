"""Choosing what a context shows: fill by estimate, check on the real renderings, take back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from memstore.budget import Budget
from memstore.fitting import Seen, cut, shares, too_long_to_count
from memstore.messages import PER_MESSAGE, PER_REQUEST, grouped
from memstore.outline import LEVELS, Views
from memstore.render import (
    GAP,
    Entry,
    block,
    body,
    clock_of,
    entry_text,
    heading,
    introduced,
    role_of,
)
from memstore.selection import Selection
from memstore.types import Event, Hit, TokenCounter

if TYPE_CHECKING:
    from memstore.context import ContextInputs

__all__ = ["Assembly"]

Part = Literal["tail", "retrieved"]

_LEAST = 24  # tokens below which no entry is cut to fit what is left
_MARGIN = 8  # tokens that an estimate may be wrong by
_MISSES = 24  # so many entries in a row that do not fit end the search for one that does


class _Unit(NamedTuple):
    """Entries that are shown together or not at all: one, or a tool call with its results."""

    entries: tuple[Entry, ...]
    cost: int
    around: int = 0  # for the headings and gap marks that they bring


@dataclass(frozen=True, slots=True)
class _Step:
    """Where the choice stands: each step adds one part, and can be taken back."""

    state: tuple[str, ...]
    detail: tuple[int, int]
    units: dict[int, _Unit]
    shown: dict[int, Entry]
    said: frozenset[str]  # headings, times and roles, each written once
    spent: int


class Assembly:
    """One run of choosing. `choose` gives the selection, `dropped` the rest."""

    def __init__(self, inputs: ContextInputs, budget: Budget, counter: TokenCounter) -> None:
        self.inputs = inputs
        self.budget = budget
        self._counter = counter
        self._counts: dict[str, int] = {}
        self._views = Views(inputs.document, inputs.stale, self.count)
        self._bodies: dict[int, str] = {}
        self._texts: dict[tuple[int, tuple[int, int] | None], str] = {}
        self._reasons: dict[int, str] = {}
        self._hits: dict[int, Hit] = {}
        for hit in inputs.hits:
            self._hits.setdefault(hit.event.position, hit)
        self._tail = sorted({e.position: e for e in inputs.tail}.values(), key=_position)
        self._events: dict[int, Event] = {
            **inputs.joined,
            **inputs.neighbours,
            **{position: hit.event for position, hit in self._hits.items()},
            **{event.position: event for event in self._tail},
        }
        self._groups = grouped(inputs.partners, self._events)
        self._head = max([0, *(e.position for e in self._tail)], default=0)
        self._head = max([self._head, *self._events])
        if inputs.document:
            self._head = max(self._head, inputs.document.log_position)
        self._bare = False
        self._steps: list[_Step] = []

    # -- counting ---------------------------------------------------------------------------

    def count(self, text: str) -> int:
        """Count a text once."""
        if text not in self._counts:
            self._counts[text] = self._counter(text)
        return self._counts[text]

    def part_tokens(self, selection: Selection) -> dict[str, int]:
        """Count each part of a selection by itself."""
        spent = {"state": self.count("\n".join(selection.state)) if selection.state else 0}
        for part in ("tail", "retrieved"):
            shown = [self._text(e) for e in selection.entries if e.part == part]
            spent[part] = sum(map(self.count, shown))
        return spent

    def _body(self, position: int) -> str:
        """Give an event's text; a payload is written once."""
        if position not in self._bodies:
            self._bodies[position] = body(self._events[position])
        return self._bodies[position]

    def _text(self, entry: Entry) -> str:
        """Render an entry once, without what may stand above it."""
        key = (entry.position, entry.cut)
        if key not in self._texts:
            self._texts[key] = entry_text(entry, clock=False, role=False)
        return self._texts[key]

    def _cost(self, entries: Iterable[Entry]) -> int:
        """Estimate what entries add. As a message an entry costs about what its line does."""
        return sum(self.count(self._text(entry)) + 1 for entry in entries)

    # -- choosing ---------------------------------------------------------------------------

    def choose(self) -> Selection:
        """Choose what is shown; its renderings all fit the budget, or it is empty."""
        total = self.budget.total
        empty = Selection((), (), self._head, self.inputs.now)
        if total < PER_MESSAGE + PER_REQUEST:
            return empty
        frame = self._frame()
        if frame * 6 > total:
            self._bare = True
            frame = self._frame()
        self._steps = [_Step((), (len(LEVELS), 0), {}, {}, frozenset(), frame)]
        self._fill(first=True)
        fitting, spent = self._take_back()
        if fitting and total - spent >= max(_LEAST, total // 50):
            self._steps = [replace(self._now, spent=spent)]
            self._fill(first=False)
            if len(self._steps) > 1:
                fitting, _ = self._take_back()
        return fitting or self._smallest() or empty

    def _frame(self) -> int:
        framed = block((), (), now=self.inputs.now, bare=self._bare)
        return self.count(framed) + PER_MESSAGE + PER_REQUEST + self.count("user")

    @property
    def _now(self) -> _Step:
        return self._steps[-1]

    @property
    def _left(self) -> int:
        return self.budget.total - self._now.spent

    def _selection(self) -> Selection:
        step = self._now
        shown = tuple(sorted(step.shown.values(), key=_position))
        return Selection(step.state, shown, self._head, self.inputs.now, self._bare)

    def _measured(self, selection: Selection) -> int:
        return max(selection.count(self.count).values())

    def _take_back(self) -> tuple[Selection, int]:
        """Take steps back, ever more at a time, until the renderings fit; count them."""
        least = 1
        while True:
            selection = self._selection()
            spent = self._measured(selection)
            if spent <= self.budget.total or not selection:
                return selection, spent
            target = self._now.spent - (spent - self.budget.total)
            aim = len(self._steps) - least
            while len(self._steps) > max(1, aim) or (self._steps[1:] and self._now.spent > target):
                self._steps.pop()
            least *= 2

    def _fill(self, *, first: bool) -> None:
        if first:
            others = self._tail or self._hits
            self._add_state(min(self._left, self.budget.state) if others else self._left)
            self._add_tail(min(self._left, self.budget.tail))
        seen = Seen()
        for entry in self._now.shown.values():
            seen.add(entry.event, entry.body)
        self._add_hits(seen)
        self._add_tail(self._left)
        self._add_neighbours(seen)
        self._lengthen()
        if self._now.detail[0]:
            self._add_state(self._left)

    def _add(self, unit: _Unit) -> None:
        step = self._now
        old = step.units.get(_key(unit))
        spent = step.spent + unit.cost + unit.around - (old.cost + old.around if old else 0)
        units = {**step.units, _key(unit): unit}
        shown = {**step.shown, **{entry.position: entry for entry in unit.entries}}
        said = step.said.union(*(_said(entry.event) for entry in unit.entries))
        self._steps.append(_Step(step.state, step.detail, units, shown, said, spent))

    def _add_state(self, room: int) -> None:
        """Show the state as fully as `room` more tokens allow."""
        step = self._now
        held = self.count("\n".join(step.state)) + 1 if step.state else 0
        for level, lines in self._views.that_fit(room + held - 1):
            cost = self.count("\n".join(lines)) + 1
            if cost <= room + held and len(lines) > 1 and (level, -len(lines)) < step.detail:
                spent = step.spent + cost - held
                detail = (level, -len(lines))
                self._steps.append(replace(step, state=lines, detail=detail, spent=spent))
                return

    def _add_tail(self, room: int) -> None:
        """Add tail entries, newest first, up to the first that does not fit at all."""
        limit = self._now.spent + room
        most = max(64, self.budget.tail // 2)
        for event in reversed(self._tail):
            shown = self._now.shown.get(event.position)
            if shown and shown.part == "tail":
                continue
            members = self._members(event.position)
            if members is None:
                continue
            unit = self._unit(members, "tail", limit - self._now.spent, most)
            if unit is None:
                return
            self._add(unit)

    def _add_hits(self, seen: Seen) -> None:
        misses = 0
        most = max(64, self.budget.total // 8)
        for position, hit in self._hits.items():
            if misses >= _MISSES or self._left < 4:
                return
            if position in self._now.shown or (members := self._members(position)) is None:
                continue
            if (
                len(members) == 1
                and (other := seen.repeats(hit.event, self._body(position))) is not None
            ):
                self._reasons[position] = f"repeats {other}"
                continue
            unit = self._unit(members, "retrieved", self._left, most)
            misses = misses + 1 if unit is None else 0
            if unit:
                self._add(unit)
                for entry in unit.entries:
                    seen.add(entry.event, entry.body)

    def _add_neighbours(self, seen: Seen) -> None:
        misses = 0
        for at in [position for position in self._hits if position in self._now.shown]:
            for position in (at - 1, at + 1, at - 2, at + 2, at - 3, at + 3):
                if position not in self.inputs.neighbours or position in self._now.shown:
                    continue
                if misses >= _MISSES or self._left < 4:
                    return
                members = self._members(position)
                if members is None or seen.repeats(members[0], self._body(position)) is not None:
                    continue
                unit = self._unit(members, "retrieved", self._left, 0, f"neighbour of {at}")
                misses = misses + 1 if unit is None else 0
                if unit:
                    self._add(unit)

    def _lengthen(self) -> None:
        """Give entries that were cut what room is left, most valuable first."""
        for unit in list(self._now.units.values()):
            if self._left < _LEAST:
                return
            if any(entry.cut for entry in unit.entries):
                whole = [replace(entry, cut=None) for entry in unit.entries]
                longer = self._fit(whole, unit.cost + self._left - _MARGIN)
                if longer and longer.cost > unit.cost:
                    self._add(longer._replace(around=unit.around))

    # -- units ------------------------------------------------------------------------------

    def _members(self, position: int) -> list[Event] | None:
        """Give the events to show with one, itself included, or None where there is nothing."""
        group = self._groups.get(position, (position,))
        if any(p not in self._events for p in group):
            self._reasons[position] = "its tool call or result was not loaded"
            return None
        members = [self._events[p] for p in group]
        if len(members) == 1 and not self._body(position).strip():
            self._reasons[position] = "blank"
            return None
        return members

    def _unit(
        self, members: list[Event], part: Part, room: int, most: int, reason: str = ""
    ) -> _Unit | None:
        """Make a unit that fits `room`, cut where an entry is longer than `most` (0: never)."""
        entries = self._entries(members, part, reason)
        room -= self._surroundings(entries)
        if room <= 0:
            return None
        size = sum(len(entry.body) for entry in entries)
        if not too_long_to_count(size, room):
            whole = _Unit(tuple(entries), self._cost(entries))
            if whole.cost <= room and (not most or whole.cost <= most * len(members)):
                return self._with_surroundings(whole)
            if whole.cost <= most and self._now.shown:
                return None  # not long: a shorter one may fit whole
        if not most or room < _LEAST:
            return None
        unit = self._fit(entries, min(room, most * len(members)))
        return self._with_surroundings(unit) if unit else None

    def _entries(self, members: list[Event], part: Part, reason: str) -> list[Entry]:
        group = tuple(event.position for event in members) if len(members) > 1 else ()
        entries = []
        for event in members:
            hit = self._hits.get(event.position)
            why = reason or "tail"
            if part == "retrieved" and not reason:
                why = "; ".join(hit.reasons) if hit else "goes with its tool call"
            entries.append(Entry(event, part, why, hit, group, body=self._body(event.position)))
        return entries

    def _fit(self, entries: list[Entry], room: int) -> _Unit | None:
        """Cut the long ones of some entries so that all cost `room` together at most."""
        costs = [
            room + 1 if too_long_to_count(len(e.body), room) else self._cost([e]) for e in entries
        ]
        fitted: list[Entry] = []
        for entry, cost, share in zip(entries, costs, shares(costs, room), strict=True):
            one = entry if cost <= share else cut(entry, share, lambda e: self._cost([e]))
            if one is None:
                return None
            fitted.append(one)
        unit = _Unit(tuple(fitted), self._cost(fitted))
        return unit if unit.cost <= room else None

    def _surroundings(self, entries: list[Entry]) -> int:
        """Estimate the headings, times, roles and gap marks that entries bring with them."""
        now, spent = self._now, 0
        own = {entry.position for entry in entries}
        for entry in entries:
            beside = {entry.position - 1, entry.position + 1}
            if not (beside & own or beside & now.shown.keys()):
                spent += self.count(GAP + "\n")
        new = {key: text for entry in entries for key, text in _said(entry.event).items()}
        return spent + sum(self.count(text) for key, text in new.items() if key not in now.said)

    def _with_surroundings(self, unit: _Unit) -> _Unit:
        return unit._replace(around=self._surroundings(list(unit.entries)))

    # -- the rest ---------------------------------------------------------------------------

    def _smallest(self) -> Selection | None:
        """Find anything at all that fits: the first part that does, as long as it may be."""
        for grow in self._fragments():
            fits: Selection | None = None
            for candidate in grow:
                if self._measured(candidate) > self.budget.total:
                    break
                fits = candidate
            if fits:
                return fits
        return None

    def _fragments(self) -> Iterator[Iterator[Selection]]:
        """Give each part as selections that grow from the smallest."""
        blank = Selection((), (), self._head, self.inputs.now, bare=True)
        states = [lines for _, lines in self._views.that_fit(self.budget.total)]
        if states:
            yield (replace(blank, state=lines) for lines in reversed(states))
        tail = [event.position for event in reversed(self._tail)]
        places: list[tuple[int, Part]] = []
        for position in dict.fromkeys([*tail, *self._hits]):
            if position in tail:
                places.append((position, "tail"))
            places.append((position, "retrieved"))  # dearer as a message, or else as text
        for position, part in places:
            if (members := self._members(position)) is not None:
                yield self._growing(blank, self._entries(members, part, ""))

    def _growing(self, blank: Selection, entries: list[Entry]) -> Iterator[Selection]:
        longest = max(len(e.body) for e in entries)
        size = 1
        while True:
            shown = tuple(
                replace(e, cut=None if len(e.body) <= size else (0, size)) for e in entries
            )
            yield replace(blank, entries=shown)
            if size >= longest:
                return
            size = size + max(1, size // 4)

    def dropped(self, selection: Selection) -> Iterator[tuple[str, str, int | None, int | None]]:
        """Give (part, reason, position, tokens) of what the selection leaves out."""
        if self._views and not self._views.is_whole(selection.state):
            reason = "shortened to fit the budget" if selection.state else "over the budget"
            whole = self._counts.get("\n".join(self._views[0]))
            kept = self.count("\n".join(selection.state)) if selection.state else 0
            yield "state", reason, None, None if whole is None else whole - kept
        if self.inputs.tail_omitted:
            yield "tail", f"{self.inputs.tail_omitted} older entries were not loaded", None, None
        entries = {entry.position for entry in selection.entries}
        tail = {event.position for event in self._tail}
        for part, positions in (("tail", sorted(tail, reverse=True)), ("retrieved", self._hits)):
            for position in positions:
                if position in entries or (part == "retrieved" and position in tail):
                    continue
                reason = self._reasons.get(position, "over the budget")
                text = self._texts.get((position, None), "")
                yield part, reason, position, self._counts.get(text)


def _position(item: Event | Entry) -> int:
    return item.position


def _said(event: Event) -> dict[str, str]:
    """Give what is written of an event only where it is new: by what it says, the text."""
    title, clock = heading(event, None), clock_of(event)
    said = {title: title + "\n", title + clock: clock}
    if introduced(event) and (role := role_of(event)):
        said[f"{event.actor}{role}"] = role
    return said


def _key(unit: _Unit) -> int:
    return unit.entries[0].position
