"""One memory: its log, its state, search and resume, under the names that users call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from random import random
from typing import TYPE_CHECKING, Any, Generic
from uuid import UUID

from memstore import documents, freshness
from memstore._async import (
    commits,
    encoding_queue,
    erasure,
    log,
    resuming,
    searching,
    states,
    tracing,
)
from memstore._async.commits import Commit
from memstore._async.runtime import sleep
from memstore._async.states import Draft, Patch
from memstore.budget import Budget
from memstore.context import Context
from memstore.errors import InvalidInput, StateConflict
from memstore.filters import EventFilter, OneOrMany
from memstore.new_events import Events, given_events, new_events
from memstore.ranking import Settings as Ranking
from memstore.schema import StateSchema, check_schema
from memstore.state import Committed, Kind, M, State, Version
from memstore.text import check_whole, clean_text
from memstore.trace import Trace
from memstore.types import (
    JSON,
    Appended,
    Event,
    Identity,
    NewEvent,
    Role,
    SearchResult,
    TokenCounter,
)

if TYPE_CHECKING:
    from memstore._async.store import AsyncMemoryStore

UPDATE_ATTEMPTS = 10
LATEST = 2**31 - 1


class AsyncMemory(Generic[M]):
    """What one agent knows about one user: one log and one state.

    Made by ``store.memory(agent=…, user=…)``. Keyword names drop the ``_id`` that the events'
    fields have: ``session=`` is `Event.session_id`.
    """

    def __init__(self, store: AsyncMemoryStore, identity: Identity, schema: StateSchema[M]) -> None:
        self.identity = identity
        self.schema = check_schema(schema)
        self._store = store
        self._db = store._db

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity}>"

    @property
    def _tenant_id(self) -> int:
        assert self._db.tenant_id is not None
        return self._db.tenant_id

    # the log

    async def append(
        self,
        events: Events | None = None,
        *,
        content: str = "",
        role: Role = "user",
        event_type: str = "message",
        actor: str | None = None,
        session: str | None = None,
        occurred_at: datetime | None = None,
        payload: JSON = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append one event given by keywords, or many given as a list: all of them or none.

        It returns when they are durable; vectors follow. An event whose `idempotency_key` is
        known keeps the position that it has; beside a list the key names the whole list, whose
        events then have none of their own. `content` is up to 1 MB of UTF-8; NUL and lone
        surrogates in it become U+FFFD. `payload` is any JSON value, handed back as given.

        Raises `InvalidInput` naming what is refused, `IdempotencyConflict` for a known key with
        another body, `StorageError` when the database fails; then nothing was stored, except
        that a connection lost during the commit leaves it open: repeat with the same keys.
        """
        given = given_events(
            events,
            NewEvent(
                content=content,
                role=role,
                event_type=event_type,
                actor=actor,
                session_id=session,
                occurred_at=occurred_at,
                payload=payload,
                correlation_id=correlation_id,
                idempotency_key=idempotency_key,
            ),
        )
        key = None if events is None else idempotency_key  # an event's own, or the list's
        batch = await log.prepare_batch(given, key)
        if not batch:
            return Appended(positions=())
        async with self._db.transaction() as conn:
            appended = await log.append(conn, self.identity, self._tenant_id, batch, key)
        self._store._wake_worker()
        return appended

    async def events(
        self,
        *,
        session: OneOrMany = None,
        actor: OneOrMany = None,
        role: OneOrMany = None,
        event_type: OneOrMany = None,
        correlation_id: OneOrMany = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int | None = None,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[Event]:
        """Read one page of the log by position; every tag given must hold.

        `since` and `until` bound `occurred_at` as [since, until); `after` and `before` bound the
        position, exclusive. For the next page pass the last event's position as `after` (as
        `before` when `newest_first`). `limit` is 1 to 10,000.
        """
        where = EventFilter(
            session=session,
            actor=actor,
            role=role,
            event_type=event_type,
            correlation_id=correlation_id,
            since=since,
            until=until,
            after=after,
            before=before,
        )
        return await log.read(
            self._db, self.identity.memory_id, where, newest_first=newest_first, limit=limit
        )

    # the state

    async def state(
        self,
        *,
        version: int | None = None,
        position: int | None = None,
        as_of: datetime | None = None,
    ) -> State[M]:
        """Load the state, brought to the schema's current version, with what is stale in it.

        Without an argument it is the head, or the schema's initial state at version 0 where
        none was saved. Else it is the one of that `version`; the newest that had absorbed the
        log no further than `position`; or the one that was the head at `as_of`.

        Raises `NotFound` where there was none, `MigrationFailed`, `NewerSchema`.
        """
        if version is None and position is None and as_of is None:
            async with self._db.transaction() as conn:
                return await states.load(conn, self.identity, self.schema)
        return await states.load_at(
            self._db, self.identity, self.schema, version=version, position=position, as_of=as_of
        )

    async def update(
        self,
        fn: Callable[[M], Any],
        *,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
    ) -> State[M]:
        """Load the state, let `fn` change it, and save it under compare-and-set.

        `fn` gets a copy, which it changes in place, or returns another model. When another
        writer was faster it is called again on the newer state, ten times at most; so it should
        have no side effects. The new state has absorbed the log up to `log_position`, by default
        the log's end when it was loaded. Where neither changes, no version is written.

        Raises `SchemaError` when the result is not valid, `StateConflict` after ten attempts.
        """
        for attempt in range(1, UPDATE_ATTEMPTS + 1):
            before = await self.state()
            value = states.edited(self.schema, before, fn)
            absorbed = before.log_end if log_position is None else log_position
            unchanged = self.schema.dump(value) == before.document
            if unchanged and before.version and absorbed == before.log_position:
                return before
            draft = Draft(value, author=author, reason=reason, log_position=absorbed)
            try:
                return await commits.save(
                    self._db, self.identity, self._tenant_id, self.schema, before, draft
                )
            except StateConflict:
                if attempt == UPDATE_ATTEMPTS:
                    raise
                await sleep(random() * 0.005 * 2**attempt)
        raise AssertionError("unreachable")

    async def save(
        self,
        value: M,
        *,
        expected_version: int,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
    ) -> State[M]:
        """Save a whole state if the head is still `expected_version` (0: none was saved).

        Raises `StateConflict`, with both versions, when it is not.
        """
        if isinstance(value, (dict, list)):
            raise InvalidInput("a whole state is a model; a dict is a patch", path="value")
        committed = await self.commit(
            state=value,
            expected_version=expected_version,
            author=author,
            reason=reason,
            log_position=log_position,
        )
        assert committed.state is not None
        return committed.state

    async def patch(
        self,
        patch: Patch,
        *,
        expected_version: int | None = None,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
    ) -> State[M]:
        """Apply a JSON Merge Patch (a dict, RFC 7396) or a JSON Patch (a list, RFC 6902)."""
        if not isinstance(patch, (dict, list)):
            raise InvalidInput("a patch is a dict or a list", path="patch")
        committed = await self.commit(
            state=patch,
            expected_version=expected_version,
            author=author,
            reason=reason,
            log_position=log_position,
        )
        assert committed.state is not None
        return committed.state

    async def commit(
        self,
        *,
        events: Events = (),
        state: M | Patch | None = None,
        expected_version: int | None = None,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
        idempotency_key: str | None = None,
    ) -> Committed[M]:
        """Append events and save a state in one transaction: both or neither.

        `state` is a whole model, which needs `expected_version`, or a patch, which is applied
        to the head under the memory's lock (and to `expected_version` alone where given). The
        new state has absorbed the log up to `log_position`, by default its end, with the
        events of this commit. Repeated under the same `idempotency_key` it writes nothing and
        returns what it wrote.

        Raises as `append` and `save` do, and `IdempotencyConflict` for a key that another
        commit had.
        """
        wanted = Commit(
            batch=await log.prepare_batch(new_events(events), idempotency_key),
            state=state,
            expected_version=expected_version,
            author=author,
            reason=reason,
            log_position=log_position,
            key=idempotency_key,
        )
        committed = await commits.commit(
            self._db, self.identity, self._tenant_id, self.schema, wanted
        )
        self._store._wake_worker()
        return committed

    async def _saved(self, change: Callable[[State[M]], Draft[M]]) -> State[M]:
        return await commits.save_over_head(
            self._db, self.identity, self._tenant_id, self.schema, change
        )

    async def _marked(
        self,
        kind: Kind,
        mark: Callable[[State[M]], freshness.Marks],
        author: str | None,
        reason: str | None,
    ) -> State[M]:
        return await self._saved(
            lambda before: Draft(
                before.value,
                marks=mark(before),
                kind=kind,
                author=author,
                reason=reason,
                log_position=before.log_position,
            )
        )

    async def history(self, *, before: int = LATEST, limit: int = 100) -> list[Version]:
        """List state versions, newest first: when, by whom, why, and how far in the log.

        For the next page pass the last one's version as `before`.
        """
        return await states.history(self._db, self.identity, before=before, limit=limit)

    async def diff(self, old: int, new: int) -> list[documents.Change]:
        """List what changed between two versions, both brought to the current schema."""
        first, second = [
            (await self.state(version=version)).document if check_whole(version, "version") else {}
            for version in (old, new)
        ]
        return documents.diff(first, second)

    async def revert(
        self, *, to: int, author: str | None = None, reason: str | None = None
    ) -> State[M]:
        """Save an older version's state as a new version.

        What the log holds after that version's log position counts as not absorbed again.
        """
        target = await self.state(version=check_whole(to, "to"))
        return await self._saved(
            lambda _: Draft(
                target.value,
                marks=target.marks,
                kind="revert",
                author=author,
                reason=reason or f"revert to version {to}",
                log_position=target.log_position,
            )
        )

    async def confirm(
        self, path: str, *, author: str | None = None, reason: str | None = None
    ) -> State[M]:
        """Mark a part of the state (a JSON pointer) as true from now on, as a new version."""
        return await self._marked(
            "confirm",
            lambda before: freshness.confirm(
                self.schema, before.document, before.marks, clean_text(path), datetime.now(UTC)
            ),
            author,
            reason,
        )

    async def flag(self, path: str, reason: str, *, author: str | None = None) -> State[M]:
        """Mark a part of the state (a JSON pointer) as doubtful, as a new version.

        It is stale until it changes or is confirmed.
        """
        return await self._marked(
            "flag",
            lambda before: freshness.flag(
                before.document, before.marks, clean_text(path), reason, datetime.now(UTC)
            ),
            author,
            reason,
        )

    # search and resume

    async def search(
        self,
        query: str,
        *,
        k: int = 10,
        session: OneOrMany = None,
        actor: OneOrMany = None,
        role: OneOrMany = None,
        event_type: OneOrMany = None,
        correlation_id: OneOrMany = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int | None = None,
        before: int | None = None,
        now: datetime | None = None,
        ranking: Ranking | None = None,
    ) -> SearchResult:
        """Find the `k` entries that bear most on a query, best first.

        The query is text, never syntax; "last week" in it is relative to `now`, by default the
        present. Tags restrict as in `events`. Exactly `k` hits come back (up to 1,000), or all
        entries that match the tags and have a word in them, where these are fewer. When the
        encoder fails, the lexical leg answers alone and `degraded` says so.
        """
        where = EventFilter(
            session=session,
            actor=actor,
            role=role,
            event_type=event_type,
            correlation_id=correlation_id,
            since=since,
            until=until,
            after=after,
            before=before,
        )
        return await searching.search(self._store, self.identity, query, k, where, ranking, now)

    async def resume(
        self,
        task: str | None = None,
        *,
        budget: Budget | int | None = None,
        counter: TokenCounter | None = None,
        now: datetime | None = None,
        ranking: Ranking | None = None,
        record: bool | None = None,
    ) -> Context[State[M]]:
        """Load what an agent needs to go on, within a token budget.

        It is the state with what is stale in it, the log's tail that the state has not
        absorbed, and the older entries that bear on the `task`, the state's active task and its
        open issues. `budget` is by default the settings'. `counter` counts tokens, by default
        o200k's; the budget holds on what is rendered, in every format. "Last week" in the task
        is relative to `now`, by default the present, which the context names too. With `record`
        (by default the setting `record_traces`) what was asked, considered and given is kept for
        tuning, until the memory is erased.
        """
        settings = self._store.settings
        if not isinstance(budget, Budget):  # which refuses what is no whole number
            total = settings.budget if budget is None else budget
            budget = Budget(total, settings.state_share, settings.tail_share)
        context = await resuming.resume(self._store, self, task, budget, counter, ranking, now)
        if settings.record_traces if record is None else record:
            await tracing.record(self._db, self.identity, context, budget, context.state.log_end)
        return context

    async def feedback(self, context_id: UUID, used: Iterable[int]) -> None:
        """Say which entries of a recorded context helped, by position.

        What was said before for this context is replaced. Raises `NotFound` for a context
        that was not recorded.
        """
        await tracing.feedback(self._db, self.identity, context_id, used)

    async def traces(self, *, only_labelled: bool = False, limit: int = 1_000) -> list[Trace]:
        """List recorded contexts, newest first; with `only_labelled` those with feedback."""
        return await tracing.read(self._db, self.identity, only_labelled=only_labelled, limit=limit)

    # upkeep

    async def unencoded(self) -> int:
        """Count the entries that have no vector yet."""
        async with self._db.transaction() as conn:
            return await searching.count_unencoded(
                conn, self.identity.memory_id, self._store._space
            )

    async def flush(self, *, progress: Callable[[int], object] | None = None) -> None:
        """Encode what has no vector yet and wait until all of this memory has.

        `progress` is told how many entries are left. Raises `EncoderFailed` when entries are
        left that the encoder fails on.
        """
        space, encoder = self._store._space, await self._store.encoder()
        if space is None or encoder is None:
            return
        lease = self._store.settings.lease_seconds
        await encoding_queue.flush(
            self._db, encoder, space, self.identity.memory_id, lease=lease, progress=progress
        )

    async def erase(self, *, author: str | None = None, reason: str | None = None) -> None:
        """Remove this memory for good: its log, its states and all that derives from them.

        What is kept is a record of the erasure under the memory's id, without names. It runs
        under its own role. Raises `NotFound` where there is nothing.
        """
        await erasure.erase(self._db, self.identity, self._tenant_id, author, reason)
