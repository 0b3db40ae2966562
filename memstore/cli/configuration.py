"""The command that says how memstore is set up here, and why: config."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from memstore import Settings
from memstore.cli import options, printing
from memstore.cli.serving import listening
from memstore.config import masked
from memstore.text import dumps

PREFIX = "MEMSTORE_"
SECRET_WORDS = frozenset({"password", "secret", "token"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: what it is called, what it is here, and where that comes from."""

    variable: str
    flag: str | None
    value: Any
    default: Any
    source: str
    meaning: str


@click.command("config")
@listening
@options.database
@options.as_json
def config(as_json: bool, **given: Any) -> None:
    """List every setting: variable, flag, value, where that comes from, and meaning.

    Takes the flags of 'memstore serve' and shows what it would run with. Passwords are masked.
    """
    flags = {
        option.name: option.opts[0]
        for option in config.params
        if option.name != "as_json" and option.opts
    }
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    try:
        from memstore_api.settings import ServerSettings as Kind
    except ImportError:  # without the extra: a name that was a class may not be given another
        Kind = Settings  # type: ignore[assignment,misc]
    settings = options.settings_as(Kind, {}, **chosen)
    listed = list(_listed(settings, flags, set(chosen)))
    known = {setting.variable for setting in listed}
    unknown = sorted(name for name in os.environ if _is_unknown(name, known))
    if as_json:
        printing.print_json({"settings": listed, "unknown": unknown})
        return
    made = printing.table("", "variable", "value", "from", "flag", "meaning")
    made.columns[0].no_wrap = True
    for setting in listed:
        made.add_row(
            setting.variable,
            printing.shown(_written(setting.value)),
            setting.source,
            setting.flag or "",
            setting.meaning,
        )
    printing.console().print(made)
    for name in unknown:
        click.echo(f"{name} is set, and is no setting", err=True)
    if Kind is Settings:
        click.echo("the server's settings come with memstore's extra 'server'", err=True)


def _listed(settings: Settings, flags: dict[Any, str], chosen: set[str]) -> Iterator[Setting]:
    values = settings.model_dump(mode="json")
    defaults = type(settings).model_construct().model_dump(mode="json")
    for name, field in type(settings).model_fields.items():
        if name in chosen:
            source = "flag"
        else:
            source = "environment" if name in settings.model_fields_set else "default"
        yield Setting(
            variable=f"{PREFIX}{name}".upper(),
            flag=flags.get(name),
            value=_without_secrets(name, values[name]),
            default=defaults[name],
            source=source,
            meaning=field.description or "",
        )


def _without_secrets(name: str, value: Any) -> Any:
    if value is not None and SECRET_WORDS & set(name.split("_")):
        return "***"
    return masked(value) if name == "url" and value is not None else value


def _is_unknown(name: str, known: set[str]) -> bool:
    return name.upper().startswith(PREFIX) and name.upper() not in known


def _written(value: Any) -> str:
    """Write a value as its variable takes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return dumps(value) if isinstance(value, list) else str(value)


COMMANDS = (config,)
