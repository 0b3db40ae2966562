"""The supervisor: who uses a data folder's server, and who starts and stops it."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import platformdirs

from memstore.embedded.account import account_for
from memstore.embedded.address import url
from memstore.embedded.cluster import DATABASE, Cluster
from memstore.embedded.folder import DataFolder, Mark
from memstore.errors import MemstoreError, StorageError

START_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0
EXIT_TIMEOUT = 5.0

_held: set[EmbeddedServer] = set()


def default_data_dir() -> Path:
    """Return the user's data folder for memstore, such as ``~/.local/share/memstore``."""
    return platformdirs.user_data_path("memstore")


class EmbeddedServer:
    """A share in the server of a data folder, got by `acquire` and given back by `release`.

    Any number of processes and threads may have shares. The first share starts the server and
    the last one's release stops it. A share ends with its process at the latest: at a normal
    exit it is released; after a SIGKILL the server stays up for the next share, which finds it.
    In a forked child it may be used but is not the child's to release.
    """

    def __init__(self, data_dir: Path, cluster: Cluster, folder: DataFolder, mark: Mark) -> None:
        self.data_dir = data_dir
        self._cluster = cluster
        self._folder = folder
        self._mark = mark
        self._released = False

    @classmethod
    def acquire(cls, data_dir: str | os.PathLike[str] | None = None) -> Self:
        """Open a data folder, making it if it is missing, with its server running.

        Raises `MissingExtra` without the binaries, `ConfigurationError` for a folder that is
        not memstore's or was made by another PostgreSQL, and `StorageError` where the server
        cannot be started; the message ends with the server's log.
        """
        path = Path(data_dir or default_data_dir()).expanduser().resolve()
        folder = DataFolder(path)
        with _system_errors(path):
            folder.prepare()
            with folder.locked(START_TIMEOUT):
                cluster = Cluster(folder.cluster, account_for(path, folder.cluster))
                cluster.clear()
                if not cluster.folder.exists():
                    cluster.create()
                cluster.check_version()
                cluster.ensure_running(START_TIMEOUT)
                server = cls(path, cluster, folder, folder.mark())
        _held.add(server)
        return server

    @property
    def url(self) -> str:
        """The server's URL: the database ``memstore`` over a Unix socket, as its superuser."""
        return url(self._cluster.folder, DATABASE)

    def ensure_running(self) -> None:
        """Start the server again if it was killed. To be called when a connection fails."""
        if self._released:
            raise StorageError(f"this share in the server of {self.data_dir} was released")
        with _system_errors(self.data_dir), self._folder.locked(START_TIMEOUT):
            # A folder that vanished is not made anew, which would look like lost data.
            self._cluster.check_version()
            self._cluster.ensure_running(START_TIMEOUT)

    def release(self) -> None:
        """Give the share back; the last one stops the server. A second call does nothing."""
        self._release(STOP_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _release(self, timeout: float) -> None:
        self._released = True
        _held.discard(self)
        if not self._mark.held:
            return
        try:
            with _system_errors(self.data_dir), self._folder.locked(timeout):
                self._mark.drop()
                if not self._folder.in_use() and self._cluster.folder.exists():
                    self._cluster.stop(timeout)
        finally:
            self._mark.drop()


def _release_at_exit() -> None:
    for server in list(_held):
        # What cannot be stopped in time is left to the folder's next user.
        with suppress(MemstoreError):
            server._release(EXIT_TIMEOUT)


atexit.register(_release_at_exit)


@contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"the data folder {path} cannot be used: {error}") from error
