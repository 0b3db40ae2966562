"""What a route would pass over is refused; what many ask costs once; who leaves is no failure."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from memstore import AsyncMemoryStore, Backlog, Check
from memstore.http import MERGE_TYPE
from memstore_api.connections import Connection
from tests.serving import application, asked
from tests.test_api_access import calls

M = "/v1/agents/a/users/u"
NDJSON = "application/x-ndjson"
MERGE = {"Content-Type": MERGE_TYPE}


@pytest.fixture
async def http(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    app = application(database_url, insecure=True, body_timeout=0.3)
    async with asked(app) as client:
        yield client


async def test_a_misspelt_parameter_does_not_mean_everything(database_url: str) -> None:
    """trap 22: ``?sessions=x`` is no filter, and ``DELETE …?dry_run=true`` would erase."""
    app = application(database_url, insecure=True)
    async with asked(app) as http:
        await http.post(f"{M}/events", json={"content": "stays"})
        for call in calls(app, "00000000-0000-4000-8000-000000000000"):
            if not call.path.startswith("/v1"):
                continue
            answer = await http.request(
                call.method,
                call.path,
                params={"dry_run": "true"},
                content=call.content,
                headers=call.headers,
            )
            assert (answer.status_code, answer.json()["path"]) == (422, "dry_run"), call
        assert len((await http.get(f"{M}/events")).json()["events"]) == 1
        assert (await http.get(f"{M}/events?session=x&limit=1")).json()["events"] == []


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "Idempotency-Key"])
async def test_a_precondition_is_heeded_or_refused(http: httpx.AsyncClient, header: str) -> None:
    await http.patch(f"{M}/state", content=b'{"user_preferences": {"a": 1}}', headers=MERGE)
    part: dict[str, Any] = {"path": "/user_preferences"}
    for method, path, body in (
        ("POST", "/flag", part | {"reason": "r"}),
        ("POST", "/confirm", part),
        ("POST", "/revert", {"to": 1}),
        ("DELETE", "", None),
    ):
        answer = await http.request(method, M + path, json=body, headers={header: '"0"'})
        assert (answer.status_code, answer.json()["path"]) == (422, header), path
    only_new = await http.patch(f"{M}/state", content=b"{}", headers=MERGE | {"If-None-Match": "*"})
    assert only_new.json()["path"] == "If-None-Match"
    assert (await http.get(f"{M}/state", headers={header: '"1"'})).json()["version"] == 1


async def test_a_state_is_never_said_to_be_the_same(http: httpx.AsyncClient) -> None:
    """A version stays, and what is answered below it changes: migrated, grown stale, its log on."""
    desk = "/v1/schemas/desk/versions"
    await http.put(f"{desk}/1", json={"schema": {"properties": {"a": {}}}})
    saved = await http.patch(f"{M}/state?schema=desk", content=b'{"a": "x"}', headers=MERGE)
    seen = {"If-None-Match": saved.headers["ETag"]}
    await http.post(f"{M}/events", json={"content": "later"})
    later = await http.get(f"{M}/state?schema=desk", headers=seen)
    assert (later.status_code, later.json()["log_end"]) == (200, 1)
    move = [{"op": "move", "from": "/a", "path": "/b"}]
    await http.put(f"{desk}/2", json={"schema": {}, "migration": move})
    migrated = await http.get(f"{M}/state?schema=desk", headers=seen)
    assert (migrated.status_code, migrated.json()["document"]) == (200, {"b": "x"})


@pytest.mark.parametrize("media_type", ["application/json", NDJSON])
async def test_a_compressed_body_is_refused_as_such(
    http: httpx.AsyncClient, media_type: str
) -> None:
    headers = {"Content-Type": media_type, "Content-Encoding": "gzip"}
    body = gzip.compress(b'{"content": "x"}')
    answer = await http.post(f"{M}/events", content=body, headers=headers)
    assert (answer.status_code, answer.headers["Accept-Encoding"]) == (415, "identity")
    assert answer.json()["path"] == "Content-Encoding"
    plain = headers | {"Content-Encoding": "identity"}
    answer = await http.post(f"{M}/events", content=b'{"content": "x"}', headers=plain)
    assert answer.status_code == 201


async def test_a_stream_is_asked_for_among_other_types(http: httpx.AsyncClient) -> None:
    await http.post(f"{M}/events", json=[{"content": "x"}] * 150)
    for accept, lines in (
        (f"{NDJSON}, application/problem+json;q=0.5", 150),
        ("Application/X-NDJSON; q=1", 150),
        ("*/*", 1),
        (f"application/json, {NDJSON};q=0.1", 1),
    ):
        answer = await http.get(f"{M}/events", headers={"Accept": accept})
        assert len(answer.text.splitlines()) == lines, accept


async def test_lines_that_stop_coming_say_what_was_stored(http: httpx.AsyncClient) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield b'{"content": "x"}\n' * 600
        await asyncio.sleep(60)

    answer = await http.post(f"{M}/events", content=lines(), headers={"Content-Type": NDJSON})
    assert answer.status_code == 408
    assert answer.headers["Connection"] == "close"
    assert answer.json()["stored"] == {"events": 500, "repeated": 0, "first": 1, "last": 500}


async def test_who_leaves_midway_is_no_failure_of_the_server(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = application(database_url, insecure=True)
    caplog.set_level(logging.INFO)
    messages = [
        {"type": "http.request", "body": b'{"content": "ha', "more_body": True},
        {"type": "http.disconnect"},
    ]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": f"{M}/events",
        "raw_path": f"{M}/events".encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
        "scheme": "http",
    }

    async def receive() -> Any:
        return messages.pop(0)

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with asked(app) as http:
        await app(scope, receive, send)
        figures = (await http.get("/metrics")).text
    assert not sent
    assert 'status="499"' in figures
    assert 'status="500"' not in figures
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert any(getattr(r, "fields", {}).get("status") == 499 for r in caplog.records)


async def test_who_asks_without_a_key_asks_the_database_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memstore_api.routes_server.FRESH_SECONDS", 3_600.0)
    counts = {"readiness": 0, "backlog": 0}
    ready, backlog = AsyncMemoryStore.readiness, AsyncMemoryStore.backlog

    async def counted_ready(self: AsyncMemoryStore) -> list[Check]:
        counts["readiness"] += 1
        return await ready(self)

    async def counted_backlog(self: AsyncMemoryStore) -> Backlog:
        counts["backlog"] += 1
        return await backlog(self)

    monkeypatch.setattr(AsyncMemoryStore, "readiness", counted_ready)
    monkeypatch.setattr(AsyncMemoryStore, "backlog", counted_backlog)
    async with asked(application(database_url)) as http:
        paths = ["/readyz", "/metrics"] * 20
        answers = await asyncio.gather(*(http.get(path) for path in paths))
        assert {answer.status_code for answer in answers} == {200}
        assert counts == {"readiness": 1, "backlog": 1}
        for path in ("/healthz", "/readyz"):
            assert (await http.head(path)).status_code == 200


def test_a_requests_head_has_a_bound() -> None:
    assert issubclass(Connection, H11Protocol)  # httptools, where it is installed, has none
