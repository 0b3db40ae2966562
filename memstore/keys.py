"""API keys: what a key may do, and the token that its holder has.

A token is ``mem_<id>_<secret>``. The secret is 256 random bits, so one round of SHA-256 is
enough to store it by: there is nothing to guess, and a slow hash would only slow every request.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from memstore.errors import InvalidInput
from memstore.text import check_id

__all__ = ["SCOPES", "ApiKey", "NewKey", "Scope", "make_token", "parse_token"]

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_BOUND = 1_000

_TOKEN = re.compile(r"mem_([0-9a-f]{16})_([\w-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is kept: its holder's secret is not in it.

    `scopes` are what it may do: read; write (append, save, feed back); admin, which holds the
    others and erasing too. `agents` and `users` bind it to those ids; None binds it to none.
    """

    key_id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] | None
    users: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def active(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired. A revocation may lie ahead."""
        ends = [end for end in (self.expires_at, self.revoked_at) if end is not None]
        return all(now < end for end in ends)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made, with its token, which can't be had again."""

    key: ApiKey
    token: str = field(repr=False)


def make_token() -> tuple[str, bytes, str]:
    """Make a token: its public id, the digest to store, the token itself."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return key_id, _digest(secret), f"mem_{key_id}_{secret}"


def parse_token(token: str) -> tuple[str, bytes] | None:
    """Read a token's id and digest; None where it is no token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else (match[1], _digest(match[2]))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def check_scopes(scopes: Iterable[str]) -> list[Scope]:
    """Return scopes in their order, once each; raises InvalidInput on an unknown one, or none."""
    given = set(scopes)
    if not given or given - set(SCOPES):
        raise InvalidInput(f"one or more of {', '.join(SCOPES)}", path="scopes")
    return [scope for scope in SCOPES if scope in given]


def check_bound(ids: Iterable[str] | None, name: str) -> list[str] | None:
    """Check the ids that a key is bound to; none at all would be a key to nothing."""
    if ids is None:
        return None
    found = sorted({check_id(one, name) for one in ids})
    if not 1 <= len(found) <= MAX_BOUND:
        raise InvalidInput(f"1 to {MAX_BOUND} ids", path=name)
    return found
