"""What is HTTP's own: tags and preconditions, media types, limits, streams, headers, health."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from memstore import InvalidInput, MemoryStore, ServiceError
from memstore.http import MERGE_TYPE, PATCH_TYPE
from memstore.problems import NoRoute, from_problem
from tests.serving import WordEncoder, application, asked
from tests.stores import QUIET

M = "/v1/agents/a/users/u"
JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE = {"Content-Type": MERGE_TYPE}


@pytest.fixture
async def http(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    app = application(
        database_url, insecure=True, max_batch=5, max_page=10, max_body=2_000, max_budget=500
    )
    async with asked(app) as client:
        yield client


def merge(**preferences: Any) -> bytes:
    return json.dumps({"user_preferences": preferences}).encode()


# versions as entity tags


async def test_a_state_carries_its_version_as_its_tag(http: httpx.AsyncClient) -> None:
    first = await http.get(f"{M}/state")
    assert (first.status_code, first.headers["ETag"]) == (200, '"0"')
    saved = await http.patch(f"{M}/state", content=merge(a=1), headers=MERGE | {"If-Match": '"0"'})
    assert (saved.status_code, saved.headers["ETag"]) == (200, '"1"')
    loaded = await http.get(f"{M}/state")
    assert loaded.headers["ETag"] == '"1"'
    assert loaded.json()["document"]["user_preferences"] == {"a": 1}


async def test_a_lost_race_is_412_with_the_current_version(http: httpx.AsyncClient) -> None:
    await http.patch(f"{M}/state", content=merge(a=1), headers=MERGE)
    late = {"If-Match": '"0"'}
    document = (await http.get(f"{M}/state")).json()["document"]
    for answer in (
        await http.patch(f"{M}/state", content=merge(a=2), headers=MERGE | late),
        await http.put(f"{M}/state", json={"document": document}, headers=late),
        await http.post(f"{M}/commit", json={"patch": {}, "events": [{}]}, headers=late),
    ):
        assert answer.status_code == 412
        assert answer.headers["ETag"] == '"1"'
        assert answer.headers["Content-Type"] == "application/problem+json"
        body = answer.json()
        assert body["type"] == "urn:memstore:error:state-conflict"
        assert (body["expected_version"], body["actual_version"]) == (0, 1)
    assert (await http.get(f"{M}/events")).json()["events"] == []


async def test_a_whole_state_needs_a_precondition(http: httpx.AsyncClient) -> None:
    document = (await http.get(f"{M}/state")).json()["document"]
    assert (await http.put(f"{M}/state", json={"document": document})).status_code == 428
    assert (await http.post(f"{M}/commit", json={"state": document})).status_code == 428
    for match in ("*", '"1"', '"2"'):
        answer = await http.put(
            f"{M}/state", json={"document": document}, headers={"If-Match": match}
        )
        assert answer.status_code == 200, match
    for wrong in ("x", '"-1"', '"1", "2"', 'W/"1"', '"99999999999"', "²"):
        answer = await http.put(
            f"{M}/state",
            json={"document": document},
            headers=[(b"If-Match", wrong.encode())],
        )
        assert answer.status_code == 422, wrong


@pytest.mark.parametrize("whole", ["put", "commit"])
async def test_a_whole_state_over_any_version_is_saved_once_under_a_key(
    http: httpx.AsyncClient, whole: str
) -> None:
    document = (await http.get(f"{M}/state")).json()["document"]
    headers = {"If-Match": "*", "Idempotency-Key": "k"}
    for _ in range(2):
        if whole == "put":
            body = {"document": document, "author": "a"}
            answer = await http.put(f"{M}/state", json=body, headers=headers)
        else:
            body = {"state": document, "events": [{"content": "x"}]}
            answer = await http.post(f"{M}/commit", json=body, headers=headers)
        assert (answer.status_code, answer.headers["ETag"]) == (200, '"1"'), answer.text
    assert len((await http.get(f"{M}/history")).json()["versions"]) == 1


async def test_patches_go_by_their_media_type(http: httpx.AsyncClient) -> None:
    change = [{"op": "add", "path": "/user_preferences/b", "value": 2}]
    await http.patch(f"{M}/state", content=merge(a=1), headers=MERGE)
    answer = await http.patch(
        f"{M}/state", content=json.dumps(change), headers={"Content-Type": PATCH_TYPE}
    )
    assert answer.json()["document"]["user_preferences"] == {"a": 1, "b": 2}
    wrong = await http.patch(f"{M}/state", json={})
    assert wrong.status_code == 415
    assert MERGE_TYPE in wrong.headers["Accept"]
    mixed = await http.patch(f"{M}/state", content=json.dumps(change), headers=MERGE)
    assert mixed.status_code == 422


async def test_a_repeated_request_is_answered_as_the_first_was(http: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "k"}
    for path, body in (("events", [{"content": "a"}, {"content": "b"}]), ("events", {})):
        first = await http.post(f"{M}/{path}", json=body, headers=key)
        again = await http.post(f"{M}/{path}", json=body, headers=key)
        assert first.status_code == again.status_code == 201
        assert again.json()["repeated"] == first.json()["positions"] == again.json()["positions"]
        key = {"Idempotency-Key": "k2"}
    other = await http.post(f"{M}/events", json={"content": "else"}, headers=key)
    assert other.status_code == 422
    assert other.json()["type"] == "urn:memstore:error:idempotency-conflict"
    for _ in range(2):
        saved = await http.patch(f"{M}/state", content=merge(a=1), headers=MERGE | key)
        assert saved.headers["ETag"] == '"1"'
    # as long as the store takes it, for one event, for several, and for lines of any number
    for text, kind, most in (("{}", JSON, 512), ("[{}]", JSON, 507), ("{}\n", NDJSON, 480)):
        for size in (0, most, most + 1):
            headers = {"Content-Type": kind, "Idempotency-Key": "x" * size}
            answer = await http.post(f"{M}/events", content=text, headers=headers)
            assert answer.status_code == (201 if size == most else 422)
            assert answer.json().get("path") == (None if size == most else "Idempotency-Key")


async def test_http_refusals_are_problems_of_the_same_table(http: httpx.AsyncClient) -> None:
    answers = {
        (404, "no-route"): await http.get("/v1/nothing"),
        (405, "no-route"): await http.delete(f"{M}/history"),
        (415, "invalid-input"): await http.patch(f"{M}/state", json={}),
        (428, "invalid-input"): await http.put(f"{M}/state", json={"document": {}}),
    }
    for (status, name), answer in answers.items():
        problem = answer.json()
        assert problem["status"] == answer.status_code == status
        assert problem["type"] == f"urn:memstore:error:{name}"
        assert problem["instance"] == f"urn:memstore:request:{answer.headers['X-Request-Id']}"
        assert problem["detail"]
    assert answers[405, "no-route"].headers["Allow"] == "GET"
    told = [from_problem(answer.json()) for answer in answers.values()]
    assert [type(error) for error in told] == [NoRoute, NoRoute, InvalidInput, InvalidInput]
    assert isinstance(told[0], ServiceError)  # not NotFound: nobody looked
    assert [getattr(error, "path", None) for error in told[2:]] == ["Content-Type", "If-Match"]


# limits


async def test_what_is_too_much_is_refused(http: httpx.AsyncClient) -> None:
    long = await http.post(f"{M}/events", json={"content": "x" * 2_000})
    assert long.status_code == 413
    assert long.json()["path"] == "body"
    many = await http.post(f"{M}/events", json=[{}] * 6)
    assert (many.status_code, many.json()["path"]) == (422, "events")
    commit = await http.post(f"{M}/commit", json={"events": [{}] * 6})
    assert commit.status_code == 422
    for path in ("events?limit=11", "history?limit=11", "contexts?limit=11", "events?limit=0"):
        page = await http.get(f"{M}/{path}")
        assert (page.status_code, page.json()["path"]) == (422, "limit"), path
    budget = await http.post(f"{M}/resume", json={"budget": 501})
    assert (budget.status_code, budget.json()["path"]) == (422, "budget")
    assert (await http.get(f"{M}/events")).json()["events"] == []


async def test_json_that_no_one_could_read_again_is_refused(http: httpx.AsyncClient) -> None:
    # traps 30 and 31
    deep = "[" * 400 + "]" * 400
    headers = {"Content-Type": "application/json"}
    for content, status in (
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"payload": NaN}', 400),
        (b'{"payload": 1e5000}', 400),
        (b'{"payload": ' + deep.encode() + b"}", 422),
        (b"[" * 1_900, 400),
        (b'{"content": 1}', 422),
        (b'"text"', 422),
        (b"[[]]", 422),
        (b'{"content": "x", "positon": 1}', 422),
        (b'{"occurred_at": "2026-04-28T09:00:00"}', 422),
        (b'{"occurred_at": "yesterday"}', 422),
        (b'{"occurred_at": 5}', 422),
    ):
        answer = await http.post(f"{M}/events", content=content, headers=headers)
        assert answer.status_code == status, (content[:40], answer.text)
        assert answer.headers["Content-Type"] == "application/problem+json"
    digits = b'{"payload": ' + b"9" * 1_900 + b"}"
    assert (await http.post(f"{M}/events", content=digits, headers=headers)).status_code == 201


async def test_half_a_surrogate_pair_is_mended(http: httpx.AsyncClient) -> None:
    # trap 2
    headers = {"Content-Type": "application/json"}
    body = b'{"content": "a\\ud83d", "session_id": "s"}'
    assert (await http.post(f"{M}/events", content=body, headers=headers)).status_code == 201
    assert (await http.get(f"{M}/events")).json()["events"][0]["content"] == "a�"
    body = b'{"content": "x", "session_id": "a\\ud83d"}'
    answer = await http.post(f"{M}/events", content=body, headers=headers)
    assert answer.status_code == 422
    for path in ("search", "resume"):
        text = b'{"%s": "\\ud83d\\u0000 x"}' % (b"query" if path == "search" else b"task")
        answer = await http.post(f"{M}/{path}", content=text, headers=headers)
        assert answer.status_code == 200, answer.text


async def test_a_body_that_stops_coming_is_given_up(database_url: str) -> None:
    app = application(database_url, insecure=True, body_timeout=0.2)

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"content":'
        await asyncio.sleep(30)
        yield b'"x"}'

    async with asked(app) as http:
        answer = await http.post(
            f"{M}/events", content=slow(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 408
        assert answer.headers["Connection"] == "close"


# streams


async def test_any_number_of_lines_is_appended_batch_by_batch(http: httpx.AsyncClient) -> None:
    lines = b"".join(json.dumps({"content": f"line {n}"}).encode() + b"\n" for n in range(1_203))
    headers = {"Content-Type": NDJSON, "Idempotency-Key": "bulk"}

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(lines), 777):
            yield lines[start : start + 777]

    answer = await http.post(f"{M}/events", content=chunks(), headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"events": 1_203, "repeated": 0, "first": 1, "last": 1_203}
    again = await http.post(f"{M}/events", content=lines, headers=headers)
    assert again.json() == {"events": 1_203, "repeated": 1_203, "first": 1, "last": 1_203}
    stream = await http.get(f"{M}/events", headers={"Accept": NDJSON})
    assert stream.headers["Content-Type"].startswith(NDJSON)
    found = [json.loads(line) for line in stream.text.splitlines()]
    assert [event["content"] for event in found] == [f"line {n}" for n in range(1_203)]
    some = await http.get(f"{M}/events?limit=601&newest_first=true", headers={"Accept": NDJSON})
    positions = [json.loads(line)["position"] for line in some.text.splitlines()]
    assert positions == list(range(1_203, 602, -1))


async def test_a_bad_line_says_what_was_stored_before_it(http: httpx.AsyncClient) -> None:
    for bad, status in ((b"{oops", 400), (b'{"role": "robot"}', 422), (b"[]", 422)):
        lines = b'{"content": "x"}\n' * 700 + b"\n" + bad + b"\n" + b'{"content": "never"}'
        path = f"/v1/agents/{status}/users/{bad.hex()}/events"
        answer = await http.post(path, content=lines, headers={"Content-Type": NDJSON})
        assert answer.status_code == status, answer.text
        assert answer.json()["stored"] == {"events": 500, "repeated": 0, "first": 1, "last": 500}
    assert (
        "line 702"
        in (
            await http.post(
                f"{M}/events",
                content=b"{}\n" * 700 + b"\n{oops",
                headers={"Content-Type": NDJSON},
            )
        ).text
    )


async def test_pages_lead_to_the_next(http: httpx.AsyncClient) -> None:
    for n in range(3):
        await http.post(f"{M}/events", json=[{"content": f"{n}{m}"} for m in range(5)])
    seen: list[int] = []
    following: int | None = 0
    while following is not None:
        page = (await http.get(f"{M}/events?limit=7&after={following}")).json()
        seen += [event["position"] for event in page["events"]]
        following = page["next"]
    assert seen == list(range(1, 16))


async def test_times_in_a_query_may_hold_a_plus_sign(http: httpx.AsyncClient) -> None:
    event = {"content": "x", "occurred_at": "2026-04-28T09:00:00+02:00"}
    await http.post(f"{M}/events", json=event)
    for since, found in (
        ("2026-04-28T09:00:00+02:00", 1),  # the plus arrives as a space
        ("2026-04-28T09:00:00%2B02:00", 1),
        ("2026-04-28T07:00:00Z", 1),
        ("2026-04-28T07:00:01Z", 0),
    ):
        answer = await http.get(f"{M}/events?since={since}")
        assert len(answer.json()["events"]) == found, since
    assert (await http.get(f"{M}/events?since=2026-04-28T09:00:00")).status_code == 422


# the encoder


class Held(WordEncoder):
    """Encodes when it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may = threading.Event()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.set()
        assert self.may.wait(30)
        return super().encode(texts)


async def test_a_saturated_encoder_leaves_the_words(database_url: str) -> None:
    encoder = Held()
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        store.memory(agent="a", user="u").append(content="we settled on postgres")
    app = application(
        database_url, encoder=encoder, insecure=True, query_encoders=1, query_patience=0.1
    )
    async with asked(app) as http:
        ask = {"query": "postgres"}
        first = asyncio.create_task(http.post(f"{M}/search", json=ask))
        await asyncio.to_thread(encoder.asked.wait, 30)
        others = await asyncio.gather(
            *[http.post(f"{M}/search", json=ask) for _ in range(20)],
            http.post(f"{M}/resume", json={"task": "postgres"}),
        )
        for answer in others:
            assert answer.status_code == 200
            assert "lexical only" in answer.json()["degraded"]
        assert others[0].json()["hits"][0]["event"]["content"] == "we settled on postgres"
        assert (await http.get("/healthz")).status_code == 200  # the loop is free
        encoder.may.set()
        assert (await first).json()["degraded"] == ""
        counted = (await http.get("/metrics")).text
        assert "memstore_degraded_answers_total 21.0" in counted


async def test_more_requests_than_places_are_told_to_come_back(database_url: str) -> None:
    encoder = Held()
    app = application(database_url, encoder=encoder, insecure=True, max_requests=2)
    async with asked(app) as http:
        waiting = [
            asyncio.create_task(http.post(f"{M}/search", json={"query": "x"})) for _ in range(2)
        ]
        await asyncio.to_thread(encoder.asked.wait, 30)
        refused = await http.post(f"{M}/search", json={"query": "x"})
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["type"] == "urn:memstore:error:too-busy"
        assert (await http.get("/healthz")).status_code == 200
        encoder.may.set()
        assert {(await one).status_code for one in waiting} == {200}
        assert (await http.post(f"{M}/search", json={"query": "x"})).status_code == 200


# the rest


async def test_answers_carry_security_headers_and_a_request_id(http: httpx.AsyncClient) -> None:
    for path in (f"{M}/events", "/nothing", "/healthz"):
        given = {"X-Request-Id": "req-7", "Origin": ""} if path == "/healthz" else {}
        answer = await http.get(path, headers=given)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert given.get("X-Request-Id", "") in answer.headers["X-Request-Id"]
        assert not [name for name in answer.headers if name.startswith("access-control")]
    forged = await http.get(f"{M}/state?version=9", headers={"X-Request-Id": "a b\t{}"})
    assert forged.headers["X-Request-Id"] != "a b\t{}"
    assert forged.json()["instance"].endswith(forged.headers["X-Request-Id"])


async def test_unknown_paths_and_methods_are_problems_too(http: httpx.AsyncClient) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/v1/agents/a/users/u/nothing", 404),
        ("GET", "/v1/agents//users/u/events", 404),
        ("POST", f"{M}/state", 405),
        ("OPTIONS", f"{M}/events", 405),
        ("GET", f"{M}/events/", 404),
        ("GET", "/docs", 404),
        ("GET", "/v1/agents/%ff/users/u/events", 422),
        ("GET", "/v1/agents/%00/users/u/events", 422),
    ):
        answer = await http.request(method, path)
        assert answer.status_code == status, path
        assert answer.headers["Content-Type"] == "application/problem+json"


async def test_renderings_and_ready_and_openapi(http: httpx.AsyncClient) -> None:
    await http.post(f"{M}/events", json={"content": "we settled on postgres"})
    for form in ("text", "openai", "anthropic"):
        answer = await http.post(f"{M}/resume", json={"task": "x", "render": form})
        assert "postgres" in json.dumps(answer.json()["rendered"])
    assert (await http.post(f"{M}/resume", json={"render": "xml"})).status_code == 422
    ready = (await http.get("/readyz")).json()
    assert [check["name"] for check in ready["checks"]] == ["database", "migrations", "encoder"]
    document = (await http.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            assert described["summary"], (method, path)
            for body in described.get("requestBody", {}).get("content", {}).values():
                assert body["example"], (method, path)
            if path.startswith("/v1"):
                assert described["security"], (method, path)


async def test_readiness_waits_for_the_encoder_and_tells_the_queues_age(database_url: str) -> None:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET):
        pass
    app = application(database_url, encoder=WordEncoder(), insecure=True)
    async with asked(app) as http:
        await http.post(f"{M}/events", json={"content": "waits"})
        ready = await http.get("/readyz")
        checks = {check["name"]: check for check in ready.json()["checks"]}
        assert ready.status_code == 200
        assert checks["encoder"]["detail"] == "words"
        assert checks["queue"]["detail"].startswith("1 entries wait")
        assert "memstore_queue_entries 1.0" in (await http.get("/metrics")).text


async def test_a_failure_that_nobody_foresaw_is_a_problem_without_its_words(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("zanzibarmarker")

    monkeypatch.setattr("memstore.AsyncMemory.history", broken)
    answer = await http.get(f"{M}/history")
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:memstore:error:service"
    assert "zanzibarmarker" not in answer.text + caplog.text
    assert any("ZeroDivisionError" in str(getattr(r, "fields", "")) for r in caplog.records)
