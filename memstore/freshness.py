"""How long parts of a state may be trusted, and what to ask about those that no longer may be.

Beside its document a state stores marks: ``{pointer: {"since", "confirmed"?, "flagged"?,
"reason"?}}``, times in ISO 8601 and UTC. A mark belongs to a value: it moves with a list's
entry and goes when the value changes.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel

from memstore.annotations import Cue, Fresh, cues, walk
from memstore.documents import Pointer, alike, get, join_pointer, key_of, same, split_pointer
from memstore.errors import InvalidInput
from memstore.schema import StateSchema
from memstore.text import check_time, clean_text, dumps
from memstore.types import JSON

__all__ = ["Cue", "Fresh", "Marks", "Stale", "carry_marks", "confirm", "cues", "flag", "stale"]

Marks = dict[str, dict[str, str]]

MAX_REASON = 1_000

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_UNTRACKED = "On {date}, {name} was: {value}; is that still so?"
_SHOWN = 160
_MAX_PAIRS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A part of a state to confirm before it is trusted.

    `since` is when the value was established or last confirmed, `age` the time from then to
    now, `note` the reason of a flag, and `question` what to put to the user.
    """

    path: str
    value: JSON
    since: datetime
    age: timedelta
    reason: Literal["expired", "flagged"]
    note: str | None
    question: str


def carry_marks(
    schema: StateSchema[Any],
    old_document: JSON,
    old_marks: Mapping[str, Any],
    new_document: JSON,
    now: datetime,
    *,
    old_saved_at: datetime | None = None,
) -> Marks:
    """Return the marks of a new document, given the ones of the document it follows.

    Unchanged values keep theirs, list entries also where they moved (equal ones are matched one
    to one); what is changed or new is marked as of `now`. A flag stays until its value changes or
    is confirmed. `old_document` is None for the first one. `old_saved_at` dates unchanged values
    that have no mark yet, such as those of a field that was not tracked before.
    """
    stamp = _iso(check_time(now, "now"))
    before = _copied(old_marks)
    tracked = _tracked(schema.load(new_document), new_document)
    if old_saved_at is not None:
        dated = {"since": _iso(check_time(old_saved_at, "old_saved_at"))}
        for path in _unmarked(schema, old_document, before):
            before[path] = dict(dated)
    carried: dict[Pointer, dict[str, str]] = {}
    _carry(_tree(before), old_document, new_document, (), carried)
    marks = {
        join_pointer(at): mark
        for at, mark in carried.items()
        if join_pointer(at) in tracked or "flagged" in mark or "confirmed" in mark
    }
    for path in tracked:
        marks.setdefault(path, {"since": stamp})
    return dict(sorted(marks.items()))


def stale(
    schema: StateSchema[Any],
    document: JSON,
    marks: Mapping[str, Any],
    now: datetime,
    *,
    value: BaseModel | None = None,
) -> list[Stale]:
    """List what to confirm: what was flagged first, then what expired, the oldest first.

    `value` saves validating the document again, where it was loaded before.
    """
    now = check_time(now, "now")
    tracked = _tracked(schema.load(document) if value is None else value, document)
    found: list[Stale] = []
    known = _copied(marks)
    for path in tracked.keys() | known.keys():
        mark = known.get(path, {})
        fresh, entry = tracked.get(path, (None, None))
        flagged = _instant(mark.get("flagged"))
        since = _since(fresh, entry, mark)
        if flagged is None and (fresh is None or since is None or now - since < fresh.for_):
            continue
        try:
            at, content = split_pointer(path), get(document, path)
        except InvalidInput:
            continue
        since = since or flagged or now
        template = fresh.question if fresh else _UNTRACKED
        found.append(
            Stale(
                path=path,
                value=deepcopy(content),
                since=since,
                age=max(now - since, timedelta(0)),
                reason="flagged" if flagged else "expired",
                note=str(mark.get("reason") or "") or None if flagged else None,
                question=_question(template, at, content, since, now),
            )
        )
    return sorted(found, key=lambda s: (s.reason != "flagged", s.since, _place(s.path)))


def confirm(
    schema: StateSchema[Any], document: JSON, marks: Mapping[str, Any], path: str, now: datetime
) -> Marks:
    """Return the marks once the value at a path, with all that is tracked below it, is confirmed.

    Flags there are lifted. Raises InvalidInput when the path leads nowhere.
    """
    stamp = _iso(check_time(now, "now"))
    path = _existing(document, path)
    result = _copied(marks)
    tracked = _tracked(schema.load(document), document)
    for at in {path, *(p for p in (*tracked, *result) if p.startswith(path + "/"))}:
        if at in tracked or at in result or at == path:
            result[at] = {"since": result.get(at, {}).get("since", stamp), "confirmed": stamp}
    return dict(sorted(result.items()))


def flag(document: JSON, marks: Mapping[str, Any], path: str, reason: str, now: datetime) -> Marks:
    """Return the marks once the value at a path is in doubt, for a reason to be told to the user.

    Raises InvalidInput when the path leads nowhere, or on a blank or overlong reason.
    """
    stamp = _iso(check_time(now, "now"))
    path = _existing(document, path)
    if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
        raise InvalidInput(f"must be 1 to {MAX_REASON:,} characters", path="reason")
    result = _copied(marks)
    mark = {"since": stamp, **result.get(path, {})}
    result[path] = {**mark, "flagged": stamp, "reason": clean_text(reason.strip())}
    return dict(sorted(result.items()))


def _tracked(value: BaseModel, document: JSON) -> dict[str, tuple[Fresh, Any]]:
    """Map each tracked pointer to its note and value; null claims nothing and is left out."""
    found: dict[str, tuple[Fresh, Any]] = {}
    for node in walk(value):
        notes = [note for note in node.notes if isinstance(note, Fresh)]
        if notes and node.value is not None:
            path = join_pointer(node.at)
            if _leads_somewhere(document, node.at):
                found[path] = (notes[-1], node.value)
    return found


def _leads_somewhere(document: JSON, at: Pointer) -> bool:
    """Tell whether a field is in the document where it should be: a model may write its own way."""
    for part in at:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            return False
    return True


def _unmarked(schema: StateSchema[Any], document: JSON, marks: Mapping[str, Any]) -> list[str]:
    if document is None:
        return []
    try:
        return [p for p in _tracked(schema.load(document), document) if p not in marks]
    except InvalidInput:  # of an older version
        return []


class _Tree:
    """Marks by the parts of their pointers."""

    __slots__ = ("below", "mark")

    def __init__(self) -> None:
        self.mark: dict[str, str] | None = None
        self.below: defaultdict[str, _Tree] = defaultdict(_Tree)


def _tree(marks: Mapping[str, dict[str, str]]) -> _Tree:
    root = _Tree()
    for path, mark in marks.items():
        try:
            parts = split_pointer(path)
        except InvalidInput:
            continue
        node = root
        for part in parts:
            node = node.below[part]
        node.mark = mark
    return root


def _carry(
    tree: _Tree, old: JSON, new: JSON, at: Pointer, carried: dict[Pointer, dict[str, str]]
) -> None:
    """Carry the marks on and below an old node over to the new node in its place."""
    if tree.mark is not None and same(old, new):
        carried[at] = tree.mark
    if isinstance(old, dict) and isinstance(new, dict):
        for part, inner in tree.below.items():
            if part in old and part in new:
                _carry(inner, old[part], new[part], (*at, part), carried)
    elif isinstance(old, list) and isinstance(new, list) and tree.below:
        for i, j in _moves(old, new).items():
            if str(i) in tree.below:
                _carry(tree.below[str(i)], old[i], new[j], (*at, str(j)), carried)


def _moves(old: list[JSON], new: list[JSON]) -> dict[int, int]:
    """Match the entries of two lists one to one: equal ones first, then those that look changed."""
    old_keys, new_keys = [key_of(v) for v in old], [key_of(v) for v in new]
    moves = {i: i for i, (a, b) in enumerate(zip(old_keys, new_keys, strict=False)) if a == b}
    places: defaultdict[Any, deque[int]] = defaultdict(deque)
    for j, key in enumerate(new_keys):
        if j not in moves:
            places[key].append(j)
    for i, key in enumerate(old_keys):
        if i not in moves and places[key]:
            moves[i] = places[key].popleft()
    taken = set(moves.values())
    rest = [i for i in range(len(old)) if i not in moves]
    free = [j for j in range(len(new)) if j not in taken]
    if len(rest) * len(free) <= _MAX_PAIRS:
        for i in rest:
            if isinstance(old[i], dict | list):
                order = sorted(free, key=lambda j: (j != i, j))
                match = next((j for j in order if alike(old[i], new[j])), None)
                if match is not None:
                    free.remove(match)
                    moves[i] = match
    return moves


def _since(fresh: Fresh | None, entry: Any, mark: Mapping[str, Any]) -> datetime | None:
    """Tell since when a value stands: its own date, but not after it was saved, or its mark's.

    A later confirmation overrides both.
    """
    since, confirmed = _instant(mark.get("since")), _instant(mark.get("confirmed"))
    if fresh is not None and fresh.since:
        mapping = isinstance(entry, Mapping)
        own = _instant(entry.get(fresh.since) if mapping else getattr(entry, fresh.since, None))
        since = min(own, since) if own and since else own or since
    return max(since, confirmed) if since and confirmed else since or confirmed


def _question(template: str, at: Pointer, value: JSON, since: datetime, now: datetime) -> str:
    """Fill in a question in one pass, so that nothing in a value is taken for a placeholder."""
    words = {"date": _date(since, now), "value": _shown(value), "name": _name(at)}
    if isinstance(value, dict):
        words |= {key: _shown(item) for key, item in value.items() if key not in words}
    return _PLACEHOLDER.sub(lambda match: words.get(match[1], match[0]), template)


def _shown(value: JSON) -> str:
    text = value if isinstance(value, str) else dumps(value)
    text = " ".join(text.split())
    if len(text) > _SHOWN:
        return text[: _SHOWN - 1].rstrip() + "…"
    return text.rstrip(".;,: ") or text


def _place(path: str) -> list[tuple[int, str]]:
    """Order pointers so that entry 2 comes before entry 10."""
    return [(len(p) if p.isdecimal() else 0, p) for p in path.split("/")]


def _name(at: Pointer) -> str:
    names = [part for part in at if not part.isdecimal()]
    return names[-1].replace("_", " ") if names else "the state"


def _date(moment: datetime, now: datetime) -> str:
    day = f"{moment.day} {_MONTHS[moment.month - 1]}"
    return day if moment.year == now.year else f"{day} {moment.year}"


def _instant(value: Any) -> datetime | None:
    """Read an aware time; anything else counts as not given."""
    moment: Any = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(moment, datetime) and moment.tzinfo is UTC:
        return moment
    try:
        return None if moment is None else check_time(moment, "time")
    except InvalidInput:
        return None


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _existing(document: JSON, path: str) -> str:
    get(document, path)
    return path


def _copied(marks: Mapping[str, Any]) -> Marks:
    return {path: dict(mark) for path, mark in marks.items() if isinstance(mark, dict)}
