"""The quality gate: a small set of the project's own, whose figures may not fall.

It is made of four written conversations: an operations agent with tools, two friends, a student
and her assistant, a family in Chinese. Its figures say whether a change broke something, not
how good the ranking is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from eval import datasets, measures, results, runner
from eval.tables import columns
from memstore import MemoryStore

FOLDER = Path(__file__).parent / "gate"


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the gate's measures, and the least that it may be."""

    name: str
    value: float
    floor: float

    @property
    def holds(self) -> bool:
        return self.value >= self.floor


def floors() -> tuple[int, dict[str, float]]:
    """Read the committed floors, and the budget in which contexts are measured."""
    read = json.loads((FOLDER / "thresholds.json").read_text(encoding="utf-8"))
    return read["budget"], read["floors"]


def measured(
    store: MemoryStore, progress: runner.Progress = lambda step, done, total: None
) -> list[Figure]:
    """Run the gate's questions through a store, and compare each measure with its floor."""
    budget, least = floors()
    data = datasets.load("generic", FOLDER)
    outcome = runner.run(store, data, budgets=(budget,), progress=progress)
    rows = results.rows_of(outcome.asked)
    found: Mapping[str, float] = measures.means(list(rows.values()))
    return [Figure(name, found[name], floor) for name, floor in least.items()]


def show(figures: list[Figure], console: Console) -> None:
    """Print each measure beside its floor."""
    table = columns("measure", "now", "floor", "")
    for figure in figures:
        verdict = "" if figure.holds else "below its floor"
        table.add_row(figure.name, f"{figure.value:.3f}", f"{figure.floor:.3f}", verdict)
    console.print(table)
