"""Who asks, and may they: API keys, JWTs, rates."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jwt
from starlette.requests import Request

from memstore import AccessDenied, AsyncMemoryStore, ConfigurationError, TooBusy
from memstore.keys import SCOPES, Scope
from memstore_api.settings import ServerSettings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
MAX_TOKEN = 8_192
MAX_BUCKETS = 10_000
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: of which tenant, what they may do, and for which agents and users alone."""

    id: str
    tenant: str
    scopes: tuple[Scope, ...] = SCOPES
    agents: tuple[str, ...] | None = None
    users: tuple[str, ...] | None = None

    def demand(self, scope: Scope, agent: str | None = None, user: str | None = None) -> None:
        """Raise `AccessDenied` unless they may."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise AccessDenied(f"the key lacks the scope {scope!r}")
        if agent is not None and not self.sees(agent, user):
            raise AccessDenied("the key is bound to other agents or users")

    def sees(self, agent: str, user: str | None) -> bool:
        """Whether a memory is among those that the key is bound to."""
        return (self.agents is None or agent in self.agents) and (
            self.users is None or user in self.users
        )


class Tokens:
    """JWTs of one issuer, for one audience, signed by a key of one file."""

    def __init__(self, issuer: str, audience: str, file: Path) -> None:
        self._issuer = issuer
        self._audience = audience
        try:
            found = jwt.PyJWKSet.from_dict(json.loads(file.read_text(encoding="utf-8"))).keys
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise ConfigurationError(f"{file} can't be read as a JWKS: {error}") from error
        # A key with a secret in it would let whoever reads the file sign tokens.
        self._keys = {key.key_id: key for key in found if key.algorithm_name in ALGORITHMS}
        if not self._keys or None in self._keys:
            raise ConfigurationError(f"{file}: every key needs a kid and a public algorithm")

    def principal(self, token: str) -> Principal:
        """Check a token and read who it is of; raises `AccessDenied`."""
        try:
            key = self._keys[jwt.get_unverified_header(token).get("kid")]
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=30,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
            raise AccessDenied("the token is not valid", known=False) from error
        return _from_claims(claims)


def _from_claims(claims: dict[str, Any]) -> Principal:
    tenant, scope = claims.get("tenant"), claims.get("scope", "")
    granted = str(scope).split()
    scopes: tuple[Scope, ...] = tuple(s for s in SCOPES if f"memstore:{s}" in granted)
    if not isinstance(tenant, str) or not tenant or not scopes:
        raise AccessDenied("the token names no tenant, or no scope of memstore")
    return Principal(
        id=f"jwt:{claims['sub']}",
        tenant=tenant,
        scopes=scopes,
        agents=_bound(claims, "agents"),
        users=_bound(claims, "users"),
    )


def _bound(claims: dict[str, Any], name: str) -> tuple[str, ...] | None:
    ids = claims.get(name)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise AccessDenied(f"the token's {name} are not a list of strings")
    return tuple(ids)


class Rates:
    """A token bucket for each principal, in this process: n servers allow n times the rate."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Take one; raises `TooBusy` where none is left."""
        now = time.monotonic()
        left, then = self._buckets.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        self._buckets[who] = (max(0.0, left - 1), now) if left >= 1 else (left, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = (1 - left) / self._rate
            raise TooBusy("the key's rate is used up", retry_after=wait, limited=True)


class Gate:
    """Lets requests in: says who asks, or refuses."""

    def __init__(self, settings: ServerSettings) -> None:
        self._insecure = settings.insecure
        self._tenant = settings.tenant
        self._rates = Rates(settings.rate, settings.burst)
        self._tokens = tokens_of(settings)

    async def admit(self, request: Request, store: AsyncMemoryStore) -> Principal:
        """Find who asks; raises `AccessDenied`, and `TooBusy` where their rate is used up."""
        if self._insecure:
            _demand_local(request)
            principal = Principal("anyone", self._tenant)
        else:
            principal = await self._known(_bearer(request), store)
        # A JWT's subject is its tenant's own: two tenants may each have an "agent-1".
        self._rates.take(f"{principal.tenant}/{principal.id}")
        return principal

    async def _known(self, token: str, store: AsyncMemoryStore) -> Principal:
        if token.startswith("mem_"):
            key = await store.authenticate(token)
            if key is not None:
                return Principal(key.key_id, key.tenant, key.scopes, key.agents, key.users)
        elif self._tokens is not None:
            return self._tokens.principal(token)
        raise AccessDenied("the key is unknown, expired or revoked", known=False)


def tokens_of(settings: ServerSettings) -> Tokens | None:
    """Make what reads JWTs, where the settings want that: all three of them or none."""
    issuer, audience, file = settings.jwt_issuer, settings.jwt_audience, settings.jwt_keys
    if issuer is None and audience is None and file is None:
        return None
    if not issuer or not audience or file is None:
        raise ConfigurationError("JWTs need all of jwt_issuer, jwt_audience and jwt_keys")
    return Tokens(issuer, audience, file)


def _bearer(request: Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
        raise AccessDenied("a key is needed: Authorization: Bearer …", known=False)
    return token.strip()


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own, out of others' reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _demand_local(request: Request) -> None:
    """Refuse what comes from elsewhere, also through a browser that a web page leads here."""
    name: Sequence[str] = request.headers.get("Host", "").rsplit(":", 1)
    host = name[0] if len(name) == 1 or name[1].isdigit() else ":".join(name)
    client = request.client
    if client is None or not is_loopback(client.host) or host not in LOCAL_NAMES:
        raise AccessDenied("a server that asks for no key answers on loopback alone")
    if "Origin" in request.headers:
        raise AccessDenied("a server that asks for no key answers no browser")
