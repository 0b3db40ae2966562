"""What a schema's author notes on its fields: how long to trust them, which to search by.

`Fresh` and `Cue` go into ``Annotated[...]`` at any depth of the model. On a list, a set, a tuple
or a mapping they mean each entry, whole; on a model, the model as a whole.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AliasChoices, BaseModel, GetJsonSchemaHandler, RootModel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, to_jsonable_python
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

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Say it in the model's JSON Schema too, by the keyword ``x-fresh``."""
        said = {"for": to_jsonable_python(self.for_), "question": self.question}
        return {**handler(core), "x-fresh": said | ({"since": self.since} if self.since else {})}


@dataclass(frozen=True, slots=True)
class Cue:
    """Search the log by this text when the agent resumes; the lowest `rank` comes first."""

    rank: int = 0

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Say it in the model's JSON Schema too, by the keyword ``x-cue``."""
        return {**handler(core), "x-cue": self.rank}


Note: TypeAlias = Fresh | Cue

_SETS = (set, frozenset)
_CONTAINERS = (Mapping, list, tuple, deque, set, frozenset)


class Node(NamedTuple):
    """A value inside a model, the pointer to it in the dumped document, and the notes on it."""

    at: Pointer
    value: Any
    notes: tuple[Note, ...]


def walk(value: BaseModel) -> Iterator[Node]:
    """Yield what carries a note, and every set, in the order of the document."""
    yield from _walk(value, type(value), (), ())


def cues(value: BaseModel) -> list[str]:
    """Return the texts marked as cues, by rank and then as they stand, without repeats."""
    return cues_among(walk(value))


def cues_among(nodes: Iterable[Node]) -> list[str]:
    """Do the same for the parts of any state."""
    found: list[tuple[int, str]] = []
    for node in nodes:
        ranks = [note.rank for note in node.notes if isinstance(note, Cue)]
        if ranks:
            found += [(ranks[-1], text) for text in _strings(node.value)]
    found.sort(key=lambda cue: cue[0])
    return list(dict.fromkeys(text for _, text in found))


def set_order(value: Any) -> str:
    """Order a set's entries as its document does: by their JSON."""
    return dumps(to_jsonable_python(value))


def problems(model: type[BaseModel]) -> Iterator[str]:
    """Describe what is unsound in a model or in any that it leads to."""
    for owner in _models(model, set()):
        for name, field in owner.model_fields.items():
            where = f"{owner.__name__}.{name}"
            key = field.serialization_alias or name
            if not field.exclude and key not in _read_as(owner, name, field):
                yield f"{where} is written as {key!r} but read under another name"
            for fresh, hint in _declared(field.annotation, tuple(_notes(field.metadata))):
                if not any(fresh.since in entry.model_fields for entry in _entries(hint)):
                    yield f"Fresh at {where}: no entry has a field {fresh.since!r}"


def _read_as(owner: type[BaseModel], name: str, field: FieldInfo) -> list[Any]:
    alias = field.validation_alias
    names: list[Any] = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
    config = owner.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    return [*names, name] if by_name else names


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
        hints = _hints(hint) if is_typeddict(hint) else {}
        entry_hint = _argument(hint, -1)
        if notes or hints or _leads_to(entry_hint, _is_noted):
            quick = _quick(entry_hint) if notes and not hints else ()
            for key, item in value.items():
                here = (*at, key if type(key) is str else _json_key(key))
                if type(item) in quick:
                    yield Node(here, item, notes)
                else:
                    yield from _entry(item, hints.get(key, entry_hint), notes, here)
    elif isinstance(value, list | tuple | deque | set | frozenset):
        if isinstance(value, set | frozenset):
            yield Node(at, value, ())
            value = sorted(value, key=set_order)
        fixed = get_origin(hint) is tuple and Ellipsis not in get_args(hint)
        entry_hint = _argument(hint, 0)
        if notes or fixed or _leads_to(entry_hint, _is_noted):
            quick = _quick(entry_hint) if notes and not fixed else ()
            for index, item in enumerate(value):
                here = (*at, str(index))
                if type(item) in quick:
                    yield Node(here, item, notes)
                else:
                    yield from _entry(item, _argument(hint, index if fixed else 0), notes, here)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        if notes:
            yield Node(at, value, notes)
        for name, field_hint in _hints(type(value)).items():
            yield from _walk(getattr(value, name), field_hint, (), (*at, name))
    elif notes:
        yield Node(at, value, notes)


def _entry(value: Any, hint: Any, notes: tuple[Note, ...], at: Pointer) -> Iterator[Node]:
    """Walk a container's entry: the container's notes mean it as a whole."""
    if notes and isinstance(value, _CONTAINERS):
        yield Node(at, value, notes)
        notes = ()
    yield from _walk(value, hint, notes, at)


def _quick(hint: Any) -> tuple[type, ...]:
    """List the types of entries that carry no notes of their own, so that none need be sought."""
    if hint in (Any, str, int, float):
        return (str, int, float, bool)
    if isinstance(hint, type) and issubclass(hint, BaseModel) and not _fields(hint):
        return (hint,)
    return ()


@lru_cache(maxsize=1024)
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str | None, Any, tuple[Note, ...]], ...]:
    """List the fields worth walking: attribute, key in the document, type and notes."""
    root = issubclass(model, RootModel)
    result = []
    for name, field in model.model_fields.items():
        notes = tuple(_notes(field.metadata))
        if not field.exclude and (notes or _leads_to(field.annotation, _is_noted)):
            key = None if root else (field.serialization_alias or name)
            result.append((name, key, field.annotation, notes))
    return tuple(result)


@lru_cache(maxsize=1024)
def has_sets(model: type[BaseModel]) -> bool:
    """Tell whether a model has sets anywhere."""
    return _leads_to(model, _is_set)


def _is_set(hint: Any) -> bool:
    return hint in _SETS or get_origin(hint) in _SETS


def _is_noted(hint: Any) -> bool:
    """Tell whether a type is annotated, or is a set: `walk` yields these."""
    if get_origin(hint) is Annotated:
        return any(True for _ in _notes(get_args(hint)[1:]))
    return _is_set(hint)


def _leads_to(hint: Any, test: Callable[[Any], bool], seen: frozenset[Any] = frozenset()) -> bool:
    """Tell whether a type, or any that it is made of, passes a test."""
    if test(hint):
        return True
    below: Iterable[Any] = get_args(hint)
    if get_origin(hint) is Annotated:
        below = get_args(hint)[:1]
    elif isinstance(hint, NewType):
        below = [hint.__supertype__]
    elif isinstance(hint, TypeAliasType) or (isinstance(hint, type) and not below):
        if hint in seen:
            return False
        seen |= {hint}
        if isinstance(hint, TypeAliasType):
            below = [hint.__value__]
        elif issubclass(hint, BaseModel):
            fields = hint.model_fields.values()
            below = [Annotated[f.annotation, *f.metadata, None] for f in fields]
        elif dataclasses.is_dataclass(hint) or is_typeddict(hint):
            below = _hints(hint).values()
    return any(_leads_to(inner, test, seen) for inner in below)


def _hints(kind: Any) -> dict[str, Any]:
    return _cached_hints(kind)


@lru_cache(maxsize=1024)
def _cached_hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _bare(hint: Any, value: Any) -> tuple[Any, tuple[Note, ...]]:
    """Strip a type of aliases, of what it is annotated with, and of a union's other members."""
    notes: tuple[Note, ...] = ()
    while not isinstance(hint, type):
        origin = get_origin(hint)
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif isinstance(origin, TypeAliasType):
            hint = origin.__value__[get_args(hint)]
        elif origin is Annotated:
            hint, *metadata = get_args(hint)
            notes += tuple(_notes(metadata))
        elif origin in (Required, NotRequired):
            (hint,) = get_args(hint)
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif origin in (Union, UnionType):
            hint = next((h for h in get_args(hint) if _fits(h, value)), Any)
        else:
            break
    return hint, notes


def _fits(hint: Any, value: Any) -> bool:
    """Tell whether a value may be of a union's member."""
    origin = get_origin(hint)
    if isinstance(hint, TypeAliasType):
        return _fits(hint.__value__, value)
    if isinstance(hint, NewType):
        return _fits(hint.__supertype__, value)
    if origin is Annotated:
        return _fits(get_args(hint)[0], value)
    if origin in (Union, UnionType):
        return any(_fits(h, value) for h in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if is_typeddict(hint):
        return isinstance(value, dict)
    kind = origin or hint
    return hint is Any or (isinstance(kind, type) and isinstance(value, kind))


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
