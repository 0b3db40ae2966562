# generated from memstore/_async by scripts/generate_sync.py: edit there
"""Resume: state, tail and retrieved entries read in one place and assembled to a context."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from memstore import ranking, sql, telemetry
from memstore._sync import log, rows, searching, spaces, states
from memstore._sync.database import Conn
from memstore._sync.runtime import in_thread
from memstore.budget import Budget
from memstore.candidates import LEGS, Clock, Found, focused, to_hit
from memstore.context import Context, ContextInputs, StateDocument, assemble
from memstore.filters import EventFilter
from memstore.queries import make_queries
from memstore.state import M, State
from memstore.text import clean_text
from memstore.tokens import o200k
from memstore.types import Event, Hit, SearchResult, TokenCounter

if TYPE_CHECKING:
    from memstore._sync.memory import Memory
    from memstore._sync.store import MemoryStore

#: An entry takes about this many tokens at the least, with its share of headings.
LEAST_TOKENS = 8
MOST_ENTRIES = 400
NEIGHBOURS = (-1, 1)


@telemetry.traced("resume")
def resume(
    store: MemoryStore,
    memory: Memory[M],
    task: str | None,
    budget: Budget,
    counter: TokenCounter | None,
    settings: ranking.Settings | None,
    now: datetime | None,
) -> Context[State[M]]:
    """Assemble what the agent needs to go on; see `Memory.resume`."""
    settings = settings or ranking.Settings()
    clock = Clock.start()
    state = memory.state()
    clock.lap("state")
    task = clean_text(task or "")
    asked_at = searching.moment(now)
    weighted = make_queries(task, memory.schema.cues(state.value))
    queries, degraded = searching.encode_queries(store, [text for text, _ in weighted], asked_at)
    clock.lap("encode")
    most = min(MOST_ENTRIES, budget.total // LEAST_TOKENS + 1)
    memory_id = memory.identity.memory_id
    found: list[tuple[Found, float]] = []
    with store._db.transaction(snapshot=True) as conn:
        # Again: what was saved, appended or erased meanwhile changed both tracks.
        state = states.load(conn, memory.identity, memory.schema)
        clock.lap("state")
        tail = read_tail(conn, memory_id, state.log_position, most)
        clock.lap("tail")
        space, limits = spaces.usable(conn, store._space)
        degraded = "; ".join(filter(None, (degraded, limits)))
        for query, (_, weight) in zip(queries, weighted, strict=True):
            one = searching.find(conn, memory_id, space, query, EventFilter(), settings, clock)
            if one is not None:
                found.append((one, weight))
        hits = merged_hits(conn, memory_id, found, most)
        events = {hit.event.position: hit.event for hit in hits} | {e.position: e for e in tail}
        neighbours = read_neighbours(conn, memory_id, hits, events)
        joined = read_partners(conn, memory_id, events | neighbours)
        unencoded = searching.count_unencoded(conn, memory_id, space)
        clock.lap("entries")
    if hits and weighted:
        hits, left_out = searching.reranked(store, weighted[0][0], hits, clock)
        degraded = "; ".join(filter(None, (degraded, left_out)))
    everything = joined | neighbours | events
    inputs = ContextInputs(
        now=asked_at,
        task=task,
        state=state,
        document=as_document(state),
        stale=state.stale,
        tail=tail,
        tail_omitted=max(0, state.log_end - state.log_position - len(tail)),
        hits=hits,
        neighbours=neighbours,
        partners=partners_of(everything),
        joined=joined,
        search=SearchResult(
            hits=tuple(hits),
            leg_hits={leg: sum(one.leg_hits[leg] for one, _ in found) for leg in LEGS},
            unencoded=unencoded,
            degraded=degraded,
            milliseconds=clock.milliseconds,
        ),
        degraded=degraded,
        milliseconds=clock.milliseconds,
    )
    # Off the event loop: counting tokens takes a while.
    context = in_thread(assemble, inputs, budget, counter or o200k())
    clock.lap("assemble")
    context.milliseconds.update(clock.milliseconds)
    telemetry.count(
        queries=len(queries),
        tail=len(context.tail),
        retrieved=len(context.retrieved),
        dropped=len(context.dropped),
        tokens=context.tokens.total,
        degraded=bool(degraded),
    )
    return context


def as_document(state: State[Any]) -> StateDocument | None:
    if not state.version:
        return None
    return StateDocument(
        document=state.document,
        schema=state.schema_name,
        schema_version=state.schema_version,
        version=state.version,
        log_position=state.log_position,
    )


def read_tail(conn: Conn, memory_id: UUID, after: int, limit: int) -> list[Event]:
    """Read the newest events after a position, in order."""
    statement = sql.statement("tail_events")
    parameters = {"memory_id": memory_id, "after": after, "limit": limit}
    cursor = conn.execute(statement, parameters)
    return [rows.event(row) for row in reversed(cursor.fetchall())]


def merged_hits(
    conn: Conn, memory_id: UUID, found: Sequence[tuple[Found, float]], most: int
) -> list[Hit]:
    """Merge several queries' rankings and read the best entries."""
    best = ranking.merge(
        [(one.frame.position, one.ranked) for one, _ in found], [weight for _, weight in found]
    )[:most]
    order = [position for position, _ in best]
    events = log.at(conn, memory_id, order)
    groups = [group for one, _ in found for group in one.rivals]
    order, newest = ranking.newest_first(
        order, groups, {position: event.content for position, event in events.items()}
    )
    places = [
        {int(p): index for index, p in enumerate(one.frame.position.tolist())} for one, _ in found
    ]
    hits = []
    for position, (_, score) in zip(order, best, strict=True):
        seen = [
            (float(one.ranked.scores[place[position]]) * weight, one, place[position])
            for (one, weight), place in zip(found, places, strict=True)
            if position in place
        ]
        _, one, index = max(seen, key=lambda item: item[0])
        hit = to_hit(events[position], one, index, score, newest.get(position))
        hits.append(focused(hit, one))
    return hits


def read_neighbours(
    conn: Conn, memory_id: UUID, hits: Sequence[Hit], known: dict[int, Event]
) -> dict[int, Event]:
    """Read the entries beside the hits, in the same session."""
    wanted = {
        hit.event.position + step: hit.event.session_id for hit in hits for step in NEIGHBOURS
    }
    found = log.at(conn, memory_id, wanted.keys() - known.keys())
    return {
        position: event for position, event in found.items() if event.session_id == wanted[position]
    }


def read_partners(conn: Conn, memory_id: UUID, events: dict[int, Event]) -> dict[int, Event]:
    """Read the tool calls and results that share a correlation id with some events."""
    ids = {
        event.correlation_id
        for event in events.values()
        if event.correlation_id and event.event_type in ("tool_call", "tool_result")
    }
    if not ids:
        return {}
    found = log.correlated(conn, memory_id, sorted(ids))
    return {event.position: event for event in found if event.position not in events}


def partners_of(events: dict[int, Event]) -> dict[int, tuple[int, ...]]:
    """Give each tool call or result the others under its correlation id."""
    groups: dict[str, list[int]] = {}
    for position, event in sorted(events.items()):
        if event.correlation_id and event.event_type in ("tool_call", "tool_result"):
            groups.setdefault(event.correlation_id, []).append(position)
    return {
        position: tuple(other for other in group if other != position)
        for group in groups.values()
        if len(group) > 1
        for position in group
    }
