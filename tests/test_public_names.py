"""`memstore.__all__` is the public surface: complete, importable and documented."""

from __future__ import annotations

import builtins
import inspect
from types import ModuleType

import memstore
from memstore import errors


def public(module: ModuleType) -> set[str]:
    return {
        name
        for name in dir(module)
        if not name.startswith("_")
        and name != "annotations"
        and not isinstance(getattr(module, name), ModuleType)
    }


def test_all_matches_what_can_be_imported() -> None:
    assert len(memstore.__all__) == len(set(memstore.__all__))
    assert public(memstore) == {name for name in memstore.__all__ if not name.startswith("_")}
    for name in memstore.__all__:
        getattr(memstore, name)


def test_every_error_is_public_and_under_one_root() -> None:
    classes = {
        name
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, BaseException)
    }
    assert classes == set(errors.__all__)
    assert classes <= set(memstore.__all__)
    assert all(issubclass(getattr(errors, name), memstore.MemstoreError) for name in classes)


def test_no_public_name_hides_a_builtin() -> None:
    assert not set(memstore.__all__) & set(dir(builtins))


def test_the_tree_of_errors_in_the_docstring_is_complete() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert name in errors.__doc__


def test_every_public_name_says_what_it_is() -> None:
    silent: list[str] = []
    for name in memstore.__all__:
        thing = getattr(memstore, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        if not thing.__doc__:
            silent.append(name)
        if name.endswith(("MemoryStore", "Memory")):
            silent += [
                f"{name}.{member}"
                for member, value in inspect.getmembers(thing)
                if not member.startswith("_") and not inspect.getdoc(value)
            ]
    assert not silent
