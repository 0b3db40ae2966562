"""Spaces while others write: none of their entries is left out of a space, none is left over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from memstore import MemoryStore, NewEvent
from tests.encoders import PATIENCE, HashEncoder
from tests.processes import administration, eventually
from tests.stores import QUIET


def named(name: str) -> HashEncoder:
    encoder = HashEncoder()
    encoder.name = name
    return encoder


@pytest.fixture
def store(database_url: str) -> Iterator[MemoryStore]:
    MemoryStore.prepare(database_url, encoder=named("old"), settings=QUIET)
    with MemoryStore.connect(database_url, encoder=named("old"), settings=QUIET) as store:
        yield store


def blocked(conn: psycopg.Connection) -> bool:
    """Whether a session waits for a lock in this database."""
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    return row is not None and row[0] > 0


def append_under_way(conn: psycopg.Connection) -> None:
    """Write the second entry of the only memory, as an append that queues for the old space."""
    conn.execute("UPDATE memstore.memories SET last_position = 2")
    conn.execute(
        "INSERT INTO memstore.events (memory_id, position, tenant_id, actor, role, event_type, "
        "occurred_at, recorded_at, content, length) SELECT memory_id, 2, tenant_id, actor, role, "
        "event_type, occurred_at, recorded_at, 'still under way', 3 FROM memstore.events"
    )


def while_an_append_is_under_way(url: str, act: Callable[[], object]) -> None:
    """Begin an append, act beside it, and commit the append only once that waits for it."""
    with psycopg.connect(url) as writer, administration(url) as watcher:
        append_under_way(writer)
        acting = threading.Thread(target=act)
        acting.start()
        eventually(lambda: blocked(watcher) or not acting.is_alive())
        writer.commit()
        acting.join(PATIENCE)
        assert not acting.is_alive()


def test_a_new_space_gets_what_was_being_appended_when_it_was_made(
    store: MemoryStore, database_url: str
) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append(content="before")
    while_an_append_is_under_way(database_url, lambda: store.add_space(named("new")))
    assert store.fill_space(named("new")) == 2


def test_a_retained_space_gets_what_was_being_appended_when_it_was_switched_to(
    store: MemoryStore, database_url: str
) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append(content="before")
    memory.flush()
    store.add_space(named("new"))
    store.fill_space(named("new"))
    store.switch_space("new")
    while_an_append_is_under_way(database_url, lambda: store.switch_space("old"))
    assert memory.unencoded() == 1
    memory.flush()
    assert memory.search("still under way").leg_hits["vector"] == 2


def test_what_a_killed_filling_left_out_is_queued_by_the_next(
    store: MemoryStore, database_url: str
) -> None:
    store.memory(agent="a", user="u").append([NewEvent(content="tea"), NewEvent(content="road")])
    store.add_space(named("new"))
    with administration(database_url) as conn:
        conn.execute("DELETE FROM memstore.encoding_queue WHERE space_id = 2")
    assert store.fill_space(named("new")) == 2


def test_a_place_in_the_queue_without_an_entry_is_given_up(
    store: MemoryStore, database_url: str
) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append(content="tea")
    with administration(database_url) as conn:
        conn.execute(
            "INSERT INTO memstore.encoding_queue (memory_id, space_id, position, tenant_id) "
            "SELECT memory_id, space_id, 99, tenant_id FROM memstore.encoding_queue"
        )
    memory.flush()
    assert memory.unencoded() == 0
    assert memory.search("tea").leg_hits["vector"] == 1


def test_a_store_is_told_when_another_space_serves(store: MemoryStore) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append(content="the frost fan")
    memory.flush()  # loads the encoder
    store.fill_space(named("new"))

    def encoder() -> tuple[bool, str]:
        found = {check.name: (check.ok, check.detail) for check in store.readiness()}
        return found["encoder"]

    assert encoder() == (True, "old")
    store.switch_space("new")
    ready, detail = encoder()
    assert ready
    assert "'new' serves now" in detail
    memory.append(content="the new antenna")
    assert memory.search("antenna")[0].event.position == 2  # by its words
    assert memory.search("fan")[0].legs["vector"].rank == 1


def test_a_search_says_what_a_space_that_serves_no_more_leaves_out(store: MemoryStore) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append(content="the frost fan")
    memory.flush()
    assert memory.search("frost fan").degraded == ""
    store.fill_space(named("new"))
    store.switch_space("new")
    memory.append(content="the new antenna")
    said = "lexical only for new entries: 'old' serves no more"
    for found in (memory.search("antenna"), memory.resume("antenna")):
        assert said in found.degraded
    store.switch_space("old")
    assert memory.search("antenna").degraded == memory.resume("antenna").degraded == ""
    assert memory.unencoded() == 1


def test_a_store_whose_space_was_dropped_searches_by_words(store: MemoryStore) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append([NewEvent(content="the frost fan"), NewEvent(content="the new antenna")])
    memory.flush()
    store.fill_space(named("new"))
    store.switch_space("new")
    store.drop_space("old")
    result = memory.search("antenna")
    assert result[0].event.position == 2
    assert result.leg_hits["vector"] == 0
    memory.patch({}, reason="all of it absorbed")
    context = memory.resume("antenna")
    assert 2 in [entry.position for entry in context.retrieved]
    for found in (result, context, store.memory(agent="a", user="nobody").search("fan")):
        assert found.degraded.startswith("lexical only: the space of 'old' was dropped")
