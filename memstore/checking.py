"""Checks documents against a JSON Schema (draft 2020-12), within bounds that no schema escapes.

A schema comes from outside, and may be made to take for ever: every keyword that is looked at is
counted, and patterns run against a clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import regex
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing.jsonschema import EMPTY_REGISTRY

from memstore.documents import join_pointer, key_of
from memstore.errors import SchemaError
from memstore.subschemas import LISTED, NAMED, ONE, Schema, duration
from memstore.text import dumps
from memstore.types import JSON

__all__ = ["Checker"]

T = TypeVar("T")

MOST_STEPS = 50_000
PATTERN_SECONDS = 0.25  # for all patterns on one document
LONGEST_FORMATTED = 2_048
MOST_ERRORS = 20
FORMATS = FormatChecker(formats=())
FORMATS.checkers = {
    name: Draft202012Validator.FORMAT_CHECKER.checkers[name]
    for name in (
        *("date", "date-time", "time", "email", "hostname", "ipv4", "ipv6"),
        *("json-pointer", "uri", "uri-reference", "uuid"),
    )
}
#: Keywords whose message in the library tells of the schema alone, and not of the document.
_THEIR_OWN = ("required", "dependentRequired")
_MESSAGES = {
    None: "is not allowed here",
    "anyOf": "fits none of the alternatives",
    "const": "must be {}",
    "enum": "must be one of {}",
    "format": "is no {}",
    "items": "has more entries than are allowed",
    "not": "is not allowed here",
    "oneOf": "must fit exactly one of the alternatives",
    "pattern": "does not match {}",
    "type": "must be of type {}",
    "uniqueItems": "has an entry twice",
}
_SHOWN = 80


class _Spent(Exception):
    """A bound was reached."""


@dataclass(slots=True)
class _Budget:
    steps: int = MOST_STEPS
    seconds: float = PATTERN_SECONDS

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise _Spent("it takes more steps than are allowed to check it")

    def search(self, pattern: str, text: str) -> bool:
        self.spend(1 + len(text) // 1_000)
        began = time.monotonic()
        try:
            return regex.search(pattern, text, timeout=self.seconds, concurrent=True) is not None
        except TimeoutError:
            raise _Spent("a pattern takes longer on it than is allowed") from None
        finally:
            self.seconds = max(1e-6, self.seconds - (time.monotonic() - began))


_BUDGET: ContextVar[_Budget] = ContextVar("budget")


class Checker:
    """Checks documents against one schema, which `examined` has let pass."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # By these the library would choose another class for it, without the bounds.
        bare = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
        self._validator = _Bounded(_explicit(bare), registry=EMPTY_REGISTRY, format_checker=FORMATS)

    def check(self, document: JSON) -> None:
        """Raise SchemaError, with the pointer, where a document does not fit; all of it is told."""
        found = self.bounded(
            lambda: list(islice(self._validator.iter_errors(document), MOST_ERRORS))
        )
        if not found:
            return
        errors = [{"path": path, "detail": detail} for path, detail in sorted(map(_told, found))]
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise SchemaError(first["detail"] + more, path=first["path"], errors=errors)

    def fits(self, schema: Schema, value: JSON) -> bool:
        """Tell whether a value fits a schema inside this one; within `bounded`."""
        _BUDGET.get().spend(1)
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def bounded(self, look: Callable[[], T]) -> T:
        """Do something under one budget; raises SchemaError when it is spent."""
        token = _BUDGET.set(_Budget())
        try:
            return look()
        except _Spent as error:
            raise SchemaError(str(error)) from None
        except (RecursionError, ArithmeticError, ValueError) as error:
            raise SchemaError(f"it can't be checked: {type(error).__name__}") from None
        finally:
            _BUDGET.reset(token)


def _explicit(schema: Schema) -> Any:
    """Write a false schema as one with a keyword: the library says of no other where it failed."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema | {
        keyword: list(map(_explicit, inner))
        if keyword in LISTED
        else {name: _explicit(one) for name, one in inner.items()}
        if keyword in NAMED
        else _explicit(inner)
        if isinstance(inner, dict)
        else inner
        for keyword, inner in schema.items()
        if keyword in (*ONE, *LISTED, *NAMED)
    }


def _told(error: ValidationError) -> tuple[str, str]:
    """Say where it does not fit and how, without the document's own words."""
    if error.validator in ("anyOf", "oneOf") and error.context:
        error = best_match([error]) or error
    path = join_pointer(list(error.absolute_path))
    keyword = error.validator if isinstance(error.validator, str) else None
    if keyword in _THEIR_OWN:
        return path, error.message
    wanted = dumps(error.validator_value)
    wanted = wanted if len(wanted) <= _SHOWN else f"{wanted[:_SHOWN]}…"
    if keyword == "additionalProperties" and error.validator_value is False:
        return path, "the schema has no such field"
    message = _MESSAGES.get(keyword)
    return path, message.format(wanted) if message else f"breaks {keyword}: {wanted}"


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _counted(keyword: Callable[..., Any]) -> Callable[..., Any]:
    """Let a keyword cost as much as it may look at."""

    def look(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        _BUDGET.get().spend(1 + _size(wanted) + _size(value))
        return keyword(validator, wanted, value, schema)

    return look


Errors = Iterator[ValidationError]


def _pattern(validator: Any, wanted: str, value: Any, schema: Any) -> Errors:
    if isinstance(value, str) and not _BUDGET.get().search(wanted, value):
        yield ValidationError("")


def _pattern_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Errors:
    if isinstance(value, dict):
        for pattern, inner in wanted.items():
            for name, item in value.items():
                if _BUDGET.get().search(pattern, name):
                    yield from validator.descend(item, inner, name, pattern)


def _additional_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Errors:
    if isinstance(value, dict):
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in value.items():
            if name in known or any(_BUDGET.get().search(one, name) for one in patterns):
                continue
            if wanted is False:
                yield ValidationError("", path=[name])
            else:
                yield from validator.descend(item, wanted, name)


def _unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Errors:
    # The library compares each entry with every other one.
    if wanted and isinstance(value, list) and len(set(map(key_of, value))) < len(value):
        yield ValidationError("")


def _format(validator: Any, wanted: str, value: Any, schema: Any) -> Errors:
    if isinstance(value, str) and wanted in FORMATS.checkers:
        _BUDGET.get().spend(1 + len(value) // 100)
        if len(value) > LONGEST_FORMATTED or not FORMATS.conforms(value, wanted):
            yield ValidationError("")


@FORMATS.checks("duration", ValueError)
def _is_duration(value: object) -> bool:
    return duration(value) is not None


_Bounded: Any = extend(  # type: ignore[no-untyped-call]  # jsonschema has no types
    Draft202012Validator,
    {
        name: _counted(keyword)
        for name, keyword in {
            **Draft202012Validator.VALIDATORS,
            "additionalProperties": _additional_properties,
            "format": _format,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "uniqueItems": _unique_items,
        }.items()
    },
)
