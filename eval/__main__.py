"""The evaluation's command line: ``python -m eval run --dataset locomo --path … --system …``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from eval import ablate as ablation
from eval import bm25 as in_memory
from eval import compare as comparison
from eval import datasets, quality, results, runner, systems, tables
from eval.bench import bench
from eval.load import load
from eval.opening import bars, opened
from memstore import MemstoreError

FORMS = ("generic", "locomo", "longmemeval")
EXISTING = click.Path(exists=True, path_type=Path)
ANY = click.Path(path_type=Path)


def to_numbers(ctx: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Read whole numbers from 1 up, with commas between."""
    try:
        numbers = tuple(int(part) for part in value.split(",") if part.strip())
    except ValueError:
        numbers = (0,)
    if min(numbers, default=1) < 1:
        raise click.BadParameter(f"{value!r} is no list of token counts such as 1024,2048")
    return numbers


def loaded(dataset: str, path: Path) -> datasets.Dataset:
    try:
        return datasets.load(dataset, path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise click.ClickException(f"{path} cannot be read as {dataset}: {what}") from error


@click.group()
def main() -> None:
    """Measure how well the evidence for a question is found, and how fast."""


main.add_command(bench)
main.add_command(load)


@main.command()
@click.option("--dataset", type=click.Choice(FORMS), required=True, help="The form of the data.")
@click.option("--path", type=EXISTING, required=True, help="The file, or for generic the folder.")
@click.option(
    "--system",
    type=click.Choice(systems.NAMES),
    default="memstore",
    show_default=True,
    help="What ranks: memstore as shipped, or what it is compared with.",
)
@click.option(
    "--budget",
    metavar="N,N,…",
    callback=to_numbers,
    default="",
    help="Token budgets, such as 1024,2048,4096.",
)
@click.option("--json", "out", type=ANY, help="Write the result here.")
@click.option("--trec", type=ANY, help="Write TREC run and qrels files into this folder.")
@click.option("--keep", type=ANY, help="Keep the encoded store in this folder.")
@click.option("--encoder", help="A sentence-transformers model by name or path.")
@click.option("--reranker", help="A cross-encoder by name or path, to order the best entries anew.")
def run(
    dataset: str,
    path: Path,
    system: str,
    budget: tuple[int, ...],
    out: Path | None,
    trec: Path | None,
    keep: Path | None,
    encoder: str | None,
    reranker: str | None,
) -> None:
    """Run one system over one data set and print what it found."""
    data = loaded(dataset, path)
    try:
        with opened(keep, encoder, reranker) as store, bars() as told:
            outcome = runner.run(store, data, system, budget, progress=told)
    except MemstoreError as error:
        raise click.ClickException(str(error)) from error
    result = results.summary(outcome)
    if out is not None:
        results.write_json(result, out)
    if trec is not None:
        results.write_trec(outcome, trec)
    tables.show(result, Console(highlight=False))


def result(path: Path) -> results.Result:
    try:
        return results.read_json(path)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from error


@main.command()
@click.argument("a", type=EXISTING)
@click.argument("b", type=EXISTING)
@click.option("--measure", "-m", "wanted", multiple=True, help="Compare by this: R@10, 2048 all.")
@click.option("--examples", default=10, show_default=True, help="Questions that moved most.")
def compare(a: Path, b: Path, wanted: tuple[str, ...], examples: int) -> None:
    """Compare two results of `run --json`, question by question."""
    try:
        both = comparison.compare(result(a), result(b))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    for name in wanted:
        if not both.values(name, both.qids)[0]:
            raise click.ClickException(f"no question has {name!r} in both results")
    comparison.show(both, wanted or tuple(both.measures()), examples, Console(highlight=False))


@main.command()
@click.option("--dataset", type=click.Choice(FORMS), required=True, help="The form of the data.")
@click.option("--path", type=EXISTING, required=True, help="The file, or for generic the folder.")
@click.option(
    "--budget",
    metavar="N,N,…",
    callback=to_numbers,
    default="2048",
    show_default=True,
    help="Token budgets.",
)
@click.option("--only", multiple=True, help="Leave out only this part; more than once for more.")
@click.option("--json", "out", type=ANY, help="Write the result here.")
@click.option("--markdown", type=ANY, help="Write the table, with intervals, here.")
@click.option("--keep", type=ANY, help="Keep the encoded stores in and beside this folder.")
def ablate(
    dataset: str,
    path: Path,
    budget: tuple[int, ...],
    only: tuple[str, ...],
    out: Path | None,
    markdown: Path | None,
    keep: Path | None,
) -> None:
    """Leave out one part at a time: what is each worth?"""
    data = loaded(dataset, path)
    everything = {part.name: part for part in ablation.parts()}
    for name in only:
        if name not in everything:
            raise click.ClickException(f"no part {name!r}; there are {', '.join(everything)}")
    chosen = [part for name, part in everything.items() if not only or name in only]
    try:
        with bars() as told:
            done = ablation.ablate(data, chosen, budget, keep=keep, progress=told)
    except MemstoreError as error:
        raise click.ClickException(str(error)) from error
    if out is not None:
        results.write_json(done.to_json(), out)
    if markdown is not None:
        markdown.write_text(ablation.markdown(done), encoding="utf-8")
    ablation.show(done, Console(highlight=False))


@main.command()
@click.argument("files", type=EXISTING, nargs=-1, required=True)
@click.option(
    "--out", "-o", type=ANY, default=Path("report.html"), show_default=True, help="The page."
)
def report(files: tuple[Path, ...], out: Path) -> None:
    """Lay results of `run --json` out side by side in one HTML file, with plots."""
    from eval.report import page  # matplotlib takes its time

    out.write_text(page([result(path) for path in files]), encoding="utf-8")
    click.echo(f"{out}: {len(files)} results")


@main.command()
def gate() -> None:
    """Run the project's own small set; fail if a figure fell below its floor."""
    with opened(None) as store, bars() as told:
        figures = quality.measured(store, told)
    quality.show(figures, Console(highlight=False))
    if not all(figure.holds for figure in figures):
        raise click.exceptions.Exit(1)


@main.command()
@click.option("--dataset", type=click.Choice(FORMS), required=True, help="The form of the data.")
@click.option("--path", type=EXISTING, required=True, help="The file, or for generic the folder.")
def bm25(dataset: str, path: Path) -> None:
    """Is our BM25 a BM25? nDCG@10 of the same formula over plain words and over ours."""
    data = loaded(dataset, path)
    if not any(query.evidence for query in data.queries):
        raise click.ClickException("no question has evidence")
    with bars() as told:
        found = in_memory.compared(data, lambda done, total: told("analyses", done, total))
    heading = [f"k1 {k1}, b {b}" for k1, b in in_memory.PARAMETERS]
    table = tables.columns(f"nDCG@10 on {data.name}", *heading)
    for name, values in found.items():
        table.add_row(name, *(f"{value:.4f}" for value in values))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
