"""What every way to a memory must do alike: both stores, and both clients through a server.

A test module gives the fixtures `store` (one of the four) and `memory`, and a subclass.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from memstore import (
    AgentState,
    Budget,
    IdempotencyConflict,
    InvalidInput,
    NewEvent,
    NotFound,
    SchemaError,
    StateConflict,
    o200k,
)

SAID = datetime(2026, 4, 28, 9, 30, tzinfo=timezone(timedelta(hours=-4)))
ODD_IDS = ("a/b", "..", ".", "a b", "100%", "a%2Fb", "?x=1", "#", "é", "😀", "a:b", "\\", "x" * 512)
ISSUE = [{"op": "add", "path": "/unresolved_issues/-", "value": {"description": "x"}}]


class Contract:
    """The tests."""

    # the log

    def test_an_event_comes_back_with_all_its_tags(self, memory: Any) -> None:
        receipt = memory.append(
            content="I'm on New York time",
            role="user",
            actor="Ada",
            session="s-1",
            event_type="observation",
            occurred_at=SAID,
            payload={"z": 1, "a": [1.5, None, "é", 10**30]},
            correlation_id="c-1",
            idempotency_key="k-1",
        )
        assert receipt.positions == (1,)
        (event,) = memory.events()
        assert (event.position, event.session_id, event.actor) == (1, "s-1", "Ada")
        assert (event.role, event.event_type) == ("user", "observation")
        assert (event.correlation_id, event.idempotency_key) == ("c-1", "k-1")
        assert event.occurred_at == SAID
        assert event.occurred_at.tzinfo is UTC
        assert event.recorded_at.tzinfo is UTC
        big = "1" + "0" * 30
        assert json.dumps(event.payload) == '{"z": 1, "a": [1.5, null, "\\u00e9", ' + big + "]}"

    def test_a_batch_is_stored_whole_or_not_at_all(self, memory: Any) -> None:
        assert memory.append([NewEvent(content="a"), {"content": "b"}]).positions == (1, 2)
        with pytest.raises(InvalidInput, match=r"events\[1\]") as raised:
            memory.append([NewEvent(content="c"), {"content": "d", "role": "robot"}])
        assert raised.value.path == "events[1]"
        with pytest.raises(InvalidInput, match="not an event: it has no field 'contents'"):
            memory.append([{"contents": "e"}])
        assert [event.content for event in memory.events()] == ["a", "b"]
        assert memory.append([]).positions == ()

    def test_what_is_no_list_of_events_is_refused_with_what_to_do(self, memory: Any) -> None:
        for given in ("We ship on 12 June.", {"content": "a"}, NewEvent(content="a")):
            with pytest.raises(InvalidInput, match="by keywords") as raised:
                memory.append(given)
            assert raised.value.path == "events"
        with pytest.raises(InvalidInput, match="not an event"):
            memory.append(["We ship on 12 June."])
        with pytest.raises(InvalidInput, match="by keywords"):
            memory.commit(events={"content": "a"})
        for name in ("session", "role", "payload"):
            with pytest.raises(InvalidInput, match="each of its events"):
                memory.append([NewEvent(content="a")], **{name: "tool"})
        assert memory.events() == []

    def test_text_that_a_database_refuses_is_stored_cleaned(self, memory: Any) -> None:
        # traps 1 and 2
        memory.append(content="a\x00b\udc97", payload={"k\x00": "v\udc97", "ok": "\ud83d\ude00"})
        (event,) = memory.events()
        assert event.content == "a�b�"
        assert event.payload == {"k�": "v�", "ok": "😀"}
        memory.search("a\x00 \udc97 \ud83d")

    @pytest.mark.parametrize("payload", [float("nan"), {1, 2}, b"x", {1: 2}, [float("inf")]])
    def test_payloads_that_are_not_json_are_refused(self, memory: Any, payload: Any) -> None:
        # trap 30
        with pytest.raises(InvalidInput, match="payload"):
            memory.append(content="x", payload=payload)
        assert memory.events() == []

    @pytest.mark.parametrize("value", ["", "a\x00b", "x" * 513, "\udc97"])
    def test_identifiers_that_cannot_be_kept_are_refused(self, memory: Any, value: str) -> None:
        # traps 1 and 4
        for name in ("session", "actor", "event_type", "correlation_id", "idempotency_key"):
            with pytest.raises(InvalidInput):
                memory.append(content="x", **{name: value})
        assert memory.events() == []

    def test_scopes_are_compared_exactly_whatever_is_in_them(self, store: Any) -> None:
        # trap 21
        for name in ODD_IDS:
            store.memory(agent=name, user="u").append(content=name)
            store.memory(agent="a", user=name).append(content=f"user {name}")
        for name in ODD_IDS:
            assert [e.content for e in store.memory(agent=name, user="u").events()] == [name]
            theirs = store.memory(agent="a", user=name).events()
            assert [e.content for e in theirs] == [f"user {name}"]
        seen = {(i.agent_id, i.user_id) for i in store.memories()}
        assert seen == {(name, "u") for name in ODD_IDS} | {("a", name) for name in ODD_IDS}
        for wrong in ("", "\udc97", "a\x00", "x" * 513):
            with pytest.raises(InvalidInput, match="agent"):
                store.memory(agent=wrong, user="u")
        with pytest.raises(TypeError):
            store.memory(agent="a")  # trap 22

    def test_a_repeated_key_stores_nothing_twice(self, memory: Any) -> None:
        # trap 28
        first = memory.append(content="pay", idempotency_key="k")
        again = memory.append(content="pay", idempotency_key="k")
        assert again.positions == first.positions == again.repeated
        with pytest.raises(IdempotencyConflict) as raised:
            memory.append(content="pay 2", idempotency_key="k")
        assert (raised.value.key, raised.value.position) == ("k", 1)
        memory.append(content="yes")
        memory.append(content="yes")
        assert [event.content for event in memory.events()] == ["pay", "yes", "yes"]

    def test_a_key_may_name_a_whole_list(self, memory: Any) -> None:
        batch = [NewEvent(content="a"), NewEvent(content="b")]
        first = memory.append(batch, idempotency_key="k")
        again = memory.append(batch, idempotency_key="k")
        assert again.positions == again.repeated == first.positions == (1, 2)
        for other in (batch[:1], [*batch, NewEvent(content="c")], batch[::-1]):
            with pytest.raises(IdempotencyConflict):
                memory.append(other, idempotency_key="k")
        with pytest.raises(InvalidInput, match="key"):
            memory.append([NewEvent(content="a", idempotency_key="own")], idempotency_key="k2")
        assert [event.content for event in memory.events()] == ["a", "b"]

    def test_pages_and_tags(self, memory: Any) -> None:
        start = datetime(2026, 3, 1, tzinfo=UTC)
        memory.append(
            [
                NewEvent(
                    content=str(n),
                    role="user" if n % 2 else "assistant",
                    actor=f"actor-{n % 3}",
                    event_type="decision" if n % 5 == 0 else "message",
                    session_id=f"s {n % 4}",
                    correlation_id="c" if n in (7, 8) else None,
                    occurred_at=start + timedelta(hours=n),
                )
                for n in range(1, 41)
            ]
        )

        def found(**tags: Any) -> list[int]:
            return [event.position for event in memory.events(**tags)]

        assert found(session="s 1", role="user") == list(range(1, 41, 4))
        assert found(actor=["actor-0", "actor-1"], limit=3) == [1, 3, 4]
        assert found(event_type="decision", newest_first=True, limit=2) == [40, 35]
        assert found(correlation_id="c") == [7, 8]
        # traps 23 and 24: half-open, in any offset
        since = (start + timedelta(hours=3)).astimezone(timezone(timedelta(hours=9)))
        assert found(since=since, until=start + timedelta(hours=6)) == [3, 4, 5]
        with pytest.raises(InvalidInput, match="since"):
            memory.events(since=datetime(2026, 3, 1))
        assert found(after=38) == [39, 40]
        assert found(before=3, newest_first=True) == [2, 1]
        assert found(session=[]) == []
        assert found(session="' OR 1=1 --") == []  # trap 19
        for limit in (0, 10_001):
            with pytest.raises(InvalidInput, match="limit"):
                memory.events(limit=limit)
        with pytest.raises(InvalidInput, match="role"):
            memory.events(role="robot")

    def test_more_than_one_answer_holds_is_read_whole(self, memory: Any) -> None:
        for start in range(0, 2_400, 800):
            memory.append([NewEvent(content=str(n)) for n in range(start, start + 800)])
        assert [int(e.content) for e in memory.events(limit=2_300)] == list(range(2_300))
        newest = memory.events(limit=1_500, newest_first=True)
        assert [e.position for e in newest] == list(range(2_400, 900, -1))

    # the state

    def test_a_state_begins_with_the_schemas_initial_one(self, memory: Any) -> None:
        state = memory.state()
        assert (state.version, state.value, state.created_at) == (0, AgentState(), None)
        with pytest.raises(NotFound):
            memory.state(version=1)

    def test_a_saved_state_comes_back_as_it_was(self, memory: Any) -> None:
        memory.append(content="hello")
        value = AgentState(user_preferences={"tz": "Europe/Zürich", "n": [1, 2.5, None]})
        saved = memory.save(value, expected_version=0, author="me", reason="first\x00")
        loaded = memory.state()
        assert loaded.value == saved.value == value
        assert (loaded.version, loaded.author, loaded.reason) == (1, "me", "first�")
        assert (loaded.log_position, loaded.log_end, loaded.kind) == (1, 1, "save")
        assert loaded.document == saved.document
        assert loaded.marks == saved.marks
        assert loaded.created_at == saved.created_at
        assert loaded.created_at.tzinfo is UTC
        assert memory.state(version=1).value == value

    def test_compare_and_set(self, memory: Any) -> None:
        # trap 29
        memory.save(AgentState(), expected_version=0)
        late: list[Callable[[], object]] = [
            lambda: memory.save(AgentState(), expected_version=0),
            lambda: memory.patch({"user_preferences": {"a": 1}}, expected_version=0),
            lambda: memory.commit(events=[{"content": "x"}], state={}, expected_version=5),
        ]
        for act in late:
            with pytest.raises(StateConflict) as raised:
                act()
            assert raised.value.actual_version == 1
        assert raised.value.expected_version == 5
        assert memory.state().version == 1
        assert memory.events() == []

    def test_concurrent_updates_lose_nothing(self, memory: Any) -> None:
        # trap 27
        def note(added: dict[str, int], state: AgentState) -> None:
            state.user_preferences.update(added)

        def add(name: str) -> None:
            for n in range(3):
                memory.update(partial(note, {f"{name}{n}": n}))

        threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        state = memory.state()
        assert len(state.value.user_preferences) == 9
        assert state.version == 9
        assert memory.update(lambda s: None).version == 9

    def test_patches_of_both_kinds(self, memory: Any) -> None:
        memory.patch({"user_preferences": {"a": 1, "b": 2}})
        memory.patch({"user_preferences": {"a": None}}, author="é", reason="ü")
        state = memory.patch([{"op": "add", "path": "/user_preferences/c~1d", "value": [3]}])
        assert state.value.user_preferences == {"b": 2, "c/d": [3]}
        assert [v.author for v in memory.history()] == [None, "é", None]
        for wrong in ({"nothing": 1}, [{"op": "replace", "path": "/zzz", "value": 1}]):
            with pytest.raises(InvalidInput):
                memory.patch(wrong)
        with pytest.raises(SchemaError) as raised:
            memory.patch({"active_task": {"status": "x"}})
        assert "/active_task" in raised.value.path
        assert memory.state().version == 3

    def test_a_commit_is_both_or_neither(self, memory: Any) -> None:
        done = memory.commit(
            events=[{"content": "chose postgres"}], state={"user_preferences": {"db": "pg"}}
        )
        assert done.events.positions == (1,)
        assert (done.state.version, done.state.log_position) == (1, 1)
        with pytest.raises(InvalidInput):
            memory.commit(events=[{"content": "x"}], state={"nothing": 1})
        with pytest.raises(InvalidInput):
            memory.commit(events=[{"content": "x", "role": "robot"}], state={})
        with pytest.raises(InvalidInput, match="expected_version"):
            memory.commit(state=AgentState())
        with pytest.raises(InvalidInput, match="state"):
            memory.commit(events=[{"content": "x"}], expected_version=1)
        whole = memory.commit(state=AgentState(), expected_version=1)
        assert (whole.state.version, whole.events.positions) == (2, ())
        alone = memory.commit(events=[{"content": "more"}])
        assert (alone.state, alone.events.positions) == (None, (2,))

    def test_a_commit_repeated_under_its_key_writes_nothing(self, memory: Any) -> None:
        # trap 28
        def act(**changed: Any) -> Any:
            given: dict[str, Any] = {
                "events": [{"content": "a"}, {"content": "b"}],
                "state": ISSUE,
                "idempotency_key": "k",
            }
            return memory.commit(**given | changed)

        first, again = act(), act()
        assert again.events.positions == again.events.repeated == first.events.positions == (1, 2)
        assert again.state.version == first.state.version == 1
        assert again.state.value == first.state.value
        other = {"user_preferences": {"a": 1}}
        changes: tuple[dict[str, Any], ...] = (
            {"events": [{"content": "a"}]},
            {"events": [], "state": other},
            {"events": []},
            {"state": other},
            {"state": None},
        )
        for changed in changes:
            with pytest.raises(IdempotencyConflict):
                act(**changed)
        memory.commit(events=[{"content": "c"}], idempotency_key="events")
        with pytest.raises(IdempotencyConflict):
            memory.commit(state=ISSUE, idempotency_key="events")
        memory.commit(state=other, idempotency_key="state")
        with pytest.raises(IdempotencyConflict):
            memory.commit(events=[{"content": "d"}], idempotency_key="state")
        assert memory.state().version == 2
        assert len(memory.events()) == 3

    def test_history_as_of_diff_and_revert(self, memory: Any) -> None:
        for n in (1, 2, 3):
            memory.append(content=str(n))
            memory.patch({"user_preferences": {"n": n}}, reason=f"r{n}")
        history = memory.history()
        assert [(v.version, v.reason, v.log_position) for v in history] == [
            (3, "r3", 3),
            (2, "r2", 2),
            (1, "r1", 1),
        ]
        assert [v.version for v in memory.history(before=3, limit=1)] == [2]
        assert memory.state(position=2).version == 2
        assert memory.state(as_of=history[1].created_at).version == 2
        with pytest.raises(NotFound):
            memory.state(as_of=SAID - timedelta(days=9_000))
        with pytest.raises(InvalidInput):
            memory.state(version=1, position=1)
        (change,) = memory.diff(1, 3)
        assert (change.path, change.op) == ("/user_preferences/n", "replace")
        assert (change.old, change.new) == (1, 3)
        back = memory.revert(to=1, author="me")
        assert (back.version, back.kind, back.log_position) == (4, "revert", 1)
        assert back.value.user_preferences == {"n": 1}
        with pytest.raises(NotFound):
            memory.revert(to=9)

    def test_flag_and_confirm(self, memory: Any) -> None:
        memory.patch({"user_preferences": {"tz": "UTC"}})
        flagged = memory.flag("/user_preferences/tz", "wrote from Lisbon", author="me")
        (stale,) = memory.state().stale
        assert (stale.path, stale.reason) == ("/user_preferences/tz", "flagged")
        assert (stale.note, stale.value) == ("wrote from Lisbon", "UTC")
        assert stale.question
        assert stale.age >= timedelta()
        assert stale.since.tzinfo is UTC
        assert [s.path for s in flagged.stale] == [stale.path]
        assert memory.confirm("/user_preferences/tz").stale == ()
        assert [v.kind for v in memory.history()] == ["confirm", "flag", "save"]
        with pytest.raises(InvalidInput):
            memory.confirm("/user_preferences/nothing")

    # search and resume

    def test_search_finds_by_words_and_tags(self, memory: Any) -> None:
        memory.append([NewEvent(content=f"note {n} about birds") for n in range(30)])
        memory.append(content="we settled on postgres", role="assistant", session="s")
        memory.flush()
        assert memory.unencoded() == 0
        result = memory.search("which database: postgres?", k=3)
        best = result.hits[0]
        assert (best.event.content, best.event.session_id) == ("we settled on postgres", "s")
        assert best.legs["lexical"].rank == 1
        assert best.reasons
        assert len(result) == 3
        assert set(result.leg_hits) == {"lexical", "vector"}
        assert result.degraded == ""
        assert result.milliseconds
        (only,) = memory.search("birds postgres", role=["assistant"], after=1, before=99).hits
        assert only.event.position == 31
        assert memory.search("x", session="none").hits == ()
        for wrong in ({"k": 0}, {"k": 1_001}, {"role": "robot"}, {"since": datetime(2026, 1, 1)}):
            with pytest.raises(InvalidInput):
                memory.search("x", **wrong)

    def test_nothing_is_read_as_syntax(self, memory: Any) -> None:
        # traps 6 and 8
        memory.append(content="call me about the -5% discount")
        for query in ("call me -- about the -5% discount", "a & | ! ( : *", "", "the of"):
            memory.search(query)

    def test_resume_renders_alike_everywhere(self, memory: Any) -> None:
        memory.append([NewEvent(content=f"entry {n} on birds and\nlakes " * 5) for n in range(20)])
        memory.patch({"active_task": {"description": "choose a database"}})
        memory.append(content="we settled on postgres 日本語")
        memory.append(
            content="look it up",
            role="assistant",
            event_type="tool_call",
            correlation_id="c",
            payload={"name": "find", "arguments": {"q": 1}},
        )
        memory.append(content="found", role="tool", event_type="tool_result", correlation_id="c")
        memory.flag("/active_task/description", "is it?")
        context = memory.resume("what about the lakes?", budget=Budget(600, tail_share=0.3))
        assert [entry.event.position for entry in context.tail] == [21, 22, 23]
        assert context.retrieved
        assert context.dropped
        assert 0 < context.tokens.total <= 600
        assert context.state.value.active_task.description == "choose a database"
        assert [s.path for s in context.stale] == ["/active_task/description"]
        counter = o200k()
        assert counter(context.to_text()) == context.tokens.text
        assert "日本語" in context.to_text()
        for form in ("openai", "anthropic"):
            assert context.to_messages(form)
            assert context.selection.count(counter)[form] == context.tokens[form]
        assert memory.resume(budget=0).to_text() == ""
        with pytest.raises(InvalidInput):
            memory.resume(budget=-1)

    def test_what_helped_can_be_said(self, memory: Any) -> None:
        memory.append(content="postgres it is")
        unrecorded = memory.resume("postgres")
        context = memory.resume("postgres", record=True)
        for unknown in (unrecorded.id, uuid4()):
            with pytest.raises(NotFound):
                memory.feedback(unknown, [1])
        memory.feedback(context.id, [1])
        (trace,) = memory.traces(only_labelled=True)
        assert (trace.context_id, trace.used, trace.task) == (context.id, (1,), "postgres")
        assert trace.given == (1,)
        assert dict(trace.tokens) == dict(context.tokens)

    def test_erased_is_gone(self, memory: Any) -> None:
        # traps 1, 2 and 16
        memory.append(content="postgres")
        memory.patch({"user_preferences": {"a": 1}})
        memory.erase(author="me", reason="asked to\x00 \udc97")
        assert memory.events() == []
        assert memory.state().version == 0
        assert memory.search("postgres").hits == ()
        with pytest.raises(NotFound):
            memory.erase()
