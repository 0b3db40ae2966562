"""Indexes of large memories' vectors: built where a scan takes long, never in a filter's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from memstore import ConfigurationError, Indexed, Memory, MemoryStore, NewEvent, Settings
from memstore.cli import main
from tests.encoders import HashEncoder
from tests.processes import administration, eventually
from tests.stores import QUIET

LARGE = 1_500
ABOVE = 1_000
WORDS = ("ship", "harbour", "lantern", "parcel", "ticket", "ledger", "orchard", "violin", "copper")
QUERIES = ("the harbour ledger", "violin orchard violin", "a copper lantern", "parcel ticket ship")


@pytest.fixture
def store(database_url: str) -> Iterator[MemoryStore]:
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    with administration(database_url) as conn:
        # So that an index pays for a memory that is still quickly filled.
        name = psycopg.sql.Identifier(conn.info.dbname)
        conn.execute(psycopg.sql.SQL("ALTER DATABASE {} SET random_page_cost = 0.001").format(name))
    with MemoryStore.connect(database_url, encoder=HashEncoder(), settings=QUIET) as store:
        yield store


def filled(store: MemoryStore, user: str, size: int) -> Memory[Any]:
    """A memory whose every hundredth entry is by somebody else."""
    random = Random(user)
    memory = store.memory(agent="a", user=user)
    memory.append(
        NewEvent(
            content=" ".join(random.choices(WORDS, k=random.randint(3, 9))) + f" {number}",
            actor="rare" if number % 100 == 0 else "common",
        )
        for number in range(size)
    )
    memory.flush()
    return memory


def positions(memory: Memory[Any], query: str, **tags: Any) -> list[int]:
    return [hit.event.position for hit in memory.search(query, **tags).hits]


def indexes(conn: psycopg.Connection) -> dict[str, tuple[bool, int]]:
    """Each index of vectors: whether it is whole, and how often it was used."""
    rows = conn.execute(
        "SELECT c.relname, i.indisvalid, pg_stat_get_numscans(c.oid) FROM pg_index AS i "
        "JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS a ON a.oid = c.relam "
        "WHERE a.amname = 'hnsw'"
    ).fetchall()
    return {name: (valid, scans) for name, valid, scans in rows}


def test_a_large_memory_is_searched_by_its_index_and_a_filter_exactly(
    store: MemoryStore, database_url: str
) -> None:
    # trap 17: an index under a filter returns fewer than there are
    large, small = filled(store, "large", LARGE), filled(store, "small", 100)
    before = [positions(large, query) for query in QUERIES]
    tagged = [positions(large, query, actor="rare", k=50) for query in QUERIES]
    assert store.index_vectors(above=ABOVE) == Indexed(created=1)
    assert store.index_vectors(above=ABOVE) == Indexed()
    with administration(database_url) as conn:
        conn.execute("ANALYZE")
        (name,) = indexes(conn)
        assert name == f"vectors_1_{large.identity.memory_id.hex}"
        assert [positions(large, query) for query in QUERIES] == before
        eventually(lambda: indexes(conn)[name][1] >= len(QUERIES))
        used = indexes(conn)[name][1]
        assert [positions(large, query, actor="rare", k=50) for query in QUERIES] == tagged
        assert all(len(found) == LARGE // 100 for found in tagged)
        assert positions(small, QUERIES[0])
        assert indexes(conn)[name][1] == used


def test_what_is_appended_later_is_found(store: MemoryStore) -> None:
    memory = filled(store, "u", LARGE)
    store.index_vectors(above=ABOVE)
    position = memory.append(content="the zyzzyva sang").positions[-1]
    memory.flush()
    assert positions(memory, "zyzzyva sang")[0] == position


def test_an_index_goes_with_its_memory(store: MemoryStore, database_url: str) -> None:
    filled(store, "u", LARGE).erase(reason="asked to")
    memory = filled(store, "v", LARGE)
    store.index_vectors(above=ABOVE)
    memory.erase(reason="asked to")
    assert store.index_vectors(above=ABOVE) == Indexed(dropped=1)
    with administration(database_url) as conn:
        assert indexes(conn) == {}


def test_an_index_that_was_not_finished_is_built_anew(
    store: MemoryStore, database_url: str
) -> None:
    filled(store, "u", LARGE)
    store.index_vectors(above=ABOVE)
    with administration(database_url) as conn:
        conn.execute("SET allow_system_table_mods = on")
        conn.execute(  # what a build that was killed leaves behind
            "UPDATE pg_index SET indisvalid = false FROM pg_class AS c, pg_am AS a "
            "WHERE c.oid = indexrelid AND a.oid = c.relam AND a.amname = 'hnsw'"
        )
        assert store.index_vectors(above=ABOVE) == Indexed(created=1, dropped=1)
        assert [valid for valid, _ in indexes(conn).values()] == [True]


def test_with_none_wanted_none_is_built(store: MemoryStore, database_url: str) -> None:
    filled(store, "u", LARGE)
    never = Settings(encode_in_background=False, index_above=0)
    with MemoryStore.connect(database_url, encoder=HashEncoder(), settings=never) as other:
        assert other.index_vectors() == Indexed()
        assert other.index_vectors(above=ABOVE) == Indexed(created=1)


def test_the_command_says_how_many(store: MemoryStore, database_url: str) -> None:
    filled(store, "u", LARGE)
    command = ["space", "index", "--above", str(ABOVE), "--url", database_url]
    done = CliRunner().invoke(main, [*command, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == {"created": 1, "dropped": 0}
    again = CliRunner().invoke(main, command, catch_exceptions=False)
    assert again.stdout == "0 indexes built, 0 dropped\n"


def test_several_who_index_at_once_do_it_once(store: MemoryStore, database_url: str) -> None:
    filled(store, "u", LARGE)
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(store.index_vectors, above=ABOVE) for _ in range(4)]
        assert sum(one.result().created for one in done) == 1
    with administration(database_url) as conn:
        assert [valid for valid, _ in indexes(conn).values()] == [True]


def test_where_nothing_is_large_no_session_is_begun(  # trap 35
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pooler hands what a session holds, a lock too, on to the next client.
    monkeypatch.setattr(type(store._db), "session", None)
    filled(store, "small", 100)
    assert store.index_vectors(above=ABOVE) == Indexed()


def test_who_does_not_own_the_vectors_is_told_who_may(
    store: MemoryStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(store._db), "session", None)  # such a worker may sit behind a pooler
    filled(store, "u", LARGE)
    with administration(database_url) as conn:
        conn.execute("CREATE ROLE guest LOGIN IN ROLE memstore_server, memstore_worker")
        try:
            guest = psycopg.conninfo.make_conninfo(database_url, user="guest")
            with (
                MemoryStore.connect(guest, encoder=HashEncoder(), settings=QUIET) as serving,
                pytest.raises(ConfigurationError, match="memstore space index"),
            ):
                serving.index_vectors(above=ABOVE)
        finally:
            conn.execute("DROP ROLE guest")


def test_a_worker_indexes_by_itself(store: MemoryStore, database_url: str) -> None:
    filled(store, "u", LARGE)
    settings = Settings(index_above=ABOVE)
    with (
        MemoryStore.connect(database_url, encoder=HashEncoder(), settings=settings),
        administration(database_url) as conn,
    ):
        eventually(lambda: [valid for valid, _ in indexes(conn).values()] == [True])
