"""The SQL: each statement stands in a `.sql` file here, under a `-- name: some_name` line.

Parameters are named, `%(x)s`. Two slots, `{filters}` and `{vectors}`, are filled through
`psycopg.sql` (and a few where a table of vectors or an index is made); nothing else composes SQL.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from psycopg import sql

SLOTS = frozenset({"filters", "vectors", "dimension", "index", "memory_id"})

_HEADER = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


def statement(name: str) -> sql.SQL:
    """Return a named statement; one with slots needs `.format(filters=…, vectors=…)`."""
    return _statements()[name]


def names() -> list[str]:
    """List the names of all statements."""
    return sorted(_statements())


def parse(text: str) -> dict[str, sql.SQL]:
    """Split a file's text at its `-- name:` lines, leaving comment lines out."""
    _, *parts = _HEADER.split(text)
    found: dict[str, sql.SQL] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"two statements are named {name}")
        body = _COMMENT.sub("", body).strip().removesuffix(";")
        if unknown := set(re.findall(r"\{(.*?)\}", body)) - SLOTS:
            raise ValueError(f"{name}: unknown slots {sorted(unknown)}; write no other braces")
        # These files ship with the package: their text is as constant as a literal.
        found[name] = sql.SQL(body)  # pyright: ignore[reportArgumentType]
    return found


@cache
def _statements() -> dict[str, sql.SQL]:
    files = (f for f in resources.files(__name__).iterdir() if f.name.endswith(".sql"))
    return parse("\n".join(f.read_text(encoding="utf-8") for f in files))
