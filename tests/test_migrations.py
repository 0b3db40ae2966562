"""The database's migrations: once each, in order, refused when changed; and what they make."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from memstore import MemoryStore, MigrationRequired, StorageError, migrate
from memstore.cli import main
from memstore.embedded import EmbeddedServer
from memstore.migration import Migration, available
from tests.conftest import administer, database_of
from tests.encoders import HashEncoder
from tests.stores import QUIET

SMALL = {  # few rows, the same on every node
    "tenants",
    "spaces",
    "migrations",
    "api_keys",
    "state_schemas",
}


@pytest.fixture
def empty_url(server: EmbeddedServer) -> Iterator[str]:
    name = f"empty_{uuid4().hex}"
    administer(server, f"CREATE DATABASE {name}")
    yield database_of(server, name)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


def test_migrations_are_applied_once_and_in_order(empty_url: str) -> None:
    numbers = [migration.number for migration in available()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [m.number for m in migrate(empty_url)] == numbers
    assert migrate(empty_url) == []


def test_a_login_is_let_serve(server: EmbeddedServer, empty_url: str) -> None:
    login = f"login_{uuid4().hex[:8]}"
    migrate(empty_url)
    MemoryStore.prepare(empty_url, encoder=HashEncoder(), settings=QUIET)
    command = ["migrate", "--url", empty_url, "--encoder", "none", "--grant"]
    refused = CliRunner().invoke(main, [*command, login])
    assert refused.exit_code == 1
    assert f'role "{login}" does not exist' in refused.stderr
    administer(server, f"CREATE ROLE {login} LOGIN")
    for _ in range(2):
        granted = CliRunner().invoke(main, [*command, login])
        assert granted.exit_code == 0, granted.output
    url = empty_url.replace("//postgres@", f"//{login}@")
    with MemoryStore.connect(url, encoder=HashEncoder(), settings=QUIET) as store:
        memory = store.memory(agent="a", user="u")
        memory.append(content="x")
        memory.flush()
        memory.append(content="z")
        with psycopg.connect(url) as conn:  # by itself it sees nobody's, whatever its roles see
            for table in ("events", "memories", "postings", "encoding_queue", "vectors_1"):
                counting = sql.SQL("SELECT count(*) FROM memstore.{}").format(sql.Identifier(table))
                assert conn.execute(counting).fetchone() == (0,), table
        assert store.authenticate("mem_unknown") is None
        memory.erase(author="t", reason="t")
        with pytest.raises(StorageError, match="permission denied"):
            store.create_tenant("mine")
    administer(server, f"DROP ROLE {login}")


def test_processes_that_migrate_at_once_apply_each_once(empty_url: str) -> None:
    applied: list[int] = []
    threads = [
        threading.Thread(target=lambda: applied.extend(m.number for m in migrate(empty_url)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [m.number for m in available()]


def test_a_migration_that_waits_too_long_fails(empty_url: str) -> None:
    with psycopg.connect(empty_url, autocommit=True) as other:
        key = other.execute("SELECT %s::bigint", (0x6D656D73746F7265 >> 1,)).fetchone()
        other.execute("SELECT pg_advisory_lock(%s)", key)
        with pytest.raises(StorageError, match="another process has been migrating"):
            migrate(empty_url, timeout=0.3)


def test_a_migration_gives_way_while_others_hold_its_table(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for long in a table's queue would hold up whoever comes after it."""
    later = Migration(99, "later", "ALTER TABLE memstore.memories ADD COLUMN colour text;")
    ours = [*available(), later]
    monkeypatch.setattr("memstore.migration.available", lambda: ours)
    with psycopg.connect(database_url) as reader:
        reader.execute("SELECT * FROM memstore.memories")
        with pytest.raises(StorageError, match="needs a table that others hold"):
            migrate(database_url, timeout=0.1)
        reader.rollback()
        assert migrate(database_url) == [later]


def test_a_store_verifies_and_does_not_migrate(empty_url: str) -> None:
    with pytest.raises(MigrationRequired, match="memstore migrate"):
        MemoryStore.connect(empty_url, encoder=None, settings=QUIET)
    with psycopg.connect(empty_url) as conn:
        assert conn.execute("SELECT to_regclass('memstore.events')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE memstore.migrations SET checksum = 'x' WHERE number = 1", "changed after"),
        (
            "INSERT INTO memstore.migrations (number, name, checksum) VALUES (99, 'later', 'x')",
            "upgrade memstore",
        ),
    ],
)
def test_a_history_that_is_not_this_codes_is_refused(
    database_url: str, change: str, message: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(change.encode())
    for use in (
        lambda: migrate(database_url),
        lambda: MemoryStore.connect(database_url, encoder=None, settings=QUIET),
    ):
        with pytest.raises(MigrationRequired, match=message):
            use()


def tables(conn: psycopg.Connection) -> list[str]:
    found = conn.execute(
        "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema = 'memstore' AND table_type = 'BASE TABLE'"
    )
    return [name for (name,) in found.fetchall()]


def test_every_tables_key_leads_with_the_memory(prepared: str) -> None:
    """So the schema distributes over nodes by that column, and one memory is on one node."""
    with psycopg.connect(prepared) as conn:
        for table in set(tables(conn)) - SMALL:
            keys = conn.execute(
                "SELECT i.indkey[0] = a.attnum, i.indisprimary"
                " FROM pg_index AS i JOIN pg_attribute AS a"
                " ON a.attrelid = i.indrelid AND a.attname = 'memory_id'"
                " WHERE i.indrelid = %s::regclass AND i.indisunique",
                (f"memstore.{table}",),
            ).fetchall()
            assert any(primary for _, primary in keys), f"{table} has no primary key"
            assert all(leads for leads, _ in keys), f"{table}: a unique key without memory_id"


def test_every_memorys_table_is_walled_and_erasable(prepared: str) -> None:
    with psycopg.connect(prepared) as conn:
        for table in set(tables(conn)) - SMALL:
            walls = conn.execute(
                "SELECT relrowsecurity AND relforcerowsecurity"
                " FROM pg_class WHERE oid = %s::regclass",
                (f"memstore.{table}",),
            ).fetchone()
            assert walls == (True,), table
            if table == "erasures":
                continue
            may = conn.execute(
                "SELECT has_table_privilege('memstore_eraser', %s, 'DELETE')",
                (f"memstore.{table}",),
            ).fetchone()
            assert may == (True,), f"{table} is forgotten by an erasure"


def test_every_table_with_a_tenant_is_walled(prepared: str) -> None:
    with psycopg.connect(prepared) as conn:
        walls = conn.execute(
            "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity"
            " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'memstore'::regnamespace AND c.relkind = 'r'"
            " AND a.attname = 'tenant_id'"
        ).fetchall()
    walled: dict[str, bool] = dict(walls)
    assert {name for name, wall in walled.items() if not wall} == {"tenants"}
    assert {"state_schemas", "api_keys", "events"} <= walled.keys()


def test_policies_hold_no_sub_select_and_tables_no_trigger(prepared: str) -> None:
    """Neither works on distributed tables."""
    with psycopg.connect(prepared) as conn:
        policies = conn.execute(
            "SELECT qual, with_check FROM pg_policies WHERE schemaname = 'memstore'"
        ).fetchall()
        assert policies
        assert not [p for p in policies if "SELECT" in f"{p}".upper().replace("MEMSTORE", "")]
        triggers = conn.execute(
            "SELECT tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid"
            " WHERE c.relnamespace = 'memstore'::regnamespace AND NOT tgisinternal"
        ).fetchall()
        assert triggers == []


@pytest.fixture
def prepared(database_url: str) -> str:
    """A database with a space, so that a table of vectors is among those looked at."""

    class Small:
        name = "small"
        dimension = 3

    MemoryStore.prepare(database_url, encoder=Small(), settings=QUIET)  # type: ignore[arg-type]
    return database_url


def test_a_login_without_ownership_can_serve(database_url: str, server: EmbeddedServer) -> None:
    login = f"serving_{uuid4().hex[:8]}"
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(login)))
        conn.execute(
            sql.SQL("GRANT memstore_server, memstore_worker TO {}").format(sql.Identifier(login))
        )
    try:
        url = database_url.replace("postgresql://postgres@", f"postgresql://{login}@")
        with MemoryStore.connect(url, encoder=None, settings=QUIET) as store:
            memory = store.memory(agent="a", user="u")
            memory.append(content="hello")
            memory.patch({"user_preferences": {"a": 1}})
            assert [hit.event.position for hit in memory.search("hello").hits] == [1]
            with pytest.raises(StorageError, match="permission denied"):
                memory.erase()  # it is no member of memstore_eraser
    finally:
        with psycopg.connect(database_url, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))
