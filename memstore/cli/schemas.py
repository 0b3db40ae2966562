"""Commands on registered schemas: register, list, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from memstore.cli import options, printing
from memstore.cli.options import Group
from memstore.cli.states import print_report
from memstore.wire import definition_to, report_to


def _read(ctx: click.Context, option: click.Parameter, value: Path | None) -> Any:
    """Read a file as JSON."""
    if value is None:
        return None
    try:
        return json.loads(value.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{value} is not JSON: {error}") from error


file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("schema", cls=Group)
def schema() -> None:
    """State schemas in JSON Schema, kept in the database for every client and server."""


@schema.command("register")
@click.argument("name")
@click.argument("file", type=file, callback=_read)
@click.option("--version", type=int, default=1, show_default=True, help="Its version.")
@click.option(
    "--migration",
    type=file,
    callback=_read,
    help="A JSON Patch from the version before; every version but the first needs one.",
)
@click.option(
    "--initial",
    type=file,
    callback=_read,
    help="The state of a memory that has none; by default the defaults in the schema.",
)
@click.option(
    "--dry-run", is_flag=True, help="Try it on every stored document and register nothing."
)
@options.database
@options.as_json
def register(
    name: str,
    file: Any,
    version: int,
    migration: Any,
    initial: Any,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Register the JSON Schema in FILE as a version of the schema called NAME.

    A version never changes: repeated with the same files it does nothing. With --dry-run the
    exit code is 1 when a memory's head could not be migrated.
    """
    with options.opened(given, encoder=False) as store:
        if dry_run:
            report = store.schemas.trial(name, version, file, migration=migration, initial=initial)
            if as_json:
                printing.print_json(report_to(report))
            else:
                print_report(report)
            raise SystemExit(1 if report.failures else 0)
        made = store.schemas.register(name, version, file, migration=migration, initial=initial)
    if as_json:
        printing.print_json(definition_to(made))
    else:
        click.echo(f"{made.name} {made.version} is registered")


@schema.command("list")
@options.database
@options.as_json
def list_schemas(as_json: bool, **given: Any) -> None:
    """List the registered schemas, each in its newest version."""
    with options.opened(given, encoder=False) as store:
        found = store.schemas.registered()
    if as_json:
        printing.print_json([definition_to(one) for one in found])
        return
    made = printing.table("", "name", "version", "registered")
    for one in found:
        made.add_row(printing.shown(one.name), str(one.version), printing.when(one.created_at))
    printing.console().print(made)


@schema.command("show")
@click.argument("name")
@click.option("--version", type=int, help="This version; the newest by default.")
@options.database
@options.as_json
def show(name: str, version: int | None, as_json: bool, **given: Any) -> None:
    """Print a registered schema; with --json its migration and initial state too."""
    with options.opened(given, encoder=False) as store:
        found = store.schemas.get(name, version).definition
    printing.print_json(definition_to(found) if as_json else found.schema)


COMMANDS = (schema,)
