"""What docker-compose.yml and api/Dockerfile say, read with Compose itself and by instruction."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "api" / "Dockerfile"
PASSWORDS = {"OWNER_PASSWORD": "owner's pass/word", "SERVER_PASSWORD": "server's pa$$word"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, and the number of the build stage that it is in."""

    stage: int
    name: str
    rest: str

    def words(self) -> list[str]:
        """Split it; the list form is JSON."""
        found = self.rest[self.rest.index("[") :] if "[" in self.rest else None
        if found is not None and self.name in {"CMD", "ENTRYPOINT", "HEALTHCHECK"}:
            words: list[str] = json.loads(found)
            return words
        return shlex.split(self.rest)


def instructions() -> list[Instruction]:
    """Read the Dockerfile, its continued lines joined."""
    lines = DOCKERFILE.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    found: list[Instruction] = []
    stage = 0
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line:
            name, _, rest = line.partition(" ")
            stage += name == "FROM"
            found.append(Instruction(stage, name, rest))
    return found


LAST = max(instruction.stage for instruction in instructions())


def of_image(name: str) -> list[str]:
    """The words of the final image's last instruction of a name."""
    return [i for i in instructions() if (i.stage, i.name) == (LAST, name)][-1].words()


def variables() -> dict[str, str]:
    """What the final image's ENV sets."""
    return dict(word.split("=", 1) for word in of_image("ENV"))


def commands() -> list[list[str]]:
    """Every single command of every RUN."""
    return [
        shlex.split(part)
        for instruction in instructions()
        if instruction.name == "RUN"
        for part in instruction.rest.split(" && ")
    ]


def compose(
    *arguments: str, file: Path = COMPOSE, variables: Mapping[str, str] = PASSWORDS
) -> subprocess.CompletedProcess[str]:
    """Run Docker Compose on a file; it needs no engine to read one."""
    program = Path(sys.executable).with_name("docker-compose")
    kept = {name: value for name, value in os.environ.items() if name not in PASSWORDS}
    return subprocess.run(
        [program, "--project-directory", ROOT, "--file", file, *arguments],
        env=kept | dict(variables),
        capture_output=True,
        text=True,
    )


def project() -> dict[str, Any]:
    """Everything as Compose understands it, with defaults and passwords filled in."""
    done = compose("config", "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.replace("$$", "$"))
    return found


def build_context(folder: Path) -> Path:
    """Make the folder that the build's COPY lines make from what .dockerignore lets through."""
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8")
    passed = [line[2:] for line in ignored.splitlines() if line.startswith("!/")]
    source = folder / "source"
    for instruction in instructions():
        if instruction.name != "COPY" or instruction.rest.startswith("--from"):
            continue
        *sources, target = instruction.words()
        for name in sources:
            assert any(name == p or name.startswith(f"{p}/") for p in passed), name
            place = source / (f"{target}/{name}" if target.endswith("/") else target)
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                skipped = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, place, ignore=skipped)
            else:
                shutil.copy(ROOT / name, place)
    return source
