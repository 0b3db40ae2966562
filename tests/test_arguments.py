"""Arguments of the wrong kind are refused by name, before the database sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pydantic import BaseModel

from memstore import Client, InvalidInput, NotFound
from tests.stores import KINDS, connected

NO_WHOLE_NUMBERS = [
    True,
    1.0,
    0.5,
    float("nan"),
    "1",
    "",
    b"1",
    "\0",
    "\ud800",
    [1],
    None,
    object(),
]
NO_STRINGS = [0, True, 1.5, b"role", object()]


@pytest.fixture(params=KINDS)
def memory(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with connected(request.param, database_url) as store:
        memory = store.memory(agent="agent", user="user")
        memory.append([{"content": "apple", "actor": name} for name in ("Ada", "Ben", "Cy")])
        memory.patch({"user_preferences": {"zone": "CET"}})
        yield memory


# traps 20, 30: Postgres rounds a float, compares a text and fails in words of its own
WHOLE: list[tuple[str, Callable[[Any, Any], object]]] = [
    ("after", lambda memory, n: memory.events(after=n)),
    ("before", lambda memory, n: memory.events(before=n)),
    ("limit", lambda memory, n: memory.events(limit=n)),
    ("version", lambda memory, n: memory.state(version=n)),
    ("position", lambda memory, n: memory.state(position=n)),
    ("log_position", lambda memory, n: memory.update(lambda state: None, log_position=n)),
    ("log_position", lambda memory, n: memory.patch({}, log_position=n)),
    ("expected_version", lambda memory, n: memory.patch({}, expected_version=n)),
    ("before", lambda memory, n: memory.history(before=n)),
    ("limit", lambda memory, n: memory.history(limit=n)),
    ("version", lambda memory, n: memory.diff(n, 1)),
    ("version", lambda memory, n: memory.diff(1, n)),
    ("to", lambda memory, n: memory.revert(to=n)),
    ("limit", lambda memory, n: memory.traces(limit=n)),
    ("used", lambda memory, n: memory.feedback(uuid4(), [n])),
    ("k", lambda memory, n: memory.search("apple", k=n)),
]
MAY_BE_LEFT_OUT = {"after", "position", "log_position", "expected_version"}


@pytest.mark.parametrize(("name", "call"), WHOLE)
def test_a_whole_number_is_one(name: str, call: Callable[[Any, Any], object], memory: Any) -> None:
    for wrong in NO_WHOLE_NUMBERS:
        if wrong is None and (name in MAY_BE_LEFT_OUT or name in ("before", "version")):
            continue
        with pytest.raises(InvalidInput) as refused:
            call(memory, wrong)
        assert refused.value.path == name
    assert len(memory.history()) == 1


def test_a_number_from_numpy_is_a_whole_one(memory: Any) -> None:
    assert [event.position for event in memory.events(after=np.int64(2))] == [3]
    assert (
        memory.patch({}, expected_version=np.int64(1), log_position=np.int32(2)).log_position == 2
    )


def test_numbers_beyond_the_databases_find_nothing(memory: Any) -> None:
    for far in (2**31, 2**63, 2**80, -(2**80)):
        with pytest.raises(NotFound):
            memory.state(version=far)
        with pytest.raises(NotFound):
            memory.revert(to=far)
        assert len(memory.history(before=far)) == (far > 0)
        assert len(memory.events(before=far)) == (3 if far > 0 else 0)
        with pytest.raises(InvalidInput, match="log ends at 3"):
            memory.patch({}, log_position=far)
    with pytest.raises(InvalidInput):
        memory.feedback(uuid4(), [2**63])
    for limit in (0, -1, 10_001, 2**63):
        with pytest.raises(InvalidInput, match="a page holds"):
            memory.traces(limit=limit)


@pytest.mark.parametrize("tag", ["session", "actor", "role", "event_type", "correlation_id"])
def test_a_tag_is_a_string_or_several(tag: str, memory: Any) -> None:
    for wrong in NO_STRINGS:
        for call in (memory.events, lambda **tags: memory.search("apple", **tags)):
            with pytest.raises(InvalidInput) as refused:
                call(**{tag: wrong})
            assert refused.value.path == tag


def test_a_tags_values_may_come_from_an_iterator(memory: Any) -> None:
    # they are checked before a model runs and read again after it
    found = memory.search("apple", actor=iter(["Ada", "Cy"]))
    assert {hit.event.actor for hit in found} == {"Ada", "Cy"}
    assert len(memory.events(actor=(name for name in ("Ada", "Cy")))) == 2
    assert memory.events(actor=[]) == []


def test_an_update_by_a_coroutine_function_is_refused(memory: Any) -> None:
    # it would be called, never run, and its changes lost without a word
    async def change(state: Any) -> None:
        state.user_preferences["zone"] = "EST"

    with pytest.raises(InvalidInput, match="coroutine"):
        memory.update(change)
    assert memory.state().value.user_preferences == {"zone": "CET"}


def test_a_dict_is_no_whole_state_and_a_text_no_patch(memory: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        memory.save({"user_preferences": {}}, expected_version=1)
    assert refused.value.path == "value"
    others: list[Any] = [None, "{}", 1, ({},)]
    for wrong in others:
        with pytest.raises(InvalidInput) as refused:
            memory.patch(wrong)
        assert refused.value.path == "patch"


@pytest.mark.parametrize(
    "patch",
    [
        {"user_preferences": {1: 2, "a": 3}},
        {1: 2, "user_preferences": {}},
        {"user_preferences": {"at": {1, 2}}},
        {"user_preferences": {"at": float("nan")}},
        [{"op": "add", "path": "/user_preferences/x", "value": {1: 2, "a": 3}}],
        [{"op": "add", "path": "/user_preferences/x", "value": b"x"}],
    ],
)
def test_a_patch_that_is_no_json_is_refused_under_a_key_too(patch: Any, memory: Any) -> None:
    # traps 30, 31: the key's digest is made before the patch is applied
    for key in (None, "once"):
        with pytest.raises(InvalidInput):
            memory.commit(events=[{"content": "x"}], state=patch, idempotency_key=key)
    assert len(memory.events()) == 3


def test_a_patch_under_a_key_may_not_be_bottomless(memory: Any) -> None:
    # trap 31
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(10_000):
        inner["a"] = inner = {}
    with pytest.raises(InvalidInput, match="nested deeper"):
        memory.commit(state={"user_preferences": deep}, idempotency_key="once")


def test_a_path_is_cleaned_as_the_key_was(memory: Any) -> None:
    # traps 1, 2: what was stored under this key is to be confirmed by this key
    memory.patch({"user_preferences": {"a\0b": 1, "c\ud800": 2}})
    assert [part.path for part in memory.flag("/user_preferences/a\0b", "why\0").stale] == [
        "/user_preferences/a\ufffdb"
    ]
    memory.flag("/user_preferences/c\ud800", "why\ud800")
    assert len(memory.state().stale) == 2
    memory.confirm("/user_preferences/a\0b")
    assert memory.confirm("/user_preferences/c\ud800").stale == ()


def test_a_batchs_key_leaves_room_for_its_events_numbers(memory: Any) -> None:
    # trap 4: each event has a key of its own, made from the batch's
    key = "k" * 507
    assert memory.append([{"content": "x"}] * 2, idempotency_key=key).positions == (4, 5)
    assert memory.append([{"content": "x"}] * 2, idempotency_key=key).repeated == (4, 5)
    with pytest.raises(InvalidInput, match="at most 507 bytes") as refused:
        memory.append([{"content": "x"}], idempotency_key=key + "k")
    assert refused.value.path == "idempotency_key"
    with pytest.raises(InvalidInput, match="at most 507 bytes"):
        memory.commit(events=[{"content": "x"}], idempotency_key="é" * 254)
    assert memory.append(content="alone", idempotency_key="k" * 512).position == 6


def test_a_contexts_id_is_a_uuid(memory: Any) -> None:
    for wrong in ("", "x", "\0", "\ud800", None, 1):
        with pytest.raises(InvalidInput) as refused:
            memory.feedback(wrong, [1])
        assert refused.value.path == "context_id"
    with pytest.raises(NotFound):
        memory.feedback(str(uuid4()), [1])


def test_a_model_by_itself_is_no_schema(database_url: str) -> None:
    class Desk(BaseModel):
        address: str = ""

    remote = Client("http://127.0.0.1:1")
    with connected("sync", database_url) as store:
        givers: list[Any] = [store, remote]
        for giver in givers:
            for wrong in (Desk, Desk(), None, "desk"):
                with pytest.raises(InvalidInput, match="must be a StateSchema") as refused:
                    giver.memory(agent="a", user="u", schema=wrong)
                assert refused.value.path == "schema"
    remote.close()
