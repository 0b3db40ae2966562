"""The SQL files: well named, named parameters only, and every statement PREPAREs for real."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import sql as composing
from psycopg.pq import ExecStatus

from memstore import sql
from memstore.filters import EventFilter, conditions, exists

ROOT = Path(__file__).parent.parent
UNRESOLVED = {0, 705}  # no type, and the pseudo-type "unknown"
DEFINITIONS = ("CREATE ", "DROP ", "ALTER ")
EVERY_TAG = EventFilter(
    session="s",
    actor=["a", "b"],
    role="user",
    event_type="message",
    correlation_id="c",
    since=datetime(2026, 1, 1, tzinfo=UTC),
    until=datetime(2026, 2, 1, tzinfo=UTC),
    after=1,
    before=9,
)


def text(name: str) -> str:
    return sql.statement(name).as_string()


def numbered(query: str) -> tuple[str, int]:
    """Turn `%(x)s` into `$n`, as the driver does, and count the distinct parameters."""
    order = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", query)))
    query = re.sub(r"%\((\w+)\)s", lambda match: f"${order.index(match[1]) + 1}", query)
    return query.replace("%%", "%"), len(order)


def test_names_are_unique_across_files() -> None:
    files = sorted((ROOT / "memstore" / "sql").glob("*.sql"))
    named = [
        name
        for file in files
        for name in re.findall(r"^-- name: (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(named) == sql.names()


@pytest.mark.parametrize(
    "broken",
    [
        "-- name: twice\nSELECT 1;\n-- name: twice\nSELECT 2;\n",
        "-- name: slot\nSELECT {anything};\n",
        "-- name: braces\nSELECT '{}'::jsonb;\n",
    ],
)
def test_a_malformed_file_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r"twice|slot|braces"):
        sql.parse(broken)


def test_comments_and_the_last_semicolon_are_left_out() -> None:
    parsed = sql.parse("-- About the file.\n\n-- name: one\n-- 100 % a {comment}\nSELECT 1;\n\n")
    assert {name: part.as_string() for name, part in parsed.items()} == {"one": "SELECT 1"}


@pytest.mark.parametrize("name", sql.names())
def test_parameters_are_named(name: str) -> None:
    assert not re.search(r"(?<!%)%(?!\(\w+\)s|%)", text(name))
    assert not re.search(r"\$\d", text(name))


@pytest.mark.parametrize("name", sql.names())
def test_every_statement_is_used(name: str) -> None:
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "memstore/_async").glob("*.py"))
    stems = re.findall(r'statement\(f"(\w+)\{', code)
    assert f'"{name}"' in code or any(name.startswith(stem) for stem in stems)


def test_every_statement_prepares(database_url: str) -> None:
    """With all filters and with none; every parameter's type is known to the server."""
    vectors = composing.Identifier("memstore", "vectors_2147483647")
    tags = EVERY_TAG.parameters()
    failed: dict[str, str] = {}
    with psycopg.connect(database_url) as conn:
        create = sql.statement("create_vectors")
        conn.execute(create.format(vectors=vectors, dimension=composing.Literal(3)))
        for name in sql.names():
            if text(name).startswith(DEFINITIONS):
                continue
            compose = exists if "candidate" in text(name) else conditions
            for given in ({}, tags) if "{filters}" in text(name) else ({},):
                slots = {"filters": compose(given), "vectors": vectors}
                query, count = numbered(sql.statement(name).format(**slots).as_string(conn))
                conn.execute("SAVEPOINT before")
                prepared = conn.pgconn.prepare(b"", query.encode())
                if prepared.status != ExecStatus.COMMAND_OK:
                    failed[name] = prepared.error_message.decode()
                else:
                    described = conn.pgconn.describe_prepared(b"")
                    assert described.nparams == count, name
                    types = {described.param_type(index) for index in range(count)}
                    assert not types & UNRESOLVED, name
                conn.execute("ROLLBACK TO before")
        conn.execute(sql.statement("drop_vectors").format(vectors=vectors))
        conn.rollback()
    assert not failed
