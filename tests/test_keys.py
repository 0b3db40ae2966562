"""API keys: made, found, ended; and tenants over one pool, walled off in the database itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from memstore import InvalidInput, MemoryStore, NotFound, StorageError
from tests.serving import WordEncoder
from tests.stores import QUIET

TENANTED = ("memories", "events", "postings", "state_versions", "encoding_queue", "erasures")
MARK = "zanzibarmarker"


def test_a_new_keys_token_opens_with_its_rights(store: Any) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    made = store.create_key("ci", scopes=["write", "read"], agents=["a"], expires_at=soon)
    found = store.authenticate(made.token)
    assert found == made.key
    assert (found.tenant, found.name, found.scopes) == ("default", "ci", ("read", "write"))
    assert (found.agents, found.users, found.expires_at) == (("a",), None, soon)
    assert store.keys() == [found]


def test_a_token_is_kept_nowhere(store: Any, database_url: str) -> None:
    made = store.create_key("ci", scopes=["read"])
    secret = made.token.split("_", 2)[2]
    assert secret not in repr(made)
    with psycopg.connect(database_url) as conn:
        (row,) = conn.execute("SELECT k::text FROM memstore.api_keys AS k").fetchall()
    assert secret not in row[0]
    assert secret.encode().hex() not in row[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.replace("mem_", "mem_0", 1),
        lambda token: token + "x",
        lambda token: token.split("_")[0],
        lambda token: token.upper(),
        lambda token: token + "\n",
        lambda token: "",
        lambda token: "mem_\x00" + token,
    ],
)
def test_another_token_opens_nothing(store: Any, change: Any) -> None:
    token = store.create_key("ci", scopes=["read"]).token
    assert store.authenticate(change(token)) is None
    assert store.authenticate(token) is not None


def test_ended_keys_open_nothing(store: Any) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    assert store.authenticate(store.create_key("x", scopes=["read"], expires_at=past).token) is None
    made = store.create_key("ci", scopes=["read"])
    ended = store.revoke_key(made.key.key_id)
    assert ended.revoked_at is not None
    assert store.authenticate(made.token) is None
    assert store.revoke_key(made.key.key_id).revoked_at == ended.revoked_at
    with pytest.raises(InvalidInput, match="has ended"):
        store.rotate_key(made.key.key_id)
    assert list(map(attrgetter("revoked_at"), store.keys())) == [None, ended.revoked_at]


def test_a_rotated_key_has_the_same_rights_and_the_old_one_a_time_of_grace(store: Any) -> None:
    old = store.create_key("ci", scopes=["admin"], users=["u"])
    new = store.rotate_key(old.key.key_id, grace=timedelta(hours=1))
    assert new.token != old.token
    assert (new.key.name, new.key.scopes, new.key.users) == ("ci", ("admin",), ("u",))
    assert store.authenticate(old.token) is not None
    newer = store.rotate_key(new.key.key_id)
    assert store.authenticate(new.token) is None
    assert store.authenticate(newer.token) == newer.key


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": []},
        {"scopes": ["root"]},
        {"scopes": ["read"], "agents": []},
        {"scopes": ["read"], "users": ["a\x00"]},
        {"scopes": ["read"], "expires_at": datetime(2030, 1, 1)},
    ],
)
def test_unsound_keys_are_refused(store: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        store.create_key("ci", **wrong)
    assert store.keys() == []


def test_keys_are_a_tenants_own(store: Any) -> None:
    store.create_tenant("other")
    other = store.for_tenant("other")
    made = other.create_key("theirs", scopes=["read"])
    assert store.keys() == []
    for act in (store.revoke_key, store.rotate_key):
        with pytest.raises(NotFound):
            act(made.key.key_id)
    # a server finds the key of any tenant
    assert store.authenticate(made.token).tenant == "other"


def test_tenants_share_a_pool_and_nothing_else(store: Any) -> None:
    store.create_tenant("other")
    other = store.for_tenant("other")
    mine, theirs = (s.memory(agent="a", user="u") for s in (store, other))
    assert mine.identity.memory_id != theirs.identity.memory_id
    mine.append(content="mine")
    theirs.append(content="theirs")
    theirs.patch({"user_preferences": {"a": 1}})
    assert [event.content for event in mine.events()] == ["mine"]
    assert [event.content for event in theirs.events()] == ["theirs"]
    assert mine.state().version == 0
    assert [i.tenant for i in store.memories()] == ["default"]
    assert [i.tenant for i in other.memories()] == ["other"]
    other.close()  # a view closes nothing
    assert mine.search("mine").hits
    with pytest.raises(NotFound, match="no tenant"):
        store.for_tenant("nobody")


@pytest.fixture
def filled(database_url: str) -> Iterator[tuple[str, MemoryStore]]:
    """Two tenants' memories, in every table that has a tenant."""
    MemoryStore.prepare(database_url, encoder=WordEncoder(), settings=QUIET)
    with MemoryStore.connect(database_url, encoder=WordEncoder(), settings=QUIET) as store:
        store.create_tenant("other")
        for one in (store, store.for_tenant("other")):
            one.create_key("k", scopes=["read"])
            one.schemas.register("note", 1, {"properties": {"text": {"type": "string"}}})
            gone = one.memory(agent="gone", user="u")
            gone.append(content="x")
            gone.erase()
            memory = one.memory(agent="a", user="u")
            memory.append(content=f"{MARK} of {memory.identity.tenant}")
            memory.flush()
            memory.patch({"user_preferences": {"who": memory.identity.tenant}})
            memory.resume("who", record=True)
            memory.append(content="waits")
        yield database_url, store


def tenanted(conn: psycopg.Connection) -> list[str]:
    found = conn.execute(
        "SELECT table_name FROM information_schema.columns"
        " WHERE table_schema = 'memstore' AND column_name = 'tenant_id'"
    )
    return sorted(name for (name,) in found.fetchall() if name != "tenants")


def test_every_table_is_walled_by_the_tenant_in_the_database(
    filled: tuple[str, MemoryStore],
) -> None:
    url, _ = filled
    with psycopg.connect(url) as conn:
        tables = tenanted(conn)
        assert {*TENANTED, "traces", "api_keys", "vectors_1"} <= set(tables)
        numbers: dict[str, int] = dict(
            conn.execute("SELECT name, tenant_id FROM memstore.tenants").fetchall()
        )
        for table in tables:
            name = sql.Identifier("memstore", table)
            rows = sql.SQL("SELECT DISTINCT tenant_id FROM {}").format(name)
            everybody = {number for (number,) in conn.execute(rows).fetchall()}
            assert everybody == set(numbers.values()), f"{table} is not filled"
            conn.execute(sql.SQL("GRANT SELECT ON {} TO memstore_server").format(name))
            conn.execute("SET LOCAL ROLE memstore_server")
            assert conn.execute(rows).fetchall() == [], f"{table} without the setting"
            for tenant, number in numbers.items():
                conn.execute(f"SET LOCAL memstore.tenant = '{number}'".encode())
                assert conn.execute(rows).fetchall() == [(number,)], f"{table} as {tenant}"
            conn.rollback()


def test_who_serves_owns_nothing_and_can_not_step_round_the_wall(
    filled: tuple[str, MemoryStore],
) -> None:
    url, store = filled
    other = store.for_tenant("other")
    with psycopg.connect(url) as conn:
        roles = conn.execute(
            "SELECT rolname, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb"
            " FROM pg_roles WHERE rolname LIKE 'memstore_%'"
        ).fetchall()
        assert len(roles) >= 4
        assert not [name for name, mighty in roles if mighty]
        owned = conn.execute(
            "SELECT count(*) FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner"
            " WHERE rolname LIKE 'memstore_%'"
        ).fetchone()
        assert owned == (0,)
    theirs = other.memory(agent="a", user="u").identity.memory_id
    statements = (
        "UPDATE memstore.memories SET last_position = 0 WHERE memory_id = %s",
        "SELECT 1 FROM memstore.events WHERE memory_id = %s",
    )
    with psycopg.connect(url) as conn:
        conn.execute("SET LOCAL ROLE memstore_server; SET LOCAL memstore.tenant = '1'")
        for statement in statements:
            assert conn.execute(statement.encode(), (theirs,)).rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(  # a row for another tenant
                "INSERT INTO memstore.memories (memory_id, tenant_id, agent_id, user_id)"
                " VALUES (gen_random_uuid(), 2, 'x', 'y')"
            )


def test_who_serves_can_neither_make_keys_nor_read_them(store: Any, database_url: str) -> None:
    login = f"serving_{uuid4().hex[:8]}"
    made = store.create_key("ci", scopes=["read"])
    with psycopg.connect(database_url, autocommit=True) as conn:
        name = sql.Identifier(login)
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        roles = "memstore_server, memstore_worker, memstore_authenticator"
        conn.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(roles), name))
    try:
        url = database_url.replace("postgresql://postgres@", f"postgresql://{login}@")
        with MemoryStore.connect(url, encoder=None, settings=QUIET) as serving:
            assert serving.authenticate(made.token) == made.key
            with pytest.raises(StorageError, match="permission denied"):
                serving.create_key("mine", scopes=["admin"])
            with pytest.raises(StorageError, match="permission denied"):
                serving.revoke_key(made.key.key_id)
        with psycopg.connect(url) as conn:
            conn.execute("SET LOCAL ROLE memstore_server; SET LOCAL memstore.tenant = '1'")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("SELECT * FROM memstore.api_keys")
        with psycopg.connect(url) as conn:
            conn.execute("SET LOCAL ROLE memstore_authenticator")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("UPDATE memstore.api_keys SET scopes = '{admin}'")
    finally:
        with psycopg.connect(database_url, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))
