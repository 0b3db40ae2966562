"""Commands for whoever runs the database: migrate, space, worker, doctor, demo."""

from __future__ import annotations

import signal
import threading
from typing import Any

import click

from memstore import ConfigurationError, MemoryStore, load_encoder, migrate
from memstore._sync.database import Database
from memstore._sync.diagnosis import diagnose
from memstore._sync.migrations import grant
from memstore.cli import options, printing
from memstore.cli.options import Group
from memstore.embedded import EmbeddedServer, default_data_dir
from memstore.encoding.source import EncoderSource


def _url(settings: Any) -> tuple[str, EmbeddedServer | None]:
    if settings.url is not None:
        return settings.url, None
    server = EmbeddedServer.acquire(settings.data_dir or default_data_dir())
    return server.url, server


@click.command("migrate")
@click.option("--grant", "login", metavar="LOGIN", help="Let this role of the database's serve.")
@options.database
@options.as_json
def migrate_database(login: str | None, as_json: bool, **given: Any) -> None:
    """Bring the database up to this version: schema, tenant, and the encoder's space.

    The URL's role must be allowed to create schemas, roles and extensions. With --grant, LOGIN
    becomes a member of memstore's roles: servers and workers need no more.
    """
    settings = options.settings_of(given)
    url, server = _url(settings)
    try:
        applied = migrate(url)
        MemoryStore.prepare(url, settings=settings)
        if login is not None:
            grant(url, login)
    finally:
        if server is not None:
            server.release()
    if as_json:
        printing.print_json({"applied": [f"{m.number:04d}_{m.name}" for m in applied]})
    elif applied:
        for migration in applied:
            click.echo(f"applied {migration.number:04d} {migration.name}")
    else:
        click.echo("up to date")


@click.command("doctor")
@options.database
@options.as_json
def doctor(as_json: bool, **given: Any) -> None:
    """Check the connection, extension, migrations, spaces, queue and leftovers.

    The exit code is 1 when something is not as it should be.
    """
    settings = options.settings_of(given)
    url, server = _url(settings)
    try:
        encoder = EncoderSource(settings.encoder, settings.cache_dir).name
        database = Database(
            url, pool_size=1, connect_timeout=settings.connect_timeout, prepare=settings.prepare
        )
        checks = diagnose(database, settings.tenant, encoder)
    finally:
        if server is not None:
            server.release()
    if as_json:
        printing.print_json(checks)
    else:
        for check in checks:
            click.echo(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
    if not all(check.ok for check in checks):
        raise SystemExit(1)


@click.group("space", cls=Group)
def space() -> None:
    """Spaces: one encoder's vectors each. Fill another beside the one that serves, switch, drop."""


@space.command("list")
@options.database
@options.as_json
def list_spaces(as_json: bool, **given: Any) -> None:
    """List the spaces."""
    with options.opened(given, encoder=False) as store:
        found = store.spaces()
    if as_json:
        printing.print_json(found)
        return
    for one in found:
        click.echo(f"{one.status:9} {one.encoder} ({one.dimension})")


@space.command("add")
@click.argument("name")
@options.database
@options.as_json
def add_space(name: str, as_json: bool, **given: Any) -> None:
    """Make a space for the encoder NAME and fill it with every entry there is."""
    settings = options.settings_of(dict(given))
    encoder = load_encoder(name, cache_dir=settings.cache_dir)
    with options.opened(given, encoder=False) as store:
        made = store.add_space(encoder)
        with printing.progress_console().status(f"encoding with {encoder.name}"):
            encoded = store.fill_space(encoder)
    if as_json:
        printing.print_json({"space": made, "encoded": encoded})
    else:
        click.echo(
            f"{encoder.name}: {encoded} entries encoded; now 'memstore space switch {encoder.name}'"
        )


@space.command("switch")
@click.argument("name")
@options.database
@options.as_json
def switch_space(name: str, as_json: bool, **given: Any) -> None:
    """Let the filled space of encoder NAME serve; the one before is retained."""
    with options.opened(given, encoder=False) as store:
        made = store.switch_space(name)
    if as_json:
        printing.print_json(made)
    else:
        click.echo(f"{made.encoder} serves; open stores with that encoder from now on")


@space.command("drop")
@click.argument("name")
@options.database
@options.as_json
def drop_space(name: str, as_json: bool, **given: Any) -> None:
    """Remove the space of encoder NAME, which does not serve, with its vectors."""
    with options.opened(given, encoder=False) as store:
        store.drop_space(name)
    if as_json:
        printing.print_json({"dropped": name})
    else:
        click.echo(f"{name} dropped")


@space.command("index")
@click.option(
    "--above", type=click.IntRange(min=1), help="Entries; MEMSTORE_INDEX_ABOVE by default."
)
@options.database
@options.as_json
def index_vectors(above: int | None, as_json: bool, **given: Any) -> None:
    """Index the vectors of large memories one by one, drop the indexes of those that shrank.

    A worker whose login owns the vectors does so by itself. Nobody waits for it.
    """
    with options.opened(given, encoder=False) as store:
        indexed = store.index_vectors(above=above)
    if as_json:
        printing.print_json(indexed)
    else:
        click.echo(f"{indexed.created} indexes built, {indexed.dropped} dropped")


@click.command("worker")
@click.option("--once", is_flag=True, help="Stop when nothing is due.")
@options.database
@options.as_json
def worker(once: bool, as_json: bool, **given: Any) -> None:
    """Fill in vectors for every tenant until SIGINT or SIGTERM; any number may run.

    With the encoder of a space that is being filled, that one is filled.
    """
    encoder = options.settings_of(dict(given)).encoder
    with options.opened(given, encoder=False) as store:
        running = store.make_worker(encoder or "none")
        if once:
            encoded = running.drain()
            if as_json:
                printing.print_json({"encoded": encoded})
            else:
                click.echo(f"{encoded} entries encoded")
            return
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        running.start()
        click.echo("encoding; stop with Ctrl-C", err=True)
        while running.alive and not stop.wait(1.0):
            pass
        if not running.alive:
            raise ConfigurationError("encoding stopped by itself; the log above says why")
        running.stop()


@click.command("demo")
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=2048,
    show_default=True,
    help="Tokens at most.",
)
@options.data_dir
def demo(budget: int, **given: Any) -> None:
    """Replay a support thread, kill the agent in mid-conversation, and restart it."""
    from memstore.demo.run import main as run

    settings = options.settings_of(given)
    raise SystemExit(run(printing.console(), budget=budget, data_dir=settings.data_dir))


COMMANDS = (migrate_database, doctor, space, worker, demo)
