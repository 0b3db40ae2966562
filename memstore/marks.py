"""Marks on the values of a document, and where they are in the document that follows it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from memstore.documents import Pointer, alike, join_pointer, key_of, same, split_pointer
from memstore.errors import InvalidInput
from memstore.types import JSON

#: By JSON pointer: "since", and where they apply "confirmed", "flagged" and "reason".
Marks = dict[str, dict[str, str]]

#: Above this many pairs of unlike entries, only equal ones are matched.
_MAX_PAIRS = 40_000


def follow(marks: Marks, old: JSON, new: JSON, *, renames: bool) -> Marks:
    """Return the marks whose values are unchanged, each where its value is in the new document.

    `renames` lets them follow a member of an object to another name.
    """
    carried: dict[Pointer, dict[str, str]] = {}
    _carry(_tree(marks), old, new, (), carried, renames)
    return {join_pointer(at): dict(mark) for at, mark in carried.items()}


def copied(marks: Mapping[str, Any]) -> Marks:
    """Copy stored marks, without what is no mark."""
    return {path: dict(mark) for path, mark in marks.items() if isinstance(mark, dict)}


class _Tree:
    """Marks by the parts of their pointers."""

    __slots__ = ("below", "mark")

    def __init__(self) -> None:
        self.mark: dict[str, str] | None = None
        self.below: defaultdict[str, _Tree] = defaultdict(_Tree)


def _tree(marks: Mapping[str, dict[str, str]]) -> _Tree:
    root = _Tree()
    for path, mark in marks.items():
        try:
            parts = split_pointer(path)
        except InvalidInput:
            continue
        node = root
        for part in parts:
            node = node.below[part]
        node.mark = mark
    return root


def _carry(
    tree: _Tree,
    old: JSON,
    new: JSON,
    at: Pointer,
    carried: dict[Pointer, dict[str, str]],
    renames: bool,
) -> None:
    """Carry the marks on and below an old node over to the new node in its place."""
    if tree.mark is not None and same(old, new):
        carried[at] = tree.mark
    if isinstance(old, dict) and isinstance(new, dict):
        names = _renames(old, new) if renames else {}
        for part, inner in tree.below.items():
            name = names.get(part, part)
            if part in old and name in new:
                _carry(inner, old[part], new[name], (*at, name), carried, renames)
    elif isinstance(old, list) and isinstance(new, list) and tree.below:
        for i, j in _moves(old, new).items():
            if str(i) in tree.below:
                below = tree.below[str(i)]
                _carry(below, old[i], new[j], (*at, str(j)), carried, renames)


def _renames(old: dict[str, JSON], new: dict[str, JSON]) -> dict[str, str]:
    """Match members that went with ones that came: of the same value, or objects much alike."""
    names: dict[str, str] = {}
    free = sorted(new.keys() - old.keys())
    for match in (same, _like_containers):
        for part in sorted(old.keys() - new.keys() - names.keys()):
            name = next((name for name in free if match(old[part], new[name])), None)
            if name is not None:
                names[part] = name
                free.remove(name)
    return names


def _like_containers(old: JSON, new: JSON) -> bool:
    return isinstance(old, dict | list) and bool(old) and alike(old, new)


def _moves(old: list[JSON], new: list[JSON]) -> dict[int, int]:
    """Match the entries of two lists one to one: equal ones first, then those that look changed."""
    old_keys, new_keys = [key_of(v) for v in old], [key_of(v) for v in new]
    moves = {i: i for i, (a, b) in enumerate(zip(old_keys, new_keys, strict=False)) if a == b}
    places: defaultdict[Any, deque[int]] = defaultdict(deque)
    for j, key in enumerate(new_keys):
        if j not in moves:
            places[key].append(j)
    for i, key in enumerate(old_keys):
        if i not in moves and places[key]:
            moves[i] = places[key].popleft()
    taken = set(moves.values())
    rest = [i for i in range(len(old)) if i not in moves]
    free = [j for j in range(len(new)) if j not in taken]
    if len(rest) * len(free) <= _MAX_PAIRS:
        for i in rest:
            if isinstance(old[i], dict | list):
                order = sorted(free, key=lambda j: (j != i, j))
                match = next((j for j in order if alike(old[i], new[j])), None)
                if match is not None:
                    free.remove(match)
                    moves[i] = match
    return moves
