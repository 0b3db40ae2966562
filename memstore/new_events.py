"""What may be given to be appended: one event, or a list of events and dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from memstore.errors import InvalidInput
from memstore.types import NewEvent

__all__ = ["Events", "given_events", "new_event", "new_events"]

Events = Iterable[NewEvent | Mapping[str, Any]]

_DEFAULTS = {field.name: field.default for field in fields(NewEvent)}


def new_event(event: NewEvent | Mapping[str, Any], index: int) -> NewEvent:
    """Read one event of a list; what its fields hold is checked when it is prepared."""
    at = f"events[{index}]"
    if isinstance(event, NewEvent):
        return event
    if not isinstance(event, Mapping):
        raise InvalidInput(f"not an event: a dict or a NewEvent, no {_name(event)}", path=at)
    if unknown := [name for name in event if name not in _DEFAULTS]:
        raise InvalidInput(
            f"not an event: it has no field {unknown[0]!r:.80}; there are {', '.join(_DEFAULTS)}",
            path=at,
        )
    return NewEvent(**event)


def new_events(events: Events) -> Iterator[NewEvent]:
    """Read the events of a list, one by one."""
    if isinstance(events, str | bytes | Mapping | NewEvent):
        raise InvalidInput(
            f"a list of events, no {_name(events)}; one event is given by keywords: content=…",
            path="events",
        )
    return (new_event(event, index) for index, event in enumerate(events))


def given_events(events: Events | None, single: NewEvent) -> Iterable[NewEvent]:
    """Return the one event that keywords make, or those of a list.

    Beside a list, keywords are refused: none of its events would have them.
    """
    if events is None:
        return (single,)
    for name, default in _DEFAULTS.items():
        value = getattr(single, name)
        if name != "idempotency_key" and value is not default and value != default:
            raise InvalidInput("beside a list it belongs into each of its events", path=name)
    return new_events(events)


def _name(value: object) -> str:
    return type(value).__name__
