"""What each part is worth: the ranking with one of them left out, question by question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.console import Console

from eval import results, runner
from eval.compare import Comparison, compare
from eval.datasets import Dataset
from eval.forms import Form, Reshaped
from eval.measures import Paired, paired
from eval.opening import opened
from eval.tables import columns
from memstore import DEFAULT_SCHEMA, MemoryStore, Ranking, StateSchema
from memstore.ranking import IDENTITY, NEIGHBOURS, TIME

MEASURES = ("R@10", "All@10", "nDCG@10", "answer@1")


@dataclass(frozen=True, slots=True)
class Part:
    """What is left out: weights of the ranking, a part of what is embedded, the state's queries."""

    name: str
    weights: tuple[str, ...] = ()
    form: Form | None = None
    state: bool = False


PARTS = (
    Part("identity", IDENTITY),
    Part("time", TIME),
    Part("event type", form="event type"),
    Part("neighbours", NEIGHBOURS),
    Part("header", form="header"),
    Part("preceding turn", form="preceding"),
    Part("lexical leg", ("lexical", "window", "coverage")),
    Part("vector leg", ("vector", "reply")),
    Part("state-derived queries", state=True),
)


def parts(ranking: Ranking | None = None) -> list[Part]:
    """List the parts, then each weight that is in none of them, by its own name."""
    known = {weight for part in PARTS for weight in part.weights}
    rest = [name for name in (ranking or Ranking()).weights() if name not in known]
    return [*PARTS, *(Part(f"weight: {name}", (name,)) for name in rest)]


class Cueless(StateSchema[Any]):
    """A schema whose states make no queries."""

    __slots__ = ()

    def cues(self, value: BaseModel) -> list[str]:
        return []


@dataclass(frozen=True, slots=True)
class Worth:
    """What a part is worth: each measure as shipped against without it, or why it has no say."""

    part: str
    measures: dict[str, Paired]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The shipped ranking's result, and what each part is worth in it."""

    shipped: results.Result
    worths: list[Worth]

    def to_json(self) -> dict[str, Any]:
        kept = ("dataset", "name", "encoder", "n_queries", "metrics")
        rows = [asdict(worth) for worth in self.worths]
        return {name: self.shipped[name] for name in kept} | {"ablations": rows}


def ablate(
    dataset: Dataset,
    chosen: Sequence[Part],
    budgets: Sequence[int] = (),
    *,
    keep: Path | None = None,
    progress: runner.Progress = lambda step, done, total: None,
) -> Ablation:
    """Run the shipped ranking, then without each part.

    What changes the embedded text is encoded anew, into a store of its own beside `keep`.
    """
    worths: dict[str, Worth] = {}

    def measured(
        store: MemoryStore, part: Part | None = None, learn: runner.Learn | None = None
    ) -> results.Result:
        ranking = Ranking().without(*part.weights) if part and part.weights else None
        schema = (
            Cueless(DEFAULT_SCHEMA.name, DEFAULT_SCHEMA.version, DEFAULT_SCHEMA.model)
            if part and part.state
            else None
        )

        def told(step: str, done: int, total: int) -> None:
            progress(f"{step}, {f'without {part.name}' if part else 'as shipped'}", done, total)

        outcome = runner.run(
            store,
            dataset,
            budgets=budgets,
            ranking=ranking,
            schema=schema,
            learn=learn,
            progress=told,
        )
        return results.summary(outcome)

    with opened(keep) as store:
        shipped = measured(store)
        encoder = store.encoder()
        for part in chosen:
            if reason := inapplicable(part, dataset, budgets):
                worths[part.name] = Worth(part.name, {}, reason)
            elif part.form is None:
                worths[part.name] = worth(part, compare(shipped, measured(store, part)))
    for part in chosen:
        if part.name not in worths and part.form is not None and encoder is not None:
            beside = keep and keep.with_name(f"{keep.name}-{part.form.replace(' ', '-')}")
            reshaped = Reshaped(encoder, part.form)
            with opened(beside, reshaped) as store:
                without = measured(store, part, reshaped.learn)
            worths[part.name] = worth(part, compare(shipped, without))
    return Ablation(shipped, [worths[part.name] for part in chosen])


def inapplicable(part: Part, dataset: Dataset, budgets: Sequence[int]) -> str:
    """Say why a part has no say in a data set; empty where it has."""
    if part.state and not any(c.state for c in dataset.conversations):
        return "no states"
    if part.state and not budgets:
        return "shows only in contexts: give --budget"
    if part.form == "event type" and all(
        m.event.event_type == "message" for c in dataset.conversations for m in c.messages
    ):
        return "only messages"
    return ""


def worth(part: Part, comparison: Comparison) -> Worth:
    names = [n for n in comparison.measures() if n in MEASURES or n.endswith((" all", " answer"))]
    return Worth(part.name, {n: paired(*comparison.values(n, comparison.qids)) for n in names})


def table(ablation: Ablation, cell: Callable[[Paired], str]) -> Iterator[list[str]]:
    """Give the table's rows: the names of measures, the shipped figures, each part's worth."""
    names = list(dict.fromkeys(n for worth in ablation.worths for n in worth.measures))
    yield ["what it is worth", *names]
    shipped = {n: w.measures[n].mean for w in ablation.worths for n in w.measures}
    yield ["as shipped", *(f"{shipped[name]:.3f}" for name in names)]
    for one in ablation.worths:
        cells = [cell(one.measures[n]) if n in one.measures else "" for n in names]
        yield [one.part, *(cells if one.measures else [f"n/a ({one.reason})", *cells[1:]])]


def star(result: Paired) -> str:
    return " *" if result.p < 0.05 else "  "


def interval(result: Paired) -> str:
    """Write a worth with its interval, and a star where it is more than chance."""
    spread = f"({result.low:+.3f} to {result.high:+.3f})"
    return f"{result.difference:+.3f} {spread}{star(result)}".rstrip()


def show(ablation: Ablation, console: Console) -> None:
    """Print what each part is worth."""
    heading, *rows = table(ablation, lambda r: f"{r.difference:+.3f}{star(r)}")
    shown = columns(*heading)
    for row in rows:
        shown.add_row(*row)
    console.print(f"{ablation.shipped['name']}, {ablation.shipped['n_queries']} questions")
    console.print(shown)
    console.print("* more than chance (p < .05)")


def markdown(ablation: Ablation) -> str:
    """Write the table with intervals as Markdown."""
    heading, *rows = table(ablation, interval)
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
