# generated from memstore/_async by scripts/generate_sync.py: edit there
"""One memory on a server: the methods of `Memory`, each a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from random import random
from typing import TYPE_CHECKING, Any, Generic
from uuid import UUID, uuid4

from memstore import wire
from memstore._sync import states
from memstore._sync.log import MAX_PAGE
from memstore._sync.memory import LATEST, UPDATE_ATTEMPTS
from memstore._sync.runtime import sleep
from memstore._sync.states import Patch
from memstore.budget import Budget
from memstore.context import Context
from memstore.default_schema import DEFAULT_SCHEMA
from memstore.documents import Change
from memstore.errors import InvalidInput, StateConflict
from memstore.filters import EventFilter, OneOrMany
from memstore.http import MERGE_TYPE, PATCH_TYPE, memory_path, read_answer
from memstore.json_schema import JsonSchema
from memstore.new_events import Events, given_events, new_events
from memstore.schema import StateSchema, check_schema
from memstore.state import Committed, M, State, Version
from memstore.text import (
    check_batch_key,
    check_time,
    check_uuid,
    check_whole,
    clean_json,
    clean_text,
    prepare_event,
)
from memstore.trace import Trace
from memstore.types import JSON, Appended, Event, NewEvent, Role, SearchResult

if TYPE_CHECKING:
    from memstore._sync.client import Client

PAGE = 1_000
FLUSH_SECONDS = 0.2


class RemoteMemory(Generic[M]):
    """What one agent knows about one user, on a server. Made by ``client.memory(…)``.

    Its methods are those of `Memory`. What can't be sent is missing: a `ranking` and a token
    `counter` of one's own.
    """

    def __init__(self, client: Client, agent: str, user: str, schema: StateSchema[M]) -> None:
        self.agent = agent
        self.user = user
        self.schema = check_schema(schema)
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.agent}/{self.user}>"

    def _ask(self, method: str, part: str, how: Callable[[Any], Any] | None, **given: Any) -> Any:
        params = {k: v for k, v in given.pop("params", {}).items() if v is not None}
        if self.schema.name != DEFAULT_SCHEMA.name:
            params["schema"] = self.schema.name
        if isinstance(self.schema, JsonSchema):
            params["schema_version"] = self.schema.version
        path = memory_path(self.agent, self.user) + part
        response = self._client._send(method, path, params=params, **given)
        return None if how is None else read_answer(response.content, how)

    def _state(self, value: Any) -> State[M]:
        return wire.state_from(value, self.schema, f"{self.agent}/{self.user}")

    # the log

    def append(
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

        Events without an idempotency key are given a random one, so that the request can be
        repeated when it fails on the way. See `Memory.append`.
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
        key = None if events is None else idempotency_key
        body = _events_to_send(given, keyed=key is None)
        if not body:
            return Appended(positions=())
        headers = {} if key is None else {"Idempotency-Key": _header(key)}
        appended: Appended = self._ask(
            "POST", "/events", wire.appended_from, body=body, headers=headers
        )
        return appended

    def events(
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
        """Read one page of the log by position; every tag given must hold. See `Memory.events`."""
        if not 1 <= check_whole(limit, "limit") <= MAX_PAGE:
            raise InvalidInput(f"a page holds 1 to {MAX_PAGE} events", path="limit")
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
        params = _tags(where) | {"newest_first": newest_first}
        if [] in params.values():
            return []  # one of no values
        found: list[Event] = []
        while len(found) < limit:
            params["limit"] = min(limit - len(found), PAGE)
            page = self._ask("GET", "/events", _page, params=params)
            found += page
            if len(page) < params["limit"]:
                break
            params["before" if newest_first else "after"] = page[-1].position
        return found

    # the state

    def state(
        self,
        *,
        version: int | None = None,
        position: int | None = None,
        as_of: datetime | None = None,
    ) -> State[M]:
        """Load the state, or the one that was. See `Memory.state`."""
        moment = None if as_of is None else wire.time_to(check_time(as_of, "as_of"))
        params = _whole(version=version, position=position) | {"as_of": moment}
        state: State[M] = self._ask("GET", "/state", self._state, params=params)
        return state

    def update(
        self,
        fn: Callable[[M], Any],
        *,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
    ) -> State[M]:
        """Load the state, let `fn` change it here, and save it. See `Memory.update`."""
        for attempt in range(1, UPDATE_ATTEMPTS + 1):
            before = self.state()
            value = states.edited(self.schema, before, fn)
            absorbed = before.log_end if log_position is None else log_position
            unchanged = self.schema.dump(value) == before.document
            if unchanged and before.version and absorbed == before.log_position:
                return before
            try:
                return self.save(
                    value,
                    expected_version=before.version,
                    author=author,
                    reason=reason,
                    log_position=absorbed,
                )
            except StateConflict:
                if attempt == UPDATE_ATTEMPTS:
                    raise
                sleep(random() * 0.005 * 2**attempt)
        raise AssertionError("unreachable")

    def save(
        self,
        value: M,
        *,
        expected_version: int,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
    ) -> State[M]:
        """Save a whole state if the head is still `expected_version` (0: none was saved)."""
        body = {"document": self.schema.dump(value), "author": author, "reason": reason}
        body |= _whole(log_position=log_position)
        headers = _match(expected_version) | {"Idempotency-Key": uuid4().hex}
        state: State[M] = self._ask("PUT", "/state", self._state, body=body, headers=headers)
        return state

    def patch(
        self,
        patch: Patch,
        *,
        expected_version: int | None = None,
        author: str | None = None,
        reason: str | None = None,
        log_position: int | None = None,
    ) -> State[M]:
        """Apply a JSON Merge Patch (a dict, RFC 7396) or a JSON Patch (a list, RFC 6902)."""
        headers = _match(expected_version) | {"Idempotency-Key": uuid4().hex}
        state: State[M] = self._ask(
            "PATCH",
            "/state",
            self._state,
            params=_notes(author, reason) | _whole(log_position=log_position),
            body=clean_json(patch),
            media_type=MERGE_TYPE if isinstance(patch, dict) else PATCH_TYPE,
            headers=headers,
        )
        return state

    def commit(
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

        See `Memory.commit`. Without an `idempotency_key` it is given a random one, unless an
        event has one of its own: such a commit is not repeated when it fails on the way.
        """
        if state is not None and not isinstance(state, (dict, list)) and expected_version is None:
            raise InvalidInput("a whole state needs expected_version", path="expected_version")
        body: dict[str, Any] = {"author": author, "reason": reason}
        body |= _whole(log_position=log_position)
        body["events"] = _events_to_send(new_events(events), keyed=False)
        if isinstance(state, (dict, list)):
            body["patch"] = clean_json(state)
        elif state is not None:
            body["state"] = self.schema.dump(state)
        headers = _match(expected_version)
        own = any("idempotency_key" in event for event in body["events"])
        if idempotency_key is not None or not own:
            headers["Idempotency-Key"] = _header(idempotency_key or uuid4().hex)
        committed: Committed[M] = self._ask(
            "POST",
            "/commit",
            self._committed,
            body=body,
            headers=headers,
            repeatable="Idempotency-Key" in headers,
        )
        return committed

    def _committed(self, value: Any) -> Committed[M]:
        state = None if value["state"] is None else self._state(value["state"])
        return Committed(events=wire.appended_from(value["events"]), state=state)

    def history(self, *, before: int = LATEST, limit: int = 100) -> list[Version]:
        """List state versions, newest first. See `Memory.history`."""
        versions: list[Version] = self._ask(
            "GET",
            "/history",
            lambda value: [wire.version_from(one) for one in value["versions"]],
            params={
                "before": max(0, min(check_whole(before, "before"), LATEST)),
                "limit": check_whole(limit, "limit"),
            },
        )
        return versions

    def diff(self, old: int, new: int) -> list[Change]:
        """List what changed between two versions, both brought to the current schema."""
        changes: list[Change] = self._ask(
            "GET",
            "/diff",
            lambda value: [wire.change_from(one) for one in value["changes"]],
            params={"old": check_whole(old, "version"), "new": check_whole(new, "version")},
        )
        return changes

    def revert(self, *, to: int, author: str | None = None, reason: str | None = None) -> State[M]:
        """Save an older version's state as a new version. See `Memory.revert`."""
        body = {"to": check_whole(to, "to"), "author": author, "reason": reason}
        return self._mark("/revert", body)

    def confirm(
        self, path: str, *, author: str | None = None, reason: str | None = None
    ) -> State[M]:
        """Mark a part of the state (a JSON pointer) as true from now on, as a new version."""
        return self._mark("/confirm", {"path": path, "author": author, "reason": reason})

    def flag(self, path: str, reason: str, *, author: str | None = None) -> State[M]:
        """Mark a part of the state (a JSON pointer) as doubtful, as a new version."""
        return self._mark("/flag", {"path": path, "author": author, "reason": reason})

    def _mark(self, part: str, body: Mapping[str, Any]) -> State[M]:
        # Not repeated once it was sent: a second one would be another version.
        state: State[M] = self._ask("POST", part, self._state, body=body, repeatable=False)
        return state

    # search and resume

    def search(
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
    ) -> SearchResult:
        """Find the `k` entries that bear most on a query, best first. See `Memory.search`."""
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
        body = {"query": query, "k": check_whole(k, "k")} | _tags(where) | _now(now)
        found: SearchResult = self._ask("POST", "/search", wire.search_from, body=body)
        return found

    def resume(
        self,
        task: str | None = None,
        *,
        budget: Budget | int | None = None,
        now: datetime | None = None,
        record: bool | None = None,
    ) -> Context[State[M]]:
        """Load what an agent needs to go on, within a token budget. See `Memory.resume`.

        Tokens are o200k's. The search in the context has its figures and no hits. A recorded
        one is asked for once: repeated, it would be recorded twice.
        """
        body: dict[str, Any] = {"task": task, "record": record} | _now(now)
        if isinstance(budget, Budget):
            body |= {
                "budget": budget.total,
                "state_share": budget.state_share,
                "tail_share": budget.tail_share,
            }
        elif budget is not None:
            body["budget"] = Budget(budget).total
        context: Context[State[M]] = self._ask(
            "POST",
            "/resume",
            lambda value: wire.context_from(value, self.schema, f"{self.agent}/{self.user}"),
            body=body,
            repeatable=not record,
        )
        return context

    def feedback(self, context_id: UUID, used: Iterable[int]) -> None:
        """Say which entries of a recorded context helped, by position."""
        body = {"used": [check_whole(position, "used") for position in used]}
        part = f"/contexts/{check_uuid(context_id, 'context_id')}/feedback"
        self._ask("POST", part, None, body=body)

    def traces(self, *, only_labelled: bool = False, limit: int = 1_000) -> list[Trace]:
        """List recorded contexts, newest first; with `only_labelled` those with feedback."""
        traces: list[Trace] = self._ask(
            "GET",
            "/contexts",
            lambda value: [wire.trace_from(one) for one in value["traces"]],
            params={"only_labelled": only_labelled, "limit": check_whole(limit, "limit")},
        )
        return traces

    # upkeep

    def unencoded(self) -> int:
        """Count the entries that have no vector yet."""
        count: int = self._ask("GET", "/unencoded", lambda value: int(value["unencoded"]))
        return count

    def flush(self, *, progress: Callable[[int], object] | None = None) -> None:
        """Wait until all of this memory has been encoded by the server or its workers.

        `progress` is told how many entries are left.
        """
        while left := self.unencoded():
            if progress is not None:
                progress(left)
            sleep(FLUSH_SECONDS)

    def erase(self, *, author: str | None = None, reason: str | None = None) -> None:
        """Remove this memory for good. See `Memory.erase`."""
        # Not repeated once it was sent: there would be nothing, and that is an error.
        notes = _notes(author, reason)
        self._ask("DELETE", "", None, params=notes, repeatable=False)


def _events_to_send(events: Iterable[NewEvent], *, keyed: bool) -> list[dict[str, Any]]:
    """Check events as the store would, and write them, each with a key where `keyed`."""
    body = []
    for index, event in enumerate(events):
        try:
            event = prepare_event(event)
        except InvalidInput as error:
            raise type(error)(str(error), path=f"events[{index}]") from error
        if keyed and event.idempotency_key is None:
            event = replace(event, idempotency_key=uuid4().hex)
        body.append(wire.new_event_to(event))
    return body


def _header(key: str) -> str:
    if not key.isascii() or not key.isprintable() or key != key.strip() or not key:
        raise InvalidInput("over HTTP it is made of visible ASCII", path="idempotency_key")
    return check_batch_key(key, "idempotency_key")


def _match(version: int | None) -> dict[str, str]:
    """Name the version that a write builds on, if any."""
    if version is None:
        return {}
    return {"If-Match": f'"{check_whole(version, "expected_version")}"'}


def _whole(**given: int | None) -> dict[str, Any]:
    """Check numbers by name; those left out stay so."""
    return {n: None if value is None else check_whole(value, n) for n, value in given.items()}


def _notes(author: str | None, reason: str | None) -> dict[str, Any]:
    """Write who and why for a query, which can't carry half a surrogate pair."""
    return {
        "author": None if author is None else clean_text(author),
        "reason": None if reason is None else clean_text(reason),
    }


def _now(now: datetime | None) -> dict[str, Any]:
    return {} if now is None else {"now": check_time(now, "now").isoformat()}


def _tags(where: EventFilter) -> dict[str, Any]:
    """Write the tags given, checked as the store checks them."""
    found = where.parameters()
    for name in ("since", "until"):
        if name in found:
            found[name] = wire.time_to(found[name])
    for name in ("after", "before"):
        if name in found:
            found[name] = max(0, found[name])
    return found


def _page(value: Any) -> list[Event]:
    return [wire.event_from(event) for event in value["events"]]
