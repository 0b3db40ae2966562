"""A run's result as one JSON object, and as TREC files."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval import measures
from eval.runner import UNLIMITED, Asked, Outcome

IN_BUDGET = ("all", "any", "fraction", "tokens", "answer")
#: The measures that get an interval.
HEADLINES = ("R@10", "All@10", "nDCG@10", "RR", "answer@1", "answer@10")

Result = dict[str, Any]


def summary(outcome: Outcome) -> Result:
    """Boil an outcome down to means, intervals, categories and times, with each question's own.

    A measure that no question has (there is no evidence, or there are no sessions) is None.
    """
    rows = rows_of(outcome.asked)
    categories: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for asked in outcome.asked:
        categories[asked.query.category].append(rows[asked.query.qid])
    everything = list(rows.values())
    return {
        "dataset": outcome.dataset.form,
        "name": outcome.dataset.name,
        "system": outcome.system,
        "encoder": outcome.encoder,
        "reranker": outcome.reranker,
        "n_queries": len(rows),
        "n_messages": outcome.dataset.n_messages,
        "dropped": outcome.dataset.dropped,
        "unknown_evidence": outcome.dataset.unknown,
        "metrics": metrics(everything),
        "intervals": intervals(everything),
        "by_category": {
            category: {"n_queries": len(members), **metrics(members)}
            for category, members in sorted(categories.items())
        },
        "milliseconds": quantiles(outcome.searching),
        "resume_milliseconds": quantiles(outcome.resuming),
        "seconds": round(sum(outcome.seconds.values()), 3),
        "seconds_by_step": {step: round(spent, 3) for step, spent in outcome.seconds.items()},
        "per_query": {
            asked.query.qid: {
                "conv": asked.conversation,
                "category": asked.query.category,
                "question": asked.query.question,
                "measures": rows[asked.query.qid],
            }
            for asked in outcome.asked
        },
    }


def rows_of(everything: Sequence[Asked]) -> dict[str, dict[str, float]]:
    """Measure each question, under flat names: ``R@10``, ``session R@10``, ``2048 all``."""
    searched = [asked for asked in everything if asked.query.question.strip()]
    turns = measures.per_query(
        {a.query.qid: a.query.evidence for a in searched if a.query.evidence},
        {a.query.qid: a.ranked for a in searched},
    )
    sessions = measures.per_query(
        {a.query.qid: a.expected_sessions for a in searched if a.expected_sessions},
        {a.query.qid: a.sessions for a in searched},
    )
    rows = {}
    for asked in everything:
        qid = asked.query.qid
        row = dict(turns.get(qid, {}))
        row |= {f"session {name}": value for name, value in sessions.get(qid, {}).items()}
        if asked.query.answers and asked in searched:
            row |= measures.answer_rank(asked.answer_rank)
        for budget, found in asked.budgets.items():
            row |= {f"{budget} {name}": value for name, value in found.items()}
        rows[qid] = row
    return rows


def metrics(rows: Sequence[Mapping[str, float]]) -> Result:
    """Average measures under flat names, and sort them: turns, sessions, answers, budgets."""
    flat = measures.means(rows)
    result: Result = {name: flat.get(name) for name in measures.NAMES}
    sessions = {name: flat.get(f"session {name}") for name in measures.NAMES}
    result["session"] = sessions if sessions["RR"] is not None else None
    result |= {name: value for name, value in flat.items() if name.startswith("answer")}
    sizes = dict.fromkeys(n.rpartition(" ")[0] for n in flat if n.endswith(" tokens"))
    for size in sizes:
        found = {name: flat.get(f"{size} {name}") for name in IN_BUDGET}
        if found["answer"] is None:
            del found["answer"]
        if size == UNLIMITED:
            result[UNLIMITED] = found
        else:
            result.setdefault("budget", {})[size] = found
    return result | {"budget": result.get("budget", {})}


def intervals(rows: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Give the bootstrap intervals of the measures that head a report."""
    names = dict.fromkeys(name for row in rows for name in row)
    headlines = [n for n in names if n in HEADLINES or n.endswith((" all", " fraction"))]
    return {n: measures.interval([row[n] for row in rows if n in row]) for n in headlines}


def quantiles(steps: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    return {
        step: {"p50": statistics.median(values), "p95": percentile(values, 95)}
        for step, values in steps.items()
    }


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def write_json(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Result:
    """Read a result that `run` wrote; raises `ValueError` on anything else."""
    result = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(result, dict) or "per_query" not in result:
        raise ValueError("not a result of 'python -m eval run --json'")
    return result


def write_trec(outcome: Outcome, folder: Path) -> None:
    """Write ``run.txt`` and ``qrels.txt`` as trec_eval reads them.

    Their columns are split at white space, so that in ids it is percent-encoded, as is what
    does not print.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run, qrels = [], []
    for asked in outcome.asked:
        qid = token(asked.query.qid)
        for rank, document in enumerate(asked.ranked, 1):
            run.append(f"{qid} Q0 {token(document)} {rank} {1 / rank:.6f} {outcome.system}")
        qrels += [f"{qid} 0 {token(document)} 1" for document in asked.query.evidence]
    write_lines(folder / "run.txt", run)
    write_lines(folder / "qrels.txt", qrels)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def token(text: str) -> str:
    """Percent-encode what does not print or is space, and the percent sign itself."""
    plain = (char.isprintable() and char not in " %" for char in text)
    return "".join(
        char if keep else "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogatepass"))
        for char, keep in zip(text, plain, strict=True)
    )
