"""Options that commands share, opening the store they name, and errors as exit codes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from memstore import DEFAULT_SCHEMA, MemoryStore, MemstoreError, Settings, StateSchema

F = TypeVar("F", bound=Callable[..., Any])


class Group(click.Group):
    """A command group that prints memstore's errors as one line and exits with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemstoreError as error:
            raise click.ClickException(str(error)) from error


class Moment(click.ParamType[datetime]):
    """An ISO 8601 time with its offset; a date alone is midnight UTC."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not an ISO 8601 time", param, ctx)
        if moment.tzinfo is None and len(value) > len("2026-04-28"):
            self.fail(f"{value!r} has no offset: write 2026-04-28T09:00:00+00:00", param, ctx)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


class SchemaName(click.ParamType[StateSchema[Any]]):
    """A schema as ``module:NAME``."""

    name = "module:NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> StateSchema[Any]:
        if isinstance(value, StateSchema):
            return value
        module, _, attribute = value.partition(":")
        try:
            schema = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            self.fail(f"{value!r} can't be imported: {error}", param, ctx)
        if not isinstance(schema, StateSchema):
            self.fail(f"{value!r} is no StateSchema", param, ctx)
        return schema


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine option decorators into one, in the order given."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


database = stacked(
    click.option("--url", help="Postgres to connect to instead of the embedded one."),
    click.option(
        "--data-dir", type=click.Path(path_type=Path), help="Folder of the embedded Postgres."
    ),
    click.option("--tenant", help="The tenant; 'default' by default."),
    click.option("--encoder", help="The encoder's name or path; 'none' for words alone."),
)
identity = stacked(
    click.option("--agent", required=True, help="The agent's id."),
    click.option("--user", required=True, help="The user's id."),
)
schema = click.option(
    "--schema",
    type=SchemaName(),
    default=DEFAULT_SCHEMA,
    show_default="the default schema",
    help="The state's schema, as module:NAME.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
tags = stacked(
    click.option("--session", multiple=True, help="Only of this session (repeatable)."),
    click.option("--actor", multiple=True, help="Only by this actor (repeatable)."),
    click.option("--role", multiple=True, help="Only of this role (repeatable)."),
    click.option("--event-type", multiple=True, help="Only of this type (repeatable)."),
    click.option("--since", type=Moment(), help="Only what occurred at or after this time."),
    click.option("--until", type=Moment(), help="Only what occurred before this time."),
)


def settings_of(options: dict[str, Any]) -> Settings:
    """Take the database options out of a command's and make settings of them."""
    names = {"url": "url", "data_dir": "data_dir", "tenant": "tenant", "encoder": "encoder"}
    given = {
        setting: value
        for option, setting in names.items()
        if (value := options.pop(option, None)) is not None
    }
    return Settings(**given, encode_in_background=False)


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
