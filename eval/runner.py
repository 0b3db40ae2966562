"""Running one system over one data set: real append, real encoder, real search, real context."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from eval import measures, systems
from eval.datasets import Conversation, Dataset, Query
from memstore import Budget, Hit, Memory, MemoryStore, Ranking, o200k
from memstore.context import ContextInputs, assemble

BATCH = 500
AGENT = "eval"

Progress = Callable[[str, int, int], object]


@dataclass(slots=True)
class Outcome:
    """All that was measured: one row a question, and the ranked ids for run files."""

    dataset: Dataset
    system: str
    encoder: str
    qrels: dict[str, list[str]] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=dict)
    session_qrels: dict[str, list[str]] = field(default_factory=dict)
    session_runs: dict[str, list[str]] = field(default_factory=dict)
    categories: dict[str, str] = field(default_factory=dict)
    budgets: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)
    steps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def run(
    store: MemoryStore,
    url: str,
    dataset: Dataset,
    system: str,
    budgets: Sequence[int] = (),
    *,
    ranking: Ranking | None = None,
    progress: Progress = lambda step, done, total: None,
) -> Outcome:
    """Put every conversation into a memory of its own, then ask it its questions.

    Appending again what a kept store holds already stores nothing twice. `ranking` replaces the
    shipped one in the systems that search the store.
    """
    encoder = store.encoder()
    outcome = Outcome(dataset, system, encoder.name if encoder else "none")
    outcome.budgets = {budget: {} for budget in budgets}
    for number, conversation in enumerate(dataset.conversations):
        memory = store.memory(agent=f"{AGENT}-{dataset.name}", user=conversation.id)
        ids = fill(memory, conversation, outcome, progress)
        made = (
            systems.searched(memory, ranking, systems.DEPTH)
            if ranking is not None
            else systems.make(system, memory, url)
        )
        sessions = {m.id: m.event.session_id or "" for m in conversation.messages}
        for query in conversation.queries:
            started = perf_counter()
            hits, steps = made(query)
            outcome.seconds["search"] += perf_counter() - started
            for step, milliseconds in steps.items():
                outcome.steps[step].append(milliseconds)
            record(outcome, query, [ids[hit.event.position] for hit in hits], sessions)
            for budget in budgets:
                outcome.budgets[budget][query.qid] = in_budget(
                    memory, system, query, hits, ids, budget, ranking
                )
        progress("conversations", number + 1, len(dataset.conversations))
    return outcome


def fill(
    memory: Memory[Any], conversation: Conversation, outcome: Outcome, progress: Progress
) -> dict[int, str]:
    """Append and encode a conversation; return the messages' ids by position."""
    started = perf_counter()
    ids: dict[int, str] = {}
    messages = conversation.messages
    for start in range(0, len(messages), BATCH):
        batch = messages[start : start + BATCH]
        appended = memory.append([replace(m.event, idempotency_key=m.id) for m in batch])
        ids |= dict(zip(appended.positions, (m.id for m in batch), strict=True))
    outcome.seconds["append"] += perf_counter() - started
    started = perf_counter()
    total = memory.unencoded()
    memory.flush(progress=lambda left: progress("messages encoded", total - left, total))
    outcome.seconds["encode"] += perf_counter() - started
    if not memory.state().version:
        # The state has absorbed the log: what is in the context is there because it was found.
        memory.patch({}, reason="evaluation")
    return ids


def record(outcome: Outcome, query: Query, ranked: list[str], sessions: dict[str, str]) -> None:
    outcome.categories[query.qid] = query.category
    outcome.qrels[query.qid] = list(query.evidence)
    outcome.runs[query.qid] = ranked
    outcome.session_qrels[query.qid] = list(dict.fromkeys(sessions[e] for e in query.evidence))
    outcome.session_runs[query.qid] = list(dict.fromkeys(sessions[m] for m in ranked))


def in_budget(
    memory: Memory[Any],
    system: str,
    query: Query,
    hits: Sequence[Hit],
    ids: dict[int, str],
    budget: int,
    ranking: Ranking | None,
) -> dict[str, float]:
    """Render a context and look for the evidence in it: all, any, fraction, and the tokens.

    memstore resumes as its users do; the other systems' entries are rendered by the same
    assembly, in the order in which they ranked them.
    """
    if system in systems.RANKINGS:
        context = memory.resume(
            query.question, budget=budget, ranking=ranking or systems.RANKINGS[system]
        )
    else:
        inputs = ContextInputs(now=datetime.now(UTC), task=query.question, hits=hits)
        context = assemble(inputs, Budget(budget), o200k())
    shown = {ids[e.position] for e in (*context.retrieved, *context.tail) if covers(e)}
    found = sum(e in shown for e in query.evidence)
    return {
        "all": float(found == len(query.evidence)),
        "any": float(found > 0),
        "fraction": found / len(query.evidence),
        "tokens": float(context.tokens.total),
    }


def covers(entry: Any) -> bool:
    """Tell whether an entry is shown whole, or the passage that matched best in it is."""
    if entry.cut is None:
        return True
    if entry.hit is None or entry.hit.span is None:
        return False
    start, stop = entry.hit.span
    middle = (start + stop) // 2
    return bool(entry.cut[0] <= middle < entry.cut[1])


def summary(outcome: Outcome) -> dict[str, Any]:
    """Boil an outcome down to one JSON object: means, intervals, by category, times."""
    rows = measures.per_query(outcome.qrels, outcome.runs)
    session_rows = measures.per_query(outcome.session_qrels, outcome.session_runs)
    categories: dict[str, list[str]] = defaultdict(list)
    for qid, category in outcome.categories.items():
        categories[category].append(qid)

    def means(qids: Sequence[str]) -> dict[str, Any]:
        return {
            **measures.mean([rows[qid] for qid in qids]),
            "session": measures.mean([session_rows[qid] for qid in qids]),
            "budget": {
                str(budget): measures.mean([by_query[qid] for qid in qids])
                for budget, by_query in outcome.budgets.items()
            },
        }

    everything = list(rows)
    return {
        "dataset": outcome.dataset.name,
        "system": outcome.system,
        "encoder": outcome.encoder,
        "n_queries": len(rows),
        "n_messages": sum(len(c.messages) for c in outcome.dataset.conversations),
        "dropped": outcome.dataset.dropped,
        "metrics": means(everything),
        "intervals": {
            name: measures.interval([rows[qid][name] for qid in everything])
            for name in ("R@10", "All@10", "nDCG@10", "RR")
        },
        "by_category": {
            category: {"n_queries": len(qids)} | means(qids)
            for category, qids in sorted(categories.items())
        },
        "milliseconds": {
            step: {"p50": statistics.median(values), "p95": quantile(values, 0.95)}
            for step, values in outcome.steps.items()
        },
        "seconds": dict(outcome.seconds),
        "per_query": rows,
        "per_query_budget": {str(budget): by_query for budget, by_query in outcome.budgets.items()},
    }


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
