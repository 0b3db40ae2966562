"""The state track: loading with migration, compare-and-set saving, history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from memstore import documents, freshness, sql
from memstore._async import log
from memstore._async.database import AsyncDatabase, Conn
from memstore._async.runtime import in_thread
from memstore.errors import IdempotencyConflict, InvalidInput, NotFound, StateConflict
from memstore.schema import StateSchema
from memstore.state import Kind, M, State, Version
from memstore.text import body_digest, check_time, check_whole, clean_json, clean_text, dumps
from memstore.types import Identity, NewEvent

R = TypeVar("R")
Document = dict[str, Any]
Patch = dict[str, Any] | list[dict[str, Any]]

MAX_REASON = 2_000


@dataclass(frozen=True, slots=True)
class Draft(Generic[M]):
    """A state about to be saved."""

    value: M
    marks: dict[str, Any] | None = None  # None: carried over from the version before
    kind: Kind = "save"
    author: str | None = None
    reason: str | None = None
    log_position: int | None = None  # None: the log's end
    request: tuple[str, bytes] | None = None  # the idempotency key and the digest of its body


def _stale_finder(
    schema: StateSchema[Any],
    document: Document,
    marks: dict[str, Any],
    now: datetime,
    saved_at: datetime,
) -> Callable[[], tuple[freshness.Stale, ...]]:
    """Put off looking for what is stale: most loads lead to an update that never asks."""

    def find() -> tuple[freshness.Stale, ...]:
        return tuple(freshness.stale(schema, document, marks, now, saved_at=saved_at))

    if schema.slow:  # it is asked for where it may not take long
        found = find()
        return lambda: found
    return find


async def aside(schema: StateSchema[Any], work: Callable[..., R], *given: Any) -> R:
    """Do a schema's work, off the event loop where it may take long."""
    return await in_thread(work, *given) if schema.slow else work(*given)


def _loaded(
    schema: StateSchema[M], identity: Identity, row: dict[str, Any] | None, log_end: int
) -> State[M]:
    if row is None:
        value = schema.initial()
        return State(
            value=value,
            version=0,
            schema_name=schema.name,
            schema_version=schema.version,
            log_position=0,
            log_end=log_end,
            find_stale=tuple,
            document=schema.dump(value),
            marks={},
            kind="save",
            author=None,
            reason=None,
            created_at=None,
        )
    created_at = row["created_at"].astimezone(UTC)
    value, document, steps = schema.read(
        row["document"],
        row["schema_version"],
        name=row["schema_name"],
        memory=str(identity),
        state_version=row["version"],
    )
    marks = row["marks"]
    if steps:
        marks = freshness.migrate_marks(schema, row["document"], marks, document, created_at)
    return State(
        value=value,
        version=row["version"],
        schema_name=row["schema_name"],
        schema_version=row["schema_version"],
        log_position=row["log_position"],
        log_end=log_end,
        find_stale=_stale_finder(schema, document, marks, datetime.now(UTC), created_at),
        document=document,
        marks=marks,
        kind=row["kind"],
        author=row["author"],
        reason=row["reason"],
        created_at=created_at,
    )


async def load(conn: Conn, identity: Identity, schema: StateSchema[M]) -> State[M]:
    """Load the head, migrated; the schema's initial state where nothing was saved."""
    cursor = await conn.execute(sql.statement("head_state"), {"memory_id": identity.memory_id})
    row = await cursor.fetchone()
    log_end = row["log_end"] if row else 0
    row = row if row and row["version"] else None
    return await aside(schema, _loaded, schema, identity, row, log_end)


async def load_at(
    db: AsyncDatabase,
    identity: Identity,
    schema: StateSchema[M],
    *,
    version: int | None,
    position: int | None,
    as_of: datetime | None,
) -> State[M]:
    """Load the state as it was; raises `NotFound` where there was none."""
    given = {
        "version": None if version is None else check_whole(version, "version"),
        "position": None if position is None else check_whole(position, "position"),
        "as_of": None if as_of is None else check_time(as_of, "as_of"),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise InvalidInput("give one of version, position and as_of", path="state")
    ((name, value),) = chosen.items()
    statement = {
        "version": "state_at_version",
        "position": "state_at_position",
        "as_of": "state_at_time",
    }[name]
    row = await db.fetch_one(
        sql.statement(statement), {"memory_id": identity.memory_id, name: value}
    )
    if row is None:
        raise NotFound(f"{identity} has no state at {name} {value}")
    return await aside(schema, _loaded, schema, identity, row, row["log_end"])


def request_digest(
    schema: StateSchema[M],
    state: M | Patch | None,
    expected_version: int | None,
    log_position: int | None,
    events: Sequence[NewEvent] = (),
) -> bytes:
    """Digest what a commit wants written, to tell a retry from another one under its key."""
    given = state
    if state is not None and not isinstance(state, (dict, list)):
        given = {"whole": schema.dump(state)}
    elif state is not None:
        given = clean_json(state)
    bodies = [body_digest(event).hex() for event in events]
    body = [schema.name, given, expected_version, log_position, bodies]
    text = json.dumps(body, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


async def load_saved(
    conn: Conn, identity: Identity, schema: StateSchema[M], key: str, digest: bytes
) -> State[M] | None:
    """Load what was saved under an idempotency key; None where nothing was.

    Raises `IdempotencyConflict` when another body was saved under it.
    """
    parameters = {"memory_id": identity.memory_id, "key": key}
    row = await (await conn.execute(sql.statement("state_of_request"), parameters)).fetchone()
    if row is None:
        return None
    if bytes(row["request_digest"]) != digest:
        raise IdempotencyConflict(key=key, position=row["log_position"])
    return await aside(schema, _loaded, schema, identity, row, row["log_end"])


async def save(
    conn: Conn,
    identity: Identity,
    tenant_id: int,
    schema: StateSchema[M],
    before: State[M],
    draft: Draft[M],
) -> State[M]:
    """Write the version after `before` inside the caller's transaction.

    Raises `StateConflict` when `before` is not the head any more.
    """
    document = await aside(schema, schema.dump, draft.value)
    parameters = {"memory_id": identity.memory_id, "expected_version": before.version}
    statement = sql.statement("advance_head")
    row = await (await conn.execute(statement, parameters)).fetchone()
    if row is None:
        counters = await log.lock_memory(conn, identity, tenant_id)
        if counters["head_version"] != before.version:
            raise StateConflict(
                expected_version=before.version, actual_version=counters["head_version"]
            )
        row = await (await conn.execute(statement, parameters)).fetchone()
        assert row is not None
    log_end, saved_at = row["last_position"], row["saved_at"].astimezone(UTC)
    if log_end < before.log_end:  # the memory was erased, and begun again
        raise StateConflict(expected_version=before.version, actual_version=before.version)
    log_position = log_end
    if draft.log_position is not None:
        log_position = check_whole(draft.log_position, "log_position")
    if not 0 <= log_position <= log_end:
        raise InvalidInput(f"the log ends at {log_end}, not {log_position}", path="log_position")
    marks = draft.marks
    if marks is None:
        marks = await aside(schema, _carried, schema, before, document, saved_at)
    new: dict[str, Any] = {
        "version": before.version + 1,
        "schema_name": schema.name,
        "schema_version": schema.version,
        "log_position": log_position,
        "kind": draft.kind,
        "author": note(draft.author, "author"),
        "reason": note(draft.reason, "reason"),
        "created_at": saved_at,
    }
    await conn.execute(
        sql.statement("insert_state"),
        new
        | {
            "memory_id": identity.memory_id,
            "tenant_id": tenant_id,
            "document": dumps(document),
            "marks": dumps(marks),
            "idempotency_key": draft.request and draft.request[0],
            "request_digest": draft.request and draft.request[1],
        },
    )
    return State(
        value=schema.restore(document),
        log_end=log_end,
        find_stale=await aside(schema, _stale_finder, schema, document, marks, saved_at, saved_at),
        document=document,
        marks=marks,
        **new,
    )


def _carried(
    schema: StateSchema[M], before: State[M], document: Document, saved_at: datetime
) -> dict[str, Any]:
    """Carry the marks of the version before over to a new document."""
    old = before.document if before.version else None
    return freshness.carry_marks(
        schema, old, before.marks, document, saved_at, old_saved_at=before.created_at
    )


def note(text: str | None, name: str) -> str | None:
    """Clean an author or a reason; raises `InvalidInput` for one that is too long."""
    if text is None:
        return None
    clean = clean_text(text)
    if len(clean) > MAX_REASON:
        raise InvalidInput(f"at most {MAX_REASON} characters", path=name)
    return clean


def patched(schema: StateSchema[M], state: State[M], patch: Patch) -> M:
    """Apply a JSON Merge Patch (a dict) or a JSON Patch (a list) and validate the result."""
    if isinstance(patch, list):
        return schema.accept(documents.json_patch(state.document, patch))
    return schema.accept(documents.merge_patch(state.document, patch))


def edited(schema: StateSchema[M], state: State[M], fn: Callable[[M], Any]) -> M:
    """Give a copy to `fn`, which changes it or returns another; validate the result.

    Whatever `fn` returns that is no model of the schema (the None of ``dict.update``, say) is
    ignored, and the changed copy counts.
    """
    copy = schema.load(state.document)
    returned = fn(copy)
    if isinstance(returned, Coroutine):
        returned.close()
        raise InvalidInput("a coroutine function changes nothing: give a plain one", path="fn")
    return returned if isinstance(returned, schema.model) else copy


async def history(
    db: AsyncDatabase, identity: Identity, *, before: int, limit: int
) -> list[Version]:
    """List versions, newest first."""
    if not 1 <= check_whole(limit, "limit") <= log.MAX_PAGE:
        raise InvalidInput(f"a page holds 1 to {log.MAX_PAGE} versions", path="limit")
    before = check_whole(before, "before")
    parameters = {"memory_id": identity.memory_id, "before": before, "limit": limit}
    async with db.transaction() as conn:
        cursor = await conn.execute(sql.statement("state_history"), parameters)
        return [
            Version(**row | {"created_at": row["created_at"].astimezone(UTC)})
            for row in await cursor.fetchall()
        ]
