"""The state track on a real database: versions, compare-and-set, migration, freshness."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Json
from pydantic import BaseModel, Field

from memstore import (
    Fresh,
    InvalidInput,
    MigrationFailed,
    NewerSchema,
    NewEvent,
    NotFound,
    SchemaError,
    StateConflict,
    StateSchema,
)
from tests.stores import connected


class Notes(BaseModel):
    title: str = ""
    count: int = 0
    tags: list[str] = Field(default_factory=list)
    price: Decimal = Decimal(0)
    owner: UUID | None = None
    due: datetime | None = None
    anything: Any = None


NOTES = StateSchema("notes", 1, Notes)


class Tracked(BaseModel):
    city: Annotated[str, Fresh(timedelta(days=30), question="{date}: {value}?")] = ""
    plain: str = ""


TRACKED = StateSchema("tracked", 1, Tracked)


@pytest.fixture
def memory(store: Any) -> Any:
    return store.memory(agent="agent", user="user", schema=NOTES)


def test_without_a_saved_state_it_is_the_schemas_first(memory: Any) -> None:
    state = memory.state()
    assert (state.version, state.log_position, state.value) == (0, 0, Notes())
    assert state.created_at is None
    assert memory.history() == []


def test_update_saves_a_new_version(memory: Any) -> None:
    memory.append(content="one")
    state = memory.update(lambda notes: setattr(notes, "title", "a"), author="me", reason="why")
    assert (state.version, state.log_position, state.value.title) == (1, 1, "a")
    assert memory.update(lambda notes: Notes(title="b")).value == Notes(title="b")
    assert memory.state().value == Notes(title="b")
    (second, first) = memory.history()
    assert (first.version, first.author, first.reason, first.log_position) == (1, "me", "why", 1)
    assert second.created_at > first.created_at
    assert memory.state(version=1).value.title == "a"


def test_an_update_that_changes_nothing_writes_nothing(memory: Any) -> None:
    memory.update(lambda notes: setattr(notes, "title", "a"))
    assert memory.update(lambda notes: None).version == 1
    memory.append(content="one")
    assert memory.update(lambda notes: None).version == 2  # it has read on


def test_values_come_back_as_declared(memory: Any) -> None:
    # trap 30
    value = Notes(
        price=Decimal("1.10"),
        owner=UUID(int=7),
        due=datetime(2026, 1, 1, tzinfo=UTC),
        anything={"deep": [1, None, "x"]},
    )
    memory.save(value, expected_version=0)
    back = memory.state().value
    assert back == value
    assert str(back.price) == "1.10"


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (float("nan"), "/anything"),
        ({"a": float("inf")}, "/anything/a"),
        ({1, 2}, "/anything"),
        (b"x", "/anything"),
        ({1: 2}, "/anything"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], "/anything/0"),
        pytest.param(10**5000, "/anything", id="5001-digits"),
    ],
)
def test_what_would_not_come_back_is_refused_by_path(memory: Any, bad: Any, path: str) -> None:
    # traps 30 and 31
    with pytest.raises(InvalidInput) as raised:
        memory.update(lambda notes: setattr(notes, "anything", bad))
    assert raised.value.path.startswith(path)
    assert memory.history() == []


def test_saving_needs_the_version_it_builds_on(memory: Any) -> None:
    memory.save(Notes(title="a"), expected_version=0)
    with pytest.raises(StateConflict) as raised:
        memory.save(Notes(title="b"), expected_version=0)
    assert (raised.value.expected_version, raised.value.actual_version) == (0, 1)
    with pytest.raises(InvalidInput, match="expected_version"):
        memory.commit(state=Notes(title="b"))  # trap 29
    with pytest.raises(StateConflict):
        memory.patch({"title": "b"}, expected_version=5)
    assert memory.state().value.title == "a"


def test_no_update_is_lost(database_url: str) -> None:
    # trap 27
    with connected("sync", database_url) as store:

        def count() -> None:
            memory = store.memory(agent="a", user="u", schema=NOTES)
            for _ in range(10):
                memory.update(lambda notes: setattr(notes, "count", notes.count + 1))

        threads = [threading.Thread(target=count) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory = store.memory(agent="a", user="u", schema=NOTES)
        assert memory.state().value.count == 30
        assert [v.version for v in memory.history()] == list(range(30, 0, -1))


def test_patches(memory: Any) -> None:
    memory.save(Notes(title="a", tags=["x"], anything={"keep": 1, "go": 2}), expected_version=0)
    state = memory.patch({"anything": {"go": None, "new": {"deep": 3}}})  # trap 27: siblings stay
    assert state.value.anything == {"keep": 1, "new": {"deep": 3}}
    state = memory.patch([{"op": "add", "path": "/tags/-", "value": "y"}])
    assert state.value.tags == ["x", "y"]
    for patch, path in (
        ([{"op": "test", "path": "/title", "value": "other"}], "/title"),
        ([{"op": "replace", "path": "/nowhere/x", "value": 1}], "/nowhere"),
        ({"count": "many"}, "/count"),
    ):
        with pytest.raises(InvalidInput) as raised:
            memory.patch(patch)
        assert path in str(raised.value)
    assert memory.state().version == 3


def test_commit_writes_both_or_neither(memory: Any) -> None:
    done = memory.commit(events=[NewEvent(content="one")], state={"title": "a"})
    assert (done.events.positions, done.state.version, done.state.log_position) == ((1,), 1, 1)
    with pytest.raises(StateConflict):
        memory.commit(events=[{"content": "two"}], state={"title": "b"}, expected_version=0)
    with pytest.raises(SchemaError):
        memory.commit(events=[{"content": "two"}], state={"count": "many"})
    with pytest.raises(InvalidInput):
        memory.commit(events=[{"content": "two", "role": "robot"}], state={"title": "b"})
    assert [event.content for event in memory.events()] == ["one"]
    assert memory.state().version == 1
    assert memory.commit(events=[{"content": "two"}]).state is None


def test_the_watermark_is_the_log_position(memory: Any) -> None:
    memory.append([{"content": "1"}, {"content": "2"}])
    assert memory.patch({"title": "a"}, log_position=1).log_position == 1
    assert memory.patch({"title": "b"}).log_position == 2
    for position in (3, -1):
        with pytest.raises(InvalidInput, match="log_position"):
            memory.patch({"title": "c"}, log_position=position)


def test_an_update_has_not_absorbed_what_came_meanwhile(database_url: str) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u", schema=NOTES)
        memory.append([{"content": "1"}, {"content": "2"}])

        def meanwhile(notes: Notes) -> None:
            memory.append(content="unseen")
            notes.title = "d"

        assert memory.update(meanwhile).log_position == 2


def test_as_it_was(memory: Any) -> None:
    memory.append(content="1")
    memory.patch({"title": "a"})
    memory.append([{"content": "2"}, {"content": "3"}])
    memory.patch({"title": "b"})
    first, second = memory.state(version=1), memory.state()
    assert memory.state(position=1).value.title == "a"
    assert memory.state(position=2).value.title == "a"
    assert memory.state(position=3).value.title == "b"
    assert memory.state(as_of=first.created_at).version == 1
    assert memory.state(as_of=second.created_at - timedelta(microseconds=1)).version == 1
    assert memory.state(as_of=datetime.now(UTC)).version == 2
    for missing in ({"version": 9}, {"position": 0}, {"as_of": datetime(2020, 1, 1, tzinfo=UTC)}):
        with pytest.raises(NotFound):
            memory.state(**missing)
    with pytest.raises(InvalidInput):
        memory.state(version=1, position=1)
    with pytest.raises(InvalidInput, match="as_of"):
        memory.state(as_of=datetime(2026, 1, 1))


def test_diff_and_revert(memory: Any) -> None:
    memory.append(content="1")
    memory.patch({"title": "a", "tags": ["x"]})
    memory.append(content="2")
    memory.patch({"title": "b", "tags": ["x", "y"]})
    assert {(c.op, c.path, c.old, c.new) for c in memory.diff(1, 2)} == {
        ("replace", "/title", "a", "b"),
        ("add", "/tags/1", None, "y"),
    }
    back = memory.revert(to=1, author="me")
    assert (back.version, back.value.title, back.log_position) == (3, "a", 1)
    assert [v.kind for v in memory.history()] == ["revert", "save", "save"]
    assert memory.diff(1, 3) == []
    with pytest.raises(NotFound):
        memory.revert(to=7)


def test_history_pages(memory: Any) -> None:
    for n in range(5):
        memory.patch({"count": n + 1})
    assert [v.version for v in memory.history(limit=2)] == [5, 4]
    assert [v.version for v in memory.history(limit=2, before=4)] == [3, 2]


def test_confirm_and_flag_are_versions(store: Any, database_url: str) -> None:
    memory = store.memory(agent="a", user="u", schema=TRACKED)
    memory.append(content="x")
    memory.patch({"city": "Lima", "plain": "p"})
    assert memory.state().stale == ()
    age(database_url, days=40)
    (stale,) = memory.state().stale
    assert (stale.path, stale.reason, stale.age.days) == ("/city", "expired", 40)
    confirmed = memory.confirm("/city", author="me")
    assert (confirmed.version, confirmed.stale, confirmed.log_position) == (2, (), 1)
    flagged = memory.flag("/plain", "the user hesitated")
    assert [(s.path, s.note) for s in flagged.stale] == [("/plain", "the user hesitated")]
    memory.patch({"city": "Lima"})  # another change keeps the flag
    assert [s.path for s in memory.state().stale] == ["/plain"]
    assert memory.patch({"plain": "q"}).stale == ()
    assert [v.kind for v in memory.history()][-3:] == ["flag", "confirm", "save"]
    with pytest.raises(InvalidInput):
        memory.confirm("/nowhere")


def age(url: str, *, days: int) -> None:
    """Make what was saved so far look that many days older; the owner may."""
    with psycopg.connect(url, autocommit=True) as conn:
        rows = conn.execute("SELECT memory_id, version, marks FROM memstore.state_versions")
        for memory_id, version, marks in rows.fetchall():
            shifted = {
                path: {
                    key: (datetime.fromisoformat(value) - timedelta(days=days)).isoformat()
                    if key in ("since", "confirmed", "flagged")
                    else value
                    for key, value in mark.items()
                }
                for path, mark in marks.items()
            }
            conn.execute(
                "UPDATE memstore.state_versions SET marks = %s, "
                "created_at = created_at - make_interval(days => %s) "
                "WHERE memory_id = %s AND version = %s",
                (Json(shifted), days, memory_id, version),
            )


# schemas that move on


class Renamed(BaseModel):
    heading: str = ""
    count: int = 0


def rename(document: dict[str, Any]) -> dict[str, Any]:
    document["heading"] = document.pop("title")
    return {"heading": document["heading"], "count": document["count"]}


def require_count(document: dict[str, Any]) -> dict[str, Any]:
    if document["count"] < 0:
        raise ValueError("a negative count")
    return document


LATER = StateSchema("notes", 3, Renamed, {1: rename, 2: require_count})


def test_an_older_document_is_migrated_before_anyone_sees_it(store: Any, memory: Any) -> None:
    # trap 32
    memory.patch({"title": "a", "count": 2})
    later = store.memory(agent="agent", user="user", schema=LATER)
    state = later.state()
    assert state.value == Renamed(heading="a", count=2)
    assert (state.version, state.schema_version) == (1, 1)
    assert later.state(version=1).document == {"heading": "a", "count": 2}
    saved = later.update(lambda s: setattr(s, "count", 3))
    assert (saved.version, saved.schema_version) == (2, 3)
    with pytest.raises(NewerSchema) as raised:
        memory.state()
    assert (raised.value.stored, raised.value.known) == (3, 1)
    assert memory.state(version=1).value.title == "a"


def test_a_failing_migration_leaves_the_stored_document(store: Any, memory: Any) -> None:
    # trap 33
    memory.patch({"title": "a", "count": -1})
    later = store.memory(agent="agent", user="user", schema=LATER)
    for attempt in (later.state, lambda: later.update(lambda s: None)):
        with pytest.raises(MigrationFailed) as raised:
            attempt()
        assert (raised.value.version, raised.value.step) == (1, (2, 3))
        assert "default/agent/user" in str(raised.value)
    assert memory.state().value.count == -1


def test_another_schemas_document_is_refused(store: Any, memory: Any) -> None:
    memory.patch({"title": "a"})
    with pytest.raises(SchemaError, match="notes"):
        store.memory(agent="agent", user="user", schema=TRACKED).state()


def test_migrating_all_stored_states(store: Any) -> None:
    # trap 33
    for n in range(7):
        store.memory(agent="a", user=f"u{n}", schema=NOTES).patch({"title": f"t{n}", "count": n})
    store.memory(agent="a", user="other", schema=TRACKED).patch({"city": "Lima"})
    bad = store.memory(agent="a", user="u3", schema=NOTES)
    bad.patch({"count": -1})
    seen: list[int] = []
    report = store.migrate_states(LATER, dry_run=True, progress=seen.append)
    assert (report.tried, report.outdated, report.migrated) == (8, 7, 0)
    assert seen[-1] == 8
    (failure,) = report.failures
    assert (failure.memory, failure.version) == ("default/a/u3", 2)
    assert store.migrate_states(LATER).migrated == 0  # one fails: nothing is saved
    bad.patch({"count": 3})
    report = store.migrate_states(LATER)  # what fails is history now: named, no obstacle
    assert [(f.memory, f.version) for f in report.history_failures] == [("default/a/u3", 2)]
    assert (report.failures, report.migrated) == ((), 7)


def test_migrated_heads_are_versions(store: Any) -> None:
    for n in range(3):
        memory = store.memory(agent="a", user=f"u{n}", schema=NOTES)
        memory.append(content="x")
        memory.patch({"title": f"t{n}"}, log_position=0)
    report = store.migrate_states(LATER)
    assert (report.migrated, report.failures) == (3, ())
    later = store.memory(agent="a", user="u1", schema=LATER)
    assert [(v.kind, v.schema_version, v.log_position) for v in later.history()] == [
        ("migrate", 3, 0),
        ("save", 1, 0),
    ]
    assert store.migrate_states(LATER).migrated == 0
