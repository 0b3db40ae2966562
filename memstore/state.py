"""A saved state as it is handed out, and its history's entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from memstore.errors import MigrationFailed, NewerSchema
from memstore.freshness import Stale
from memstore.types import Appended

M = TypeVar("M", bound=BaseModel)

Kind = Literal["save", "revert", "confirm", "flag", "migrate"]


@dataclass(frozen=True, kw_only=True)
class State(Generic[M]):
    """One version of a memory's state, brought to the current schema version.

    `value` is the model. `version` is 0 where nothing was ever saved; `value` is then the
    schema's initial state and `created_at` is None. `schema_version` is the one that the
    version was stored under. The state has absorbed the log up to `log_position`; `log_end` is
    the log's last position when the state was read.
    """

    value: M
    version: int
    schema_name: str
    schema_version: int
    log_position: int
    log_end: int
    document: dict[str, Any]
    marks: dict[str, Any]
    kind: Kind
    author: str | None
    reason: str | None
    created_at: datetime | None
    find_stale: Callable[[], tuple[Stale, ...]] = field(repr=False, compare=False)

    @cached_property
    def stale(self) -> tuple[Stale, ...]:
        """What must be confirmed again, as of when the state was read; looked for when asked."""
        return self.find_stale()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One entry of a state's history: who saved it, when, why and how far it had read the log."""

    version: int
    schema_name: str
    schema_version: int
    log_position: int
    kind: Kind
    author: str | None
    reason: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Generic[M]):
    """What a commit wrote: the events' receipt, the new state, or either alone."""

    events: Appended
    state: State[M] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What bringing the stored states to a schema's current version found and did.

    `tried` counts the stored documents of all versions, `outdated` those that need migrating
    and can be, `migrated` the heads that were saved anew. `failures` are of heads: where there
    are any, nothing was saved. `history_failures` are of older versions, which can't be read any
    more under this schema but hold nothing up. `complete` is False where only some were tried.
    """

    schema_name: str
    schema_version: int
    tried: int
    outdated: int
    migrated: int
    failures: tuple[MigrationFailed | NewerSchema, ...]
    history_failures: tuple[MigrationFailed | NewerSchema, ...]
    dry_run: bool
    complete: bool = True
