"""Generate memstore/_sync from memstore/_async, or with --check only compare the two.

`runtime.py` is written by hand on both sides: it holds the few things that differ in kind.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "memstore" / "_async"
TARGET = ROOT / "memstore" / "_sync"
BY_HAND = "runtime.py"
HEADER = "# generated from memstore/_async by scripts/generate_sync.py: edit there\n"

#: Besides these, every AsyncName becomes Name.
NAMES = {
    "_async": "_sync",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}

#: What unasync leaves alone: strings, comments and docstrings.
WORDS = (
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\basync (?=with |for |def )"), ""),
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
    (re.compile(r"\bmemstore\._async\b"), "memstore._sync"),
)


def generate(into: Path) -> None:
    """Write the sync side of every module into a folder."""
    sources = sorted(path for path in SOURCE.glob("*.py") if path.name != BY_HAND)
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    names = NAMES | {
        name: name.removeprefix("Async") for name in re.findall(r"\bAsync[A-Z]\w*", text)
    }
    rule = unasync.Rule(f"{SOURCE}/", f"{into}/", additional_replacements=names)
    unasync.unasync_files([str(path) for path in sources], [rule])
    for path in into.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in WORDS:
            text = pattern.sub(replacement, text)
        path.write_text(HEADER + text, encoding="utf-8")
    config = ("--config", str(ROOT / "pyproject.toml"), "--quiet")
    for command in (("check", "--select", "I", "--fix"), ("format",)):
        subprocess.run([sys.executable, "-m", "ruff", *command, *config, str(into)], check=True)


def main(argv: list[str] | None = None) -> int:
    """Generate, or with --check print what differs and return 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check: bool = parser.parse_args(argv).check
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        wanted = {path.name: path.read_bytes() for path in Path(folder).glob("*.py")}
    found = {path.name: path.read_bytes() for path in TARGET.glob("*.py") if path.name != BY_HAND}
    differing = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
    for name in differing:
        print(f"memstore/_sync/{name}" + (" is out of date: run make sync" if check else ""))
        if not check and name in wanted:
            (TARGET / name).write_bytes(wanted[name])
        elif not check:
            (TARGET / name).unlink()
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
