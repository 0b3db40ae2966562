"""The sync side is the async side without waiting: the same files, names and signatures."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import memstore

ROOT = Path(__file__).parent.parent
TWINS = [name for name in memstore.__all__ if f"Async{name}" in memstore.__all__]


def signatures(cls: type) -> dict[str, str]:
    """Each public member's signature (a property's is its getter's), with Async left out."""
    found: dict[str, str] = {}
    for name, member in inspect.getmembers(cls):
        if name.startswith("_") and name != "__init__":
            continue
        function = member.fget if isinstance(member, property) else member
        signature = (
            str(inspect.signature(function)) if callable(function) else type(member).__name__
        )
        found[name] = re.sub(r"\bAsync(?=[A-Z])", "", signature).replace("._async", "._sync")
    return found


def test_the_generated_files_are_up_to_date() -> None:
    script = ROOT / "scripts" / "generate_sync.py"
    check = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def test_both_sides_have_the_store_and_the_memory() -> None:
    assert {"Memory", "MemoryStore"} <= set(TWINS)


@pytest.mark.parametrize("name", TWINS)
def test_twins_have_the_same_members_and_signatures(name: str) -> None:
    sync, asynchronous = getattr(memstore, name), getattr(memstore, f"Async{name}")
    assert signatures(sync) == signatures(asynchronous)


def test_what_is_written_by_hand_on_both_sides_has_the_same_names() -> None:
    def names(side: str) -> dict[str, str]:
        tree = ast.parse((ROOT / "memstore" / side / "runtime.py").read_text(encoding="utf-8"))
        found: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name] = ast.unparse(node.args)
            elif isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                        found[f"{node.name}.{member.name}"] = ast.unparse(member.args)
            elif isinstance(node, ast.Assign):
                found |= {ast.unparse(target): "" for target in node.targets}
        return {name: arguments for name, arguments in found.items() if "._" not in name}

    assert names("_sync") == names("_async")
