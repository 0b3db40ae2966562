"""Pydantic models to JSON and back, refusing what would not come back as it was.

Pydantic's JSON mode is lenient: NaN under ``Any`` becomes null, a set a list, the key 1 "1".
Here each is an error that names where it stands.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import to_jsonable_python

from memstore.documents import Pointer, join_pointer
from memstore.errors import SchemaError
from memstore.text import clean_text
from memstore.types import JSON

Difference = tuple[Pointer, str]

MOST_ERRORS = 20


def write(value: BaseModel) -> Any:
    """Dump a model as JSON values, by alias; raises SchemaError naming what cannot be written."""
    try:
        return _dump(value, "json")
    except UnicodeEncodeError:  # half a surrogate pair in a key, which Pydantic cannot write
        try:
            mended = _mended(_dump(value, "python"))
            return _dump(type(value).model_validate(mended, by_alias=True), "json")
        except Exception as error:
            raise _unwritable(value, error) from error
    except Exception as error:
        raise _unwritable(value, error) from error


def explain(error: ValidationError, document: JSON) -> SchemaError:
    """Turn Pydantic's error into one that points into the document."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [{"path": _pointer(one, document), "detail": str(one["msg"])} for one in found]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return SchemaError(
        errors[0]["detail"] + more, path=errors[0]["path"], errors=errors[:MOST_ERRORS]
    )


def _pointer(error: Any, document: JSON) -> str:
    """Find where an error points: Pydantic also names union members and validators."""
    at: list[str] = []
    node = document
    for number, part in enumerate(error["loc"]):
        if isinstance(node, dict) and str(part) in node:
            node = node[str(part)]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif error["type"] != "missing" or number < len(error["loc"]) - 1:
            continue
        at.append(str(part))
    return join_pointer(at)


def refuse_lost(document: JSON, kept: JSON) -> None:
    """Raise SchemaError at the first member of a document that its model ignores."""
    for at in _lost(document, kept, ()):
        raise SchemaError("the schema has no such field", path=join_pointer(at))


def refuse_difference(given: BaseModel, back: BaseModel, written: JSON) -> None:
    """Raise SchemaError at the first value that would not come back as it was given."""
    for at, what in _differences(given, back, written, ()):
        raise SchemaError(what, path=join_pointer(at))


def _dump(value: BaseModel, mode: str) -> Any:
    return value.model_dump(mode=mode, by_alias=True, round_trip=True, warnings=False)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


def _unwritable(value: Any, error: Exception) -> SchemaError:
    """Follow the error down to the innermost value that raises it."""
    at: list[str] = []
    while len(at) < 64:
        for key, item in _members(value):
            try:
                to_jsonable_python(item, by_alias=True)
            except Exception as inner:
                at.append(key)
                value, error = item, inner
                break
        else:
            break
    return SchemaError(f"cannot be written as JSON: {error}", path=join_pointer(at))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        for name, key in _keys(value):
            yield key or "", getattr(value, name)
        for key, item in (value.model_extra or {}).items():
            yield key, item
    elif isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple | deque | set | frozenset):
        yield from ((str(index), item) for index, item in enumerate(value))


def _keys(model: BaseModel) -> Iterator[tuple[str, str | None]]:
    """Yield each written field's attribute and its key in the document, None for a root."""
    for name, field in type(model).model_fields.items():
        if not field.exclude:
            root = isinstance(model, RootModel)
            yield name, None if root else (field.serialization_alias or name)


def _lost(document: JSON, kept: JSON, at: Pointer) -> Iterator[Pointer]:
    if isinstance(document, dict) and isinstance(kept, dict):
        for key, value in document.items():
            if key not in kept:
                yield (*at, key)
            else:
                yield from _lost(value, kept[key], (*at, key))
    elif isinstance(document, list) and isinstance(kept, list) and len(document) == len(kept):
        for index, (value, other) in enumerate(zip(document, kept, strict=True)):
            yield from _lost(value, other, (*at, str(index)))


def _differences(given: Any, back: Any, written: JSON, at: Pointer) -> Iterator[Difference]:
    """Yield where a value came back as another.

    What was given as the very JSON that is written has lost nothing, whatever richer type the
    schema reads it as. Strings are compared as they are stored, cleaned.
    """
    if _is_plain(given, written):
        return
    if isinstance(given, BaseModel) and type(given) is type(back):
        for name, key in _keys(given):
            below = at if key is None else (*at, key)
            inner = written if key is None else _below(written, key)
            yield from _differences(getattr(given, name), getattr(back, name), inner, below)
        extra, other = given.model_extra or {}, back.model_extra or {}
        yield from _differences(extra, other, written, at)
    elif isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            stored = clean_text(key) if isinstance(key, str) else key
            name = stored if isinstance(stored, str) else _json_key(key)
            match = next((k for k in back if k == stored and _alike(stored, k)), None)
            if match is None:
                yield (*at, name), f"the key {key!r:.40} would come back as {name!r:.40}"
            else:
                yield from _differences(value, back[match], _below(written, name), (*at, name))
        if len(given) != len(back):
            yield at, "keys would be lost or merged"
    elif isinstance(given, list | tuple | deque) and type(given) is type(back):
        if len(given) != len(back):
            yield at, "entries would be lost"
        for index, (value, other) in enumerate(zip(given, back, strict=False)):
            here = (*at, str(index))
            yield from _differences(value, other, _below(written, index), here)
    elif dataclasses.is_dataclass(given) and type(given) is type(back):
        for field in dataclasses.fields(given):
            value, other = getattr(given, field.name), getattr(back, field.name)
            inner = _below(written, field.name)
            yield from _differences(value, other, inner, (*at, field.name))
    elif not _equal(given, back):
        yield at, _description(given, back)


def _is_plain(given: Any, written: JSON) -> bool:
    if type(given) is str:
        return isinstance(written, str) and clean_text(given) == written
    if given is None or type(given) is bool:
        return given is written
    if type(given) in (int, float):
        return type(written) in (int, float) and bool(given == written)
    if type(given) is list and isinstance(written, list):
        return len(given) == len(written) and all(map(_is_plain, given, written))
    if type(given) is dict and isinstance(written, dict) and len(given) == len(written):
        cleaned = {clean_text(key): v for key, v in given.items() if type(key) is str}
        return cleaned.keys() == written.keys() and all(
            _is_plain(value, written[key]) for key, value in cleaned.items()
        )
    return False


def _equal(given: Any, back: Any) -> bool:
    if isinstance(given, float) and isinstance(back, float) and math.isnan(given):
        return math.isnan(back)
    if isinstance(given, str) and isinstance(back, str):
        return clean_text(given) == back
    if isinstance(given, set | frozenset) and isinstance(back, set | frozenset):
        given, back = _mended_set(given), set(back)
    try:
        if isinstance(given, datetime) and isinstance(back, datetime) and given.tzinfo:
            # Python calls times in two zones unequal when a change of clocks makes one ambiguous.
            return back.tzinfo is not None and given.astimezone(UTC) == back.astimezone(UTC)
        return _alike(given, back) and bool(given == back)
    except Exception:  # a foreign type's comparison
        return False


def _mended_set(value: Any) -> set[Any]:
    return {clean_text(item) if isinstance(item, str) else item for item in value}


def _alike(a: Any, b: Any) -> bool:
    """Python takes True for 1; JSON does not."""
    return isinstance(a, bool) is isinstance(b, bool)


def _description(given: Any, back: Any) -> str:
    if isinstance(given, float) and not math.isfinite(given):
        return f"{given} is not JSON"
    found, read = type(given).__name__, type(back).__name__
    if found == read:
        return f"this {found} would come back as another value"
    return (
        f"this {found} would come back as {read}: "
        "declare its type in the schema, or store plain JSON"
    )


def _below(written: JSON, part: str | int) -> JSON:
    if isinstance(written, dict) and isinstance(part, str):
        return written.get(part)
    if isinstance(written, list) and isinstance(part, int) and part < len(written):
        return written[part]
    return None


def _json_key(key: Any) -> str:
    return str(next(iter(to_jsonable_python({key: None}))))
