"""A memory that is erased while others write in it: before or after, never in between."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memstore import NotFound
from tests.processes import administration
from tests.stores import connected

TABLES = ("events", "postings", "state_versions", "encoding_queue", "traces")


def test_whoever_writes_meanwhile_begins_anew(database_url: str) -> None:
    # trap 16: between finding no memory and making one, another may make it and erase it
    with connected("sync", database_url) as store, ThreadPoolExecutor(12) as threads:
        memory = store.memory(agent="agent", user="user")

        def erased() -> None:
            try:
                memory.erase()
            except NotFound:
                return

        calls: list[Callable[[], object]] = [
            erased,
            lambda: memory.append(content="tea"),
            lambda: memory.append(content="tea", idempotency_key="once"),
            lambda: memory.update(lambda state: state.user_preferences.update(tea="green")),
            lambda: memory.patch({"user_preferences": {"tea": "black"}}),
            lambda: memory.commit(events=[{"content": "tea"}], state={"user_preferences": {}}),
            lambda: memory.resume("tea", record=True),
        ]
        done = [threads.submit(call) for _ in range(40) for call in calls]
        for future in done:
            future.result()
        events = memory.events(limit=1_000)
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        versions = memory.history(limit=1_000)
        assert [v.version for v in versions] == list(range(len(versions), 0, -1))
        assert all(v.log_position <= len(events) for v in versions)
        erased()
    with administration(database_url) as conn:
        for table in TABLES:
            left = conn.execute(f"SELECT count(*) FROM memstore.{table}".encode()).fetchone()
            assert left == (0,), table


@pytest.mark.parametrize("saved", [False, True])
def test_an_update_starts_over_on_what_was_begun_again(database_url: str, saved: bool) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="agent", user="user")
        memory.append([{"content": f"old {n}"} for n in range(5)])
        if saved:
            memory.patch({"user_preferences": {"old": True}})
        calls = []

        def change(state: Any) -> None:
            calls.append(dict(state.user_preferences))
            if len(calls) == 1:
                memory.erase()
                memory.append(content="new")
            state.user_preferences["tea"] = "green"

        state = memory.update(change)
        assert (state.version, state.log_position) == (1, 1)
        assert state.value.user_preferences == {"tea": "green"}
        assert calls[1:] == [{}]


@pytest.mark.parametrize("again", [False, True])
def test_what_was_resumed_of_an_erased_memory_is_not_recorded(
    database_url: str, again: bool
) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="agent", user="user")
        memory.append([{"content": f"old {n}"} for n in range(5)])

        calls = []

        def count(text: str) -> int:
            calls.append(text)
            if len(calls) == 1:
                memory.erase()
                if again:
                    memory.append(content="new")
            return len(text)

        assert "old 3" in memory.resume("old", record=True, counter=count).to_text()
        assert memory.traces() == []
