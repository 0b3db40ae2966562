"""The database migrations that this code ships: numbered SQL files with a checksum."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from memstore.errors import MigrationRequired


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def _folder() -> Traversable:
    """Find the files: in the installed package, else in the repository beside it."""
    package = resources.files("memstore")
    shipped = package / "migrations"
    return shipped if shipped.is_dir() else Path(str(package)).parent / "migrations"


def available() -> list[Migration]:
    """List the migrations that this code ships, in order."""
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in _folder().iterdir()
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    ]
    return sorted(found, key=lambda migration: migration.number)


def pending(applied: dict[int, str]) -> list[Migration]:
    """List what is left to apply, refusing a history (number, checksum) that is not this code's."""
    ours = {migration.number: migration for migration in available()}
    if newer := sorted(applied.keys() - ours.keys()):
        raise MigrationRequired(
            f"the database has migration {newer[-1]}, this code ships up to "
            f"{max(ours, default=0)}: upgrade memstore"
        )
    for number, checksum in applied.items():
        if ours[number].checksum != checksum:
            raise MigrationRequired(
                f"migration {number} ({ours[number].name}) changed after it was applied: "
                "restore the file, a change is a new migration"
            )
    return [migration for number, migration in sorted(ours.items()) if number not in applied]
