"""The log: appending, idempotency, reading by tag and page. Over both stores."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memstore import IdempotencyConflict, InvalidInput, MemoryStore, NewEvent
from tests.stores import QUIET, connected


@pytest.fixture
def memory(store: Any) -> Any:
    return store.memory(agent="agent", user="user")


def test_an_event_comes_back_with_all_its_tags(memory: Any) -> None:
    said = datetime(2026, 4, 28, 9, 30, tzinfo=timezone(timedelta(hours=-4)))
    receipt = memory.append(
        content="I'm on New York time",
        role="user",
        actor="Ada",
        session="s-1",
        event_type="observation",
        occurred_at=said,
        payload={"z": 1, "a": [1.5, None, "é"]},
        correlation_id="c-1",
        idempotency_key="k-1",
    )
    assert receipt.positions == (1,)
    (event,) = memory.events()
    assert (event.position, event.session_id, event.actor, event.role) == (1, "s-1", "Ada", "user")
    assert (event.event_type, event.correlation_id) == ("observation", "c-1")
    assert event.idempotency_key == "k-1"
    assert event.occurred_at == said
    assert event.occurred_at.tzinfo is UTC
    assert event.recorded_at.tzinfo is UTC
    assert json.dumps(event.payload) == '{"z": 1, "a": [1.5, null, "\\u00e9"]}'  # order kept
    assert event.content == "I'm on New York time"


def test_left_out_tags_get_their_defaults(memory: Any) -> None:
    memory.append(content="hello", role="assistant")
    (event,) = memory.events()
    assert event.actor == "assistant"
    assert event.session_id is None
    assert event.occurred_at == event.recorded_at


def test_a_batch_is_stored_whole_or_not_at_all(memory: Any) -> None:
    assert memory.append([NewEvent(content="a"), {"content": "b"}]).positions == (1, 2)
    with pytest.raises(InvalidInput, match=r"events\[1\]") as raised:
        memory.append([NewEvent(content="c"), NewEvent(content="d", role="robot")])  # type: ignore[arg-type]
    assert raised.value.path == "events[1]"
    with pytest.raises(InvalidInput, match="not an event"):
        memory.append([{"contents": "e"}])
    assert [event.content for event in memory.events()] == ["a", "b"]
    assert memory.append([]).positions == ()


def test_text_that_the_database_refuses_is_stored_cleaned(memory: Any) -> None:
    # traps 1 and 2
    memory.append(content="a\x00b", payload={"k\x00": "v\udc97", "ok": "\ud83d\ude00"})
    (event,) = memory.events()
    assert event.content == "a�b"
    assert event.payload == {"k�": "v�", "ok": "😀"}


@pytest.mark.parametrize("name", ["session", "actor", "event_type", "correlation_id"])
@pytest.mark.parametrize("value", ["", "a\x00b", "x" * 513, "\udc97"])
def test_identifiers_that_cannot_be_kept_are_refused(memory: Any, name: str, value: str) -> None:
    # traps 1 and 4
    with pytest.raises(InvalidInput):
        memory.append(content="x", **{name: value})
    assert memory.events() == []


def test_the_longest_identifiers_are_indexed(memory: Any) -> None:
    # trap 4: random text, which does not compress
    from random import Random

    long = "".join(Random(4).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=512))
    memory.append(content="x", session=long, actor=long, correlation_id=long, idempotency_key=long)
    assert memory.events(session=long, correlation_id=long)[0].actor == long


def test_a_message_too_rich_to_index_is_stored_and_said(memory: Any) -> None:
    # trap 5
    words = " ".join(f"word{number}" for number in range(90_000))
    receipt = memory.append([NewEvent(content=words), NewEvent(content="x" * 1_048_576)])
    assert receipt.unindexed[1] > 0
    assert [len(event.content) for event in memory.events()] == [len(words), 1_048_576]
    with pytest.raises(InvalidInput):
        memory.append(content="x" * 1_048_577)


def test_a_repeated_key_stores_nothing_twice(memory: Any) -> None:
    # trap 28
    first = memory.append(content="pay", idempotency_key="k")
    again = memory.append(content="pay", idempotency_key="k")
    assert again.positions == first.positions == again.repeated
    mixed = memory.append(
        [
            NewEvent(content="new"),
            NewEvent(content="pay", idempotency_key="k"),
            NewEvent(content="other", idempotency_key="k2"),
            NewEvent(content="other", idempotency_key="k2"),
        ]
    )
    assert mixed.positions == (2, 1, 3, 3)
    assert sorted(mixed.repeated) == [1, 3]
    assert [event.content for event in memory.events()] == ["pay", "new", "other"]


def test_the_same_key_with_another_body_is_an_error(memory: Any) -> None:
    # trap 28
    memory.append(content="pay", idempotency_key="k")
    with pytest.raises(IdempotencyConflict) as raised:
        memory.append([NewEvent(content="first"), NewEvent(content="pay 2", idempotency_key="k")])
    assert (raised.value.key, raised.value.position) == ("k", 1)
    with pytest.raises(InvalidInput):
        memory.append(
            [NewEvent(content="a", idempotency_key="j"), NewEvent(content="b", idempotency_key="j")]
        )
    assert len(memory.events()) == 1


def test_equal_messages_without_keys_are_both_kept(memory: Any) -> None:
    memory.append(content="yes")
    memory.append(content="yes")
    assert [event.content for event in memory.events()] == ["yes", "yes"]


def test_keys_are_a_memorys_own(store: Any) -> None:
    for user in ("a", "b"):
        assert (
            store.memory(agent="x", user=user).append(content=user, idempotency_key="k").repeated
            == ()
        )


def test_scopes_are_compared_exactly(store: Any) -> None:
    # trap 21
    names = [
        "acme",
        "acme-corp",
        "acme_",
        "acme%",
        "ACME",
        "acme ",
        "a",
        "a:b",
        "\u00e9",
        "e\u0301",
    ]
    for name in names:
        store.memory(agent=name, user="u").append(content=name)
        store.memory(agent="u", user=name).append(content=f"user {name}")
    for name in names:
        assert [e.content for e in store.memory(agent=name, user="u").events()] == [name]
    assert store.memory(agent="a", user="b:c").identity.memory_id != (
        store.memory(agent="a:b", user="c").identity.memory_id
    )
    assert {(i.agent_id, i.user_id) for i in store.memories(page=3)} == (
        {(name, "u") for name in names} | {("u", name) for name in names}
    )
    with pytest.raises(TypeError):
        store.memory(agent="a")  # trap 22: the scope is required


@pytest.fixture
def talk(memory: Any) -> Any:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    memory.append(
        [
            NewEvent(
                content=f"{n}",
                role="user" if n % 2 else "assistant",
                actor=f"actor-{n % 3}",
                event_type="decision" if n % 5 == 0 else "message",
                session_id=f"s-{n % 4}",
                correlation_id="c" if n in (7, 8) else None,
                # trap 25: it may run backwards, or not move at all
                occurred_at=start + timedelta(hours=(n * 7) % 10),
            )
            for n in range(1, 41)
        ]
    )
    return memory


def texts(events: list[Any]) -> list[int]:
    return [int(event.content) for event in events]


def test_reading_by_each_tag(talk: Any) -> None:
    everything = range(1, 41)
    assert texts(talk.events()) == list(everything)
    assert texts(talk.events(role="user")) == [n for n in everything if n % 2]
    assert texts(talk.events(role=["user", "assistant"])) == list(everything)
    assert texts(talk.events(actor="actor-1")) == [n for n in everything if n % 3 == 1]
    assert texts(talk.events(session="s-2", event_type="decision")) == [10, 30]
    assert texts(talk.events(session=("s-1", "s-2"))) == [n for n in everything if n % 4 in (1, 2)]
    assert texts(talk.events(correlation_id="c")) == [7, 8]
    assert texts(talk.events(session="s")) == texts(talk.events(role=[])) == []


def test_time_is_half_open_and_compared_as_an_instant(talk: Any) -> None:
    # trap 24
    zone = timezone(timedelta(hours=5, minutes=30))
    since = datetime(2026, 3, 1, 2, tzinfo=UTC).astimezone(zone)
    until = datetime(2026, 3, 1, 4, tzinfo=UTC).astimezone(timezone(timedelta(hours=-9)))
    found = texts(talk.events(since=since, until=until))
    assert found == [n for n in range(1, 41) if (n * 7) % 10 in (2, 3)]
    with pytest.raises(InvalidInput, match="since"):  # trap 23
        talk.events(since=datetime(2026, 3, 1))


def test_positions_page_both_ways(talk: Any) -> None:
    read, after = [], 0
    while page := talk.events(after=after, limit=7):
        read += texts(page)
        after = page[-1].position
    assert read == list(range(1, 41))
    read, before = [], 2**63
    while page := talk.events(before=before, limit=7, newest_first=True):
        read += texts(page)
        before = page[-1].position
    assert read == list(range(40, 0, -1))
    assert texts(talk.events(after=9, before=11)) == [10]  # trap 20: as numbers
    for limit in (0, -1, 10_001):
        with pytest.raises(InvalidInput, match="limit"):
            talk.events(limit=limit)


def test_a_filter_is_never_sql(talk: Any) -> None:
    # trap 19
    assert talk.events(actor="x' OR '1'='1' --") == []
    with pytest.raises(TypeError):
        talk.events(**{"actor' = 'x' OR '1'='1' --": "x"})
    with pytest.raises(InvalidInput, match="role"):
        talk.events(role="robot")


def test_the_log_is_append_only_in_the_database(database_url: str) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u")
        memory.commit(events=[{"content": "x"}], state={"user_preferences": {"a": 1}})
    for table in ("events", "state_versions", "memories"):
        for statement in (
            f"UPDATE memstore.{table} SET tenant_id = 2",
            f"DELETE FROM memstore.{table}",
            f"TRUNCATE memstore.{table} CASCADE",
            "UPDATE memstore.memories SET agent_id = 'another'",
        ):
            with psycopg.connect(database_url) as conn:
                conn.execute("SET ROLE memstore_server")
                conn.execute("SET memstore.tenant = '1'")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement.encode())
                conn.rollback()


def test_a_tenant_sees_its_own_rows_alone(database_url: str) -> None:
    with connected("sync", database_url) as store:
        store.create_tenant("other")
        store.memory(agent="a", user="u").append(content="mine")
    with connected(
        "sync", database_url, settings=QUIET.model_copy(update={"tenant": "other"})
    ) as other:
        assert other.memory(agent="a", user="u").events() == []
        assert list(other.memories()) == []
    for tenant, expected in (("", 0), ("1", 1), ("2", 0)):
        with psycopg.connect(database_url) as conn:
            conn.execute("SET ROLE memstore_server")
            if tenant:
                conn.execute("SELECT set_config('memstore.tenant', %s, false)", (tenant,))
            for table in ("memories", "events", "postings"):
                found = conn.execute(f"SELECT count(*) FROM memstore.{table}".encode()).fetchone()
                assert found == (expected,), (tenant, table)


@pytest.mark.parametrize("same", [True, False], ids=["one-memory", "eight-memories"])
def test_positions_are_gapless_in_commit_order(database_url: str, same: bool) -> None:
    # trap 26
    writers, each = 8, 25
    watched: list[list[int]] = []
    with connected("sync", database_url) as store:
        barrier = threading.Barrier(writers + 1)

        def write(number: int) -> None:
            memory = store.memory(agent="a", user="u" if same else f"u{number}")
            barrier.wait()
            for n in range(each):
                memory.append(
                    [NewEvent(content=f"{number}/{n}/{part}") for part in range(n % 3 + 1)]
                )

        def watch() -> None:
            memory = store.memory(agent="a", user="u" if same else "u0")
            barrier.wait()
            seen: list[int] = []
            while any(thread.is_alive() for thread in threads):
                seen += [e.position for e in memory.events(after=seen[-1] if seen else 0)]
            watched.append(seen + [e.position for e in memory.events(after=seen[-1])])

        threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        reader = threading.Thread(target=watch)
        for thread in [*threads, reader]:
            thread.start()
        for thread in [*threads, reader]:
            thread.join()
        total = sum(n % 3 + 1 for n in range(each))
        for user in ["u"] if same else [f"u{n}" for n in range(writers)]:
            events = store.memory(agent="a", user=user).events(limit=5_000)
            assert [e.position for e in events] == list(
                range(1, (total * writers if same else total) + 1)
            )
            assert [e.recorded_at for e in events] == sorted(e.recorded_at for e in events)
        # A reader that follows by position misses nothing: no commit came late below its cursor.
        assert watched[0] == list(range(1, len(watched[0]) + 1))
        assert len(watched[0]) == (total * writers if same else total)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.text(max_size=400), payload=json_values)
def test_what_is_stored_comes_back(database_url: str, content: str, payload: Any) -> None:
    from memstore.text import clean_json, clean_text

    try:
        expected = clean_json(payload)
    except InvalidInput:
        return
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="a", user="u")
        position = memory.append(content=content, payload=payload).position
        (event,) = memory.events(after=position - 1)
    assert event.content == clean_text(content)
    assert json.dumps(event.payload) == json.dumps(expected)
