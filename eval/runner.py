"""Running one system over one data set: real append, real encoder, real search, real context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from eval import answers, systems
from eval.datasets import Conversation, Dataset, Query
from memstore import Context, Event, Hit, Memory, MemoryStore, Ranking, StateSchema
from memstore.render import Entry

BATCH = 500
AGENT = "eval"
#: The budget in which a replay has everything; it is measured once more, by that name.
UNLIMITED = "unlimited"

Progress = Callable[[str, int, int], object]
#: Is shown a conversation's events before they are encoded.
Learn = Callable[[Sequence[Event]], object]
Steps = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, what was found for it, and what was in its context at each budget.

    `ranked` are message ids and `sessions` their sessions, best first; `answer_rank` is the
    rank from 1 of the first entry that holds an accepted answer.
    """

    conversation: str
    query: Query
    ranked: tuple[str, ...]
    sessions: tuple[str, ...]
    expected_sessions: tuple[str, ...]
    answer_rank: int | None
    budgets: dict[str, dict[str, float]]


@dataclass(slots=True)
class Outcome:
    """All that was measured. `searching` and `resuming` are milliseconds by step."""

    dataset: Dataset
    system: str
    encoder: str
    reranker: str = "none"
    asked: list[Asked] = field(default_factory=list)
    searching: Steps = field(default_factory=lambda: defaultdict(list))
    resuming: Steps = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def run(
    store: MemoryStore,
    dataset: Dataset,
    system: str = "memstore",
    budgets: Sequence[int] = (),
    *,
    ranking: Ranking | None = None,
    schema: StateSchema[Any] | None = None,
    learn: Learn | None = None,
    progress: Progress = lambda step, done, total: None,
) -> Outcome:
    """Put every conversation into a memory of its own, then ask it its questions.

    Nothing is stored or encoded twice in a store that is kept. `ranking` and `schema` replace
    the shipped ones in the systems that search the store.
    """
    encoder = store.encoder()
    outcome = Outcome(dataset, system, encoder.name if encoder else "none")
    if store.reranker is not None:
        given = store.reranker
        outcome.reranker = given if isinstance(given, str) else type(given).__name__
    total, done = sum(1 for _ in dataset.queries), 0
    for conversation in dataset.conversations:
        memory = named(store, conversation, schema)
        ids = fill(memory, conversation, outcome.seconds, learn, progress)
        with systems.opened(system, memory, store.url, ranking) as made:
            for query in conversation.queries:
                outcome.asked.append(ask(made, conversation, query, ids, budgets, outcome))
                done += 1
                progress("questions", done, total)
    return outcome


def named(
    store: MemoryStore, conversation: Conversation, schema: StateSchema[Any] | None = None
) -> Memory[Any]:
    """Name a conversation's memory by its content, so that no other data set's gets into it."""
    if schema is None:
        return store.memory(agent=AGENT, user=conversation.digest())
    return store.memory(agent=AGENT, user=conversation.digest(), schema=schema)


def fill(
    memory: Memory[Any],
    conversation: Conversation,
    seconds: dict[str, float],
    learn: Learn | None,
    progress: Progress,
) -> dict[int, str]:
    """Append and encode a conversation; return the messages' ids by position."""
    started = perf_counter()
    ids: dict[int, str] = {}
    messages = conversation.messages
    for start in range(0, len(messages), BATCH):
        batch = messages[start : start + BATCH]
        appended = memory.append(
            [replace(m.event, idempotency_key=str(start + n)) for n, m in enumerate(batch)]
        )
        ids |= dict(zip(appended.positions, (m.id for m in batch), strict=True))
    seconds["append"] += perf_counter() - started
    started = perf_counter()
    total = memory.unencoded()
    if learn is not None and total:
        learn(systems.all_events(memory))
    if total:
        memory.flush(progress=lambda left: progress("messages encoded", total - left, total))
    seconds["encode"] += perf_counter() - started
    if not memory.state().version:
        # The state has absorbed the log: what is in the context is there because it was found.
        memory.patch(conversation.state or {}, reason="evaluation")
    return ids


def ask(
    system: systems.System,
    conversation: Conversation,
    query: Query,
    ids: dict[int, str],
    budgets: Sequence[int],
    outcome: Outcome,
) -> Asked:
    """Rank for one question, and render its context at each budget."""
    started = perf_counter()
    hits, steps = system.rank(query)
    outcome.seconds["search"] += perf_counter() - started
    add(outcome.searching, steps)
    sizes = {str(budget): budget for budget in budgets}
    if isinstance(system, systems.Full):
        sizes[UNLIMITED] = systems.UNLIMITED
    contexts: dict[str, dict[str, float]] = {}
    for name, budget in sizes.items():
        started = perf_counter()
        context = system.context(query, hits, budget)
        outcome.seconds["resume"] += perf_counter() - started
        add(outcome.resuming, context.milliseconds)
        contexts[name] = in_context(context, query, ids)
    ranked = [ids[hit.event.position] for hit in hits[: systems.DEPTH]]
    session_of = {m.id: m.event.session_id for m in conversation.messages}
    expected = query.sessions or [session_of[e] for e in query.evidence]
    return Asked(
        conversation.id,
        query,
        tuple(ranked),
        tuple(dict.fromkeys(s for m in ranked if (s := session_of[m]) is not None)),
        tuple(dict.fromkeys(s for s in expected if s is not None)),
        first_answer(hits[: systems.DEPTH], query),
        contexts,
    )


def add(steps: Steps, milliseconds: dict[str, float]) -> None:
    for step, value in milliseconds.items():
        steps[step].append(value)


def first_answer(hits: Sequence[Hit], query: Query) -> int | None:
    wanted = answers.pattern(query.answers)
    if wanted is None:
        return None
    texts = (answers.folded(hit.event.content) for hit in hits)
    return next((rank for rank, text in enumerate(texts, 1) if wanted.search(text)), None)


def in_context(context: Context, query: Query, ids: dict[int, str]) -> dict[str, float]:
    """Look for the evidence, and for an accepted answer, in what a context shows."""
    entries = (*context.retrieved, *context.tail)
    row = {"tokens": float(context.tokens.total)}
    if query.evidence:
        shown = {ids[entry.position] for entry in entries if covers(entry)}
        found = sum(e in shown for e in query.evidence)
        row |= {
            "all": float(found == len(query.evidence)),
            "any": float(found > 0),
            "fraction": found / len(query.evidence),
        }
    if wanted := answers.pattern(query.answers):
        texts = (answers.folded(shown_text(entry)) for entry in entries)
        row["answer"] = float(any(wanted.search(text) for text in texts))
    return row


def shown_text(entry: Entry) -> str:
    return entry.body if entry.cut is None else entry.body[entry.cut[0] : entry.cut[1]]


def covers(entry: Entry) -> bool:
    """Tell whether an entry is shown: whole, or where it was cut the passage that matched best.

    A system that knows no passages is given an entry of which at least half is shown.
    """
    if entry.cut is None:
        return True
    start, stop = entry.cut
    if entry.hit is None or entry.hit.span is None:
        return 2 * (stop - start) >= len(entry.body)
    return start <= sum(entry.hit.span) // 2 < stop
