"""What a JSON Schema from outside may hold: nothing that leads elsewhere, or back to itself.

Two keywords are memstore's own. ``x-fresh`` says how long a value may be trusted, ``x-cue`` that
the log is searched by it: what `Fresh` and `Cue` are in a Pydantic model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import unquote

import regex
from pydantic import TypeAdapter, ValidationError

from memstore.annotations import QUESTION, Cue, Fresh, Note
from memstore.documents import Pointer, join_pointer, split_pointer
from memstore.errors import InvalidInput, SchemaError
from memstore.text import Limits, clean_json
from memstore.types import JSON

__all__ = ["Schema", "duration", "examined", "notes_of", "target_of"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LIMITS = Limits(depth=48, bytes=65_536)
LONGEST_PATTERN = 1_000
#: How many schemas may bear on one and the same value, references followed.
MOST_AT_ONCE = 1_000

ONE = (
    *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
    *("contentSchema", "unevaluatedItems", "unevaluatedProperties"),
)
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
#: Those of them that bear on the same value as the schema that they are in.
IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
#: They make a reference mean another place than it says, or come from elsewhere.
REFUSED = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef")
UNEVALUATED = "unevaluatedProperties"  # the library runs patterns for it without a clock
AT_THE_ROOT = ("$id", "$schema", "$vocabulary")

Schema = dict[str, Any] | bool

_DURATION = TypeAdapter(timedelta)


def duration(text: Any) -> timedelta:
    """Read an ISO 8601 duration, such as ``P90D``; raises ValueError."""
    if not isinstance(text, str) or not text.isascii() or not text.startswith("P"):
        raise ValueError("a duration is written like P90D or PT12H")
    try:
        return _DURATION.validate_python(text)
    except ValidationError:
        raise ValueError("a duration is written like P90D or PT12H") from None


def notes_of(schema: Mapping[str, Any]) -> tuple[Note, ...]:
    """Read a schema's own ``x-fresh`` and ``x-cue``; raises SchemaError, with the keyword."""
    notes: list[Note] = []
    if "x-fresh" in schema:
        given = schema["x-fresh"]
        given = {"for": given} if isinstance(given, str) else given
        if not isinstance(given, Mapping) or not given.keys() <= {"for", "question", "since"}:
            raise SchemaError("a duration, or an object of for, question, since", path="x-fresh")
        since = given.get("since")
        if since is not None and not isinstance(since, str):
            raise SchemaError("since names a member", path="x-fresh")
        try:
            notes.append(Fresh(duration(given.get("for")), given.get("question", QUESTION), since))
        except (ValueError, SchemaError) as error:
            raise SchemaError(str(error), path="x-fresh") from error
    if "x-cue" in schema:
        rank = schema["x-cue"]
        if type(rank) is not int:
            raise SchemaError("a whole number: the lowest comes first", path="x-cue")
        notes.append(Cue(rank))
    return tuple(notes)


def below(schema: Mapping[str, Any]) -> Iterator[tuple[Pointer, Schema]]:
    """Yield the schemas right inside a schema, with the pointer from there."""
    for keyword in ONE:
        if keyword in schema:
            yield (keyword,), schema[keyword]
    for keyword in LISTED:
        for index, inner in enumerate(schema.get(keyword, ())):
            yield (keyword, str(index)), inner
    for keyword in NAMED:
        for name, inner in schema.get(keyword, {}).items():
            yield (keyword, name), inner


def target_of(reference: str) -> Pointer:
    """Return where a ``$ref`` leads within its own document; raises SchemaError if elsewhere."""
    if not reference.startswith("#"):
        raise SchemaError("it must lead to a place in this schema, such as #/$defs/name")
    try:
        return split_pointer(unquote(reference[1:]))
    except InvalidInput as error:
        raise SchemaError("it must lead to a place in this schema, such as #/$defs/name") from error


def examined(schema: JSON) -> dict[str, Any]:
    """Return a clean copy of a JSON Schema that can be relied on.

    Raises SchemaError, pointing into the schema, at what the draft or memstore refuses.
    """
    if not isinstance(schema, dict):
        raise SchemaError("a state's schema is an object", path="schema")
    cleaned: dict[str, Any] = clean_json(schema, limits=LIMITS, path="schema")
    if cleaned.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
        raise SchemaError(f"only {DIALECT} is taken", path="schema/$schema")
    try:
        worst = next(_dialect().iter_errors(cleaned), None)
    except RecursionError:
        raise SchemaError("it is nested too deeply", path="schema") from None
    if worst is not None:
        where = "schema" + join_pointer(list(worst.absolute_path))
        raise SchemaError(f"not valid under draft 2020-12 ({worst.validator})", path=where)
    places = dict(_walk(cleaned, ()))
    unevaluated = any(isinstance(s, dict) and UNEVALUATED in s for s in places.values())
    sizes: dict[Pointer, int] = {}
    for at, inner in places.items():
        try:
            _examine(inner, at, places, unevaluated)
            _at_once(at, places, sizes, set())
        except SchemaError as error:
            where = "schema" + join_pointer(at) + (f"/{error.path}" if error.path else "")
            words = str(error).removeprefix(f"{error.path}: ") if error.path else str(error)
            raise SchemaError(words, path=where) from error
    return cleaned


@cache
def _dialect() -> Any:
    from jsonschema import Draft202012Validator  # takes its time

    return Draft202012Validator(Draft202012Validator.META_SCHEMA)


def _walk(schema: Schema, at: Pointer) -> Iterator[tuple[Pointer, Schema]]:
    yield at, schema
    if isinstance(schema, dict):
        for parts, inner in below(schema):
            yield from _walk(inner, (*at, *parts))


def _examine(
    schema: Schema, at: Pointer, places: Mapping[Pointer, Schema], unevaluated: bool
) -> None:
    if isinstance(schema, bool):
        return
    for keyword in (*REFUSED, *(AT_THE_ROOT if at else ())):
        if keyword in schema:
            raise SchemaError("this keyword is not taken here", path=keyword)
    if "$ref" in schema and target_of(schema["$ref"]) not in places:
        raise SchemaError("it leads to no schema", path="$ref")
    patterns = [("pattern", schema["pattern"])] if "pattern" in schema else []
    patterns += [("patternProperties", pattern) for pattern in schema.get("patternProperties", {})]
    for keyword, pattern in patterns:
        try:
            if len(pattern) > LONGEST_PATTERN:
                raise SchemaError(f"at most {LONGEST_PATTERN:,} characters", path=keyword)
            regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError) as error:
            raise SchemaError(f"not a regular expression: {error}", path=keyword) from error
    if patterns and unevaluated:
        raise SchemaError(f"it does not go along with {UNEVALUATED}", path=patterns[0][0])
    notes_of(schema)


def _at_once(
    at: Pointer, places: Mapping[Pointer, Schema], sizes: dict[Pointer, int], path: set[Pointer]
) -> int:
    """Count the schemas that bear on a value where this one does; it is among them."""
    if at in sizes:
        return sizes[at]
    if at in path:
        raise SchemaError("it leads back to itself on the same value", path="$ref")
    schema, total = places[at], 1
    if isinstance(schema, dict):
        path.add(at)
        inner = [(*at, *parts) for parts, _ in below(schema) if parts[0] in IN_PLACE]
        if "$ref" in schema:
            inner.append(target_of(schema["$ref"]))
        total += sum(_at_once(one, places, sizes, path) for one in inner if one in places)
        path.discard(at)
    if total > MOST_AT_ONCE:
        raise SchemaError("too many schemas bear on one value")
    sizes[at] = total
    return total
