"""Spans: what they are of, what joins them, and what is in none of them."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from memstore import AsyncClient, Client, MemoryStore, NotFound, telemetry
from memstore_api.logs import JsonLines
from tests.serving import WordEncoder, application, asked, running
from tests.stores import QUIET
from tests.test_api_access import MARK, calls
from tests.test_api_serving import serving

M = f"/v1/agents/{MARK}/users/{MARK}"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
Exporter = InMemorySpanExporter


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """Spans as they are made, until the test ends."""
    found = Exporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    telemetry.enable(provider)
    yield found
    telemetry.disable()
    provider.shutdown()


def one(exporter: Exporter, name: str) -> ReadableSpan:
    (span,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def tree(exporter: Exporter, root: ReadableSpan) -> set[str]:
    """Name the spans below one, at any depth."""
    spans = exporter.get_finished_spans()
    below, before = {root.context.span_id if root.context else 0}, 0
    while len(below) != before:
        before = len(below)
        below |= {
            s.context.span_id for s in spans if s.context and s.parent and s.parent.span_id in below
        }
    return {s.name for s in spans if s.context and s.context.span_id in below} - {root.name}


async def test_a_request_is_a_span_in_its_callers_trace(
    database_url: str, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = Keeping()
    logging.getLogger("memstore.server").addHandler(handler)
    app = application(database_url, encoder=WordEncoder(), insecure=True)
    try:
        async with asked(app) as http:
            await http.post(f"{M}/events", json={"content": f"{MARK} and more"})
            exporter.clear()
            given = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "r-1"}
            await http.post(f"{M}/search", json={"query": MARK}, headers=given)
    finally:
        logging.getLogger("memstore.server").removeHandler(handler)
    span = one(exporter, "POST /v1/agents/{agent}/users/{user}/search")
    assert span.kind is SpanKind.SERVER
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert attributes(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/agents/{agent}/users/{user}/search",
        "http.response.status_code": 200,
        "memstore.request_id": "r-1",
    }
    assert tree(exporter, span) == {
        f"memstore.{name}"
        for name in (
            *("search", "transaction", "encode", "connect", "lexical", "vector"),
            *("candidates", "ranking", "entries"),
        )
    }
    assert attributes(one(exporter, "memstore.search")) == {
        "memstore.hits": 1,
        "memstore.unencoded": 1,
        "memstore.degraded": False,
    }
    line = next(line for line in handler.lines if line.get("request_id") == "r-1")
    assert line["trace_id"] == TRACE
    assert line["span_id"] == f"{span.context.span_id:016x}"


class Keeping(logging.Handler):
    """Keeps lines as they would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(JsonLines().format(record)))


async def test_no_span_holds_a_text_or_an_id(database_url: str, exporter: Exporter) -> None:
    app = application(database_url, encoder=WordEncoder(), insecure=True)
    with MemoryStore.connect(database_url, encoder=WordEncoder(), settings=QUIET) as store:
        memory = store.memory(agent=MARK, user=MARK)
        memory.append(content=f"{MARK} text", session=MARK, actor=MARK, payload={MARK: MARK})
        memory.patch({"user_preferences": {MARK: MARK}}, author=MARK, reason=MARK)
        memory.flush()
        context = memory.resume(MARK, record=True)
        with pytest.raises(NotFound):
            memory.state(version=99)
    async with asked(app) as http:
        seen = 0
        for call in calls(app, str(context.id), agent=MARK, user=MARK):
            seen += MARK in (await call.send(http)).text
        await http.get(f"{M}/events?session={MARK}&since={MARK}")
        await http.get(f"/{MARK}")
        await http.request(MARK.upper(), f"{M}/events")
        await http.post(f"{M}/events", json={"content": "x", "role": MARK})
    assert seen >= 6
    spans = exporter.get_finished_spans()
    names = {span.name for span in spans}
    for name in ("resume", "search", "transaction", "encode", "encode_entries", "tail", "assemble"):
        assert f"memstore.{name}" in names
    assert "other" in {name.partition(" ")[0] for name in names}
    for span in spans:
        assert MARK not in span.to_json().casefold(), span.name
        assert not span.events
        for key, value in attributes(span).items():
            known = isinstance(value, int) or key in (
                *("http.request.method", "http.route", "memstore.request_id"),
                *("memstore.role", "error.type"),
            )
            assert known, (key, value)


async def test_a_failure_is_told_by_its_kind_alone(
    database_url: str, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(MARK)

    monkeypatch.setattr("memstore.AsyncMemory.history", broken)
    async with asked(application(database_url, insecure=True)) as http:
        await http.get(f"{M}/history")
        await http.get(f"{M}/state?version=9")
    span = one(exporter, "GET /v1/agents/{agent}/users/{user}/history")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "500"
    assert one(exporter, "GET /v1/agents/{agent}/users/{user}/state").status.is_unset


async def test_a_client_says_which_trace_it_is_in(database_url: str, exporter: Exporter) -> None:
    with running(application(database_url, insecure=True)) as address:
        async with AsyncClient(address) as client:
            with telemetry.span("turn"):
                await client.memory(agent="a", user="u").append(content="x")
    turn = one(exporter, "memstore.turn")
    served = one(exporter, "POST /v1/agents/{agent}/users/{user}/events")
    assert served.parent is not None
    assert turn.context is not None
    assert (served.parent.trace_id, served.parent.span_id) == (
        turn.context.trace_id,
        turn.context.span_id,
    )


async def test_requests_at_once_do_not_mix_their_spans(
    database_url: str, exporter: Exporter
) -> None:
    async with asked(application(database_url, insecure=True)) as http:
        paths = [f"/v1/agents/a/users/{n}/state" for n in range(20)]
        await asyncio.gather(*[http.get(path) for path in paths])
    spans = exporter.get_finished_spans()
    roots = {s.context.span_id: s.context.trace_id for s in spans if s.context and s.parent is None}
    served = [s for s in spans if s.kind is SpanKind.SERVER]
    assert len(served) == 20
    inner = [s for s in spans if s.parent and s.name == "memstore.transaction"]
    assert len(inner) == 20
    parents = [s.parent.span_id for s in inner if s.parent]
    assert len(set(parents)) == 20
    assert all(
        s.context and roots[s.parent.span_id] == s.context.trace_id for s in inner if s.parent
    )


def test_off_it_costs_nothing_and_imports_nothing() -> None:
    script = (
        "import sys, memstore\n"
        "from memstore import telemetry\n"
        "with telemetry.span('x') as made: telemetry.lap('y', 1); telemetry.count(z=1)\n"
        "assert made is None and telemetry.ids() == {}\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_setting_switches_it_on(database_url: str) -> None:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET):
        assert telemetry.ids() == {}
    settings = QUIET.model_copy(update={"telemetry": True})
    try:
        with (
            MemoryStore.connect(database_url, encoder=None, settings=settings),
            telemetry.span("x") as made,
        ):
            assert made is not None
    finally:
        telemetry.disable()


class Collector(BaseHTTPRequestHandler):
    """Takes what is sent to it; `bodies` is the server's."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_sends_its_spans_to_a_collector(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    bodies: list[tuple[str, bytes]] = []
    collector.bodies = bodies  # type: ignore[attr-defined]
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    monkeypatch.setenv("MEMSTORE_TELEMETRY", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    given = ("--url", database_url, "--encoder", "none", "--insecure")
    try:
        with serving(*given, folder=tmp_path) as (process, address):
            with Client(address) as client:
                client.memory(agent=MARK, user=MARK).append(content=MARK)
            process.terminate()  # what is not sent yet is sent first
            process.wait(60)
    finally:
        collector.shutdown()
        collector.server_close()
    sent = b"".join(body for _, body in bodies)
    assert {path for path, _ in bodies} == {"/v1/traces"}
    assert b"POST /v1/agents/{agent}/users/{user}/events" in sent
    assert b"memstore.transaction" in sent
    assert MARK.encode() not in sent
    lines = [json.loads(line) for line in (tmp_path / "server.log").read_text().splitlines()]
    (line,) = [x for x in lines if x.get("route", "").endswith("/events")]
    assert bytes.fromhex(line["trace_id"]) in sent
