"""Two results, question by question: which is better, by how much, and is it more than chance?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from eval.measures import Paired, paired
from eval.results import Result
from eval.tables import columns

#: What is compared without being named, where both results have it.
USUAL = ("R@10", "All@10", "nDCG@10", "RR", "session R@10", "answer@1", "answer RR")
#: What is better when there is less of it.
COSTS = (" tokens", " ms")
IN_BUDGET = (" all", " fraction", " answer", " tokens")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The questions that both results have, and what each measure says of them."""

    first: Result
    second: Result
    qids: tuple[str, ...]
    only_one: int

    def values(self, measure: str, qids: tuple[str, ...]) -> tuple[list[float], list[float]]:
        """Give both results' values of a measure for the questions that have it."""
        pairs = [
            (a[measure], b[measure])
            for qid in qids
            if measure in (a := self._measures(self.first, qid))
            and measure in (b := self._measures(self.second, qid))
        ]
        return [a for a, _ in pairs], [b for _, b in pairs]

    def measures(self) -> list[str]:
        """List the measures that both have, the usual ones and those inside budgets."""
        names = dict.fromkeys(n for qid in self.qids for n in self._measures(self.first, qid))
        wanted = [n for n in names if n in USUAL or n.endswith(IN_BUDGET)]
        return [n for n in wanted if self.values(n, self.qids)[0]]

    def by_category(self) -> dict[str, tuple[str, ...]]:
        grouped: dict[str, list[str]] = defaultdict(list)
        for qid in self.qids:
            grouped[self.first["per_query"][qid]["category"]].append(qid)
        return {name: tuple(grouped[name]) for name in sorted(grouped)}

    def moved(self, measure: str) -> Iterator[tuple[float, str]]:
        """Give (difference, question id), the largest losses and wins first."""
        changes = []
        for qid in self.qids:
            first, second = self.values(measure, (qid,))
            if first and first != second:
                changes.append((first[0] - second[0], qid))
        yield from sorted(changes, key=lambda change: (-abs(change[0]), change[1]))

    @staticmethod
    def _measures(result: Result, qid: str) -> dict[str, float]:
        found: dict[str, float] = result["per_query"][qid]["measures"]
        return found


def compare(first: Result, second: Result) -> Comparison:
    """Join two results by question. Raises `ValueError` when they share none."""
    qids = tuple(qid for qid in first["per_query"] if qid in second["per_query"])
    if not qids:
        raise ValueError(
            f"the results share no question: one is of {first['name']}, one of {second['name']}"
        )
    return Comparison(
        first,
        second,
        qids,
        len(first["per_query"]) + len(second["per_query"]) - 2 * len(qids),
    )


def show(comparison: Comparison, names: tuple[str, ...], examples: int, console: Console) -> None:
    """Print the comparison: each measure, then the first by category, and what moved most."""
    labels = [f"{r['system']} ({r['encoder']})" for r in (comparison.first, comparison.second)]
    console.print(f"A  {labels[0]}\nB  {labels[1]}\n{len(comparison.qids)} questions in both")
    if comparison.only_one:
        console.print(f"{comparison.only_one} that only one of them has are left out")
    main = names[0]
    table = _table("measure")
    for name in names:
        _add(table, name, paired(*comparison.values(name, comparison.qids)))
    console.print(table)
    categories = comparison.by_category()
    if len(categories) > 1:
        table = _table(f"{main} by category")
        for category, qids in categories.items():
            values = comparison.values(main, qids)
            if values[0]:
                _add(table, category or "(none)", paired(*values))
        console.print(table)
    changes = list(comparison.moved(main))[:examples]
    if changes:
        console.print(f"What moved most in {main}:")
    for change, qid in changes:
        question = " ".join(comparison.first["per_query"][qid]["question"].split())
        line = f"  {change:+.3f}  {qid}  {question[:100]}"
        console.print(line, markup=False, soft_wrap=True)


def _table(title: str) -> Table:
    return columns(title, "n", "A", "B", "A - B", "95 % interval", "p", "won/lost/tied")


def _add(table: Table, name: str, result: Paired) -> None:
    digits = 0 if name.endswith("tokens") else 3
    won, lost = result.wins, result.losses
    if name.endswith(COSTS):
        won, lost = lost, won
    table.add_row(
        name,
        str(result.n),
        f"{result.mean:.{digits}f}",
        f"{result.other:.{digits}f}",
        f"{result.difference:+.{digits}f}",
        f"{result.low:+.{digits}f} {result.high:+.{digits}f}",
        probability(result.p),
        f"{won}/{lost}/{result.ties}",
    )


def probability(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
