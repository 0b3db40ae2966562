"""Errors as problem details (RFC 9457): one table for the server and for its clients.

What an error says about the server's own affairs (the database, its settings) stays out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memstore import errors
from memstore.errors import MemstoreError

__all__ = ["KINDS", "MEDIA_TYPE", "Kind", "NoRoute", "from_problem", "kind_of", "to_problem"]

MEDIA_TYPE = "application/problem+json"
URN = "urn:memstore:error:"


class NoRoute(errors.ServiceError):
    """A server was asked for a route that it does not have: is it of another version?"""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of error is told: its status and name, and the fields that go along.

    `detail` stands for the error's own message where that is not the client's business.
    """

    error: type[MemstoreError]
    name: str
    status: int
    title: str
    fields: tuple[str, ...] = ()
    detail: str | None = None


_SERVER = "the server can't do this as it is set up; its log says why"

#: The first kind that an error is an instance of is its kind: subclasses stand before their bases.
KINDS = (
    Kind(
        errors.SchemaError,
        "schema",
        422,
        "The document does not fit its schema",
        ("path", "errors"),
    ),
    Kind(errors.InvalidInput, "invalid-input", 422, "A value is refused", ("path",)),
    Kind(
        errors.StateConflict,
        "state-conflict",
        412,
        "Another writer saved a state first",
        ("expected_version", "actual_version"),
    ),
    Kind(
        errors.SchemaConflict,
        "schema-conflict",
        409,
        "Another schema was registered under this name and version",
        ("schema", "version"),
    ),
    Kind(
        errors.IdempotencyConflict,
        "idempotency-conflict",
        422,
        "The idempotency key was used before with another body",
        ("key", "position"),
    ),
    Kind(
        errors.MigrationFailed,
        "migration-failed",
        409,
        "A stored state could not be brought to the current schema version",
        ("memory", "version", "step", "path", "reason"),
    ),
    Kind(
        errors.NewerSchema,
        "newer-schema",
        409,
        "The stored state is of a newer schema version than is known here",
        ("schema", "stored", "known"),
    ),
    Kind(errors.NotFound, "not-found", 404, "There is no such thing"),
    Kind(NoRoute, "no-route", 404, "There is no such route"),
    Kind(errors.AccessDenied, "access-denied", 403, "Access is denied", ("known",)),
    Kind(errors.TooBusy, "too-busy", 503, "There is no room right now", ("retry_after", "limited")),
    Kind(errors.EncoderFailed, "encoder-failed", 503, "The encoder failed", (), _SERVER),
    Kind(errors.EncoderMismatch, "configuration", 503, "The server is not set up", (), _SERVER),
    Kind(errors.MigrationRequired, "configuration", 503, "The server is not set up", (), _SERVER),
    Kind(
        errors.StorageError,
        "storage",
        503,
        "The database failed",
        (),
        "the database failed or can't be reached; repeat with the same idempotency keys",
    ),
    Kind(errors.ConfigurationError, "configuration", 503, "The server is not set up", (), _SERVER),
    Kind(errors.MemstoreError, "service", 500, "The server failed", (), _SERVER),
)
_NAMED = {kind.name: kind for kind in reversed(KINDS)} | {
    "configuration": Kind(errors.ConfigurationError, "configuration", 503, ""),
    "service": Kind(errors.ServiceError, "service", 500, ""),
}


def kind_of(error: MemstoreError) -> Kind:
    """Find an error's kind."""
    return next(kind for kind in KINDS if isinstance(error, kind.error))


def status_of(error: MemstoreError) -> int:
    """Return an error's HTTP status."""
    if isinstance(error, errors.AccessDenied) and not error.known:
        return 401
    if isinstance(error, errors.TooBusy) and error.limited:
        return 429
    return kind_of(error).status


def to_problem(error: MemstoreError, request_id: str = "") -> dict[str, Any]:
    """Write an error as a problem; `request_id` is what finds it in the server's log."""
    kind = kind_of(error)
    problem: dict[str, Any] = {
        "type": URN + kind.name,
        "title": kind.title,
        "status": status_of(error),
        "detail": str(error) if kind.detail is None else kind.detail,
    }
    if request_id:
        problem["instance"] = f"urn:memstore:request:{request_id}"
    return problem | {name: getattr(error, name) for name in kind.fields}


def from_problem(problem: Mapping[str, Any]) -> MemstoreError:
    """Read a problem as the error that it was; one of no known type is a `ServiceError`."""
    name = str(problem.get("type", "")).removeprefix(URN)
    detail = str(problem.get("detail") or problem.get("title") or "no reason was given")
    kind = _NAMED.get(name, _NAMED["service"])
    made = kind.error.__new__(kind.error)
    made.args = (detail,)
    for field in kind.fields:
        value = problem.get(field)
        setattr(made, field, tuple(value) if isinstance(value, list) else value)
    return made
