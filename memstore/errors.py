"""Every error memstore raises, under one root.

MemstoreError
 ├── ConfigurationError      a setting, an installation or a database that does not fit
 │    ├── MissingExtra       an optional dependency is not installed; names the extra
 │    ├── EncoderMismatch    the encoder's vectors do not fit the space they were meant for
 │    └── MigrationRequired  the database is older or newer than this code
 ├── InvalidInput            the caller's value is refused before any write; names the path
 │    └── SchemaError        a document does not fit its schema, or the schema itself is unsound
 ├── SchemaConflict          another schema was registered under this name and version
 ├── StateConflict           compare-and-set lost: another writer saved a state first
 ├── IdempotencyConflict     an idempotency key was used before with another body
 ├── MigrationFailed         a stored state could not be brought to the current schema version
 ├── NewerSchema             a stored state is of a newer schema version than this code knows
 ├── NotFound                no such memory, version or position
 ├── EncoderFailed           the encoder raised; what was being encoded stays queued
 ├── AccessDenied            a server refuses: the key is missing or unknown, or may not do this
 ├── TooBusy                 a server has no room, or the key's rate is used up; says when to retry
 ├── ServiceError            a server failed, can't be reached, or answered what makes no sense
 └── StorageError            the database failed or cannot be reached; wraps the driver's error
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "AccessDenied",
    "ConfigurationError",
    "EncoderFailed",
    "EncoderMismatch",
    "IdempotencyConflict",
    "InvalidInput",
    "MemstoreError",
    "MigrationFailed",
    "MigrationRequired",
    "MissingExtra",
    "NewerSchema",
    "NotFound",
    "SchemaConflict",
    "SchemaError",
    "ServiceError",
    "StateConflict",
    "StorageError",
    "TooBusy",
]


class MemstoreError(Exception):
    """The root of every error that memstore raises on purpose."""


class ConfigurationError(MemstoreError):
    """A setting, an installation or a database that does not fit."""


class MissingExtra(ConfigurationError):
    """An optional dependency is missing.

    `extra` is the extra of memstore that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: memstore's extra '{extra}' brings it")
        self.package = package
        self.extra = extra


class EncoderMismatch(ConfigurationError):
    """An encoder's vectors do not fit the space that they were meant for."""


class MigrationRequired(ConfigurationError):
    """The database is at another migration than this code; run ``memstore migrate``."""


class InvalidInput(MemstoreError):
    """A value is refused before anything is written.

    `path` is a JSON pointer or an argument's name.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class SchemaError(InvalidInput):
    """A document does not fit its schema, or a schema is unsound.

    `errors` lists all that does not fit, where that is known: each a `path` and a `detail`.
    """

    def __init__(
        self, message: str, *, path: str = "", errors: Sequence[Mapping[str, str]] = ()
    ) -> None:
        super().__init__(message, path=path)
        self.errors = tuple(errors)


class SchemaConflict(MemstoreError):
    """Another schema was registered under this name and version; a change is a new version."""

    def __init__(self, *, schema: str, version: int) -> None:
        super().__init__(
            f"{schema!r} version {version} is registered with another body: "
            "a change is a new version"
        )
        self.schema = schema
        self.version = version


class StateConflict(MemstoreError):
    """Another writer saved a state first; load it again and retry, or use ``update``."""

    def __init__(self, *, expected_version: int, actual_version: int) -> None:
        super().__init__(
            f"the state is at version {actual_version}, not {expected_version}; "
            "load it again and retry, or use update(), which does that"
        )
        self.expected_version = expected_version
        self.actual_version = actual_version


class IdempotencyConflict(MemstoreError):
    """An idempotency key was used before with another body; use a new key for a new request.

    `position` is the event's that it names, or for a state saved under it, the log position.
    """

    def __init__(self, *, key: str, position: int) -> None:
        super().__init__(
            f"idempotency key {key!r} was used before with another body, at position {position}: "
            "a new request needs a new key"
        )
        self.key = key
        self.position = position


class MigrationFailed(MemstoreError):
    """A stored state could not be migrated; the stored document is unchanged.

    `memory` is the identity, `version` the stored state version, `step` the migration
    that failed as ``(from, to)``, and `path` a JSON pointer into the document.
    """

    def __init__(
        self, reason: str, *, memory: str, version: int, step: tuple[int, int] | None, path: str
    ) -> None:
        at = f", step {step[0]} -> {step[1]}" if step else ""
        super().__init__(f"{memory}: state version {version}{at}, at {path or '/'}: {reason}")
        self.memory = memory
        self.version = version
        self.step = step
        self.path = path
        self.reason = reason


class NewerSchema(MemstoreError):
    """A stored state was written under a newer schema version; upgrade this code to read it."""

    def __init__(self, *, schema: str, stored: int, known: int) -> None:
        super().__init__(
            f"the stored state is of {schema!r} version {stored}, this code knows up to {known}: "
            "upgrade the code that reads it"
        )
        self.schema = schema
        self.stored = stored
        self.known = known


class NotFound(MemstoreError):
    """No such memory, state version or position."""


class EncoderFailed(MemstoreError):
    """The encoder raised; what was being encoded stays queued."""


class AccessDenied(MemstoreError):
    """A server refuses a request.

    `known` is False where it does not know who asks (the key is missing, unknown, expired or
    revoked), True where who asks may not do this.
    """

    def __init__(self, message: str, *, known: bool = True) -> None:
        super().__init__(message)
        self.known = known


class TooBusy(MemstoreError):
    """Nothing was done for want of room; try again in `retry_after` seconds.

    `limited` is True where a key's rate is used up, False where the whole server is busy.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0, limited: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limited = limited


class ServiceError(MemstoreError):
    """A server failed, can't be reached, or gave an answer that makes no sense.

    Whether what was asked for was done is unknown; with idempotency keys it can be repeated.
    """


class StorageError(MemstoreError):
    """The database failed or cannot be reached; the driver's error is the cause."""
