"""What the store returns as JSON values and back: the one account of what server and client speak.

Every value comes back equal to what went in, with two exceptions: a context's search leaves out
the entries that were ranked and not shown, and a state's model is the reader's own.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from memstore.context import Context, Dropped, Tokens
from memstore.documents import Change
from memstore.errors import InvalidInput
from memstore.freshness import Stale
from memstore.json_schema import Definition
from memstore.keys import ApiKey
from memstore.problems import from_problem, to_problem
from memstore.render import Entry
from memstore.schema import StateSchema
from memstore.selection import Selection
from memstore.state import Committed, MigrationReport, State, Version
from memstore.trace import Trace
from memstore.types import Appended, Event, Hit, Identity, LegScore, NewEvent, SearchResult

Wire = dict[str, Any]

_FAILURES = ("failures", "history_failures")
_EVENT_FIELDS = frozenset(NewEvent.__dataclass_fields__)


def time_to(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_from(text: Any, path: str) -> datetime:
    """Read an ISO 8601 time; whether it has an offset is for the reader to check."""
    if not isinstance(text, str):
        raise InvalidInput("a time is a string in ISO 8601", path=path)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r:.40} is not a time in ISO 8601", path=path) from None
    return moment


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _with(wire: Wire, **changed: Any) -> Wire:
    return {**wire, **changed}


def _maybe_time(moment: datetime | None) -> str | None:
    return None if moment is None else time_to(moment)


# the log


def new_event_to(event: NewEvent) -> Wire:
    """Write an event to append: only the fields that say something."""
    wire = {
        name: value
        for name in NewEvent.__dataclass_fields__
        if (value := getattr(event, name)) is not None
    }
    if isinstance(event.occurred_at, datetime):
        if event.occurred_at.utcoffset() is None:
            raise InvalidInput(
                "must have a time zone, such as datetime.now(UTC)", path="occurred_at"
            )
        wire["occurred_at"] = event.occurred_at.isoformat()
    return wire


def new_event_from(wire: Any, index: int) -> NewEvent:
    """Read an event to append; what its fields hold is checked when it is appended."""
    at = f"events[{index}]"
    if not isinstance(wire, dict):
        raise InvalidInput("not an event: an event is an object", path=at)
    if unknown := sorted(wire.keys() - _EVENT_FIELDS):
        raise InvalidInput(f"not an event: it has no field {unknown[0]!r:.80}", path=at)
    given = {name: value for name, value in wire.items() if value is not None}
    if "occurred_at" in given:
        try:
            given["occurred_at"] = time_from(given["occurred_at"], "occurred_at")
        except InvalidInput as error:
            raise InvalidInput(str(error), path=at) from error
    return NewEvent(**given)


def event_to(event: Event) -> Wire:
    return {
        "position": event.position,
        "session_id": event.session_id,
        "actor": event.actor,
        "role": event.role,
        "event_type": event.event_type,
        "occurred_at": time_to(event.occurred_at),
        "recorded_at": time_to(event.recorded_at),
        "content": event.content,
        "payload": event.payload,
        "correlation_id": event.correlation_id,
        "idempotency_key": event.idempotency_key,
    }


def event_from(wire: Wire) -> Event:
    return Event(**_with(wire, **{n: _utc(wire[n]) for n in ("occurred_at", "recorded_at")}))


def appended_to(appended: Appended) -> Wire:
    return {
        "positions": list(appended.positions),
        "repeated": list(appended.repeated),
        "unindexed": {str(position): n for position, n in appended.unindexed.items()},
    }


def appended_from(wire: Wire) -> Appended:
    return Appended(
        positions=tuple(wire["positions"]),
        repeated=tuple(wire["repeated"]),
        unindexed={int(position): n for position, n in wire["unindexed"].items()},
    )


# the state


def _stale_to(stale: Any) -> Wire:
    return {
        "path": stale.path,
        "value": stale.value,
        "since": time_to(stale.since),
        "age_seconds": stale.age.total_seconds(),
        "reason": stale.reason,
        "note": stale.note,
        "question": stale.question,
    }


def _stale_from(wire: Wire) -> Stale:
    rest = {name: value for name, value in wire.items() if name != "age_seconds"}
    age = timedelta(seconds=wire["age_seconds"])
    return Stale(**_with(rest, since=_utc(wire["since"]), age=age))


def state_to(state: State[Any], schema: StateSchema[Any]) -> Wire:
    """Write a state. `document` is in the shape of `document_version`, the schema's current one;
    `schema_version` is the one that it was stored under."""
    return {
        "version": state.version,
        "document": state.document,
        "document_version": schema.version,
        "schema_name": state.schema_name,
        "schema_version": state.schema_version,
        "log_position": state.log_position,
        "log_end": state.log_end,
        "stale": [_stale_to(stale) for stale in state.stale],
        "marks": state.marks,
        "kind": state.kind,
        "author": state.author,
        "reason": state.reason,
        "created_at": _maybe_time(state.created_at),
    }


def state_from(wire: Wire, schema: StateSchema[Any], memory: str) -> State[Any]:
    """Read a state with the reader's own schema, migrated further where that is a newer one."""
    value, document, _ = schema.read(
        wire["document"],
        wire["document_version"],
        name=wire["schema_name"],
        memory=memory,
        state_version=wire["version"],
    )
    rest = {
        name: given
        for name, given in wire.items()
        if name not in ("document", "document_version", "stale", "created_at")
    }
    created = wire["created_at"]
    return State(
        value=value,
        document=document,
        find_stale=lambda: tuple(_stale_from(stale) for stale in wire["stale"]),
        created_at=None if created is None else _utc(created),
        **rest,
    )


def committed_to(committed: Committed[Any], schema: StateSchema[Any]) -> Wire:
    state = committed.state
    return {
        "events": appended_to(committed.events),
        "state": None if state is None else state_to(state, schema),
    }


def version_to(version: Version) -> Wire:
    return asdict(version) | {"created_at": time_to(version.created_at)}


def version_from(wire: Wire) -> Version:
    return Version(**_with(wire, created_at=_utc(wire["created_at"])))


def change_to(change: Change) -> Wire:
    return {"path": change.path, "op": change.op, "old": change.old, "new": change.new}


def change_from(wire: Wire) -> Change:
    return Change(**wire)


# search and resume


def _hit_to(hit: Hit) -> Wire:
    return {
        "score": hit.score,
        "legs": {leg: {"rank": s.rank, "score": s.score} for leg, s in hit.legs.items()},
        "reasons": list(hit.reasons),
        "span": None if hit.span is None else list(hit.span),
    }


def _hit_from(wire: Wire, event: Event) -> Hit:
    return Hit(
        event=event,
        score=wire["score"],
        legs={leg: LegScore(**score) for leg, score in wire["legs"].items()},
        reasons=tuple(wire["reasons"]),
        span=None if wire["span"] is None else (wire["span"][0], wire["span"][1]),
    )


def _did_to(result: SearchResult) -> Wire:
    return {
        "leg_hits": dict(result.leg_hits),
        "unencoded": result.unencoded,
        "degraded": result.degraded,
        "milliseconds": dict(result.milliseconds),
    }


def search_to(result: SearchResult) -> Wire:
    hits = [{"event": event_to(hit.event)} | _hit_to(hit) for hit in result.hits]
    return {"hits": hits} | _did_to(result)


def search_from(wire: Wire) -> SearchResult:
    hits = tuple(_hit_from(hit, event_from(hit["event"])) for hit in wire["hits"])
    return SearchResult(**_with(wire, hits=hits))


def _entry_to(entry: Entry) -> Wire:
    return {
        "event": event_to(entry.event),
        "part": entry.part,
        "reason": entry.reason,
        "hit": None if entry.hit is None else _hit_to(entry.hit),
        "group": list(entry.group),
        "cut": None if entry.cut is None else list(entry.cut),
        "text": entry.text,
    }


def _entry_from(wire: Wire) -> Entry:
    event = event_from(wire["event"])
    return Entry(
        event=event,
        part=wire["part"],
        reason=wire["reason"],
        hit=None if wire["hit"] is None else _hit_from(wire["hit"], event),
        group=tuple(wire["group"]),
        cut=None if wire["cut"] is None else (wire["cut"][0], wire["cut"][1]),
    )


def context_to(context: Context, schema: StateSchema[Any]) -> Wire:
    """Write a context. `outline` holds the state as it is rendered, line by line."""
    chosen = context.selection
    return {
        "id": str(context.id),
        "task": context.task,
        "state": state_to(context.state, schema),
        "outline": list(chosen.state),
        "tail": [_entry_to(entry) for entry in context.tail],
        "retrieved": [_entry_to(entry) for entry in context.retrieved],
        "dropped": [asdict(dropped) for dropped in context.dropped],
        "tokens": dict(context.tokens),
        "search": None if context.search is None else _did_to(context.search),
        "degraded": context.degraded,
        "milliseconds": dict(context.milliseconds),
        "log_end": chosen.head,
        "made_at": time_to(chosen.now),
        "bare": chosen.bare,
    }


def context_from(wire: Wire, schema: StateSchema[Any], memory: str) -> Context:
    state = state_from(wire["state"], schema, memory)
    tail = tuple(map(_entry_from, wire["tail"]))
    retrieved = tuple(map(_entry_from, wire["retrieved"]))
    entries = sorted((*tail, *retrieved), key=lambda entry: entry.position)
    return Context(
        id=UUID(wire["id"]),
        task=wire["task"],
        state=state,
        stale=state.stale,
        tail=tail,
        retrieved=retrieved,
        dropped=tuple(Dropped(**dropped) for dropped in wire["dropped"]),
        tokens=Tokens(**wire["tokens"]),
        search=None if wire["search"] is None else SearchResult(hits=(), **wire["search"]),
        degraded=wire["degraded"],
        milliseconds=wire["milliseconds"],
        selection=Selection(
            state=tuple(wire["outline"]),
            entries=tuple(entries),
            head=wire["log_end"],
            now=_utc(wire["made_at"]),
            bare=wire["bare"],
        ),
    )


def trace_to(trace: Trace) -> Wire:
    return {
        "context_id": str(trace.context_id),
        "created_at": time_to(trace.created_at),
        "task": trace.task,
        "budget": trace.budget,
        "tokens": dict(trace.tokens),
        "log_end": trace.log_end,
        "considered": list(trace.considered),
        "given": list(trace.given),
        "used": None if trace.used is None else list(trace.used),
    }


def trace_from(wire: Wire) -> Trace:
    return Trace(
        context_id=UUID(wire["context_id"]),
        created_at=_utc(wire["created_at"]),
        task=wire["task"],
        budget=wire["budget"],
        tokens=wire["tokens"],
        log_end=wire["log_end"],
        considered=tuple(wire["considered"]),
        given=tuple(wire["given"]),
        used=None if wire["used"] is None else tuple(wire["used"]),
    )


# memories and keys


def identity_to(identity: Identity) -> Wire:
    return {"agent": identity.agent_id, "user": identity.user_id}


def key_to(key: ApiKey) -> Wire:
    moments = {
        name: _maybe_time(getattr(key, name)) for name in ("created_at", "expires_at", "revoked_at")
    }
    return asdict(key) | moments


# registered schemas


def definition_to(definition: Definition) -> Wire:
    return asdict(definition) | {"created_at": _maybe_time(definition.created_at)}


def definition_from(wire: Wire) -> Definition:
    created = wire["created_at"]
    return Definition(**_with(wire, created_at=None if created is None else _utc(created)))


def definitions_from(wire: Wire) -> list[Definition]:
    return [definition_from(one) for one in wire["schemas"]]


def report_to(report: MigrationReport) -> Wire:
    """Write a report; each failure is a problem."""
    failed = {name: list(map(to_problem, getattr(report, name))) for name in _FAILURES}
    return {name: getattr(report, name) for name in report.__dataclass_fields__} | failed


def report_from(wire: Wire) -> MigrationReport:
    failed = {name: tuple(map(from_problem, wire[name])) for name in _FAILURES}
    return MigrationReport(**_with(wire, **failed))
