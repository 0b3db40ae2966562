"""The evaluation's command line: ``python -m eval run --dataset locomo --path … --system …``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from eval import datasets, runner, systems
from memstore import MemoryStore, MemstoreError, Settings


@click.group()
def main() -> None:
    """Measure how well the evidence for a question is found."""


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas between."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(",") if part)
        except ValueError:
            self.fail(f"{value!r} is no list of numbers", param, ctx)


@contextmanager
def opened(keep: Path | None) -> Iterator[tuple[MemoryStore, str]]:
    """Open a store of its own: in a folder to keep, or in one that goes when it is done."""
    with tempfile.TemporaryDirectory(prefix="memstore-eval-") as folder:
        settings = Settings(encode_in_background=False)
        with MemoryStore.embedded(keep or folder, settings=settings) as store:
            yield store, store.url


@main.command()
@click.option("--dataset", type=click.Choice(sorted(datasets.LOADERS)), required=True)
@click.option("--path", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--system", type=click.Choice(systems.NAMES), default="memstore", show_default=True)
@click.option("--budget", type=Numbers(), default=(), help="Token budgets, such as 1024,2048,4096.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write the result here.")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Keep the encoded store in this folder."
)
@click.option(
    "--trec", type=click.Path(path_type=Path), help="Write TREC run and qrels files here."
)
def run(
    dataset: str,
    path: Path,
    system: str,
    budget: tuple[int, ...],
    out: Path | None,
    keep: Path | None,
    trec: Path | None,
) -> None:
    """Run one system over one data set and print what it found."""
    try:
        loaded = datasets.load(dataset, path)
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        with opened(keep) as (store, url), Progress(*columns, console=Console(stderr=True)) as bar:
            tasks: dict[str, Any] = {}

            def progress(step: str, done: int, total: int) -> None:
                if step not in tasks:
                    tasks[step] = bar.add_task(step)
                bar.update(tasks[step], completed=done, total=total)

            outcome = runner.run(store, url, loaded, system, budget, progress=progress)
    except MemstoreError as error:
        raise click.ClickException(str(error)) from error
    result = runner.summary(outcome)
    if out is not None:
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if trec is not None:
        write_trec(outcome, trec)
    show(result)


def write_trec(outcome: runner.Outcome, folder: Path) -> None:
    """Write ``run.txt`` and ``qrels.txt`` as trec_eval reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "run.txt").open("w", encoding="utf-8") as stream:
        for qid, ranked in outcome.runs.items():
            for rank, document in enumerate(dict.fromkeys(ranked), 1):
                stream.write(f"{qid} Q0 {document} {rank} {1 / rank:.6f} {outcome.system}\n")
    with (folder / "qrels.txt").open("w", encoding="utf-8") as stream:
        for qid, evidence in outcome.qrels.items():
            for document in evidence:
                stream.write(f"{qid} 0 {document} 1\n")


SHOWN = ("R@1", "R@5", "R@10", "R@20", "R@50", "All@10", "Success@10", "nDCG@10", "RR")


def show(result: dict[str, Any]) -> None:
    """Print a result as tables."""
    console = Console(highlight=False)
    console.print(
        f"{result['system']} on {result['dataset']} with {result['encoder']}: "
        f"{result['n_queries']} questions, {result['n_messages']} messages"
        + (
            f", {result['dropped']} questions without evidence left out"
            if result["dropped"]
            else ""
        )
    )
    table = Table(box=None)
    for column in ("", "n", *SHOWN):
        table.add_column(column, justify="right")
    rows = [("all", result["n_queries"], result["metrics"])]
    rows += [(name, row["n_queries"], row) for name, row in result["by_category"].items()]
    for name, count, row in rows:
        table.add_row(name, str(count), *(f"{row[measure]:.3f}" for measure in SHOWN))
    console.print(table)
    for name, (low, high) in result["intervals"].items():
        console.print(f"{name} 95 % interval {low:.3f} to {high:.3f}")
    for budget, row in result["metrics"]["budget"].items():
        console.print(
            f"{budget} tokens: all evidence {row['all']:.3f}, any {row['any']:.3f}, "
            f"fraction {row['fraction']:.3f}, tokens used {row['tokens']:.0f}"
        )
    times = result["milliseconds"].items()
    console.print(
        "ms p50/p95: " + ", ".join(f"{k} {v['p50']:.1f}/{v['p95']:.1f}" for k, v in times)
    )


if __name__ == "__main__":
    main()
