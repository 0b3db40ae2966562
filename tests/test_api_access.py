"""Who gets in: keys, scopes, bounds, JWTs, rates; every route with another tenant's key."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI

from memstore import ConfigurationError, MemoryStore
from memstore_api import ServerSettings, create_app
from memstore_api.serving import serve
from tests.serving import LOCAL, application, asked
from tests.stores import QUIET

MARK = "zanzibarmarker"
A_MEMORY = "/v1/agents/a/users/u"
OPEN = {"/healthz", "/readyz"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the OpenAPI document, with its example as the body."""

    method: str
    path: str
    content: bytes | None
    headers: dict[str, str]

    async def send(self, http: httpx.AsyncClient, **more: str) -> httpx.Response:
        path = self.path.replace("?", "")
        params = {"old": "0", "new": "1"} if path.endswith("/diff") else {}
        return await http.request(
            self.method, path, params=params, content=self.content, headers=self.headers | more
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def calls(app: FastAPI, context: str, agent: str = "a", user: str = "u") -> list[Call]:
    """List a request for every route, method and body type."""
    found = []
    for template, methods in app.openapi()["paths"].items():
        path = template.replace("{agent}", agent).replace("{user}", user)
        path = path.replace("{context_id}", context)
        path = path.replace("{name}", "desk").replace("{version}", "1")
        for method, described in methods.items():
            bodies = described.get("requestBody", {}).get("content", {"": {}})
            for media_type, body in bodies.items():
                headers = {"Content-Type": media_type} if media_type else {}
                if method == "put":
                    headers["If-Match"] = "*"
                content = json.dumps(body["example"]).encode() if body else None
                found.append(Call(method.upper(), path, content, headers))
    return sorted(found, key=lambda call: call.method == "DELETE")  # erase comes last


@dataclass(frozen=True, slots=True)
class Filled:
    """A database with a memory of each of two tenants, and the store that made them."""

    url: str
    store: MemoryStore
    other: MemoryStore
    context: str

    def key(self, *scopes: str, tenant: str = "default", **more: Any) -> str:
        store = self.store if tenant == "default" else self.other
        return store.create_key("k", scopes=scopes, **more).token


@pytest.fixture
def filled(database_url: str) -> Iterator[Filled]:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        store.create_tenant("other")
        memory = store.memory(agent="a", user="u")
        memory.append(content=f"{MARK} one", correlation_id=MARK)
        memory.patch({"user_preferences": {"timezone": MARK}}, reason=MARK)
        memory.patch({"user_preferences": {"timezone": f"{MARK} 2"}})
        store.schemas.register("hidden", 1, {"title": MARK})
        context = memory.resume(MARK, record=True)
        yield Filled(database_url, store, store.for_tenant("other"), str(context.id))


def all_of(store: MemoryStore) -> Any:
    memory = store.memory(agent="a", user="u")
    found = (memory.events(), memory.state().document, memory.history(), memory.traces())
    return (*found, store.schemas.registered())


async def test_every_route_asks_for_a_key(filled: Filled) -> None:
    app = application(filled.url)
    before = all_of(filled.store)
    async with asked(app) as http:
        for call in calls(app, filled.context):
            for wrong in ("", "Bearer ", "Bearer mem_x", "Basic eDp5", "Bearer a.b.c"):
                answer = await call.send(http, **{"Authorization": wrong} if wrong else {})
                if call.path in OPEN:
                    assert answer.status_code == 200, call
                else:
                    assert answer.status_code == 401, call
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    assert answer.json()["type"] == "urn:memstore:error:access-denied"
                assert MARK not in answer.text
    assert all_of(filled.store) == before


async def test_every_route_with_another_tenants_key_and_ids(filled: Filled) -> None:
    # trap 22
    app = application(filled.url)
    before = all_of(filled.store)
    async with asked(app, filled.key("admin", tenant="other")) as http:
        walked = calls(app, filled.context)
        assert len(walked) >= 20
        for call in walked:
            answer = await call.send(http)
            assert answer.status_code != 401, call
            assert MARK not in answer.text, call
            if "/feedback" in call.path:
                assert answer.status_code == 404
        listed = await http.get("/v1/memories")
        assert listed.text == ""
        assert (await http.get("/v1/schemas/hidden")).status_code == 404
    assert all_of(filled.store) == before
    assert [i.tenant for i in filled.store.memories()] == ["default"]


async def test_its_own_tenants_key_sees_it_by_the_same_requests(filled: Filled) -> None:
    """So that the walk above shows a wall, and not requests that fail anyway."""
    app = application(filled.url)
    async with asked(app, filled.key("admin")) as http:
        seen = 0
        for call in calls(app, filled.context):
            answer = await call.send(http)
            assert answer.status_code < 500, (call, answer.text)
            seen += MARK in answer.text
        assert seen >= 6
    assert filled.store.memory(agent="a", user="u").events() == []  # erased at last


async def test_scopes_allow_what_they_say(filled: Filled) -> None:
    app = application(filled.url)
    allowed = {"read": set[str](), "write": set[str](), "admin": set[str]()}
    for scope, found in allowed.items():
        async with asked(app, filled.key(scope)) as http:
            for call in calls(app, filled.context, agent="fresh"):
                answer = await call.send(http)
                if answer.status_code != 403:
                    found.add(str(call))
    every = {str(call) for call in calls(app, filled.context, agent="fresh")}
    reads = {c for c in every if c.startswith("GET") or c.endswith(("/search", "/resume"))}
    administration = {c for c in every if c.startswith("DELETE") or c.endswith("/trial")}
    administration.add("PUT /v1/schemas/desk/versions/1")
    opened = {f"GET {path}" for path in OPEN}
    assert allowed["read"] == reads
    assert allowed["write"] == every - reads - administration | opened
    assert allowed["admin"] == every


async def test_a_bound_key_reaches_its_agents_and_users_alone(filled: Filled) -> None:
    filled.store.memory(agent="b", user="u").append(content="b's")
    app = application(filled.url)
    async with asked(app, filled.key("admin", agents=["b", "c/d"], users=["u"])) as http:
        assert (await http.get("/v1/agents/b/users/u/events")).status_code == 200
        assert (await http.get("/v1/agents/c%2Fd/users/u/events")).status_code == 200
        for elsewhere in ("a/users/u", "b/users/v", "c/users/u", "c%252Fd/users/u"):
            answer = await http.get(f"/v1/agents/{elsewhere}/events")
            assert answer.status_code == 403, elsewhere
            assert MARK not in answer.text
        assert (await http.get("/v1/memories")).json() == {"agent": "b", "user": "u"}
        for call in calls(app, filled.context):
            if "/agents/" in call.path:
                assert (await call.send(http)).status_code == 403, call


async def test_a_key_ends_at_once(filled: Filled) -> None:
    made = filled.store.create_key("k", scopes=["read"])
    brief = filled.key("read", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    async with asked(application(filled.url), made.token) as http:
        assert (await http.get(f"{A_MEMORY}/events")).status_code == 200
        filled.store.revoke_key(made.key.key_id)
        assert (await http.get(f"{A_MEMORY}/events")).status_code == 401
        given = {"Authorization": f"Bearer {brief}"}
        assert (await http.get(f"{A_MEMORY}/events", headers=given)).status_code == 401


async def test_rates_are_a_keys_own(filled: Filled) -> None:
    app = application(filled.url, rate=0.001, burst=2)
    async with asked(app, filled.key("read")) as http:
        got = [(await http.get(f"{A_MEMORY}/events")) for _ in range(3)]
        assert [answer.status_code for answer in got] == [200, 200, 429]
        assert int(got[-1].headers["Retry-After"]) >= 1
        assert got[-1].json()["limited"] is True
        given = {"Authorization": f"Bearer {filled.key('read')}"}
        assert (await http.get(f"{A_MEMORY}/events", headers=given)).status_code == 200


# without keys


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_a_server_without_keys_listens_on_loopback_alone(host: str) -> None:
    with pytest.raises(ConfigurationError, match="loopback"):
        serve(ServerSettings(insecure=True, host=host), print)


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (("10.0.0.9", 1), {}),
        (("127.0.0.1", 1), {"Host": "rebound.example"}),
        (("127.0.0.1", 1), {"Host": "localhost.example:80"}),
        (("127.0.0.1", 1), {"Origin": "https://page.example"}),
    ],
)
async def test_a_server_without_keys_answers_no_one_from_elsewhere(
    database_url: str, client: tuple[str, int], headers: dict[str, str]
) -> None:
    app = application(database_url, insecure=True)
    async with asked(app) as fine:
        assert (await fine.get(f"{A_MEMORY}/events")).status_code == 200
        transport = httpx.ASGITransport(app, client=client)
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL) as http:
            answer = await http.get(f"{A_MEMORY}/events", headers=headers)
        assert answer.status_code == 403


# JWTs


@pytest.fixture(scope="module")
def signing() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def issuer(signing: ec.EllipticCurvePrivateKey, tmp_path: Path) -> dict[str, Any]:
    """The settings that take JWTs signed by that key."""
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signing.public_key()))
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [public | {"kid": "k1", "alg": "ES256"}]}))
    return {"jwt_issuer": "https://id", "jwt_audience": "memstore", "jwt_keys": file}


def claims(**changed: Any) -> dict[str, Any]:
    given = {
        "iss": "https://id",
        "aud": "memstore",
        "sub": "svc",
        "exp": datetime.now(UTC) + timedelta(minutes=5),
        "tenant": "default",
        "scope": "openid memstore:read",
    }
    return {name: value for name, value in (given | changed).items() if value is not None}


async def test_a_jwt_opens_what_it_says(
    filled: Filled, issuer: dict[str, Any], signing: ec.EllipticCurvePrivateKey
) -> None:
    def signed(**changed: Any) -> dict[str, str]:
        token = jwt.encode(claims(**changed), signing, "ES256", headers={"kid": "k1"})
        return {"Authorization": f"Bearer {token}"}

    async with asked(application(filled.url, **issuer)) as http:
        answer = await http.get(f"{A_MEMORY}/events", headers=signed())
        assert answer.status_code == 200
        assert MARK in answer.text
        write = await http.post(f"{A_MEMORY}/events", json={"content": "x"}, headers=signed())
        assert write.status_code == 403
        theirs = await http.get(f"{A_MEMORY}/events", headers=signed(tenant="other"))
        assert MARK not in theirs.text
        refused: dict[int, tuple[dict[str, Any], ...]] = {
            401: (
                {"iss": "https://else"},
                {"aud": "else"},
                {"exp": datetime.now(UTC) - timedelta(hours=1)},
                {"exp": None},
                {"sub": None},
            ),
            403: (
                {"tenant": None},
                {"tenant": "nobody"},
                {"scope": "openid"},
                {"scope": "read"},
                {"agents": ["b"]},
                {"agents": "a"},
                {"users": []},
            ),
        }
        for status, several in refused.items():
            for changed in several:
                answer = await http.get(f"{A_MEMORY}/events", headers=signed(**changed))
                assert answer.status_code == status, changed


async def test_one_tenants_subject_does_not_use_up_anothers_rate(
    filled: Filled, issuer: dict[str, Any], signing: ec.EllipticCurvePrivateKey
) -> None:
    async with asked(application(filled.url, rate=0.001, burst=1, **issuer)) as http:
        for tenant, status in ((None, 200), (None, 429), ("other", 200), ("other", 429)):
            named = claims() if tenant is None else claims(tenant=tenant)
            token = jwt.encode(named, signing, "ES256", headers={"kid": "k1"})
            answer = await http.get(
                f"{A_MEMORY}/events", headers={"Authorization": f"Bearer {token}"}
            )
            assert answer.status_code == status, (tenant, answer.text)


async def test_a_jwt_that_another_signed_opens_nothing(
    filled: Filled, issuer: dict[str, Any], signing: ec.EllipticCurvePrivateKey
) -> None:
    stranger = ec.generate_private_key(ec.SECP256R1())
    public = signing.public_key().public_numbers().x.to_bytes(32, "big")
    header = {"kid": "k1"}
    tokens = [
        jwt.encode(claims(), stranger, "ES256", headers=header),
        jwt.encode(claims(), signing, "ES256", headers={"kid": "k2"}),
        jwt.encode(claims(), signing, "ES256"),
        jwt.encode(claims(), "", "none", headers=header),
        jwt.encode(claims(), public, "HS256", headers=header),
    ]
    async with asked(application(filled.url, **issuer)) as http:
        for token in tokens:
            given = {"Authorization": f"Bearer {token}"}
            assert (await http.get(f"{A_MEMORY}/events", headers=given)).status_code == 401


@pytest.mark.parametrize(
    "content", ["", "{}", '{"keys": [{"kty": "oct", "kid": "x", "k": "c2VjcmV0", "alg": "HS256"}]}']
)
def test_unsound_jwks_are_refused_at_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(content)
    given: dict[str, Any] = {"jwt_issuer": "i", "jwt_audience": "a", "jwt_keys": file}
    with pytest.raises(ConfigurationError):
        create_app(ServerSettings(url="postgresql://", **given))
    with pytest.raises(ConfigurationError, match="all of"):
        create_app(ServerSettings(url="postgresql://", jwt_issuer="i"))


# what is told, and to whom


async def test_no_log_line_holds_recalled_text_and_no_error_a_secret(
    filled: Filled, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    token = filled.key("admin")
    app = application(filled.url)
    said = []
    async with asked(app, token) as http:
        for call in calls(app, filled.context):
            said.append(await call.send(http))
        said.append(await http.get(f"/v1/agents/{MARK}/users/u/events?session={MARK}&since={MARK}"))
        said.append(await http.post(f"{A_MEMORY}/search", json={"query": MARK, "k": MARK}))
        said.append(await http.get(f"/{MARK}"))
    lines = [
        record.getMessage() + json.dumps(getattr(record, "fields", {}))
        for record in caplog.records
        if record.name.partition(".")[0] not in ("httpx", "asyncio", "httpcore")
    ]
    assert len([line for line in lines if "request_id" in line]) >= 20
    out, err = capfd.readouterr()
    for text in (*lines, out, err):
        assert MARK not in text
        assert token not in text
        assert "Postgres" not in text  # the examples' content
    for answer in said:
        assert token.split("_", 2)[2] not in answer.text
        assert "postgresql://" not in answer.text


async def test_a_database_that_is_gone_is_told_without_its_address(filled: Filled) -> None:
    app = application(filled.url, insecure=True, connect_timeout=0.5, pool_size=1)
    async with asked(app) as http:
        await app.state.service.store._db.close()
        answer = await http.get(f"{A_MEMORY}/events")
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        for secret in ("postgres@", "/dev/shm", "socket", "closed"):
            assert secret not in answer.text
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["checks"][0] == {
            "name": "database",
            "ok": False,
            "detail": "no connection",
        }
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/metrics")).status_code == 200
