"""Backup and restore as docs/operation.md has it: its statements and commands, run as they stand.

From the tests' server into a database of another cluster, which knows none of the roles, by an
owner who is no superuser.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from memstore import Identity, MemoryStore, Settings
from memstore.embedded import EmbeddedServer
from memstore.embedded.wheel import binaries
from tests.conftest import administer, database_of
from tests.encoders import HashEncoder
from tests.processes import administration
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "operation.md"
TENANTS = ("default", "acme")
OWNER = "owner"


class OtherEncoder(HashEncoder):
    name = "other"


def section() -> dict[str, list[str]]:
    """The blocks under the page's heading, by language."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index("## Backup and restore")
    stop = next(n for n in range(start + 1, len(lines)) if lines[n].startswith("## "))
    found: dict[str, list[str]] = {}
    for block in blocks(PAGE):
        if start < block.line < stop:
            found.setdefault(block.language, []).append(block.text)
    return found


(MAKE_BACKUP_ROLE, MAKE_ROLES), (DUMP, RESTORE) = section()["sql"], section()["text"]


def run(commands: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    programs = (Path(sys.executable).parent, binaries() / "bin", os.environ["PATH"])
    environment = (
        os.environ
        | variables
        | {
            "PATH": os.pathsep.join(map(str, programs)),
            "MEMSTORE_ENCODER": "none",
        }
    )
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{commands}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def succeed(commands: str, folder: Path, **variables: str) -> str:
    done = run(commands, folder, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def execute(url: str, statements: str) -> None:
    with administration(url) as conn:
        conn.execute(statements.encode())


def as_role(url: str, role: str) -> str:
    return url.replace("//postgres@", f"//{role}@")


@pytest.fixture(scope="module")
def another(scratch: Path) -> Iterator[EmbeddedServer]:
    """A new cluster with an owner who may make roles, and is no superuser."""
    with EmbeddedServer.acquire(scratch / "restored") as server:
        administer(server, f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
        execute(as_role(server.url, OWNER), MAKE_ROLES.replace("CREATE EXTENSION", "-- "))
        yield server


@pytest.fixture
def empty(another: EmbeddedServer) -> Iterator[str]:
    """The URL, as its superuser, of a database that the owner will fill."""
    name = f"restored_{uuid4().hex}"
    administer(another, f"CREATE DATABASE {name} OWNER {OWNER}")
    url = database_of(another, name)
    (extension,) = (line for line in MAKE_ROLES.splitlines() if "EXTENSION" in line)
    execute(url, extension)
    yield url
    administer(another, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def backup_url(server: EmbeddedServer, database_url: str) -> Iterator[str]:
    role = f"backup_{uuid4().hex[:8]}"
    execute(database_url, MAKE_BACKUP_ROLE.replace("backup", role))
    yield as_role(database_url, role)
    administer(server, f"DROP ROLE {role}")


def opened(url: str, tenant: str, encoder: HashEncoder | None = None) -> MemoryStore:
    settings = Settings(tenant=tenant, encode_in_background=False, record_traces=True, pool_size=2)
    return MemoryStore.connect(url, encoder=encoder or HashEncoder(), settings=settings)


def fill(url: str) -> None:
    """Put something into every table, a partial index and a second space among them."""
    for tenant in TENANTS:
        settings = Settings(tenant=tenant, encode_in_background=False)
        MemoryStore.prepare(url, encoder=HashEncoder(), settings=settings)
        with opened(url, tenant) as store:
            for agent in ("a", "b"):
                memory = store.memory(agent=agent, user="ü-17")
                memory.append(
                    [
                        {
                            "content": f"{tenant} {agent} note {n} ☃ zebra",
                            "role": "tool" if n % 5 == 0 else "user",
                            "event_type": "tool_result" if n % 5 == 0 else "message",
                            "session_id": f"s{n // 10}",
                            "correlation_id": f"c{n}",
                            "payload": {"n": n, "deep": [None, 1.5, "é"]},
                            "idempotency_key": f"k{n}",
                            "occurred_at": datetime(2026, 4, 28, tzinfo=UTC) + timedelta(hours=n),
                        }
                        for n in range(40)
                    ]
                )
                for n in range(3):
                    memory.patch({"user_preferences": {"n": n}}, author="t", reason=f"r{n}")
                memory.flush()
                memory.append(content="not encoded yet")
                memory.resume(task="zebra 7")
            store.memory(agent="gone", user="u").append(content="gone")
            store.memory(agent="gone", user="u").erase(author="dpo", reason="asked")
            store.create_key("ci", scopes=["read"], agents=["a"])
    with opened(url, "default") as store:
        store.add_space(OtherEncoder())
        store.fill_space(OtherEncoder())
    chosen = Identity("default", "a", "ü-17").memory_id
    execute(
        url,
        f"CREATE INDEX vectors_1_partial ON memstore.vectors_1 USING hnsw"
        f" (embedding halfvec_ip_ops) WHERE memory_id = '{chosen}'",
    )


def contents(url: str) -> dict[str, Any]:
    """Count and digest the rows of every table, and where identities go on."""
    with administration(url) as conn:
        conn.execute("SET timezone = 'UTC'")
        tables = conn.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'memstore'::regnamespace"
            " AND relkind IN ('r', 'S') ORDER BY relname"
        ).fetchall()
        found: dict[str, Any] = {}
        for (table,) in tables:
            whole = "last_value, is_called" if table.endswith("_seq") else "*"
            found[table] = conn.execute(
                "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t::text COLLATE \"C\"))"
                f" FROM (SELECT {whole} FROM memstore.{table}) AS t".encode()
            ).fetchone()
        return found


def shape(url: str) -> dict[str, list[Any]]:
    """Describe columns, indexes, constraints, policies and what each role may do."""
    queries = {
        "columns": "SELECT table_name, column_name, data_type, collation_name, is_nullable,"
        " column_default, is_identity FROM information_schema.columns"
        " WHERE table_schema = 'memstore'",
        "indexes": "SELECT i.indexrelid::regclass::text, indisvalid, pg_get_indexdef(indexrelid)"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " WHERE relnamespace = 'memstore'::regnamespace",
        "constraints": "SELECT conrelid::regclass::text, conname, convalidated,"
        " pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'memstore'::regnamespace",
        "policies": "SELECT tablename, policyname, roles::text, cmd, qual, with_check"
        " FROM pg_policies WHERE schemaname = 'memstore'",
        "security": "SELECT relname, relrowsecurity, relforcerowsecurity, reloptions"
        " FROM pg_class WHERE relnamespace = 'memstore'::regnamespace",
        "storage": "SELECT attrelid::regclass::text, attname, attstorage FROM pg_attribute"
        " JOIN pg_class c ON c.oid = attrelid AND relkind = 'r'"
        " WHERE relnamespace = 'memstore'::regnamespace AND attnum > 0",
        "rights": "SELECT relname, rolname, privilege_type FROM pg_class, aclexplode(relacl) AS a"
        " JOIN pg_roles r ON r.oid = a.grantee"
        " WHERE relnamespace = 'memstore'::regnamespace AND rolname LIKE 'memstore%'",
        "column rights": "SELECT attrelid::regclass::text, attname, rolname, privilege_type"
        " FROM pg_attribute, aclexplode(attacl) AS a JOIN pg_roles r ON r.oid = a.grantee"
        " WHERE rolname LIKE 'memstore%'",
        "schema rights": "SELECT rolname, privilege_type FROM pg_namespace, aclexplode(nspacl) AS a"
        " JOIN pg_roles r ON r.oid = a.grantee"
        " WHERE nspname = 'memstore' AND rolname LIKE 'memstore%'",
    }
    with administration(url) as conn:
        found = {
            name: sorted(conn.execute(q.encode()).fetchall(), key=repr)
            for name, q in queries.items()
        }
    assert all(found.values())
    return found


def answers(url: str) -> list[Any]:
    """Ask every memory the same."""
    found: list[Any] = []
    for tenant in TENANTS:
        with opened(url, tenant) as store:
            for agent in ("a", "b"):
                memory = store.memory(agent=agent, user="ü-17")
                result = memory.search("zebra note 7", k=12)
                assert result.hits
                found.append([(hit.event, hit.score, hit.reasons) for hit in result.hits])
                found.append(memory.resume(task="zebra note 7").to_text())
                found.append((memory.state().document, memory.history(), memory.events(limit=99)))
    return found


def test_what_is_restored_is_what_was_dumped(
    database_url: str, backup_url: str, empty: str, tmp_path: Path
) -> None:
    fill(database_url)
    asked = answers(database_url)
    before, form = contents(database_url), shape(database_url)
    assert all(row[0] for table, row in before.items() if table != "state_schemas"), before
    succeed(DUMP, tmp_path, BACKUP_URL=backup_url)
    restored = as_role(empty, OWNER)
    restore, *afterwards = RESTORE.splitlines()
    succeed(restore, tmp_path, RESTORED_URL=restored)
    assert contents(empty) == before
    assert shape(empty) == form
    said = succeed("\n".join(afterwards), tmp_path, RESTORED_URL=restored)
    for told in ("up to date", "ok   migrations", "ok   append-only", "ok   orphans"):
        assert told in said
    assert "FAIL" not in said
    assert answers(restored) == asked

    # And it goes on: positions, versions and identities where they stopped, what waits is encoded.
    with opened(restored, "acme") as store:
        memory = store.memory(agent="a", user="ü-17")
        assert memory.append(content="k0 again", idempotency_key="new").positions == (42,)
        memory.flush()
        assert memory.search("zebra").unencoded == 0
        store.create_tenant("a third")
    with MemoryStore.connect(restored, tenant="a third", encoder=None) as store:
        assert list(store.memories()) == []
    with administration(restored) as conn:
        conn.execute("SET ROLE memstore_server")
        with pytest.raises(InsufficientPrivilege):
            conn.execute("DELETE FROM memstore.events")


def test_a_dump_under_load_is_one_moment(
    database_url: str, backup_url: str, empty: str, tmp_path: Path
) -> None:
    fill(database_url)
    enough, stop = threading.Event(), threading.Event()

    def write(agent: str) -> None:
        with opened(database_url, "acme") as store:
            memory = store.memory(agent=agent, user="u")
            n = 0
            while not stop.is_set():
                n += 1
                memory.commit(events=[{"content": f"{n}"}], state={"user_preferences": {"n": n}})
                if n == 20:
                    enough.set()

    writers = [threading.Thread(target=write, args=(f"busy-{n}",)) for n in range(2)]
    for writer in writers:
        writer.start()
    try:
        assert enough.wait(60)
        succeed(DUMP, tmp_path, BACKUP_URL=backup_url)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    succeed(RESTORE, tmp_path, RESTORED_URL=as_role(empty, OWNER))
    with opened(as_role(empty, OWNER), "acme") as store:
        for agent in ("busy-0", "busy-1"):
            memory = store.memory(agent=agent, user="u")
            state, events = memory.state(), memory.events(limit=1_000)
            assert state.log_end == state.version == events[-1].position == len(events) > 0
            assert state.value.user_preferences == {"n": len(events)}


def test_a_role_under_row_level_security_can_not_dump(
    another: EmbeddedServer, empty: str, backup_url: str, database_url: str, tmp_path: Path
) -> None:
    fill(database_url)
    succeed(DUMP, tmp_path, BACKUP_URL=backup_url)
    owner = as_role(empty, OWNER)
    succeed(RESTORE, tmp_path, RESTORED_URL=owner)
    refused = run(DUMP, tmp_path, BACKUP_URL=owner)
    assert refused.returncode != 0
    assert "row-level security" in refused.stderr
    # As the page warns.
    silent = DUMP.replace("pg_dump", "pg_dump --enable-row-security").replace("custom", "plain")
    succeed(silent, tmp_path, BACKUP_URL=owner)
    lines = (tmp_path / "memstore.dump").read_text().splitlines()
    for table in ("postings", "state_versions"):
        (start,) = (n for n, line in enumerate(lines) if line.startswith(f"COPY memstore.{table} "))
        assert lines[start + 1] == r"\."


def test_the_page_makes_every_role_that_migrations_make(database_url: str) -> None:
    with closing(psycopg.connect(database_url)) as conn:
        made = conn.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'memstore\\_%'")
        names = {name for (name,) in made.fetchall()}
    created = {
        word.rstrip(";")
        for line in MAKE_ROLES.splitlines()
        if line.startswith("CREATE ROLE")
        for word in line.split()
        if word.startswith("memstore_")
    }
    granted = next(line for line in MAKE_ROLES.splitlines() if line.startswith("GRANT"))
    assert created == names
    assert all(name in granted for name in names)
