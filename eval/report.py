"""A page that shows results side by side: pictures and tables, in one HTML file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape

from eval import plots
from eval.results import Result
from eval.systems import NAMES

COLUMNS = ("R@1", "R@5", "R@10", "R@20", "R@50", "Success@10", "All@10", "nDCG@10", "RR")
ANSWER_COLUMNS = ("answer@1", "answer@5", "answer@10", "answer RR")
IN_BUDGET = (("all", "all"), ("any", "any"), ("fraction", "part"), ("answer", "answer"))

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 68rem; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; }
h2 { font-size: 1.3rem; margin-top: 3rem; border-bottom: 1px solid #ddd; }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
p.note { color: #666; margin: .2rem 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87rem; }
th, td { padding: .22rem .6rem; text-align: right; border-bottom: 1px solid #eee;
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid #999; }
td.best { font-weight: 700; }
td small { color: #777; }
.wide { overflow-x: auto; }
.pictures { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { margin: 0; }
figure img { max-width: 100%; height: auto; }
figcaption { color: #666; font-size: .87rem; }
i.key { display: inline-block; width: .7em; height: .7em; margin-right: .45em; }
"""


def page(results: Sequence[Result]) -> str:
    """Lay results out by data set, each with its systems. Raises `ValueError` without any."""
    if not results:
        raise ValueError("no results")
    grouped: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=_order):
        grouped[result["name"]].append(result)
    sections = [_section(name, members) for name, members in grouped.items()]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<title>memstore: is the evidence found?</title>\n"
        f"<style>{STYLE}</style></head><body>\n"
        "<h1>Is the evidence found?</h1>\n"
        '<p class="note">R@k: the mean fraction of a question\'s evidence in the first k entries. '
        "Success@k: any of it. All@k: all of it. In a context: the same, of what is inside the "
        "rendered text; an entry that was cut counts if the passage that matched best is shown. "
        "± is half the 95&nbsp;% bootstrap interval.</p>\n"
        + "\n".join(sections)
        + "</body></html>\n"
    )


def _order(result: Result) -> tuple[str, int, str, str]:
    system = result["system"]
    place = NAMES.index(system) if system in NAMES else len(NAMES)
    return result["name"], place, system, result["encoder"]


def _section(name: str, results: Sequence[Result]) -> str:
    first = results[0]
    encoders = ", ".join(dict.fromkeys(r["encoder"] for r in results))
    parts = [
        f"<h2>{escape(name)}</h2>\n"
        f'<p class="note">{first["n_queries"]:,} questions of {first["n_messages"]:,} messages; '
        f"encoder {escape(encoders)}</p>\n",
        '<div class="pictures">',
        _picture(plots.against_tokens(results), "What is inside the context, by its size"),
        _picture(plots.against_depth(results), "What is among the first entries"),
        "</div>",
    ]
    if first["metrics"]["R@10"] is not None:
        parts.append("<h3>Entries</h3>" + _measures(results, COLUMNS))
    if any("answer@1" in r["metrics"] for r in results):
        parts.append("<h3>Answers, word for word, in the entries</h3>")
        parts.append(_measures(results, ANSWER_COLUMNS))
    if first["metrics"]["session"]:
        parts.append("<h3>Sessions</h3>" + _measures(results, COLUMNS, "session"))
    parts.append(_budgets(results))
    picture = _picture(plots.by_category(results), "R@10 by category (questions)")
    if picture:
        parts.append(f"<h3>By category</h3>{picture}")
    parts.append("<h3>Milliseconds, median / 95th percentile</h3>" + _times(results))
    return "\n".join(part for part in parts if part)


def _picture(source: str | None, caption: str) -> str:
    if source is None:
        return ""
    return (
        f'<figure><img src="{source}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _measures(results: Sequence[Result], names: Sequence[str], level: str = "") -> str:
    rows = []
    for result in results:
        found = result["metrics"].get(level) or {} if level else result["metrics"]
        row: list[tuple[float | None, str]] = []
        for name in names:
            bounds = result["intervals"].get(f"{level} {name}".strip())
            half = f" <small>±{(bounds[1] - bounds[0]) / 2:.3f}</small>" if bounds else ""
            row.append((found.get(name), half))
        rows.append((result, row))
    return _table(names, rows)


def _budgets(results: Sequence[Result]) -> str:
    parts = []
    sizes = dict.fromkeys(size for r in results for size in r["metrics"]["budget"])
    replays = [r for r in results if "unlimited" in r["metrics"]]
    for size in [*sizes, *(["unlimited"] if replays else [])]:
        found = [
            (r, r["metrics"].get("unlimited") or {})
            if size == "unlimited"
            else (r, r["metrics"]["budget"].get(size, {}))
            for r in results
        ]
        shown = [
            (key, title)
            for key, title in IN_BUDGET
            if any(row.get(key) is not None for _, row in found)
        ]
        rows = [
            (r, [*((row.get(key), "") for key, _ in shown), (None, f"{row['tokens']:,.0f}")])
            for r, row in found
            if row
        ]
        heading = (
            f"In a context of {int(size):,} tokens" if size.isdigit() else "Everything replayed"
        )
        parts.append(f"<h3>{heading}</h3>" + _table([*(t for _, t in shown), "tokens used"], rows))
    return "\n".join(parts)


def _times(results: Sequence[Result]) -> str:
    rows: list[tuple[Result, list[tuple[float | None, str]]]] = []
    steps = list(dict.fromkeys(step for r in results for step in r["milliseconds"]))
    resumed = [
        f"resume: {s}" for s in dict.fromkeys(s for r in results for s in r["resume_milliseconds"])
    ]
    for result in results:
        known = result["milliseconds"] | {
            f"resume: {step}": spent for step, spent in result["resume_milliseconds"].items()
        }
        cells: list[tuple[float | None, str]] = [
            (None, f"{known[s]['p50']:.1f} / {known[s]['p95']:.1f}" if s in known else "")
            for s in (*steps, *resumed)
        ]
        rows.append((result, cells))
    return _table([*steps, *resumed], rows)


def _table(
    names: Iterable[str], rows: Sequence[tuple[Result, Sequence[tuple[float | None, str]]]]
) -> str:
    """Write a table with a row a system; the highest figure of a column is set bold."""
    columns = list(names)
    highest = [
        max((value for _, row in rows if (value := row[i][0]) is not None), default=None)
        for i in range(len(columns))
    ]
    lines = ["<tr><th></th>" + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr>"]
    body = []
    for result, row in rows:
        key = f'<i class="key" style="background:{plots.colour(result["system"])}"></i>'
        cells = [f"<td>{key}{escape(result['system'])}</td>"]
        for (value, extra), best in zip(row, highest, strict=True):
            figure = "" if value is None else f"{value:.3f}"
            mark = ' class="best"' if value is not None and value == best else ""
            cells.append(f"<td{mark}>{figure}{extra}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="wide"><table><thead>{lines[0]}</thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
