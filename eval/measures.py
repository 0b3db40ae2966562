"""Measures: ir-measures for the standard ones, All@k beside them, bootstrap intervals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

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
    judged = [
        ir_measures.Qrel(qid, document, 1) for qid, found in qrels.items() for document in found
    ]
    scored = [
        ir_measures.ScoredDoc(qid, document, float(-rank))
        for qid, ranked in run.items()
        for rank, document in enumerate(dict.fromkeys(ranked))
    ]
    result = {qid: dict.fromkeys(NAMES, 0.0) for qid in qrels}
    for metric in ir_measures.iter_calc(_MEASURES, judged, scored):
        result[metric.query_id][str(metric.measure)] = float(metric.value)
    for qid, evidence in qrels.items():
        ranked = list(dict.fromkeys(run.get(qid, ())))
        for k in CUTOFFS:
            result[qid][f"All@{k}"] = float(set(evidence) <= set(ranked[:k]))
    return result


def mean(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average questions' measures by name."""
    return {name: statistics.fmean(value[name] for value in values) for name in values[0]}


def interval(
    values: Sequence[float], *, confidence: float = 0.95, draws: int = 2_000, seed: int = 7
) -> tuple[float, float]:
    """Return a bootstrap percentile interval of the mean; the same draws every time."""
    array = np.asarray(values, np.float64)
    random = np.random.default_rng(seed)
    means = array[random.integers(0, len(array), (draws, len(array)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
