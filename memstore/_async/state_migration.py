"""Bringing every stored state to the current schema version, tried on all of them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from memstore import sql
from memstore._async import states
from memstore._async.runtime import in_thread
from memstore._async.states import Draft
from memstore.errors import MigrationFailed, NewerSchema, StateConflict
from memstore.schema import StateSchema
from memstore.state import MigrationReport
from memstore.types import Identity

if TYPE_CHECKING:
    from memstore._async.store import AsyncMemoryStore

PAGE = 200


Failure = MigrationFailed | NewerSchema


@dataclass(slots=True)
class _Trial:
    tried: int = 0
    outdated: int = 0
    heads: list[Identity] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    history_failures: list[Failure] = field(default_factory=list)


async def migrate_states(
    store: AsyncMemoryStore,
    schema: StateSchema[Any],
    *,
    dry_run: bool,
    progress: Callable[[int], object] | None,
    limit: int | None = None,
) -> MigrationReport:
    """Try the migrations on every stored document, then save those heads that are older.

    With a `limit` it tries that many at most, and a report that is not complete says so.
    """
    trial = _Trial()
    after = {"memory_id": UUID(int=0), "version": 0}
    while True:
        async with store._db.transaction() as conn:
            cursor = await conn.execute(
                sql.statement("stored_states"),
                after
                | {"tenant_id": store._db.tenant_id, "schema_name": schema.name, "limit": PAGE},
            )
            page = await cursor.fetchall()
        complete = len(page) < PAGE
        if limit is not None and len(page) > limit - trial.tried:
            complete, page = False, page[: limit - trial.tried]
        await in_thread(_try_all, schema, store.settings.tenant, page, trial)
        if progress is not None:
            progress(trial.tried)
        if len(page) < PAGE:
            break
        after = {name: page[-1][name] for name in after}
    migrated = 0
    if not dry_run and not trial.failures:
        for identity in trial.heads:
            migrated += await _save_migrated(store, schema, identity)
    return MigrationReport(
        schema_name=schema.name,
        schema_version=schema.version,
        tried=trial.tried,
        outdated=trial.outdated,
        migrated=migrated,
        failures=tuple(trial.failures),
        history_failures=tuple(trial.history_failures),
        dry_run=dry_run,
        complete=complete,
    )


def _try_all(
    schema: StateSchema[Any], tenant: str, rows: list[dict[str, Any]], trial: _Trial
) -> None:
    for row in rows:
        _try(schema, Identity(tenant, row["agent_id"], row["user_id"]), row, trial)


def _try(schema: StateSchema[Any], identity: Identity, row: dict[str, Any], trial: _Trial) -> None:
    trial.tried += 1
    head = row["version"] == row["head_version"]
    try:
        _, _, steps = schema.read(
            row["document"],
            row["schema_version"],
            name=row["schema_name"],
            memory=str(identity),
            state_version=row["version"],
        )
    except (MigrationFailed, NewerSchema) as error:
        (trial.failures if head else trial.history_failures).append(error)
        return
    if steps:
        trial.outdated += 1
        if head:
            trial.heads.append(identity)


async def _save_migrated(
    store: AsyncMemoryStore, schema: StateSchema[Any], identity: Identity
) -> int:
    """Save a head under the current schema version, unless somebody has meanwhile."""
    async with store._db.transaction() as conn:
        before = await states.load(conn, identity, schema)
        if before.schema_version == schema.version:
            return 0
        draft = Draft(
            before.value,
            marks=before.marks,
            kind="migrate",
            reason=f"schema version {before.schema_version} to {schema.version}",
            log_position=before.log_position,
        )
        try:
            assert store._db.tenant_id is not None
            await states.save(conn, identity, store._db.tenant_id, schema, before, draft)
        except StateConflict:
            return 0  # its writer saved it under the current version
        return 1
