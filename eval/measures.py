"""Measures: ir-measures for the standard ones, All@k beside them, intervals and paired tests."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np

CUTOFFS = (1, 5, 10, 20, 50)
_NAMES = [f"{name}@{k}" for name in ("R", "Success") for k in CUTOFFS] + ["nDCG@10", "RR"]
NAMES = [*_NAMES, *(f"All@{k}" for k in CUTOFFS)]
_MEASURES = [ir_measures.parse_measure(name) for name in _NAMES]

Run = Mapping[str, Sequence[str]]
Qrels = Mapping[str, Sequence[str]]


def per_query(qrels: Qrels, run: Run) -> dict[str, dict[str, float]]:
    """Measure each question: `run` gives ranked ids, best first, by question id.

    R@k is the fraction of the evidence in the first k, Success@k whether any of it is, All@k
    whether all of it is. A question without results counts as 0.
    """
    # Not the ids themselves: trec_eval's C code ends a string at a NUL.
    number = {qid: str(index) for index, qid in enumerate(qrels)}
    judged = [
        ir_measures.Qrel(number[qid], _hex(document), 1)
        for qid, found in qrels.items()
        for document in found
    ]
    scored = [
        ir_measures.ScoredDoc(number[qid], _hex(document), float(-rank))
        for qid, ranked in run.items()
        if qid in qrels
        for rank, document in enumerate(dict.fromkeys(ranked))
    ]
    names = list(qrels)
    result = {qid: dict.fromkeys(NAMES, 0.0) for qid in qrels}
    for metric in ir_measures.iter_calc(_MEASURES, judged, scored) if judged else ():
        result[names[int(metric.query_id)]][str(metric.measure)] = float(metric.value)
    for qid, evidence in qrels.items():
        ranked = list(dict.fromkeys(run.get(qid, ())))
        for k in CUTOFFS:
            result[qid][f"All@{k}"] = float(set(evidence) <= set(ranked[:k]))
    return result


def _hex(text: str) -> str:
    return text.encode(errors="surrogatepass").hex()


def answer_rank(rank: int | None) -> dict[str, float]:
    """Measure a question by the rank, from 1, of the first entry that holds an answer."""
    found = {f"answer@{k}": float(rank is not None and rank <= k) for k in CUTOFFS}
    return found | {"answer RR": 1 / rank if rank else 0.0}


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average each measure over the questions that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: statistics.fmean(row[name] for row in rows if name in row) for name in names}


def interval(
    values: Sequence[float], *, confidence: float = 0.95, draws: int = 2_000, seed: int = 7
) -> tuple[float, float]:
    """Return a bootstrap percentile interval of the mean; the same draws every time."""
    array = np.asarray(values, np.float64)
    random = np.random.default_rng(seed)
    drawn = [array[random.integers(0, len(array), len(array))].mean() for _ in range(draws)]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Paired:
    """How much higher one system's measure is than another's, over the same questions.

    `low` to `high` is the 95 % bootstrap interval of the mean `difference`; `p` the two-sided
    probability of one as large if it were chance which system is which.
    """

    n: int
    mean: float
    other: float
    difference: float
    low: float
    high: float
    p: float
    wins: int
    losses: int
    ties: int


def paired(values: Sequence[float], others: Sequence[float], *, draws: int = 10_000) -> Paired:
    """Compare two systems question by question: a randomisation test, and a bootstrap interval.

    The test flips the sign of each question's difference at random (Fisher's randomisation;
    Smucker, Allan and Carterette 2007 recommend it for retrieval); the same draws every time.
    """
    first, second = np.asarray(values, np.float64), np.asarray(others, np.float64)
    differences = first - second
    observed = float(differences.mean())
    moved = differences[differences != 0]
    random = np.random.default_rng(7)
    extreme = 0
    for _ in range(draws):
        signs = random.integers(0, 2, len(moved)) * 2 - 1
        extreme += abs(float(signs @ moved)) / len(differences) >= abs(observed) - 1e-12
    low, high = interval(differences.tolist())
    return Paired(
        n=len(differences),
        mean=float(first.mean()),
        other=float(second.mean()),
        difference=observed,
        low=low,
        high=high,
        p=(extreme + 1) / (draws + 1),
        wins=int((differences > 0).sum()),
        losses=int((differences < 0).sum()),
        ties=int((differences == 0).sum()),
    )
