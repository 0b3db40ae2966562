"""The commands of who runs it: the database, spaces, workers, the embedded server."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from memstore import MemoryStore, Settings
from memstore.cli import main
from tests.encoders import HashEncoder
from tests.stores import QUIET
from tests.terminals import RECORDS, SCRIPT, WHO, Terminal, execute, write

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_migrate_makes_a_bare_database_fit(bare_url: str) -> None:
    bare = Terminal(bare_url)
    assert "run 'memstore migrate'" in bare.error("log", *WHO)
    applied = bare.json("migrate", encoder=None)["applied"]
    assert applied[0] == "0001_core"
    assert bare.json("migrate", encoder=None) == {"applied": []}
    assert bare.run("migrate", encoder=None) == "up to date\n"
    assert bare.json("log", *WHO, encoder=None) == []
    assert all(check["ok"] for check in bare.json("doctor", encoder=None))
    assert "no tenant 'acme'" in bare.error("log", *WHO, "--tenant", "acme", encoder=None)
    bare.run("migrate", "--tenant", "acme", encoder=None)
    assert bare.json("log", *WHO, "--tenant", "acme", encoder=None) == []


def test_migrate_says_what_it_applied(bare_url: str) -> None:
    assert Terminal(bare_url).run("migrate").startswith("applied 0001 core\n")


def findings(checks: list[dict[str, Any]]) -> dict[str, str]:
    return {check["name"]: check["detail"] for check in checks if not check["ok"]}


def test_doctor_finds_a_healthy_database(terminal: Terminal) -> None:
    checks = terminal.json("doctor")
    assert findings(checks) == {}
    assert [check["name"] for check in checks] == [
        "connection",
        "pgvector",
        "migrations",
        "append-only",
        "tenant",
        "spaces",
        "queue",
        "orphans",
    ]
    assert terminal.run("doctor").count("ok  ") == len(checks)


def test_doctor_finds_that_pgvector_is_missing(bare_url: str) -> None:
    found = findings(Terminal(bare_url).json("doctor", code=1))
    assert list(found) == ["pgvector"]
    assert "memstore migrate" in found["pgvector"]


def test_doctor_finds_pending_migrations(bare_url: str) -> None:
    execute(bare_url, "CREATE EXTENSION vector")
    found = findings(Terminal(bare_url).json("doctor", code=1))
    assert list(found) == ["migrations"]
    assert "memstore migrate" in found["migrations"]


@pytest.mark.parametrize(
    ("statement", "name", "advice"),
    [
        ("GRANT UPDATE ON memstore.events TO memstore_server", "append-only", "revoke"),
        ("DELETE FROM memstore.tenants", "tenant", "there is no tenant 'default'"),
        (
            "INSERT INTO memstore.postings SELECT gen_random_uuid(), 1, tenant_id, 1, 1, 'word' "
            "FROM memstore.tenants",
            "orphans",
            "1 memories have derived rows",
        ),
        (
            "INSERT INTO memstore.encoding_queue "
            "(memory_id, space_id, position, tenant_id, enqueued_at) "
            "SELECT gen_random_uuid(), 1, 1, tenant_id, now() - interval '1 hour' "
            "FROM memstore.tenants",
            "queue",
            "memstore worker",
        ),
    ],
)
def test_doctor_finds(terminal: Terminal, statement: str, name: str, advice: str) -> None:
    execute(terminal.url, statement)
    found = findings(terminal.json("doctor", code=1))
    assert list(found) == [name]
    assert advice in found[name]
    assert f"FAIL {name}: " in terminal.run("doctor", code=1)


def test_doctor_finds_that_another_encoder_serves(terminal: Terminal) -> None:
    MemoryStore.prepare(terminal.url, encoder=HashEncoder(), settings=QUIET)
    found = findings(terminal.json("doctor", code=1, encoder=None))
    assert list(found) == ["spaces"]
    assert "memstore space add all-MiniLM-L6-v2" in found["spaces"]
    error = terminal.error("search", "x", *WHO, encoder=None)  # trap 12
    assert "vectors are from 'hash', not 'all-MiniLM-L6-v2'" in error


def test_doctor_finds_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_CONNECT_TIMEOUT", "0.5")
    nobody = Terminal("postgresql://nobody@127.0.0.1:1/nothing")
    assert list(findings(nobody.json("doctor", code=1))) == ["connection"]


def test_a_wrong_url_is_one_line_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_CONNECT_TIMEOUT", "0.5")
    nobody = Terminal("postgresql://nobody@127.0.0.1:1/nothing")
    for command in (("log", *WHO), ("state", *WHO), ("space", "list"), ("worker", "--once")):
        assert "no connection within 0.5 s" in nobody.error(*command)
    assert "refused" in nobody.error("log", *WHO)
    assert "refused" in nobody.error("migrate")
    for text in ("postgresql://[", "nonsense", "host=x port=none"):
        assert Terminal(text).error("log", *WHO)


def test_a_setting_that_is_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_POOL_SIZE", "many")
    assert terminal.error("log", *WHO).startswith("MEMSTORE_POOL_SIZE: ")


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # as a folder it would be the current one, as a URL whatever libpq finds
    unset = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"MEMSTORE_{name.upper()}", "")
    assert Settings() == unset


def test_spaces(imported: Terminal) -> None:
    assert imported.json("space", "list") == []
    MemoryStore.prepare(imported.url, encoder=HashEncoder(), settings=QUIET)
    name = "all-MiniLM-L6-v2"
    added = imported.json("space", "add", name)
    assert (added["space"]["status"], added["encoded"]) == ("filling", 3)
    assert "entries still wait" not in imported.run("space", "list")
    assert imported.json("space", "switch", name)["status"] == "serving"
    assert {s["encoder"]: s["status"] for s in imported.json("space", "list")} == {
        "hash": "retained",
        name: "serving",
    }
    assert f"serving   {name} (384)" in imported.run("space", "list")
    assert imported.json("search", "which database?", *WHO, encoder=None)["leg_hits"]["vector"] == 3
    assert "serves: switch to another first" in imported.error("space", "drop", name)
    assert "there is no space" in imported.error("space", "switch", "other")
    assert imported.json("space", "drop", "hash") == {"dropped": "hash"}
    assert "there is no space" in imported.error("space", "drop", "hash")
    assert "0 entries encoded" in imported.run("space", "add", name)
    assert f"{name} serves" in imported.run("space", "switch", name)


def test_an_encoder_that_is_none(terminal: Terminal) -> None:
    error = terminal.error("space", "add", "./nothing")
    assert "is not a model" in error


# the worker


def test_worker_encodes_what_waits_and_stops_when_told(terminal: Terminal) -> None:
    terminal.run("migrate", encoder=None)
    terminal.run("import", write("chat.jsonl", *RECORDS), *WHO)
    with (
        MemoryStore.connect(terminal.url, settings=QUIET) as store,
        subprocess.Popen(
            [SCRIPT, "worker", "--url", terminal.url], stderr=subprocess.PIPE, text=True
        ) as worker,
    ):
        memory = store.memory(agent="research", user="u-17")
        try:
            assert worker.stderr is not None
            assert "encoding" in worker.stderr.readline()
            while memory.unencoded():
                assert worker.poll() is None
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    assert "0 entries encoded" in terminal.run("worker", "--once", encoder=None)


def test_worker_ends_when_its_encoder_does_not_fit(terminal: Terminal) -> None:  # trap 12
    MemoryStore.prepare(terminal.url, encoder=HashEncoder(), settings=QUIET)
    execute(terminal.url, "UPDATE memstore.spaces SET encoder = 'all-MiniLM-L6-v2'")
    terminal.run("import", write("chat.jsonl", *RECORDS), *WHO)
    done = subprocess.run(
        [SCRIPT, "worker", "--url", terminal.url], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "Error: encoding stopped" in done.stderr
    assert "Traceback" not in done.stderr


def test_worker_needs_an_encoder(terminal: Terminal) -> None:
    assert "no encoder" in terminal.error("worker")
    assert "no encoder" in terminal.error("worker", "--once")


# the embedded server


def test_the_embedded_server_serves_one_command_after_another(scratch: Path) -> None:
    folder = scratch / f"cli-{uuid4().hex[:8]}"
    file = write("chat.jsonl", *RECORDS)
    where = ("--data-dir", str(folder), "--encoder", "none", "--json")
    answers = []
    for command in (["import", file], ["log"]):
        done = subprocess.run(
            [SCRIPT, *command, *WHO, *where], capture_output=True, text=True, check=True
        )
        answers.append(json.loads(done.stdout))
    assert answers[0] == {"stored": 3, "repeated": 0}
    assert [event["position"] for event in answers[1]] == [1, 2, 3]
    done = subprocess.run([SCRIPT, "doctor", *where], capture_output=True, text=True)
    assert all(check["ok"] for check in json.loads(done.stdout)), done.stdout


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below", Path("/proc/memstore")):
        done = CliRunner().invoke(main, ["log", *WHO, "--data-dir", str(place)])
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
