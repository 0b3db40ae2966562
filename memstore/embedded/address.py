"""How clients reach a server's socket, however long the path of its folder is."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from memstore.errors import ConfigurationError

SOCKET = ".s.PGSQL.5432"
LONGEST = 103  # bytes of a socket's path: 107 on Linux, 103 on macOS


def url(cluster: Path, database: str) -> str:
    """Return the URL of a database of the server whose socket is in its cluster's folder."""
    host = quote(os.fsencode(_short(cluster)), safe="")
    return f"postgresql://postgres@/{database}?host={host}&port=5432"


def _short(cluster: Path) -> Path:
    """Return the folder, or a link to it where the socket's path is too long or not UTF-8.

    The link is each client's own affair, in a folder that only the client's user reaches;
    the server does not know of it, and it may be made again at any time.
    """
    if _fits(cluster):
        return cluster
    name = hashlib.sha256(os.fsencode(cluster)).hexdigest()[:16]
    for folder in _private_folders():
        link = folder / name
        if _fits(link):
            _link(link, cluster)
            return link
    raise ConfigurationError(
        f"the path of {cluster!r} is too long for a socket, or not UTF-8, and no private folder "
        "for a short link to it was found: set TMPDIR to a short path, or name another data folder"
    )


def _fits(folder: Path) -> bool:
    path = os.fsencode(folder / SOCKET)
    return len(path) <= LONGEST and path == path.decode(errors="replace").encode()


def _private_folders() -> Iterator[Path]:
    user = os.geteuid()
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if parent:
            folder = Path(parent) / f"memstore-{user}"
            with suppress(OSError):
                folder.mkdir(mode=0o700, exist_ok=True)
                status = folder.stat(follow_symlinks=False)
                ours = status.st_uid == user and folder.parent.stat().st_uid in (user, 0)
                if ours and stat.filemode(status.st_mode) == "drwx------":
                    yield folder


def _link(link: Path, target: Path) -> None:
    with suppress(OSError):
        if link.readlink() == target:
            return
    fresh = link.with_name(f"{link.name}.{os.getpid()}.{os.urandom(4).hex()}")
    fresh.symlink_to(target)
    fresh.replace(link)
