"""The commands of states and their schemas, really run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from memstore import ConfirmedFact, MemoryStore, StateSchema
from tests.stores import QUIET
from tests.terminals import WHO, Terminal, saved, write

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_state(imported: Terminal) -> None:
    assert imported.json("state", *WHO)["version"] == 0
    assert "saved never" in imported.run("state", *WHO)
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"), author="a")
    found = imported.json("state", *WHO)
    assert (found["version"], found["log_position"], found["author"]) == (1, 3, "a")
    assert found["value"]["user_preferences"] == {"tone": "short"}
    shown = imported.run("state", *WHO)
    assert "version 1, schema agent 1" in shown
    assert '"tone": "short"' in shown


def test_an_earlier_state(imported: Terminal) -> None:
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"))
    imported.run("import", write("more.jsonl", {"role": "user", "text": "Longer!"}), *WHO)
    saved(imported.url, lambda state: state.user_preferences.update(tone="long"))
    first = imported.json("state", *WHO, "--version", "1")
    assert imported.json("state", *WHO)["value"]["user_preferences"] == {"tone": "long"}
    for option, value in [
        ("--version", "1"),
        ("--position", "3"),
        ("--as-of", first["created_at"]),
    ]:
        found = imported.json("state", *WHO, option, value)
        assert found["value"]["user_preferences"] == {"tone": "short"}, option
    assert imported.error("state", *WHO, "--version", "9").endswith("no state at version 9")
    assert imported.error("state", *WHO, "--as-of", "2020-01-01").startswith("default/research/")
    assert imported.error("state", *WHO, "--version", "1", "--position", "3").startswith("state: ")


def test_a_state_shows_what_is_stale(terminal: Terminal) -> None:
    fact = ConfirmedFact.model_validate(
        {"statement": "the port is 5433", "confirmed_at": "2020-04-28T00:00:00Z"}
    )
    saved(terminal.url, lambda state: state.confirmed_facts.append(fact))
    (stale,) = terminal.json("state", *WHO)["stale"]
    assert stale["path"] == "/confirmed_facts/0"
    assert "the port is 5433" in stale["question"]
    assert "is that still so?" in " ".join(terminal.run("state", *WHO).split())


def test_whose_state_must_be_said(terminal: Terminal) -> None:
    _, error = terminal.both("state", "--agent", "research", code=2)
    assert "--agent and --user are needed" in error


def test_history_and_diff(imported: Terminal) -> None:
    saved(imported.url, lambda state: state.user_preferences.update(tone="short"))
    saved(imported.url, lambda state: state.user_preferences.update(tone="[i]long"), reason="[b]")
    versions = imported.json("history", *WHO)
    assert [(v["version"], v["reason"]) for v in versions] == [(2, "[b]"), (1, None)]
    assert len(imported.json("history", *WHO, "--limit", "1")) == 1
    assert "[b]" in imported.run("history", *WHO)
    (change,) = imported.json("history", *WHO, "--diff", "1", "2")
    assert (change["path"], change["old"], change["new"]) == (
        "/user_preferences/tone",
        "short",
        "[i]long",
    )
    assert "[i]long" in imported.run("history", *WHO, "--diff", "1", "2")
    assert imported.json("history", *WHO, "--diff", "0", "1")
    assert imported.error("history", *WHO, "--diff", "1", "7").endswith("no state at version 7")


class Notes(BaseModel):
    title: str = ""


NOTES = StateSchema("notes", 1, Notes)
SECOND_VERSION = """
from pydantic import BaseModel
from memstore import StateSchema

class Notes(BaseModel):
    number: int = 0

NOTES = StateSchema("notes", 2, Notes, {1: lambda old: {"number": int(old["title"])}})
NUMBER = 5
"""


def test_migrating_states_names_the_memory_that_fails(terminal: Terminal) -> None:  # trap 33
    with MemoryStore.connect(terminal.url, encoder=None, settings=QUIET) as store:
        for user, title in (("good", "12"), ("bad", "twelve")):
            memory = store.memory(agent="research", user=user, schema=NOTES)
            memory.save(Notes(title=title), expected_version=0)
    Path("second_version.py").write_text(SECOND_VERSION, encoding="utf-8")
    arguments = ("state", "migrate", "--schema", "second_version:NOTES")
    for how in (("--dry-run",), ()):
        report = terminal.json(*arguments, *how, code=1)
        assert (report["tried"], report["outdated"], report["migrated"]) == (2, 1, 0)
        (failure,) = report["failures"]
        assert failure.startswith("default/research/bad: state version 1, step 1 -> 2")
        assert "fails: default/research/bad" in terminal.run(*arguments, *how, code=1)
    with MemoryStore.connect(terminal.url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="research", user="bad", schema=NOTES)
        assert memory.update(lambda notes: setattr(notes, "title", "13")).version == 2
    report = terminal.json(*arguments, "--dry-run")
    assert (report["migrated"], len(report["history_failures"])) == (0, 1)
    report = terminal.json(*arguments)
    assert (report["migrated"], report["failures"]) == (2, [])
    who = ("--agent", "research", "--user", "bad")
    assert terminal.json("state", *who, "--schema", "second_version:NOTES")["value"] == {
        "number": 13
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:NOTES", "ModuleNotFoundError"),
        ("second_version:OTHER", "AttributeError"),
        ("second_version:NUMBER", "is no StateSchema"),
        ("second:version:", "can't be imported"),
        ("broken_module:NOTES", "ZeroDivisionError"),
        (":", "can't be imported"),
    ],
)
def test_a_schema_that_is_none(terminal: Terminal, name: str, message: str) -> None:
    Path("second_version.py").write_text(SECOND_VERSION, encoding="utf-8")
    Path("broken_module.py").write_text("1 / 0", encoding="utf-8")
    _, error = terminal.both("state", *WHO, "--schema", name, code=2)
    assert message in error
    assert "Traceback" not in error


def test_a_state_of_another_schema_is_refused(terminal: Terminal) -> None:
    saved(terminal.url, lambda state: state.user_preferences.update(tone="short"))
    Path("second_version.py").write_text(SECOND_VERSION, encoding="utf-8")
    error = terminal.error("state", *WHO, "--schema", "second_version:NOTES")
    assert "is of schema 'agent', not 'notes'" in error


FIRST_DESK = {
    "properties": {"address": {"type": "string", "x-fresh": "P90D"}},
    "additionalProperties": False,
}
SECOND_DESK = {
    "properties": {"addresses": {"type": "array", "default": []}},
    "required": ["addresses"],
}
TO_SECOND = [{"op": "move", "from": "/address", "path": "/addresses"}]


def test_schemas_are_registered_tried_and_migrated_to(terminal: Terminal) -> None:
    for name, value in (("1", FIRST_DESK), ("2", SECOND_DESK), ("to2", TO_SECOND), ("i", {})):
        Path(f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    told = terminal.run("schema", "register", "desk", "1.json", "--initial", "i.json")
    assert told == "desk 1 is registered\n"
    again = terminal.json("schema", "register", "desk", "1.json", "--initial", "i.json")
    assert again["schema"] == FIRST_DESK
    assert "another body" in terminal.error("schema", "register", "desk", "1.json")
    with MemoryStore.connect(terminal.url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="a", user="u", schema=store.schemas.get("desk"))
        memory.patch({"address": "A"})
    new = ("schema", "register", "desk", "2.json", "--version", "2", "--migration", "to2.json")
    told = terminal.run(*new, "--dry-run", code=1)
    assert "fails: default/a/u: state version 1" in told
    assert "/addresses" in told
    Path("to2.json").write_text(
        '[{"op": "add", "path": "/addresses", "value": []},'
        ' {"op": "move", "from": "/address", "path": "/addresses/0", "optional": true}]',
        encoding="utf-8",
    )
    report = terminal.json(*new, "--dry-run")
    assert (report["tried"], report["outdated"], report["failures"]) == (1, 1, [])
    terminal.run(*new)
    who = ("--agent", "a", "--user", "u")
    assert terminal.json("state", *who, "--schema", "desk")["value"] == {"addresses": ["A"]}
    assert terminal.json("state", *who, "--schema", "desk@1")["value"] == {"address": "A"}
    assert "A" in terminal.run("resume", *who, "--schema", "desk")
    assert terminal.json("state", "migrate", "--schema", "desk")["migrated"] == 1
    assert "knows up to 1" in terminal.error("state", *who, "--schema", "desk@1")
    assert "no schema" in terminal.error("state", *who, "--schema", "nothing")
    _, error = terminal.both("state", *who, "--schema", "desk@x", code=2)
    assert "a version is a number" in error
    assert len(terminal.json("history", *who, "--schema", "desk")) == 2
    listed = terminal.json("schema", "list")
    assert [(one["name"], one["version"]) for one in listed] == [("desk", 2)]
    assert "desk" in terminal.run("schema", "list")
    assert json.loads(terminal.run("schema", "show", "desk")) == SECOND_DESK
    assert terminal.json("schema", "show", "desk", "--version", "1")["schema"] == FIRST_DESK
    Path("bad.json").write_text("{", encoding="utf-8")
    _, error = terminal.both("schema", "register", "x", "bad.json", code=2)
    assert "is not JSON" in error
