# generated from memstore/_async by scripts/generate_sync.py: edit there
"""Measuring a labelled set at several budgets, through the resume that its agent calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from memstore import tuning
from memstore.budget import Budget
from memstore.errors import NotFound
from memstore.tuning import Measured, Tuned

if TYPE_CHECKING:
    from memstore._sync.memory import Memory

    Labelled = Sequence[tuple[Memory[Any], str, Sequence[int]]]

Progress = Callable[[int, int], object]


def measure(memory: Memory[Any], task: str, used: Sequence[int], budget: Budget) -> Measured:
    """Resume once and look for the positions that help."""
    context = memory.resume(task, budget=budget, record=False)
    shown = {entry.position for entry in (*context.tail, *context.retrieved)}
    tokens = context.tokens
    return Measured(
        fraction=sum(position in shown for position in used) / len(used),
        tokens=tokens.total,
        state=tokens.state,
        tail=tokens.tail,
        retrieved=tokens.retrieved,
    )


def tune(
    labelled: Labelled, budgets: Sequence[int], wanted: float, progress: Progress | None
) -> Tuned:
    """Measure every question at every budget, choose one, then try how to split it.

    Raises `NotFound` when there is nothing to measure.
    """
    tuning.check(budgets, wanted)
    questions = [(memory, task, used) for memory, task, used in labelled if used]
    if not questions:
        raise NotFound(
            "there is no question with entries that helped: record contexts "
            "(MEMSTORE_RECORD_TRACES=true) and say what helped (memory.feedback)"
        )
    total = len(questions) * (len(budgets) + len(tuning.TAIL_SHARES))
    done = 0

    def run(budget: Budget) -> list[Measured]:
        nonlocal done
        measured = []
        for memory, task, used in questions:
            measured.append(measure(memory, task, used, budget))
            done += 1
            if progress is not None:
                progress(done, total)
        return measured

    curve = {budget: run(Budget(budget)) for budget in budgets}
    points = tuple(tuning.point(budget, measured) for budget, measured in curve.items())
    knee, smallest = tuning.knee(points), tuning.smallest(points, wanted)
    budget = smallest or knee
    state_share = tuning.state_share(curve[budget], budget)
    splits: dict[float, float] = {}
    for tail_share in tuning.TAIL_SHARES:
        at = Budget(budget, state_share, min(tail_share, 1 - state_share))
        splits[at.tail_share] = tuning.point(budget, run(at)).fraction
    return Tuned(
        points=points,
        questions=len(questions),
        wanted=wanted,
        knee=knee,
        smallest=smallest,
        budget=budget,
        state_share=state_share,
        tail_share=max(splits, key=lambda share: (splits[share], -abs(share - 0.35))),
    )
