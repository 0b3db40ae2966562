"""What `memstore config` tells: every setting, where it comes from, and no password."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from memstore import Settings
from memstore.cli import main
from memstore.config import masked
from memstore_api import ServerSettings
from tests.test_docs import PAGES

FIELDS = {f"MEMSTORE_{name}".upper() for name in ServerSettings.model_fields}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIELDS:
        monkeypatch.delenv(name, raising=False)


def config(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments])


def listed(*arguments: str) -> dict[str, dict[str, Any]]:
    done = config(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return {setting["variable"]: setting for setting in json.loads(done.stdout)["settings"]}


def test_every_setting_is_listed_with_its_meaning() -> None:
    found = listed()
    assert set(found) == FIELDS
    assert set(Settings.model_fields) <= set(ServerSettings.model_fields)
    assert all(setting["meaning"] for setting in found.values())
    assert {setting["source"] for setting in found.values()} == {"default"}
    assert all(setting["value"] == setting["default"] for setting in found.values())
    shown = config().stdout
    assert all(variable in shown for variable in FIELDS)


def test_the_value_and_its_source_are_those_that_a_server_would_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMSTORE_PORT", "9001")
    monkeypatch.setenv("MEMSTORE_POOL_SIZE", "3")
    monkeypatch.setenv("MEMSTORE_SCHEMAS", '["shapes:NOTES"]')
    found = listed("--port", "9002", "--encoder", "none")
    told = {name: (one["value"], one["source"], one["flag"]) for name, one in found.items()}
    assert told["MEMSTORE_PORT"] == (9002, "flag", "--port")
    assert told["MEMSTORE_POOL_SIZE"] == (3, "environment", None)
    assert told["MEMSTORE_SCHEMAS"] == (["shapes:NOTES"], "environment", "--schema")
    assert told["MEMSTORE_ENCODER"] == ("none", "flag", "--encoder")
    assert told["MEMSTORE_RATE"] == (100.0, "default", None)
    assert found["MEMSTORE_PORT"]["default"] == 8077
    # What is shown can be set.
    shown = re.search(r"MEMSTORE_SCHEMAS +(\S+)", config().stdout)
    assert shown is not None
    monkeypatch.setenv("MEMSTORE_SCHEMAS", shown[1])
    assert listed()["MEMSTORE_SCHEMAS"]["value"] == ["shapes:NOTES"]


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("MEMSTORE_PORT", "nine", "MEMSTORE_PORT: "),
        ("MEMSTORE_TAIL_SHARE", "2", "MEMSTORE_TAIL_SHARE: "),
        ("MEMSTORE_SCHEMAS", "shapes:NOTES", '"schemas"'),
    ],
)
def test_a_value_that_can_not_be_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    done = config()
    assert done.exit_code == 1
    assert told in done.stderr
    assert "Traceback" not in done.output


def test_a_variable_that_is_no_setting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_POLL_SIZE", "3")
    assert "MEMSTORE_POLL_SIZE is set, and is no setting" in config().stderr
    assert "MEMSTORE_POLL_SIZE" in json.loads(config("--json").stdout)["unknown"]


def test_no_password_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSTORE_URL", "postgresql://agent:hunter2@db/app?sslpassword=hunter2")
    for done in (config(), config("--json"), config("--url", "host=db password='hunter2 x'")):
        assert done.exit_code == 0
        assert "hunter2" not in done.output
        assert "***" in done.output


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://db.example/app", "postgresql://db.example/app"),
        ("postgresql://agent@db:5433/app?sslmode=require",) * 2,
        ("postgresql://agent:a%40b@db/app", "postgresql://agent:***@db/app"),
        ("postgresql://agent:a:b@c@db/app", "postgresql://agent:***@db/app"),
        ("postgresql://agent:a/b?c@db/app", "postgresql://agent:***@db/app"),
        ("postgresql://db/app?password=a&user=b", "postgresql://db/app?password=***&user=b"),
        ("host=db password=a user=b", "host=db password=*** user=b"),
        (r"password = 'a \' b' host=db", "password = *** host=db"),
        (r"password=a\ b host=db", "password=*** host=db"),
        ("host=db port=5432", "host=db port=5432"),
        ("", ""),
    ],
)
def test_masking(given: str, shown: str) -> None:
    assert masked(given) == shown


@given(st.text(min_size=1))
def test_no_password_in_a_url_survives_masking(password: str) -> None:
    secret = f"<{password}>"
    assert secret not in masked(f"postgresql://agent:{secret}@db/app")
    quoted = secret.replace("\\", "\\\\").replace("'", "\\'")
    assert quoted not in masked(f"host=db password='{quoted}'")


def test_every_setting_is_documented_and_every_documented_variable_exists() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"\bMEMSTORE_[A-Z_]+\b", text))
    assert named == FIELDS
