"""States whose schema is a JSON Schema: for clients without Python, and the same in every other.

Each version of it is kept, with the JSON Patch that leads there from the one before. A document
of an older version is taken through all of them, and checked against each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import RootModel

from memstore.annotations import Node
from memstore.documents import json_patch, reason_of, same, split_pointer
from memstore.errors import InvalidInput, SchemaError
from memstore.schema import Document, StateSchema, check_name
from memstore.subschemas import Schema, examined, notes_of, target_of
from memstore.text import clean_json
from memstore.types import JSON

if TYPE_CHECKING:
    from memstore.checking import Checker

__all__ = ["Definition", "JsonSchema", "JsonState", "defined"]

MOST_OPERATIONS = 256
_TAKING = ("remove", "replace", "move", "copy")
_OPERATIONS = ("add", "test", *_TAKING)


class JsonState(RootModel[dict[str, Any]]):
    """The state of a `JsonSchema`: plain JSON, at `root`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One version of a registered schema.

    `migration` is the JSON Patch that leads here from the version before; the first has none.
    `initial` is the state of a memory that has none yet; left out, it is made of the defaults
    of the schema's properties. `created_at` is None before it is registered.
    """

    name: str
    version: int
    schema: dict[str, Any]
    migration: list[dict[str, Any]] | None = None
    initial: dict[str, Any] | None = None
    created_at: datetime | None = None

    def is_same(self, other: Definition) -> bool:
        """Tell whether another one says the same, whenever it was registered."""
        pairs = ((getattr(self, n), getattr(other, n)) for n in ("schema", "migration", "initial"))
        names = (self.name, self.version) == (other.name, other.version)
        return names and all(same(mine, theirs) for mine, theirs in pairs)


def defined(
    name: str, version: int, schema: JSON, migration: JSON = None, initial: JSON = None
) -> Definition:
    """Check one version's parts, and return them cleaned; raises SchemaError, with the path."""
    check_name(name, version)
    if (migration is None) != (version == 1):
        raise SchemaError(
            "every version but the first has one, if only an empty one", path="migration"
        )
    if initial is not None and not isinstance(initial, dict):
        raise SchemaError("a state is an object", path="initial")
    return Definition(
        name=name,
        version=version,
        schema=examined(schema),
        migration=None if migration is None else _operations(migration),
        initial=None if initial is None else clean_json(initial, path="initial"),
    )


def _operations(patch: JSON) -> list[dict[str, Any]]:
    """Check the operations of a migration as far as that goes without a document."""
    if not isinstance(patch, list) or len(patch) > MOST_OPERATIONS:
        raise SchemaError(f"a JSON Patch of {MOST_OPERATIONS} operations at most", path="migration")
    cleaned: list[dict[str, Any]] = clean_json(patch, path="migration")
    for index, operation in enumerate(cleaned):
        at = f"migration/{index}"
        if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
            raise SchemaError(f'"op" is one of {", ".join(_OPERATIONS)}', path=at)
        op, wanted = operation["op"], ["path"]
        wanted += ["from"] if op in ("move", "copy") else []
        wanted += ["value"] if op in ("add", "replace", "test") else []
        if missing := [name for name in wanted if name not in operation]:
            raise SchemaError(f"{op} needs a {missing[0]}", path=at)
        for name in ("path", "from"):
            try:
                split_pointer(operation.get(name, ""))
            except InvalidInput as error:
                raise SchemaError(reason_of(error), path=f"{at}/{name}") from error
        if operation.get("optional", False) is not False and (
            operation["optional"] is not True or op not in _TAKING
        ):
            raise SchemaError(f"true, with one of {', '.join(_TAKING)}", path=f"{at}/optional")
    return cleaned


class JsonSchema(StateSchema[JsonState]):
    """The schema of a state in JSON Schema, with all of its versions up to one.

    Beside draft 2020-12 it may say by ``x-fresh`` how long a part is to be trusted, and by
    ``x-cue`` that the log is searched by a part. Raises SchemaError for an unsound one.
    """

    __slots__ = ("_checker", "_has_notes", "definition")

    slow = True
    definition: Definition
    _checker: Checker
    _has_notes: bool

    def __init__(self, versions: Sequence[Definition]) -> None:
        """Take the definitions of every version, from the first one on."""
        last = versions[-1]
        if [one.version for one in versions] != list(range(1, last.version + 1)):
            raise SchemaError(f"the versions of {last.name!r} are not all there")
        from memstore.checking import Checker  # its library takes its time

        checkers = [Checker(one.schema) for one in versions]
        initial = _defaults(last.schema) if last.initial is None else last.initial
        object.__setattr__(self, "definition", last)
        object.__setattr__(self, "_checker", checkers[-1])
        object.__setattr__(self, "_has_notes", _is_noted(last.schema))
        try:
            self.load(initial)
        except SchemaError as error:
            why = f"the initial state does not fit the schema, at {error.path or '/'}: "
            raise SchemaError(why + reason_of(error), path="initial") from error
        steps = {
            one.version - 1: partial(_step, one.migration or [], None if one is last else checker)
            for one, checker in zip(versions[1:], checkers[1:], strict=True)
        }
        super().__init__(last.name, last.version, JsonState, steps, lambda: self.restore(initial))

    def __repr__(self) -> str:
        return f"JsonSchema({self.name!r}, {self.version})"

    def load(self, document: JSON) -> JsonState:
        """Validate a document of this version; raises SchemaError, pointing at what is wrong."""
        if not isinstance(document, dict):
            raise SchemaError("a state is an object")
        self._checker.check(document)
        return self.restore(document)

    def accept(self, document: JSON) -> JsonState:
        """Validate a document from outside; the schema says whether it may have other fields."""
        return self.load(document)

    def dump(self, value: JsonState) -> Document:
        """Return a state's document, cleaned and validated."""
        if not isinstance(value, JsonState):
            raise SchemaError(f"a state of {self.name!r} is a JsonState")
        document: Document = clean_json(value.root)
        self._checker.check(document)
        return document

    def restore(self, document: JSON) -> JsonState:
        return JsonState.model_construct(root=deepcopy(document))

    def json_schema(self) -> dict[str, Any]:
        return deepcopy(self.definition.schema)

    def nodes(self, value: JsonState) -> Iterator[Node]:
        """Yield the parts of a state that carry ``x-fresh`` or ``x-cue``."""
        if self._has_notes:
            walk = _Walk(self.definition.schema, self._checker)
            yield from self._checker.bounded(lambda: list(walk.nodes(value.root)))


def _step(patch: list[dict[str, Any]], checker: Checker | None, document: Document) -> Document:
    """Lead a document to the next version, and check it there unless it is checked anyway."""
    migrated: Document = json_patch(document, patch, optional=True)
    if checker is not None:
        checker.check(migrated)
    return migrated


def _defaults(schema: Mapping[str, Any]) -> Document:
    return {
        name: deepcopy(one["default"])
        for name, one in schema.get("properties", {}).items()
        if isinstance(one, dict) and "default" in one
    }


def _is_noted(schema: JSON) -> bool:
    """Tell whether a keyword of memstore's is anywhere in a schema."""
    if isinstance(schema, dict):
        return not schema.keys().isdisjoint(("x-fresh", "x-cue")) or any(
            map(_is_noted, schema.values())
        )
    return isinstance(schema, list) and any(map(_is_noted, schema))


class _Walk:
    """Goes through a document with the schemas that bear on each value."""

    def __init__(self, root: dict[str, Any], checker: Checker) -> None:
        self._root = root
        self._fits = checker.fits

    def nodes(self, document: JSON) -> Iterator[Node]:
        yield from self._below([self._root], document, (), ())

    def _below(
        self, schemas: Sequence[Schema], value: JSON, at: tuple[str, ...], given: tuple[Any, ...]
    ) -> Iterator[Node]:
        """Yield a value where it is noted, and what is in it; `given` are its container's notes."""
        bearing = [one for schema in schemas for one in self._bearing(schema, value)]
        own = tuple(note for one in bearing for note in notes_of(one))
        whole = isinstance(value, dict) and any(one.get("properties") for one in bearing)
        entries = isinstance(value, dict | list) and not whole
        # On a container with entries notes mean each of them; its own container's mean it.
        if mine := given if entries else given + own:
            yield Node(at, value, mine)
        handed = own if entries else ()
        if isinstance(value, dict):
            for name, item in value.items():
                inner = [s for one in bearing for s in self._members(one, name)]
                if inner or handed:
                    yield from self._below(inner, item, (*at, name), handed)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                inner = [s for one in bearing for s in _entries(one, index)]
                if inner or handed:
                    yield from self._below(inner, item, (*at, str(index)), handed)

    def _bearing(self, schema: Schema, value: JSON) -> Iterator[dict[str, Any]]:
        """Yield a schema and all those that it applies to the same value."""
        if isinstance(schema, bool):
            return
        yield schema
        inner: list[Schema] = list(schema.get("allOf", ()))
        if "$ref" in schema:
            inner.append(self._target(schema["$ref"]))
        for keyword in ("anyOf", "oneOf"):
            inner += [one for one in schema.get(keyword, ()) if self._fits(one, value)]
        if "if" in schema:
            branch = "then" if self._fits(schema["if"], value) else "else"
            inner += [schema["if"]] * (branch == "then") + [schema.get(branch, True)]
        if isinstance(value, dict):
            inner += [s for n, s in schema.get("dependentSchemas", {}).items() if n in value]
        for one in inner:
            yield from self._bearing(one, value)

    def _target(self, reference: str) -> Schema:
        node: Any = self._root
        for part in target_of(reference):
            node = node[int(part)] if isinstance(node, list) else node[part]
        found: Schema = node
        return found

    def _members(self, schema: Mapping[str, Any], name: str) -> Iterator[Schema]:
        known = name in schema.get("properties", {})
        if known:
            yield schema["properties"][name]
        for pattern, inner in schema.get("patternProperties", {}).items():
            if self._fits({"pattern": pattern}, name):
                known = True
                yield inner
        if not known and "additionalProperties" in schema:
            yield schema["additionalProperties"]


def _entries(schema: Mapping[str, Any], index: int) -> Iterator[Schema]:
    fixed = schema.get("prefixItems", [])
    if index < len(fixed):
        yield fixed[index]
    elif "items" in schema:
        yield schema["items"]
