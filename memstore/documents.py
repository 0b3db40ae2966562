"""Plain JSON documents: pointers, merge patches, JSON patches and differences a person can read.

Nothing here alters its input. Pointers are RFC 6901, read strictly: no negative or zero-padded
index, ``-`` only where a value is added. Numbers compare as numbers, and never with booleans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import jsonpatch
from jsonpointer import JsonPointerException

from memstore.errors import InvalidInput
from memstore.text import clean_json, dumps
from memstore.types import JSON

Pointer = tuple[str, ...]

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")
_OPERATIONS = ("add", "copy", "move", "remove", "replace", "test")
#: Characters of JSON that the `copy` operations of one patch may write: a short patch that
#: copies the document into itself again and again would otherwise grow without bound.
_MAX_COPIED = 1_048_576
#: Above this many pairs of unlike entries, two lists are compared position by position.
_MAX_PAIRS = 40_000


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `path` points into the new document, or into the old one for ``remove``.

    `old` is None for ``add`` and `new` is None for ``remove``.
    """

    path: str
    op: Literal["add", "remove", "replace"]
    old: JSON = None
    new: JSON = None


def split_pointer(pointer: str) -> Pointer:
    """Split a JSON pointer into its unescaped parts; raises InvalidInput if it is malformed."""
    if not isinstance(pointer, str):
        raise InvalidInput(f"a JSON pointer is a string, not {type(pointer).__name__}", path="path")
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise InvalidInput('a JSON pointer is "" or starts with "/"', path=pointer)
    if _BAD_ESCAPE.search(pointer):
        raise InvalidInput('"~" in a JSON pointer is written "~0", and "/" "~1"', path=pointer)
    return tuple(p.replace("~1", "/").replace("~0", "~") for p in pointer[1:].split("/"))


def join_pointer(parts: Sequence[str | int]) -> str:
    """Join unescaped parts into a JSON pointer."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in parts)


def get(document: JSON, pointer: str) -> JSON:
    """Return what a JSON pointer points to; raises InvalidInput when there is nothing there."""
    return _resolve(document, split_pointer(pointer), pointer)


def _resolve(node: JSON, parts: Pointer, path: str) -> JSON:
    for part in parts:
        if isinstance(node, dict):
            if part not in node:
                raise InvalidInput("no such key", path=path)
            node = node[part]
        elif isinstance(node, list):
            if not _INDEX.fullmatch(part):
                raise InvalidInput(f"{part!r:.40} is not a list index", path=path)
            if int(part) >= len(node):
                raise InvalidInput(f"the list has {len(node)} entries", path=path)
            node = node[int(part)]
        else:
            raise InvalidInput("it leads into a plain value", path=path)
    return node


def reason_of(error: InvalidInput) -> str:
    """Return an error's message without its path."""
    return str(error).removeprefix(f"{error.path}: ") if error.path else str(error)


def key_of(value: JSON) -> Any:
    """Return a hashable stand-in that is equal for equal JSON: 1 equals 1.0, but not true."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple(map(key_of, value)))
    if isinstance(value, dict):
        return (dict, frozenset((k, key_of(v)) for k, v in value.items()))
    return value


def same(a: JSON, b: JSON) -> bool:
    """Tell whether two JSON values are equal."""
    return bool(key_of(a) == key_of(b))


def alike(a: JSON, b: JSON) -> bool:
    """Tell whether b may be seen as a changed a: both lists, both plain, or objects that share
    at least half of their members.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        shared = sum(1 for k in a if k in b and same(a[k], b[k]))
        return shared * 2 >= max(len(a), len(b))
    return _kind(a) is _kind(b)


def _kind(value: JSON) -> type:
    return type(value) if isinstance(value, dict | list) else str


def merge_patch(document: JSON, patch: JSON) -> JSON:
    """Apply a JSON Merge Patch (RFC 7396): objects merge at any depth, null removes a member.

    Lists are replaced whole. Raises InvalidInput on a patch that is not plain JSON.
    """
    return _merge(document, clean_json(patch))


def _merge(document: JSON, patch: JSON) -> JSON:
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = deepcopy(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def json_patch(
    document: JSON, operations: Sequence[Mapping[str, Any]], *, optional: bool = False
) -> JSON:
    """Apply a JSON Patch (RFC 6902), all of it or nothing.

    With `optional` an operation may carry ``"optional": true``: it is left out where what it
    takes is not there. The RFC lets other readers ignore that member. Raises InvalidInput, with
    the operation's pointer as its path, where an operation is malformed, leads nowhere, or is a
    ``test`` that fails.
    """
    if isinstance(operations, str | bytes | Mapping) or not isinstance(operations, Sequence):
        raise InvalidInput("a JSON Patch is a list of operations", path="patch")
    result, copied = deepcopy(document), 0
    for number, operation in enumerate(clean_json(list(operations))):
        try:
            if optional and _is_needless(result, operation):
                continue
            _check_operation(result, operation)
            if operation["op"] == "copy":
                copied += len(dumps(get(result, operation["from"])))
                if copied > _MAX_COPIED:
                    raise InvalidInput("the patch copies too much", path=operation["path"])
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
        except InvalidInput as error:
            message = f"operation {number}: {reason_of(error)}"
            raise InvalidInput(message, path=error.path) from error
        except (jsonpatch.JsonPatchException, JsonPointerException) as error:
            raise InvalidInput(f"operation {number}: {error}", path=operation["path"]) from error
    return result


def _is_needless(document: JSON, operation: JSON) -> bool:
    """Tell whether an operation is optional and what it takes is not there."""
    if not isinstance(operation, dict) or operation.get("optional") is not True:
        return False
    taken: Any = operation.get("from" if operation.get("op") in ("move", "copy") else "path")
    try:
        get(document, taken)
    except InvalidInput as error:
        split_pointer(taken)  # a malformed one is an error all the same
        return bool(error.path == taken)
    return False


def _check_operation(document: JSON, operation: JSON) -> None:
    """Refuse what the RFC forbids, whatever the library's version makes of it."""
    if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
        raise InvalidInput(f'"op" is one of {", ".join(_OPERATIONS)}', path="patch")
    op: str = operation["op"]
    path: Any = operation.get("path")
    parts = split_pointer(path)
    if op in ("add", "replace", "test") and "value" not in operation:
        raise InvalidInput(f"{op} needs a value", path=path)
    if op in ("move", "copy"):
        origin: Any = operation.get("from")
        source = split_pointer(origin)
        get(document, origin)
        if op == "move" and parts[: len(source)] == source and len(parts) > len(source):
            raise InvalidInput("a value cannot move into itself", path=path)
    if op in ("remove", "replace", "test"):
        found = get(document, path)
        if op == "remove" and not parts:
            raise InvalidInput("the whole document cannot be removed", path=path)
        if op == "test" and not same(found, operation["value"]):
            raise InvalidInput("the value is not the tested one", path=path)
    elif parts:
        parent = _resolve(document, parts[:-1], path)
        if isinstance(parent, list):
            if parts[-1] != "-" and not _INDEX.fullmatch(parts[-1]):
                raise InvalidInput(f"{parts[-1]!r:.40} is not a list index", path=path)
        elif not isinstance(parent, dict):
            raise InvalidInput("it leads into a plain value", path=path)


def diff(old: JSON, new: JSON) -> list[Change]:
    """List what changed, in the order of the document (members by name).

    List entries that were inserted or removed show as such, not as a rewrite of all that follow.
    """
    return list(_changes(old, new, (), ()))


def _changes(old: JSON, new: JSON, old_at: Pointer, at: Pointer) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                yield Change(join_pointer((*old_at, key)), "remove", old=old[key])
            elif key not in old:
                yield Change(join_pointer((*at, key)), "add", new=new[key])
            else:
                yield from _changes(old[key], new[key], (*old_at, key), (*at, key))
    elif isinstance(old, list) and isinstance(new, list):
        for op, i, j in _aligned(old, new):
            before, here = (*old_at, str(i)), (*at, str(j))
            if op == "remove":
                yield Change(join_pointer(before), "remove", old=old[i])
            elif op == "add":
                yield Change(join_pointer(here), "add", new=new[j])
            else:
                yield from _changes(old[i], new[j], before, here)
    elif not same(old, new):
        yield Change(join_pointer(at), "replace", old, new)


def _aligned(
    old: list[JSON], new: list[JSON]
) -> Iterator[tuple[Literal["pair", "remove", "add"], int, int]]:
    """Say how one list becomes the other, from front to back; equal entries are left out."""
    old_keys, new_keys = [key_of(v) for v in old], [key_of(v) for v in new]
    start, old_end, new_end = 0, len(old), len(new)
    while start < min(old_end, new_end) and old_keys[start] == new_keys[start]:
        start += 1
    while min(old_end, new_end) > start and old_keys[old_end - 1] == new_keys[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    similar = (old_end - start) * (new_end - start) <= _MAX_PAIRS
    blocks = [(start, old_end, start, new_end)]
    if similar:
        a, b = old_keys[start:old_end], new_keys[start:new_end]
        blocks = [
            (start + i, start + i_end, start + j, start + j_end)
            for op, i, i_end, j, j_end in SequenceMatcher(None, a, b, False).get_opcodes()
            if op != "equal"
        ]
    for i, i_end, j, j_end in blocks:
        for n in range(j, j_end):
            matches = (k for k in range(i, i_end) if not similar or alike(old[k], new[n]))
            match = next(matches, None)
            if match is None:
                yield "add", i, n
                continue
            for k in range(i, match):
                yield "remove", k, n
            yield "pair", match, n
            i = match + 1
        for k in range(i, i_end):
            yield "remove", k, j_end
