"""What import-linter can't say about the layers; `make check` runs the rest of its contracts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted name of everything imported, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_users_of_memstore_import_public_names_only() -> None:
    private = [
        f"{path}: {name}"
        for path, tree in modules("eval", "api", "tests", "memstore/demo")
        for name in imports(tree)
        if name.startswith("memstore.")
        and any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    ]
    assert not private


def test_the_evaluation_and_the_server_see_only_the_package() -> None:
    """They use what `memstore` and its public modules export, never psycopg beside it."""
    drivers = [
        f"{path}: {name}"
        for path, tree in modules("api")
        for name in imports(tree)
        if name.split(".")[0] in {"psycopg", "psycopg_pool"}
    ]
    assert not drivers


def test_no_sql_is_composed_from_strings() -> None:
    """`execute` takes a statement from memstore.sql or constant text, never an f-string or `+`."""
    composed = [
        f"{path}:{node.lineno}"
        for path, tree in modules("memstore", "api")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"execute", "executemany", "copy", "stream", "SQL"}
        and node.args
        and isinstance(node.args[0], ast.JoinedStr | ast.BinOp)
    ]
    assert not composed
