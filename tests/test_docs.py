"""The documentation is run: every Python and shell block, and every command is described.

A file's blocks run in order, as one script in one new folder: Python blocks share a namespace,
shell blocks see the files and the memory that came before. ``text`` marks what isn't run.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

import memstore
from memstore.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CHECKED_ONLY = ("cd ", "git clone ", "make ", "pip install ")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], text.count("\n", 0, match.start(2)) + 1, match[2])
        for match in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> list[str]:
    """Split a shell block: in a console block only what follows `$ ` is typed."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def script(page: Path) -> str:
    """Write a page as one Python script; a failure is reported with the page's own line."""
    parts = ["import subprocess", "names = {'__name__': '__main__'}"]
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            source = "\n" * (block.line - 1) + block.text
            parts.append(f"exec(compile({source!r}, {str(page)!r}, 'exec'), names)")
        elif block.language == "bash":
            if not any(command.startswith(CHECKED_ONLY) for command in commands(block)):
                whole = f"set -euo pipefail\n{block.text}"
                parts.append(f"subprocess.run(['bash', '-c', {whole!r}, {where!r}], check=True)")
        elif block.language == "console":
            for command in commands(block):
                if not command.startswith(CHECKED_ONLY):
                    whole = f"set -euo pipefail\n{command}"
                    parts.append(
                        f"subprocess.run(['bash', '-c', {whole!r}, {where!r}], check=True)"
                    )
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = str(free.getsockname()[1])
    file.write_text(script(page).replace("8077", port), encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    environment = os.environ | {
        "MEMSTORE_DATA_DIR": str(tmp_path / "data"),
        "MEMSTORE_PORT": port,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_not_run_exists(page: Path) -> None:
    """`make` commands have a target, `pip install` names extras that there are."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for block in blocks(page):
        if block.language not in {"bash", "console"}:
            continue
        for command in commands(block):
            if not command.startswith(("make ", "pip ")):
                continue  # it may be a line of a text in quotes
            words = shlex.split(command, comments=True)
            if words[0] == "make":
                named = [word for word in words[1:] if "=" not in word]
                assert set(named) <= targets, command
            elif words[:2] == ["pip", "install"]:
                for extras in re.findall(r"\[(.*?)\]", command):
                    assert set(extras.split(",")) <= set(project["optional-dependencies"]), command


def test_no_block_is_left_unmarked() -> None:
    known = {"bash", "console", "json", "python", "sql", "text", "toml", "yaml"}
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(fences[::2]) <= known, page.name
        assert set(fences[1::2]) <= {""}, page.name


def walk(command: click.Command, path: str) -> dict[str, click.Command]:
    """List every command under its full name, the groups included."""
    found = {path: command}
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            found |= walk(child, f"{path} {name}")
    return found


def test_every_public_name_and_method_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    names = {name for name in memstore.__all__ if not name.startswith("__")}
    methods = {
        name
        for kind in (memstore.MemoryStore, memstore.Memory, memstore.Client)
        for name in dir(kind)
        if not name.startswith("_")
    }
    missing = sorted((names | methods) - told)
    assert not missing


def test_every_page_is_in_the_readme_and_every_link_leads_somewhere() -> None:
    linked = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target, place in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), f"{page.name}: {target}"
            if place:
                headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                places = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
                assert place in places, f"{page.name}: {target}#{place}"
            if page.name == "README.md":
                linked.add(file)
    assert set(PAGES) - {ROOT / "README.md"} <= linked


COMMANDS = walk(main, "memstore")


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_and_its_options_are_in_the_docs(path: str) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert re.search(rf"\b{re.escape(path)}\b", text), f"{path} is in no page"
    missing = [
        name
        for parameter in COMMANDS[path].params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in parameter.opts
        if name.startswith("--") and not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]
    assert not missing, f"{path}: {missing}"


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_explains_itself(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option)), (
        f"{path} has an option without help"
    )


def test_every_command_that_answers_also_answers_in_json() -> None:
    silent = {
        path
        for path, command in COMMANDS.items()
        if not isinstance(command, click.Group)
        and not any("--json" in parameter.opts for parameter in command.params)
    }
    assert silent <= {"memstore demo", "memstore serve", "memstore worker"}
