"""What a schema's author notes on its fields: how long to trust them, which to search by.

`Fresh` and `Cue` go into ``Annotated[...]`` at any depth of the model. On a list, a set, a tuple
or a mapping they mean each entry; on a model, the model as a whole.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, RootModel
from pydantic_core import to_jsonable_python
from typing_extensions import TypeAliasType, is_typeddict

from memstore.documents import Pointer
from memstore.errors import SchemaError
from memstore.text import dumps

QUESTION = "You said on {date} that {value}; is that still so?"


@dataclass(frozen=True, slots=True)
class Fresh:
    """Trust the value for so long after it was set or confirmed; null is never asked about.

    `question` is what to put to the user then. It may use ``{date}``, ``{value}``, ``{name}``
    (the last part of the path) and any member of the entry by its name. `since` names a
    datetime field of the entry that says when it was established; left out, that is when the
    value was first saved.
    """

    for_: timedelta
    question: str = QUESTION
    since: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.for_, timedelta) or self.for_ <= timedelta(0):
            raise SchemaError("Fresh(for_=...) takes a positive timedelta")
        if not isinstance(self.question, str) or not self.question.strip():
            raise SchemaError("Fresh(question=...) takes a text")


@dataclass(frozen=True, slots=True)
class Cue:
    """Search the log by this text when the agent resumes; the lowest `rank` comes first."""

    rank: int = 0


Note: TypeAlias = Fresh | Cue


@dataclass(frozen=True, slots=True)
class Node:
    """A value inside a model, the pointer to it in the dumped document, and the notes on it."""

    at: Pointer
    value: Any
    notes: tuple[Note, ...]


def walk(value: BaseModel) -> Iterator[Node]:
    """Yield what carries a note, and every set, in the order of the document."""
    yield from _walk(value, type(value), (), ())


def cues(value: BaseModel) -> list[str]:
    """Return the texts marked as cues, by rank and then as they stand, without repeats."""
    found: list[tuple[int, str]] = []
    for node in walk(value):
        ranks = [note.rank for note in node.notes if isinstance(note, Cue)]
        if ranks:
            found += [(ranks[-1], text) for text in _strings(node.value)]
    found.sort(key=lambda cue: cue[0])
    return list(dict.fromkeys(text for _, text in found))


def set_order(value: Any) -> str:
    """Order a set's entries as its document does: by their JSON."""
    return dumps(to_jsonable_python(value))


def since_problems(model: type[BaseModel]) -> Iterator[str]:
    """Describe every `Fresh.since` that names a field which none of its entries has."""
    for owner in _models(model, set()):
        for name, field in owner.model_fields.items():
            for fresh, hint in _declared(field.annotation, tuple(_notes(field.metadata))):
                entries = list(_entries(hint))
                if not any(fresh.since in entry.model_fields for entry in entries):
                    yield f"{owner.__name__}.{name}: no entry has a field {fresh.since!r}"


def _walk(value: Any, hint: Any, notes: tuple[Note, ...], at: Pointer) -> Iterator[Node]:
    hint, own = _bare(hint, value)
    notes += own
    if isinstance(value, BaseModel):
        if notes:
            yield Node(at, value, notes)
        for name, key, field_hint, field_notes in _fields(type(value)):
            below = at if key is None else (*at, key)
            yield from _walk(getattr(value, name), field_hint, field_notes, below)
    elif isinstance(value, Mapping):
        hints = get_type_hints(hint, include_extras=True) if is_typeddict(hint) else {}
        entry_hint = _argument(hint, -1)
        if notes or hints or _relevant(entry_hint):
            for key, item in value.items():
                here = (*at, key if type(key) is str else _json_key(key))
                yield from _walk(item, hints.get(key, entry_hint), notes, here)
    elif isinstance(value, list | tuple | deque):
        arguments = get_args(hint)
        fixed = get_origin(hint) is tuple and Ellipsis not in arguments
        if notes or any(map(_relevant, arguments)):
            for index, item in enumerate(value):
                entry_hint = _argument(hint, index if fixed else 0)
                yield from _walk(item, entry_hint, notes, (*at, str(index)))
    elif isinstance(value, set | frozenset):
        yield Node(at, value, ())
        if notes or _relevant(_argument(hint, 0)):
            for index, item in enumerate(sorted(value, key=set_order)):
                yield from _walk(item, _argument(hint, 0), notes, (*at, str(index)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        if notes:
            yield Node(at, value, notes)
        hints = get_type_hints(type(value), include_extras=True)
        for field in dataclasses.fields(value):
            here = (*at, field.name)
            yield from _walk(getattr(value, field.name), hints[field.name], (), here)
    elif notes:
        yield Node(at, value, notes)


@lru_cache(maxsize=1024)
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str | None, Any, tuple[Note, ...]], ...]:
    """List the fields worth walking: attribute, key in the document, type and notes."""
    root = issubclass(model, RootModel)
    result = []
    for name, field in model.model_fields.items():
        notes = tuple(_notes(field.metadata))
        if not field.exclude and (notes or _relevant(field.annotation)):
            key = None if root else (field.serialization_alias or name)
            result.append((name, key, field.annotation, notes))
    return tuple(result)


def _relevant(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Tell whether values of this type may carry notes or hold sets."""
    if isinstance(hint, TypeAliasType):
        return hint not in seen and _relevant(hint.__value__, seen | {hint})
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        return any(True for _ in _notes(metadata)) or _relevant(inner, seen)
    if hint in (set, frozenset) or get_origin(hint) in (set, frozenset):
        return True
    if isinstance(hint, type) and not get_args(hint):
        if hint in seen:
            return False
        if issubclass(hint, BaseModel):
            fields = hint.model_fields.values()
            return any(
                any(True for _ in _notes(f.metadata)) or _relevant(f.annotation, seen | {hint})
                for f in fields
            )
        if dataclasses.is_dataclass(hint) or is_typeddict(hint):
            hints = get_type_hints(hint, include_extras=True)
            return any(_relevant(h, seen | {hint}) for h in hints.values())
    return any(_relevant(argument, seen) for argument in get_args(hint))


def _bare(hint: Any, value: Any) -> tuple[Any, tuple[Note, ...]]:
    """Strip a type of aliases, of what it is annotated with, and of a union's other members."""
    notes: tuple[Note, ...] = ()
    while True:
        origin = get_origin(hint)
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif isinstance(origin, TypeAliasType):
            hint = origin.__value__[get_args(hint)]
        elif origin is Annotated:
            hint, *metadata = get_args(hint)
            notes += tuple(_notes(metadata))
        elif origin in (Union, UnionType):
            hint = next((h for h in get_args(hint) if _fits(h, value)), Any)
        else:
            return hint, notes


def _fits(hint: Any, value: Any) -> bool:
    while isinstance(hint, TypeAliasType) or get_origin(hint) is Annotated:
        hint = hint.__value__ if isinstance(hint, TypeAliasType) else get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(h, value) for h in get_args(hint))
    if is_typeddict(hint):
        return isinstance(value, dict)
    kind = get_origin(hint) or hint
    return isinstance(kind, type) and isinstance(value, kind)


def _argument(hint: Any, index: int) -> Any:
    arguments = get_args(hint)
    return arguments[index] if -len(arguments) <= index < len(arguments) else Any


def _notes(metadata: Any) -> Iterator[Note]:
    return (note for note in metadata if isinstance(note, Fresh | Cue))


def _json_key(key: Any) -> str:
    return str(next(iter(to_jsonable_python({key: None}))))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if text := value.strip():
            yield str(text)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _strings(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple | deque):
        for item in value:
            yield from _strings(item)


def _models(hint: Any, seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Yield every model that a type leads to."""
    for model in _entries(hint):
        if model not in seen:
            seen.add(model)
            yield model
            for field in model.model_fields.values():
                yield from _models(field.annotation, seen)


def _entries(hint: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a type names, through containers and unions but not through models."""
    if isinstance(hint, TypeAliasType):
        hint = hint.__value__
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    else:
        for argument in get_args(hint):
            yield from _entries(argument)


def _declared(hint: Any, notes: tuple[Note, ...]) -> Iterator[tuple[Fresh, Any]]:
    """Yield every `Fresh` with a `since` in a field's type, with the type that it is put on."""
    yield from ((note, hint) for note in notes if isinstance(note, Fresh) and note.since)
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        yield from _declared(inner, tuple(_notes(metadata)))
    else:
        for argument in get_args(hint):
            yield from _declared(argument, ())
