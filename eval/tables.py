"""Results as tables in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from eval.results import Result

SHOWN = ("R@1", "R@5", "R@10", "R@50", "Success@10", "All@10", "nDCG@10", "RR")
ANSWERS = ("answer@1", "answer@5", "answer@10", "answer@50", "answer RR")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def columns(first: str, *others: str) -> Table:
    """Make a table with names on the left and figures, aligned at the right, after them."""
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def show(result: Result, console: Console) -> None:
    """Print a run's result."""
    console.print(
        f"{result['system']} on {result['name']} with {result['encoder']}: "
        f"{result['n_queries']} questions, {result['n_messages']} messages"
    )
    if result["dropped"]:
        console.print(f"{result['dropped']} questions without evidence or answers left out")
    if result["unknown_evidence"]:
        console.print(f"{result['unknown_evidence']} pieces of evidence are no message's id")
    metrics = result["metrics"]
    for shown in (SHOWN, ANSWERS):
        if metrics.get(shown[0]) is not None:
            console.print(by_category(result, shown))
    if metrics["session"]:
        table = columns("sessions", *SHOWN)
        table.add_row("all", *(number(metrics["session"][name]) for name in SHOWN))
        console.print(table)
    for name, (low, high) in result["intervals"].items():
        console.print(f"{name}: 95 % interval {low:.3f} to {high:.3f}")
    sizes = dict(metrics["budget"])
    if "unlimited" in metrics:
        sizes["unlimited"] = metrics["unlimited"]
    if sizes:
        console.print(in_budgets(sizes))
    for title, steps in (
        ("search", result["milliseconds"]),
        ("resume", result["resume_milliseconds"]),
    ):
        if steps:
            spent = ", ".join(f"{k} {v['p50']:.1f}/{v['p95']:.1f}" for k, v in steps.items())
            console.print(f"{title}, ms p50/p95: {spent}")


def by_category(result: Result, shown: tuple[str, ...]) -> Table:
    table = columns("", "n", *shown)
    rows = [("all", result["n_queries"], result["metrics"])]
    if len(result["by_category"]) > 1:
        rows += [(name, row["n_queries"], row) for name, row in result["by_category"].items()]
    for name, count, row in rows:
        table.add_row(name or "(none)", str(count), *(number(row.get(m)) for m in shown))
    return table


def in_budgets(sizes: Result) -> Table:
    table = columns("budget", "all", "any", "fraction", "answer", "tokens")
    for size, row in sizes.items():
        found = [number(row.get(name)) for name in ("all", "any", "fraction", "answer")]
        table.add_row(size, *found, f"{row['tokens']:,.0f}")
    return table
