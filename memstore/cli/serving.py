"""Commands for whoever runs a server: serve, and its keys."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from memstore import ApiKey, MissingExtra, NewKey
from memstore.cli import options, printing
from memstore.cli.options import Group
from memstore.keys import SCOPES
from memstore.wire import key_to

listening = options.stacked(
    click.option("--host", help="Address to listen at; 127.0.0.1 by default."),
    click.option("--port", type=int, help="Port to listen at; 8077 by default, 0 takes any."),
    click.option(
        "--insecure",
        is_flag=True,
        default=None,
        help="Ask for no key; only on loopback, to try it.",
    ),
    click.option(
        "--schema",
        "schemas",
        multiple=True,
        metavar="MODULE:NAME",
        help="A state schema to serve beside the default one (repeatable).",
    ),
)


@click.command("serve")
@listening
@options.database
def serve(
    host: str | None,
    port: int | None,
    insecure: bool | None,
    schemas: tuple[str, ...],
    **given: Any,
) -> None:
    """Serve memories over HTTP until SIGINT or SIGTERM; any number of servers may run.

    Requests need a key: 'memstore keys create'. Requests under way finish before it ends.
    """
    try:
        from memstore_api import ServerSettings
        from memstore_api.logs import to_standard_error
        from memstore_api.serving import serve as run
    except ImportError as error:
        raise MissingExtra(error.name or "fastapi", "server") from error

    sys.path.insert(0, str(Path.cwd()))  # a schema may lie in the current folder
    chosen = {"host": host, "port": port, "insecure": insecure, "schemas": schemas or None}
    more = {name: value for name, value in chosen.items() if value is not None}
    settings = options.settings_as(ServerSettings, given, **more)
    to_standard_error()
    run(settings, lambda url: click.echo(f"listening at {url}"))


@click.group("keys", cls=Group)
def keys() -> None:
    """API keys of a tenant: what a server's users show. Needs the database owner's role."""


def _days(ctx: click.Context, option: click.Parameter, value: float | None) -> datetime | None:
    return None if value is None else datetime.now(UTC) + timedelta(days=value)


expires = click.option(
    "--days", "expires_at", type=float, callback=_days, help="Let it expire after so many days."
)


@keys.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(SCOPES),
    help="What it may do: read, write, admin (both, and erase); repeatable.",
)
@click.option("--agent", "agents", multiple=True, help="Bind it to this agent (repeatable).")
@click.option("--user", "users", multiple=True, help="Bind it to this user (repeatable).")
@expires
@options.database
@options.as_json
def create(
    name: str,
    scopes: tuple[str, ...],
    agents: tuple[str, ...],
    users: tuple[str, ...],
    expires_at: datetime | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a key called NAME and print its token, which can't be shown again."""
    with options.opened(given, encoder=False) as store:
        made = store.create_key(
            name,
            scopes=scopes,
            agents=agents or None,
            users=users or None,
            expires_at=expires_at,
        )
    _print_new(made, as_json)


@keys.command("list")
@options.database
@options.as_json
def list_keys(as_json: bool, **given: Any) -> None:
    """List the keys, those that ended too. Tokens are kept nowhere."""
    with options.opened(given, encoder=False) as store:
        found = store.keys()
    if as_json:
        printing.print_json([key_to(key) for key in found])
        return
    made = printing.table("", "id", "name", "scopes", "agents", "users", "made", "ends")
    for key in found:
        made.add_row(
            key.key_id,
            printing.shown(key.name),
            " ".join(key.scopes),
            printing.shown(_bound(key.agents)),
            printing.shown(_bound(key.users)),
            printing.when(key.created_at),
            _end(key),
        )
    printing.console().print(made)


@keys.command("revoke")
@click.argument("key_id")
@options.database
@options.as_json
def revoke(key_id: str, as_json: bool, **given: Any) -> None:
    """End the key KEY_ID now."""
    with options.opened(given, encoder=False) as store:
        key = store.revoke_key(key_id)
    if as_json:
        printing.print_json(key_to(key))
    else:
        click.echo(f"{key.key_id} ({key.name}) has ended")


@keys.command("rotate")
@click.argument("key_id")
@click.option("--grace-hours", type=float, default=0.0, help="Hours that the old one lives on.")
@expires
@options.database
@options.as_json
def rotate(
    key_id: str, grace_hours: float, expires_at: datetime | None, as_json: bool, **given: Any
) -> None:
    """Make a key with the rights of KEY_ID, print its token, and end the old one."""
    with options.opened(given, encoder=False) as store:
        made = store.rotate_key(key_id, grace=timedelta(hours=grace_hours), expires_at=expires_at)
    _print_new(made, as_json)


def _print_new(made: NewKey, as_json: bool) -> None:
    if as_json:
        printing.print_json({"key": key_to(made.key), "token": made.token})
    else:
        click.echo(made.token)
        click.echo(f"key {made.key.key_id}; keep the token, it can't be shown again", err=True)


def _bound(ids: tuple[str, ...] | None) -> str:
    return "any" if ids is None else ", ".join(ids)


def _end(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {printing.when(key.revoked_at)}"
    return printing.when(key.expires_at) or "never"


COMMANDS = (serve, keys)
