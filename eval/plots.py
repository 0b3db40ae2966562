"""Pictures of results of one data set, as SVG that can stand in a page."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eval.measures import CUTOFFS
from eval.results import Result

#: Colours that stay apart for colour-blind readers (Okabe and Ito), one a system in every plot.
COLOURS = {
    "memstore": "#d55e00",
    "lexical": "#0072b2",
    "vector": "#009e73",
    "rrf": "#cc79a7",
    "rank-bm25": "#56b4e9",
    "ts-rank": "#e69f00",
    "recent": "#666666",
    "full": "#000000",
}
STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "memstore",
}


def colour(system: str) -> str:
    return COLOURS.get(system, "#999999")


def drawn(figure: Figure) -> str:
    """Return a figure as a ``data:`` URL of SVG."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's font has it
        figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()


def against_tokens(results: Sequence[Result]) -> str | None:
    """Draw how much of the evidence (or how many answers) is in the context, by tokens used."""
    measure = "fraction"
    if all(row["fraction"] is None for r in results for row in r["metrics"]["budget"].values()):
        measure = "answer"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0))
        axes = figure.subplots()
        replays = []
        for result in results:
            points = sorted(
                (row["tokens"], row[measure]) for row in result["metrics"]["budget"].values()
            )
            if points:
                _line(axes, result["system"], points)
            if "unlimited" in result["metrics"]:
                row = result["metrics"]["unlimited"]
                replays.append((row["tokens"], row[measure]))
        for x, y in replays:
            axes.plot(x, y, "*", color=colour("full"), markersize=11)
            axes.annotate(
                f"all replayed: {x:,.0f} tokens",
                (x, y),
                (-6, -16),
                textcoords="offset points",
                ha="right",
            )
        if not axes.lines:
            return None
        axes.set_xscale("log", base=2)
        # A system that finds nothing uses next to no tokens: it would stretch the axis.
        axes.set_xlim(left=0.7 * min(int(b) for r in results for b in r["metrics"]["budget"]))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axes.set(
            ylim=(0, 1.03),
            xlabel="tokens used (mean, of the rendered context)",
            ylabel="evidence in context" if measure == "fraction" else "answer in context",
        )
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return drawn(figure)


def against_depth(results: Sequence[Result]) -> str | None:
    """Draw R@k by k (or, without evidence, whether an answer is in the first k)."""
    name = "R" if any(r["metrics"]["R@10"] is not None for r in results) else "answer"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0))
        axes = figure.subplots()
        for result in results:
            values = [result["metrics"].get(f"{name}@{k}") for k in CUTOFFS]
            if values[0] is not None and result["system"] != "full":
                _line(axes, result["system"], list(zip(CUTOFFS, values, strict=True)))
        if not axes.lines:
            return None
        axes.set_xscale("log")
        axes.set_xticks(CUTOFFS, [str(k) for k in CUTOFFS])
        axes.minorticks_off()
        axes.set(
            ylim=(0, 1.03),
            xlabel="k",
            ylabel="evidence in the first k (R@k)" if name == "R" else "answer in the first k",
        )
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return drawn(figure)


def by_category(results: Sequence[Result]) -> str | None:
    """Draw R@10 by category, one dot a system, in the order of the first system's figures."""
    ranked = [r for r in results if r["system"] != "full" and r["metrics"]["R@10"] is not None]
    categories = [
        name
        for name, row in (ranked[0]["by_category"] if ranked else {}).items()
        if row["R@10"] is not None
    ]
    if len(categories) < 2:
        return None
    categories.sort(key=lambda name: -ranked[0]["by_category"][name]["R@10"])
    counts = ranked[0]["by_category"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.34 * len(categories) + 0.9))
        axes = figure.subplots()
        for result in ranked:
            values = [result["by_category"].get(n, {}).get("R@10") or 0.0 for n in categories]
            shown = result["system"] == "memstore"
            axes.plot(
                values,
                range(len(categories)),
                "o",
                markersize=9 if shown else 6,
                alpha=0.9,
                zorder=3 if shown else 2,
                color=colour(result["system"]),
                label=result["system"],
            )
        axes.set_yticks(
            range(len(categories)),
            [f"{n or '(none)'} ({counts[n]['n_queries']})" for n in categories],
        )
        axes.set_ylim(len(categories) - 0.5, -0.5)
        axes.set(xlim=(-0.02, 1.02), xlabel="R@10")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return drawn(figure)


def _line(axes: Axes, system: str, points: Sequence[tuple[float, float]]) -> None:
    shown = system == "memstore"
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        marker="o",
        markersize=5 if shown else 4,
        linewidth=2.6 if shown else 1.4,
        zorder=3 if shown else 2,
        color=colour(system),
        label=system,
    )
