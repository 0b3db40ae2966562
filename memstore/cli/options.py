"""Options that commands share, opening the store they name, and errors as exit codes."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError
from pydantic_settings import SettingsError

from memstore import (
    DEFAULT_SCHEMA,
    ConfigurationError,
    MemoryStore,
    MemstoreError,
    Settings,
    StateSchema,
)

# What the pool meets is in the error; without a handler it would be printed as well.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Settings)


class Group(click.Group):
    """A command group that prints memstore's errors as one line and exits with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemstoreError as error:
            raise click.ClickException(" ".join(str(error).split())) from error


def to_moment(ctx: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    """Read an ISO 8601 time with its offset; a date alone is midnight UTC."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an ISO 8601 time") from None
    if moment.tzinfo is None and len(value) > len("2026-04-28"):
        raise click.BadParameter(f"{value!r} has no offset: write 2026-04-28T09:00:00+00:00")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def to_schema(
    ctx: click.Context, option: click.Parameter, value: str | None
) -> StateSchema[Any] | str:
    """Import a schema by ``module:NAME``, from the current folder too; leave other names."""
    if value is None:
        return DEFAULT_SCHEMA
    if ":" not in value:
        return value
    module, _, attribute = value.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        schema = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything
        raise click.BadParameter(
            f"{value!r} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(schema, StateSchema):
        raise click.BadParameter(f"{value!r} is no StateSchema")
    return schema


def schema_of(store: MemoryStore, chosen: StateSchema[Any] | str) -> StateSchema[Any]:
    """Find a registered schema by its name, or by name@version."""
    if not isinstance(chosen, str):
        return chosen
    name, at, version = chosen.partition("@")
    if at and not (version.isascii() and version.isdigit()):
        raise click.BadParameter(f"{chosen!r}: a version is a number")
    return store.schemas.get(name, int(version) if at else None)


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine option decorators into one, in the order given."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def moment(name: str, text: str) -> Callable[[F], F]:
    """Make an option that takes a time."""
    return click.option(name, metavar="TIME", callback=to_moment, help=text)


data_dir = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Folder of the embedded Postgres."
)
database = stacked(
    click.option("--url", help="Postgres to connect to instead of the embedded one."),
    data_dir,
    click.option("--tenant", help="The tenant; 'default' by default."),
    click.option("--encoder", help="The encoder's name or path; 'none' for words alone."),
)
identity = stacked(
    click.option("--agent", required=True, help="The agent's id."),
    click.option("--user", required=True, help="The user's id."),
)
schema = click.option(
    "--schema",
    metavar="SCHEMA",
    callback=to_schema,
    show_default="the default schema",
    help="The state's schema: module:NAME, or a registered one's name or name@version.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
tags = stacked(
    click.option("--session", multiple=True, help="Only of this session (repeatable)."),
    click.option("--actor", multiple=True, help="Only by this actor (repeatable)."),
    click.option("--role", multiple=True, help="Only of this role (repeatable)."),
    click.option("--event-type", multiple=True, help="Only of this type (repeatable)."),
    moment("--since", "Only what occurred at or after this time."),
    moment("--until", "Only what occurred before this time."),
)


def settings_of(options: dict[str, Any]) -> Settings:
    """Take the database options out of a command's and make settings of them."""
    return settings_as(Settings, options, encode_in_background=False)


def settings_as(kind: type[S], options: dict[str, Any], **more: Any) -> S:
    """Do the same for another kind of settings, with more of them."""
    names = {"url": "url", "data_dir": "data_dir", "tenant": "tenant", "encoder": "encoder"}
    given = {
        setting: value
        for option, setting in names.items()
        if (value := options.pop(option, None)) is not None
    }
    try:
        return kind(**given, **more)
    except ValidationError as error:
        wrong = error.errors()[0]
        name = "_".join(map(str, wrong["loc"])).upper()
        raise ConfigurationError(f"MEMSTORE_{name}: {wrong['msg']}") from error
    except SettingsError as error:  # a list that is no JSON
        raise ConfigurationError(f"{error}: is its variable a JSON list?") from error


@contextmanager
def opened(options: dict[str, Any], *, encoder: bool = True) -> Iterator[MemoryStore]:
    """Open the store that a command's options name; `encoder` False leaves the model out."""
    settings = settings_of(options)
    chosen: str | None = "default" if encoder else None
    if settings.url is not None:
        store = MemoryStore.connect(encoder=chosen, settings=settings)
    else:
        store = MemoryStore.embedded(encoder=chosen, settings=settings)
    with store:
        yield store


def tags_of(options: dict[str, Any]) -> dict[str, Any]:
    """Turn the tag options into keyword arguments of ``events`` and ``search``."""
    names = ("session", "actor", "role", "event_type")
    found: dict[str, Any] = {name: options[name] for name in names if options[name]}
    return found | {name: options[name] for name in ("since", "until") if options[name]}
