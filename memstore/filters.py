"""Which entries a read or a search may return, composed from constant SQL fragments.

Each given tag adds one fragment; a tag left out adds none, so that the planner never sees
``($1 IS NULL OR col = $1)``. Values only ever travel as parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from memstore.errors import InvalidInput
from memstore.text import check_id, check_time, check_whole
from memstore.types import ROLES

OneOrMany = str | Iterable[str] | None

_EQUAL = {
    "session": sql.SQL("e.session_id = ANY(%(session)s::text[])"),
    "actor": sql.SQL("e.actor = ANY(%(actor)s::text[])"),
    "role": sql.SQL("e.role = ANY(%(role)s::text[])"),
    "event_type": sql.SQL("e.event_type = ANY(%(event_type)s::text[])"),
    "correlation_id": sql.SQL("e.correlation_id = ANY(%(correlation_id)s::text[])"),
}
_RANGE = {
    "since": sql.SQL("e.occurred_at >= %(since)s"),
    "until": sql.SQL("e.occurred_at < %(until)s"),
    "after": sql.SQL("e.position > %(after)s"),
    "before": sql.SQL("e.position < %(before)s"),
}
_EXISTS = sql.SQL(
    "AND EXISTS (SELECT FROM memstore.events AS e "
    "WHERE e.memory_id = %(memory_id)s AND e.position = candidate.position {conditions})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Tags that entries must carry; every one given must hold.

    A tag that names a session, actor, role, event type or correlation id takes one value or
    several, any of which fits; comparison is exact. `since` and `until` bound `occurred_at`
    as the half-open interval [since, until), in aware datetimes. `after` and `before` bound
    the position, both exclusive.

    Raises `InvalidInput`, naming the tag, for a naive datetime, an unknown role or an
    identifier that could not have been stored.
    """

    session: OneOrMany = None
    actor: OneOrMany = None
    role: OneOrMany = None
    event_type: OneOrMany = None
    correlation_id: OneOrMany = None
    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    before: int | None = None

    def __post_init__(self) -> None:
        """Keep each tag's values: an iterator gives them once, and they are asked for twice."""
        for name in _EQUAL:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _several(value, name))

    def parameters(self) -> dict[str, Any]:
        """Return the checked values of the tags given, by name."""
        values: dict[str, Any] = {}
        for name in _EQUAL:
            if (value := getattr(self, name)) is not None:
                values[name] = [check_id(item, name) for item in value]
        for role in values.get("role", ()):
            if role not in ROLES:
                raise InvalidInput(f"{role!r} is none of {', '.join(ROLES)}", path="role")
        for name in ("since", "until"):
            if (time := getattr(self, name)) is not None:
                values[name] = check_time(time, name)
        for name in ("after", "before"):
            if (position := getattr(self, name)) is not None:
                values[name] = max(-(2**63), min(check_whole(position, name), 2**63 - 1))
        return values


def _several(value: OneOrMany, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        kind = type(value).__name__
        raise InvalidInput(f"must be a string or several strings, not {kind}", path=name)
    return tuple(value)


def conditions(parameters: dict[str, Any]) -> sql.Composable:
    """Compose the fragments on alias ``e`` for the tags in `parameters`, each led by AND."""
    given = [fragment for name, fragment in (_EQUAL | _RANGE).items() if name in parameters]
    return sql.SQL("").join([sql.SQL(" AND ") + fragment for fragment in given])


def exists(parameters: dict[str, Any]) -> sql.Composable:
    """Compose the same as a semi-join for rows under alias ``candidate`` that have a position."""
    if not parameters:
        return sql.SQL("")
    return _EXISTS.format(conditions=conditions(parameters))
