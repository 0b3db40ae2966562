"""The shape of a state: a Pydantic model with a name and a version, and the way up from old ones.

What is saved is what is loaded: `dump` writes nothing that would not come back as it was.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from memstore.annotations import Node, cues_among, has_sets, problems, walk
from memstore.documents import diff, get, join_pointer, reason_of
from memstore.errors import InvalidInput, MigrationFailed, NewerSchema, SchemaError
from memstore.roundtrip import explain, refuse_difference, refuse_lost, write
from memstore.text import clean_json, dumps
from memstore.types import JSON

M = TypeVar("M", bound=BaseModel)
Document = dict[str, Any]
#: Takes a document of one version and returns it in the next one's shape. It may as well alter
#: the document that it is given (a copy) and return None.
Migration = Callable[[Document], Document | None]
Step = tuple[int, int]

_NAME = re.compile(r"\w[\w.-]{0,99}")


class StateSchema(Generic[M]):
    """A state's model, its name and version, and the migrations from older versions.

    `migrations` maps each version to the function that leads to the next one, without a gap up
    to `version`; raise the version whenever the model changes shape. `initial` makes the state
    of a memory that has none yet (a value, or a function that returns one); left out, the model
    must be constructible without arguments. Raises SchemaError if any of this is unsound.
    """

    __slots__ = ("_initial", "migrations", "model", "name", "version")

    #: Whether checking a document may take long enough to hold up an event loop.
    slow: ClassVar[bool] = False

    name: str
    version: int
    model: type[M]
    migrations: Mapping[int, Migration]
    _initial: Callable[[], M]

    def __init__(
        self,
        name: str,
        version: int,
        model: type[M],
        migrations: Mapping[int, Migration] | None = None,
        initial: M | Callable[[], M] | None = None,
    ) -> None:
        steps = dict(migrations or {})
        _check(name, version, model, steps)
        make: Callable[[], M] = model
        if isinstance(initial, BaseModel):
            make = partial(initial.model_copy, deep=True)
        elif initial is not None:
            make = initial
        fields = {"name": name, "version": version, "model": model, "_initial": make}
        for field, value in {**fields, "migrations": MappingProxyType(steps)}.items():
            object.__setattr__(self, field, value)
        try:
            self.dump(self.initial())
        except Exception as error:
            raise SchemaError(f"the initial state of {name!r} is unsound: {error}") from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a StateSchema is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a StateSchema is frozen")

    def __repr__(self) -> str:
        return f"StateSchema({self.name!r}, {self.version}, {self.model.__name__})"

    def initial(self) -> M:
        """Return a new initial state, shared with nobody."""
        try:
            return self._initial()
        except ValidationError as error:
            raise SchemaError("the model needs arguments; give initial=") from error

    def load(self, document: JSON) -> M:
        """Validate a document of this version; raises SchemaError, pointing at what is wrong."""
        try:
            return self.model.model_validate_json(dumps(document), by_alias=True)
        except ValidationError as error:
            raise explain(error, document) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"not a JSON document: {error}") from error

    def accept(self, document: JSON) -> M:
        """Validate a document from outside, say a patched one; refuse what the model ignores."""
        value = self.load(document)
        refuse_lost(document, self._written(value))
        return value

    def dump(self, value: M) -> Document:
        """Return the JSON document of a state; sanitised, with every default written out.

        Raises InvalidInput, with the JSON pointer, on what would not come back as it was: NaN, a
        set or a datetime where the model declares ``Any``, a key that is not a string, text where
        the model declares a number. Plain JSON in place of a declared type (a dict for a model,
        an ISO string for a datetime) is read as that type.
        """
        if not isinstance(value, self.model):
            found, wanted = type(value).__name__, self.model.__name__
            raise SchemaError(f"a state of {self.name!r} is a {wanted}, not a {found}")
        document = self._written(value)
        back = self.load(document)
        refuse_difference(value, back, document)
        settled = self._plain(back)
        if settled != document:
            settled = clean_json(settled)
            refuse_lost(document, settled)
            if changes := diff(settled, self._written(self.load(settled))):
                raise SchemaError("it reads as another value each time", path=changes[0].path)
        return settled

    def cues(self, value: M) -> list[str]:
        """Return the state's texts to search the log by, most telling first."""
        return cues_among(self.nodes(value))

    def nodes(self, value: M) -> Iterator[Node]:
        """Yield the parts of a state that carry a note, such as `Fresh`."""
        return walk(value)

    def restore(self, document: JSON) -> M:
        """Read a document that was validated before."""
        return self.load(document)

    def json_schema(self) -> dict[str, Any]:
        """Return the model's JSON Schema: what a client without Python registers."""
        return self.model.model_json_schema(by_alias=True)

    def read(
        self, document: JSON, version: int, *, name: str, memory: str, state_version: int
    ) -> tuple[M, Document, list[Step]]:
        """Bring a stored document to this schema's version and validate it.

        Returns the state, its document and the migrations that ran, as (from, to). `name` and
        `version` are the schema's as stored; `memory` and `state_version` say in errors what was
        read. The stored document is never altered. Raises SchemaError for another schema's
        document, NewerSchema, and MigrationFailed.
        """
        if name != self.name:
            raise SchemaError(
                f"{memory}: state version {state_version} is of schema {name!r}, not {self.name!r}"
            )
        if version > self.version:
            raise NewerSchema(schema=self.name, stored=version, known=self.version)

        def failed(reason: str, step: Step | None, path: str = "") -> MigrationFailed:
            return MigrationFailed(
                reason, memory=memory, version=state_version, step=step, path=path
            )

        current, steps = document, []
        for known in range(version, self.version):
            step = (known, known + 1)
            if known not in self.migrations:
                raise failed(f"{self.name!r} has no migration from version {known}", step)
            try:
                current = _migrated(self.migrations[known], current)
            except InvalidInput as error:
                raise failed(reason_of(error), step, error.path) from error
            except Exception as error:
                raise failed(f"{type(error).__name__}: {error}", step) from error
            steps.append(step)
        last = steps[-1] if steps else None
        try:
            value = self.load(current)
            if steps:
                written = self._written(value)
                refuse_lost(current, written)
                current = written
        except InvalidInput as error:
            raise failed(reason_of(error), last, error.path) from error
        return value, current, steps

    def migrate(
        self,
        document: JSON,
        from_version: int,
        *,
        memory: str,
        state_version: int,
        name: str | None = None,
    ) -> tuple[Document, list[Step]]:
        """Like `read`, without the state: return the migrated document and the steps that ran."""
        _, migrated, steps = self.read(
            document,
            from_version,
            name=self.name if name is None else name,
            memory=memory,
            state_version=state_version,
        )
        return migrated, steps

    def _written(self, value: M) -> Document:
        cleaned = clean_json(self._plain(value))
        if not isinstance(cleaned, dict):
            raise SchemaError(f"a state is a JSON object, not a {type(cleaned).__name__}")
        return cleaned

    def _plain(self, value: M) -> Document:
        document: Document = write(value)
        if has_sets(self.model):
            for node in walk(value):
                if isinstance(node.value, set | frozenset):
                    with suppress(InvalidInput):  # a field of a model that is written its own way
                        get(document, join_pointer(node.at)).sort(key=dumps)
        return document


def check_schema(schema: StateSchema[M]) -> StateSchema[M]:
    """Return a schema; a model by itself has no name and no version, and is refused."""
    if isinstance(schema, StateSchema):
        return schema
    found = getattr(schema, "__name__", type(schema).__name__)
    raise InvalidInput(f"must be a StateSchema, not {found}", path="schema")


def _migrated(migration: Migration, document: Document) -> Document:
    copy = deepcopy(document)
    result = migration(copy)
    result = copy if result is None else result
    if not isinstance(result, dict):
        raise SchemaError(f"the migration returned a {type(result).__name__}, not a dict")
    cleaned: Document = clean_json(result)
    return cleaned


def check_name(name: str, version: int = 1) -> None:
    """Raise SchemaError unless a schema may be called so."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SchemaError("a schema's name is 1 to 100 letters, digits, dots, dashes, underscores")
    if type(version) is not int or not 1 <= version < 2**31:
        raise SchemaError("a schema's version is a whole number from 1 up")


def _check(name: str, version: int, model: type[BaseModel], steps: dict[int, Migration]) -> None:
    check_name(name, version)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise SchemaError(f"a schema's model is a Pydantic model, not {model!r}")
    if any(type(known) is not int for known in steps):
        raise SchemaError("migrations are keyed by the version that they lead from")
    lowest = min(steps, default=version)
    if lowest < 1 or sorted(steps) != list(range(lowest, version)):
        raise SchemaError(
            f"migrations of {name!r} must lead without a gap up to version {version}, "
            f"but start from {sorted(steps)}"
        )
    for known, migration in steps.items():
        if not callable(migration) or inspect.iscoroutinefunction(migration):
            raise SchemaError(f"the migration from version {known} is not a plain function")
    for problem in problems(model):
        raise SchemaError(problem)
