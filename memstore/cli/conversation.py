"""Commands on one memory's log: import, log, search, resume."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from rich.progress import Progress
from rich.text import Text

from memstore import Memory, NewEvent
from memstore.cli import options, printing
from memstore.importing import read_events

BATCH = 500


def to_zone(ctx: click.Context, option: click.Parameter, value: str | None) -> ZoneInfo | None:
    """Find a time zone by its name, such as ``Europe/Berlin``."""
    try:
        return None if value is None else ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is an OSError
        raise click.BadParameter(f"there is no time zone {value!r}") from None


def _batches(events: Iterable[NewEvent]) -> Iterator[list[NewEvent]]:
    iterator = iter(events)
    while batch := list(islice(iterator, BATCH)):
        yield batch


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@options.identity
@click.option("--session", help="Session of messages that name none; by default the file's name.")
@click.option(
    "--tz", metavar="ZONE", callback=to_zone, help="Time zone of times without an offset."
)
@options.database
@options.as_json
def import_file(
    file: str, agent: str, user: str, session: str | None, tz: Any, as_json: bool, **given: Any
) -> None:
    """Append a file's messages to a memory, and encode them.

    FILE is JSONL or JSON: memstore's own records, or messages as OpenAI or Anthropic write
    them; with "-" it is standard input. Importing it again adds only what is new in it.
    """
    stored = repeated = 0
    source = sys.stdin.buffer if file == "-" else file
    name = "stdin" if file == "-" else None
    with options.opened(given) as store, Progress(console=printing.progress_console()) as progress:
        memory = store.memory(agent=agent, user=user)
        reading = progress.add_task("reading", total=None)
        for batch in _batches(read_events(source, name=name, session=session, tz=tz)):
            appended = memory.append(batch)
            stored += len(appended.positions) - len(appended.repeated)
            repeated += len(appended.repeated)
            progress.update(reading, completed=stored + repeated)
        progress.update(reading, total=stored + repeated)
        _encode(memory, progress)
    if as_json:
        printing.print_json({"stored": stored, "repeated": repeated})
    else:
        click.echo(f"{stored} events stored, {repeated} were there already")


def _encode(memory: Memory[Any], progress: Progress) -> None:
    waiting = memory.unencoded()
    if not waiting:
        return
    encoding = progress.add_task("encoding", total=waiting)
    memory.flush(progress=lambda left: progress.update(encoding, completed=waiting - left))


@click.command("log")
@options.identity
@options.tags
@click.option("--after", type=int, help="Only positions above this one.")
@click.option("--before", type=int, help="Only positions below this one.")
@click.option("--newest-first", is_flag=True, help="Newest first.")
@click.option("--limit", default=50, show_default=True, help="Events at most.")
@options.database
@options.as_json
def log(
    agent: str,
    user: str,
    after: int | None,
    before: int | None,
    newest_first: bool,
    limit: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Read a page of a memory's log."""
    with options.opened(given, encoder=False) as store:
        memory = store.memory(agent=agent, user=user)
        events = memory.events(
            after=after,
            before=before,
            newest_first=newest_first,
            limit=limit,
            **options.tags_of(given),
        )
        if not events:
            printing.none_found(memory)
    if as_json:
        printing.print_json(events)
    else:
        printing.console().print(printing.events_table(events))


@click.command("search")
@click.argument("query")
@options.identity
@options.tags
@click.option("-k", default=10, show_default=True, help="Hits at most.")
@options.database
@options.as_json
def search(query: str, agent: str, user: str, k: int, as_json: bool, **given: Any) -> None:
    """Find the entries that bear most on a QUERY."""
    with options.opened(given) as store:
        memory = store.memory(agent=agent, user=user)
        result = memory.search(query, k=k, **options.tags_of(given))
        if not result.hits:
            printing.none_found(memory)
    if as_json:
        printing.print_json(result)
        return
    made = printing.table("", "#", "score", "when", "who", "text", "why")
    for hit in result.hits:
        made.add_row(
            str(hit.event.position),
            f"{hit.score:.2f}",
            printing.when(hit.event.occurred_at),
            printing.shown(hit.event.actor),
            printing.shortened(hit.event.content),
            printing.shown("; ".join(hit.reasons)),
        )
    out = printing.console()
    out.print(made)
    if result.degraded:
        out.print(Text(result.degraded, style="yellow"))
    if result.unencoded:
        out.print(f"{result.unencoded} entries have no vector yet: found by words alone")
    out.print(printing.milliseconds(result.milliseconds), style="dim")


@click.command("resume")
@options.identity
@click.option("--task", help="What the agent is to do now.")
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    show_default="the setting's, 2048",
    help="Tokens at most.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "openai", "anthropic"]),
    default="text",
    show_default=True,
    help="Print the context as text, or as a provider's messages.",
)
@options.schema
@options.database
@options.as_json
def resume(
    agent: str,
    user: str,
    task: str | None,
    budget: int | None,
    form: Any,
    schema: Any,
    as_json: bool,
    **given: Any,
) -> None:
    """Print what an agent needs to go on, within a token budget."""
    with options.opened(given) as store:
        memory = store.memory(agent=agent, user=user, schema=options.schema_of(store, schema))
        context = memory.resume(task, budget=budget)
        if not context.tail and not context.retrieved:
            printing.none_found(memory)
        most = store.settings.budget if budget is None else budget
    rendered = context.to_text() if form == "text" else context.to_messages(form)
    if as_json:
        printing.print_json(
            {
                "context": rendered,
                "tokens": context.tokens,
                "stale": context.stale,
                "tail": [entry.position for entry in context.tail],
                "retrieved": [
                    {"position": entry.position, "reason": entry.reason}
                    for entry in context.retrieved
                ],
                "dropped": context.dropped,
                "degraded": context.degraded,
                "milliseconds": context.milliseconds,
            }
        )
    elif form == "text":
        click.echo(rendered)
        tokens = context.tokens
        click.echo(
            f"\n{tokens.total} of {most} tokens: state {tokens.state}, tail {tokens.tail}, "
            f"retrieved {tokens.retrieved}, overhead {tokens.overhead}; "
            f"{len(context.dropped)} left out; {printing.milliseconds(context.milliseconds)}",
            err=True,
        )
    else:
        printing.print_json(rendered)


COMMANDS = (import_file, log, search, resume)
