"""The agent's process: it stores what happens and what it makes of it, until somebody kills it.

What it is given by the thread stands in for a model and its tools; everything else is as an agent
would do it. It reports on its standard output, one JSON object a line: ``begin`` before it works
on a message, ``ack`` once the message is durable, ``encoding`` while it waits for vectors,
``resumed`` when it found itself restarted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import Any

from memstore import AgentState, Budget, Context, Memory, MemoryStore, Settings, State
from memstore.demo.compare import measure, other_ways
from memstore.demo.thread import Thread, load

#: Names that no memory of the user's own is likely to have: the demo erases what is under them.
AGENT, USER = "demo-wren", "demo-ines"
LEASE_SECONDS = 5.0


def main(argv: list[str] | None = None) -> int:
    """Work through the thread from a message on; restart from memory if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--weeks", type=int, default=0)
    parser.add_argument("--budget", type=int, default=2048)
    parser.add_argument("--first", help="the first message that was not acknowledged")
    parser.add_argument("--hold", help="the message after which it waits for its end")
    parser.add_argument("--spawned", type=float, default=0.0, help="when this process was started")
    options = parser.parse_args(argv)
    imported = time.time()
    # What a killed process had claimed to encode is free again after this time.
    settings = Settings().model_copy(update={"lease_seconds": LEASE_SECONDS})
    with MemoryStore.embedded(options.data_dir, settings=settings) as store:
        opened = time.time()
        memory = store.memory(agent=AGENT, user=USER)
        thread = load(options.weeks)
        if memory.state().version:
            started = {
                "python and imports": (imported - options.spawned) * 1000,
                "open the store": (opened - imported) * 1000,
            }
            resume(memory, thread, Budget(options.budget), started)
        work(memory, thread, options.first, options.hold)
    return 0


def work(
    memory: Memory[AgentState], thread: Thread, first: str | None = None, hold: str | None = None
) -> None:
    """Store every message from `first` on, and the changes of state that come with some."""
    known = memory.events(limit=10_000)
    positions = {e.idempotency_key: e.position for e in known if e.idempotency_key}
    if not known:
        start = thread.notes[""]
        memory.patch(start.patch, reason=start.reason, author=AGENT)
    session = None
    for event in thread.events[thread.index(first) if first else 0 :]:
        if session not in (None, event.session_id):
            report(encoding=session)  # between two conversations there is time for it
            memory.flush()
        session, key = event.session_id, str(event.idempotency_key)
        report(begin=key)
        note = thread.notes.get(key)
        before = memory.state() if note else None
        if note and before and before.log_position < positions.get(key, before.log_end + 1):
            # What was said and what it changes: both are stored or neither is.
            at = {key: before.log_end + 1} | positions
            committed = memory.commit(
                events=[event], state=placed(note.patch, at), reason=note.reason, author=AGENT
            )
            appended = committed.events
            if note.flag:
                memory.flag(note.flag, note.because, author=AGENT)
        else:
            appended = memory.append([event])
        positions[key] = appended.position
        report(ack=key, position=appended.position, repeated=bool(appended.repeated))
        if key == hold:
            time.sleep(60)  # as a real one waits for its model, before it goes on
    report(encoding=session)
    memory.flush()


def placed(patch: Any, positions: dict[str, int]) -> Any:
    """Put the log's positions in place of the thread's message ids."""
    if isinstance(patch, dict):
        return {
            key: [positions[item] for item in value]
            if key == "positions"
            else placed(value, positions)
            for key, value in patch.items()
        }
    return [placed(item, positions) for item in patch] if isinstance(patch, list) else patch


def resume(
    memory: Memory[AgentState], thread: Thread, budget: Budget, started: dict[str, float]
) -> None:
    """Restart: get the context for the task, and the same in the two other ways to compare."""
    contexts: list[Context] = []

    def remember() -> tuple[str, int]:
        contexts.append(memory.resume(thread.task, budget=budget))
        return contexts[-1].to_text(), contexts[-1].tokens.total

    own = measure("memstore", thread, remember)
    report(
        resumed=summary(contexts[0]),
        budget=budget.total,
        started=started,
        ways=[asdict(way) for way in (own, *other_ways(memory, thread, budget.total))],
    )


def summary(context: Context) -> dict[str, Any]:
    """What came back, as plain JSON."""
    state: State[AgentState] = context.state
    return {
        "document": state.document,
        "version": state.version,
        "log_position": state.log_position,
        "log_end": state.log_end,
        "stale": [
            {
                "path": part.path,
                "days": part.age.days,
                "ask": part.question,
                "note": part.note,
            }
            for part in state.stale
        ],
        **{
            name: [
                {
                    "position": entry.position,
                    "at": entry.event.occurred_at.isoformat(),
                    "actor": entry.event.actor,
                    "type": entry.event.event_type,
                    "text": entry.text,
                    "cut": entry.cut is not None,
                    "reason": entry.reason,
                }
                for entry in entries
            ]
            for name, entries in (("tail", context.tail), ("retrieved", context.retrieved))
        },
        "dropped": [asdict(item) for item in context.dropped],
        "tokens": asdict(context.tokens),
        "milliseconds": context.milliseconds,
        "leg_hits": dict(context.search.leg_hits) if context.search else {},
        "unencoded": context.search.unencoded if context.search else 0,
        "degraded": context.degraded,
    }


def report(**message: Any) -> None:
    """Write one line to whoever started this process, at once."""
    sys.stdout.write(json.dumps(message, ensure_ascii=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
