"""Writing states inside transactions of their own: beside events, over the head, by the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from memstore._async import log, states
from memstore._async.database import AsyncDatabase, Conn
from memstore._async.log import Prepared
from memstore._async.states import Draft, Patch
from memstore.errors import IdempotencyConflict, InvalidInput, StateConflict
from memstore.schema import StateSchema
from memstore.state import Committed, M, State
from memstore.text import check_whole
from memstore.types import Appended, Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Generic[M]):
    """What is to be written together: prepared events, and a whole state or a patch of the head."""

    batch: Sequence[Prepared]
    state: M | Patch | None
    expected_version: int | None
    author: str | None
    reason: str | None
    log_position: int | None
    key: str | None

    def __post_init__(self) -> None:
        whole = self.state is not None and not isinstance(self.state, (dict, list))
        if self.expected_version is not None:
            check_whole(self.expected_version, "expected_version")
        elif whole:
            raise InvalidInput("a whole state needs expected_version", path="expected_version")
        if self.state is None and (self.expected_version, self.log_position) != (None, None):
            raise InvalidInput("expected_version and log_position need a state", path="state")


async def commit(
    db: AsyncDatabase,
    identity: Identity,
    tenant_id: int,
    schema: StateSchema[M],
    wanted: Commit[M],
) -> Committed[M]:
    """Write it under the memory's lock; see `AsyncMemory.commit`."""
    async with db.transaction() as conn:
        await log.lock_memory(conn, identity, tenant_id)
        appended = Appended(positions=())
        if wanted.batch:
            appended = await log.append(conn, identity, tenant_id, wanted.batch, wanted.key)
        request, saved = None, None
        if wanted.key is not None:
            request = (wanted.key, await states.aside(schema, _digest, schema, wanted))
            saved = await states.load_saved(conn, identity, schema, *request)
            if wanted.state is not None:
                await _refuse_half(conn, identity, wanted, appended, saved is not None)
        if wanted.state is not None and saved is None:
            before = await states.load(conn, identity, schema)
            if wanted.expected_version not in (None, before.version):
                raise StateConflict(
                    expected_version=wanted.expected_version, actual_version=before.version
                )
            value: M
            if isinstance(wanted.state, (dict, list)):
                value = await states.aside(schema, states.patched, schema, before, wanted.state)
            else:
                value = wanted.state
            draft = Draft(
                value,
                author=wanted.author,
                reason=wanted.reason,
                log_position=wanted.log_position,
                request=request,
            )
            saved = await states.save(conn, identity, tenant_id, schema, before, draft)
    return Committed(events=appended, state=saved)


def _digest(schema: StateSchema[M], wanted: Commit[M]) -> bytes:
    return states.request_digest(
        schema,
        wanted.state,
        wanted.expected_version,
        wanted.log_position,
        [event for event, _ in wanted.batch],
    )


async def _refuse_half(
    conn: Conn, identity: Identity, wanted: Commit[M], appended: Appended, saved: bool
) -> None:
    """Raise `IdempotencyConflict` where the key once wrote events without this state."""
    key = wanted.key
    assert key is not None
    if wanted.batch:
        if bool(appended.repeated) != saved:
            raise IdempotencyConflict(key=key, position=appended.position)
    elif not saved:
        known = await log.known_keys(conn, identity.memory_id, [log.key_of(key, 0)])
        for position, _ in known.values():
            raise IdempotencyConflict(key=key, position=position)


async def save(
    db: AsyncDatabase,
    identity: Identity,
    tenant_id: int,
    schema: StateSchema[M],
    before: State[M],
    draft: Draft[M],
) -> State[M]:
    """Save the version after `before`; raises `StateConflict` when that is not the head."""
    async with db.transaction() as conn:
        return await states.save(conn, identity, tenant_id, schema, before, draft)


async def save_over_head(
    db: AsyncDatabase,
    identity: Identity,
    tenant_id: int,
    schema: StateSchema[M],
    change: Callable[[State[M]], Draft[M]],
) -> State[M]:
    """Save what `change` makes of the head, under the memory's lock."""
    async with db.transaction() as conn:
        await log.lock_memory(conn, identity, tenant_id)
        before = await states.load(conn, identity, schema)
        draft = await states.aside(schema, change, before)
        return await states.save(conn, identity, tenant_id, schema, before, draft)
