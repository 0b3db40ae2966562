"""The command group; the commands themselves stand in modules by subject."""

from __future__ import annotations

import io
import sys

import click

from memstore.cli import configuration, conversation, operation, schemas, serving, states, tuning
from memstore.cli.options import Group


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memstore")
def main() -> None:
    """The memory that an agent keeps when its process does not survive.

    Without --url (or MEMSTORE_URL) every command uses the embedded Postgres in the user's data
    folder, and starts it if need be.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a log holds what an ASCII terminal can't show
            stream.reconfigure(errors="backslashreplace")


for _command in (
    *conversation.COMMANDS,
    *states.COMMANDS,
    *schemas.COMMANDS,
    *tuning.COMMANDS,
    *operation.COMMANDS,
    *serving.COMMANDS,
    *configuration.COMMANDS,
):
    main.add_command(_command)
