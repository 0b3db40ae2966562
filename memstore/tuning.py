"""How many tokens are worth it: recall against tokens, its knee, the smallest budget, the split.

Pure: what was measured goes in, what to set comes out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from memstore.errors import InvalidInput

#: Budgets that are tried unless others are named.
BUDGETS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
TAIL_SHARES = (0.1, 0.2, 0.35, 0.5)
LARGEST_STATE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Measured:
    """One question at one budget: the fraction of what helped that is inside, and the tokens."""

    fraction: float
    tokens: int
    state: int
    tail: int
    retrieved: int


@dataclass(frozen=True, slots=True)
class Point:
    """All questions at one budget, on average. `all` is the share that has everything inside."""

    budget: int
    fraction: float
    all: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What to set, and the curve behind it.

    `knee` is the budget after which more tokens bring little. `smallest` is the least budget
    tried that keeps the `wanted` share of the evidence, None where none does. `budget` is the
    one recommended: the smallest, else the knee.
    """

    points: tuple[Point, ...]
    questions: int
    wanted: float
    knee: int
    smallest: int | None
    budget: int
    state_share: float
    tail_share: float

    def settings(self) -> dict[str, str]:
        """Give the settings as environment variables."""
        return {
            "MEMSTORE_BUDGET": str(self.budget),
            "MEMSTORE_STATE_SHARE": f"{self.state_share:g}",
            "MEMSTORE_TAIL_SHARE": f"{self.tail_share:g}",
        }


def point(budget: int, measured: Sequence[Measured]) -> Point:
    """Average one budget's measurements."""
    return Point(
        budget,
        statistics.fmean(m.fraction for m in measured),
        statistics.fmean(float(m.fraction >= 1) for m in measured),
        statistics.fmean(m.tokens for m in measured),
    )


def knee(points: Sequence[Point]) -> int:
    """Find the budget where the curve of recall against tokens bends most.

    It is the point furthest above the straight line from the first to the last (Satopää et al.,
    2011, *Finding a "Kneedle" in a Haystack*); the first one where the curve does not rise.
    """
    first, last = points[0], points[-1]
    width, height = last.tokens - first.tokens, last.fraction - first.fraction
    if width <= 0 or height <= 0:
        return first.budget
    best = max(
        points,
        key=lambda p: (p.fraction - first.fraction) / height - (p.tokens - first.tokens) / width,
    )
    return best.budget


def smallest(points: Sequence[Point], wanted: float) -> int | None:
    """Find the least budget from which on the curve keeps the wanted share."""
    found = None
    for at in reversed(points):
        if at.fraction < wanted:
            break
        found = at.budget
    return found


def state_share(measured: Sequence[Measured], budget: int) -> float:
    """Give the state room for what it takes in 95 of 100 cases, up to half of the budget."""
    ordered = sorted(m.state for m in measured)
    needed = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    share = math.ceil(100 * needed / budget) / 100 if budget else 0.0
    return min(LARGEST_STATE_SHARE, max(0.05, share))


def check(budgets: Sequence[int], wanted: float) -> None:
    """Refuse budgets out of order and shares that are none."""
    if len(budgets) < 2 or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise InvalidInput("at least two budgets, from the smallest up", path="budgets")
    if not 0 < wanted <= 1:
        raise InvalidInput("a share of the evidence, above 0 and up to 1", path="wanted")
