"""How long parts of a state may be trusted, and what to ask about those that no longer may be.

Beside its document a state stores marks: ``{pointer: {"since", "confirmed"?, "flagged"?,
"reason"?}}``, times in ISO 8601 and UTC. A mark belongs to a value: it moves with a list's
entry and goes when the value changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel

from memstore.annotations import Cue, Fresh, cues
from memstore.documents import Pointer, get, join_pointer, split_pointer
from memstore.errors import InvalidInput
from memstore.marks import Marks, copied, follow
from memstore.schema import StateSchema
from memstore.text import check_time, clean_text, dumps
from memstore.types import JSON

__all__ = [
    "Cue",
    "Fresh",
    "Marks",
    "Stale",
    "carry_marks",
    "confirm",
    "cues",
    "flag",
    "migrate_marks",
    "stale",
]

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
    before = copied(old_marks)
    if old_saved_at is not None:
        dated = {"since": _iso(check_time(old_saved_at, "old_saved_at"))}
        for path in _unmarked(schema, old_document, before):
            before[path] = dated
    return _follow(schema, old_document, before, new_document, now, renames=False)


def migrate_marks(
    schema: StateSchema[Any],
    stored_document: JSON,
    marks: Mapping[str, Any],
    migrated_document: JSON,
    saved_at: datetime,
) -> Marks:
    """Return the marks of a document that migrations made from a stored one.

    They follow members that a migration renamed. What has no mark dates from when it was saved.
    """
    return _follow(
        schema, stored_document, copied(marks), migrated_document, saved_at, renames=True
    )


def _follow(
    schema: StateSchema[Any], old: JSON, marks: Marks, new: JSON, moment: datetime, *, renames: bool
) -> Marks:
    stamp = _iso(check_time(moment, "now"))
    tracked = _tracked(schema, schema.restore(new), new)
    result = {path: {"since": stamp} for path in tracked}
    for path, mark in follow(marks, old, new, renames=renames).items():
        if path in tracked or "flagged" in mark or "confirmed" in mark:
            result[path] = mark
    return dict(sorted(result.items()))


def stale(
    schema: StateSchema[Any],
    document: JSON,
    marks: Mapping[str, Any],
    now: datetime,
    *,
    value: BaseModel | None = None,
    saved_at: datetime | None = None,
) -> list[Stale]:
    """List what to confirm: what was flagged first, then what expired, the oldest first.

    `value` saves validating the document again, where it was loaded before. `saved_at` dates
    values without a mark, which a field has that was not tracked when it was saved.
    """
    now = check_time(now, "now")
    saved = None if saved_at is None else check_time(saved_at, "saved_at")
    tracked = _tracked(schema, schema.restore(document) if value is None else value, document)
    found: list[Stale] = []
    known = copied(marks)
    for path in tracked.keys() | known.keys():
        mark = known.get(path, {})
        fresh, entry = tracked.get(path, (None, None))
        flagged = _instant(mark.get("flagged"))
        since = _since(fresh, entry, mark) or saved
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
    get(document, path)
    result = copied(marks)
    tracked = _tracked(schema, schema.restore(document), document)
    for at in {path, *(p for p in (*tracked, *result) if p.startswith(path + "/"))}:
        result[at] = {"since": result.get(at, {}).get("since", stamp), "confirmed": stamp}
    return dict(sorted(result.items()))


def flag(document: JSON, marks: Mapping[str, Any], path: str, reason: str, now: datetime) -> Marks:
    """Return the marks once the value at a path is in doubt, for a reason to be told to the user.

    Raises InvalidInput when the path leads nowhere, or on a blank or overlong reason.
    """
    stamp = _iso(check_time(now, "now"))
    get(document, path)
    if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
        raise InvalidInput(f"must be 1 to {MAX_REASON:,} characters", path="reason")
    result = copied(marks)
    mark = {"since": stamp, **result.get(path, {})}
    result[path] = {**mark, "flagged": stamp, "reason": clean_text(reason.strip())}
    return dict(sorted(result.items()))


def _tracked(
    schema: StateSchema[Any], value: BaseModel, document: JSON
) -> dict[str, tuple[Fresh, Any]]:
    """Map each tracked pointer to its note and value; null claims nothing and is left out."""
    found: dict[str, tuple[Fresh, Any]] = {}
    for node in schema.nodes(value):
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
        tracked = _tracked(schema, schema.restore(document), document)
        return [path for path in tracked if path not in marks]
    except InvalidInput:  # of an older version
        return []


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
