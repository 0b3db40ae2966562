"""The command that finds the budget worth its tokens: tune."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from dotenv import set_key
from rich.progress import Progress

from memstore import Memory, MemoryStore, MissingExtra, NotFound, Settings, Tuned
from memstore.cli import options, printing
from memstore.labelled import read_labelled
from memstore.tuning import BUDGETS

Labelled = list[tuple[Memory[Any], str, Sequence[int]]]


def to_budgets(ctx: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Read whole numbers with commas between."""
    try:
        return tuple(sorted({int(part) for part in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of numbers") from None


@click.command("tune")
@click.option("--agent", help="The agent whose traces are used.")
@click.option("--user", help="The user whose traces are used.")
@click.option(
    "--labelled",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with messages.jsonl and queries.jsonl to use instead of traces.",
)
@click.option("--share", default=0.9, show_default=True, help="The share of evidence to keep.")
@click.option(
    "--budgets",
    metavar="N,N,…",
    callback=to_budgets,
    default=",".join(map(str, BUDGETS)),
    show_default=True,
    help="The budgets to try.",
)
@click.option(
    "--write", type=click.Path(dir_okay=False, path_type=Path), help="Write the settings here."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the curve here.",
)
@options.schema
@options.database
@options.as_json
def tune(
    agent: str | None,
    user: str | None,
    labelled: Path | None,
    share: float,
    budgets: tuple[int, ...],
    write: Path | None,
    plot: Path | None,
    schema: Any,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the budget that is worth its tokens, and how to split it.

    From the traces of one memory that have feedback, or from a labelled folder.
    """
    if labelled is None and (agent is None or user is None):
        raise click.UsageError("--agent and --user, or --labelled, are needed")
    for option, path in (("--write", write), ("--plot", plot)):
        if path is not None and not path.resolve().parent.is_dir():
            raise click.UsageError(f"{option}: there is no folder {path.resolve().parent}")
    figure = None if plot is None else new_figure(plot)  # what it lacks is said before the work
    with Progress(console=printing.progress_console()) as progress:
        if labelled is not None:
            with _scratch(given) as store:
                tuned = _run(store, _filled(store, labelled, progress), share, budgets, progress)
        else:
            with options.opened(given) as store:
                chosen = options.schema_of(store, schema)
                memory = store.memory(agent=agent or "", user=user or "", schema=chosen)
                questions = _traced(memory)
                tuned = _run(store, questions, share, budgets, progress)
    if write is not None:
        for name, value in tuned.settings().items():
            set_key(write.resolve(), name, str(value), quote_mode="never")
    if as_json:
        printing.print_json(tuned)
    else:
        _show(tuned, write)
    if plot is not None:
        draw(tuned, figure, plot)


def _traced(memory: Memory[Any]) -> Labelled:
    """The newest feedback on each task."""
    newest: dict[str, Sequence[int]] = {}
    for trace in memory.traces(only_labelled=True):
        newest.setdefault(trace.task, trace.used or ())
    return [(memory, task, used) for task, used in newest.items() if used]


@contextmanager
def _scratch(given: dict[str, Any]) -> Iterator[MemoryStore]:
    """Open a store that goes when it is done."""
    settings = options.settings_of(given)
    quiet = Settings(encoder=settings.encoder, encode_in_background=False)
    with (
        tempfile.TemporaryDirectory(prefix="memstore-tune-") as folder,
        MemoryStore.embedded(folder, settings=quiet) as store,
    ):
        yield store


def _filled(store: MemoryStore, folder: Path, progress: Progress) -> Labelled:
    """Put a labelled set into the store, each conversation into a memory of its own."""
    found: Labelled = []
    conversations = read_labelled(folder)
    if not any(query.evidence for talk in conversations for query in talk.queries):
        raise NotFound(f"no question in {folder} names its evidence")
    filling = progress.add_task("reading and encoding", total=len(conversations))
    for conversation in conversations:
        memory = store.memory(agent="tune", user=conversation.id)
        positions: dict[str, int] = {}
        for start in range(0, len(conversation.messages), 500):
            ids, events = zip(*conversation.messages[start : start + 500], strict=True)
            positions |= dict(zip(ids, memory.append(events).positions, strict=True))
        memory.flush()
        memory.patch({}, reason="all of it absorbed: what is inside was found")
        for query in conversation.queries:
            known = [positions[one] for one in query.evidence if one in positions]
            if known:
                found.append((memory, query.question, known))
        progress.advance(filling)
    return found


def _run(
    store: MemoryStore,
    questions: Labelled,
    share: float,
    budgets: tuple[int, ...],
    progress: Progress,
) -> Tuned:
    measuring = progress.add_task("resuming", total=None)
    return store.tune(
        questions,
        budgets=budgets,
        wanted=share,
        progress=lambda done, total: progress.update(measuring, completed=done, total=total),
    )


def _show(tuned: Tuned, write: Path | None) -> None:
    made = printing.table("", "budget", "tokens used", "evidence inside", "all of it", "")
    for point in tuned.points:
        marks = [
            name
            for name, budget in (("knee", tuned.knee), (f"{tuned.wanted:.0%}", tuned.smallest))
            if budget == point.budget
        ]
        bar = "█" * round(point.fraction * 20)
        made.add_row(
            str(point.budget),
            f"{point.tokens:.0f}",
            f"{point.fraction:.3f} {bar}",
            f"{point.all:.3f}",
            ", ".join(marks),
        )
    out = printing.console()
    out.print(f"{tuned.questions} questions")
    out.print(made)
    if tuned.smallest is None:
        out.print(f"no budget tried keeps {tuned.wanted:.0%}; the knee is recommended")
    out.print("".join(f"{name}={value}\n" for name, value in tuned.settings().items()), end="")
    if write is not None:
        out.print(f"written to {write}")


def new_figure(path: Path) -> Any:
    """Make an empty figure; refuse a file's name that says no form it can be written in."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "eval") from error
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    forms = figure.canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in forms:
        raise click.UsageError(f"--plot: {path.name} ends in none of {', '.join(sorted(forms))}")
    return figure


def draw(tuned: Tuned, figure: Any, path: Path) -> None:
    """Draw recall against tokens, with the knee and the recommended budget."""
    axes = figure.add_subplot()
    tokens = [point.tokens for point in tuned.points]
    axes.plot(tokens, [p.fraction for p in tuned.points], marker="o", label="evidence inside")
    axes.plot(tokens, [p.all for p in tuned.points], marker=".", ls="--", label="all of it inside")
    by_budget = {point.budget: point for point in tuned.points}
    for name, budget, color in (("knee", tuned.knee, "C2"), ("recommended", tuned.budget, "C3")):
        axes.axvline(by_budget[budget].tokens, color=color, ls=":", label=f"{name}: {budget}")
    axes.axhline(tuned.wanted, color="0.7", lw=0.8)
    axes.set(xlabel="tokens used", ylabel="share", ylim=(0, 1.02))
    axes.set_title(f"{tuned.questions} questions", loc="left")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


COMMANDS = (tune,)
