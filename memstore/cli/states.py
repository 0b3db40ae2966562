"""Commands on states: show, history, diff, migrate."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from rich.text import Text

from memstore import MigrationReport
from memstore.cli import options, printing
from memstore.cli.options import Group
from memstore.text import dumps


@click.group("state", cls=Group, invoke_without_command=True)
@click.option("--agent", help="The agent's id.")
@click.option("--user", help="The user's id.")
@click.option("--version", type=int, help="The state of this version.")
@click.option("--position", type=int, help="The state when the log was read up to here.")
@options.moment("--as-of", "The state at this time.")
@options.schema
@options.database
@options.as_json
@click.pass_context
def state(
    ctx: click.Context,
    /,
    agent: str | None,
    user: str | None,
    version: int | None,
    position: int | None,
    as_of: datetime | None,
    schema: Any,
    as_json: bool,
    **given: Any,
) -> None:
    """Show a memory's state with what is stale in it; or migrate stored states."""
    if ctx.invoked_subcommand is not None:
        return
    if agent is None or user is None:
        raise click.UsageError("--agent and --user are needed to show a state")
    with options.opened(given, encoder=False) as store:
        chosen = options.schema_of(store, schema)
        memory = store.memory(agent=agent, user=user, schema=chosen)
        found = memory.state(version=version, position=position, as_of=as_of)
        if not found.version:
            printing.none_found(memory)
    if as_json:
        printing.print_json(found)
        return
    out = printing.console()
    out.print(
        f"version {found.version}, schema {found.schema_name} {found.schema_version}, "
        f"saved {printing.when(found.created_at) or 'never'}, "
        f"log read to {found.log_position} of {found.log_end}"
    )
    out.print_json(dumps(found.document))
    for stale in found.stale:
        out.print(
            Text(f"{stale.reason} {stale.path} ({stale.age.days} days): {stale.question}", "yellow")
        )


@state.command("migrate")
@click.option("--dry-run", is_flag=True, help="Try every stored document and save nothing.")
@options.schema
@options.database
@options.as_json
def migrate_states(dry_run: bool, schema: Any, as_json: bool, **given: Any) -> None:
    """Bring stored states to the schema's current version.

    Every stored document is tried first; when a memory's head fails, nothing is saved and the
    exit code is 1.
    """
    with (
        options.opened(given, encoder=False) as store,
        printing.progress_console().status("trying stored documents") as status,
    ):
        report = store.migrate_states(
            options.schema_of(store, schema),
            dry_run=dry_run,
            progress=lambda tried: status.update(f"trying stored documents: {tried}"),
        )
    if as_json:
        printing.print_json(report)
    else:
        print_report(report)
    if report.failures:
        raise SystemExit(1)


def print_report(report: MigrationReport) -> None:
    """Print what would fail or fails, and a sum."""
    for failure in report.failures:
        click.echo(f"fails: {failure}")
    for failure in report.history_failures:
        click.echo(f"fails, but is no head: {failure}")
    dry = "nothing saved (dry run)"
    click.echo(
        f"{report.schema_name} {report.schema_version}: {report.tried} documents tried, "
        f"{report.outdated} of older versions can be migrated, "
        f"{len(report.failures) + len(report.history_failures)} fail; "
        f"{dry if report.dry_run else f'{report.migrated} heads saved'}"
    )


@click.command("history")
@options.identity
@click.option("--limit", default=50, show_default=True, help="Versions at most.")
@click.option("--diff", nargs=2, type=int, help="Show what changed between two versions instead.")
@options.schema
@options.database
@options.as_json
def history(
    agent: str,
    user: str,
    limit: int,
    diff: tuple[int, int] | None,
    schema: Any,
    as_json: bool,
    **given: Any,
) -> None:
    """List a state's versions, newest first: when, who, why."""
    with options.opened(given, encoder=False) as store:
        chosen = options.schema_of(store, schema)
        memory = store.memory(agent=agent, user=user, schema=chosen)
        found: Any = memory.diff(*diff) if diff else memory.history(limit=limit)
        if not found:
            printing.none_found(memory)
    if as_json:
        printing.print_json(found)
        return
    if diff:
        made = printing.table("", "change", "path", "before", "after")
        for change in found:
            made.add_row(
                change.op,
                printing.shown(change.path),
                printing.shortened(dumps(change.old)),
                printing.shortened(dumps(change.new)),
            )
    else:
        made = printing.table("", "version", "saved", "kind", "log", "schema", "author", "reason")
        for version in found:
            made.add_row(
                str(version.version),
                printing.when(version.created_at),
                version.kind,
                str(version.log_position),
                f"{version.schema_name} {version.schema_version}",
                printing.shown(version.author or ""),
                printing.shortened(version.reason or ""),
            )
    printing.console().print(made)


COMMANDS = (state, history)
