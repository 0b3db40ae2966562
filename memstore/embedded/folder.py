"""A data folder that several processes open: one lock, and one mark for each living user.

Both are `flock`s, which the kernel drops when a process dies, however it dies: no pid is
trusted. Each opening is its own mark, so threads and repeated openings need no other count.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from memstore.errors import ConfigurationError, StorageError

# A forked child inherits descriptors and would keep their locks after its parent's death.
_descriptors: set[int] = set()


def _close_in_child() -> None:
    while _descriptors:
        os.close(_descriptors.pop())


os.register_at_fork(after_in_child=_close_in_child)


class Mark:
    """The sign that somebody uses the folder, for as long as its lock is held."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._pid = os.getpid()

    @property
    def held(self) -> bool:
        """Tell whether this process holds it; a forked child does not hold its parent's."""
        return self._descriptor >= 0 and self._pid == os.getpid()

    def drop(self) -> None:
        """Give it up; do nothing the second time."""
        if self.held:
            self.path.unlink(missing_ok=True)
            _unlock(self._descriptor)
            self._descriptor = -1


class DataFolder:
    """The folder, 0700, with `lock`, `users/` and the cluster in `postgres/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cluster = path / "postgres"
        self._users = path / "users"

    def prepare(self) -> None:
        """Make the folder, or take over an empty one; one with other things in it is refused."""
        if self.path.is_dir():
            names = {entry.name for entry in self.path.iterdir()} - {"lost+found"}
            if names and not names & {"lock", "users", self.cluster.name}:
                raise ConfigurationError(
                    f"{self.path} is neither empty nor a data folder of memstore: name another"
                )
        else:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.stat().st_mode & 0o777 != 0o700:
            self.path.chmod(0o700)
        with suppress(FileExistsError):
            self._users.mkdir(mode=0o700)
        self._give(self._users)

    @contextmanager
    def locked(self, timeout: float) -> Iterator[None]:
        """Hold the folder's lock, against other threads as well."""
        descriptor = self._open(self.path / "lock")
        try:
            deadline = time.monotonic() + timeout
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"another process has kept {self.path} locked for {timeout:.0f} s: is it "
                        "starting or stopping the server, or stopped in a debugger?"
                    )
                time.sleep(0.01)
            yield
        finally:
            _unlock(descriptor)

    def mark(self) -> Mark:
        """Add a user. To be called under the lock, like `in_use`."""
        path = self._users / f"{os.getpid()}-{uuid4().hex}"
        descriptor = self._open(path)
        if not _try_lock(descriptor):
            raise StorageError(f"{path} cannot be locked")
        return Mark(path, descriptor)

    def in_use(self) -> bool:
        """Tell whether a living user is left, and clear away the marks of dead ones."""
        living = False
        with suppress(FileNotFoundError):
            for path in self._users.iterdir():
                with suppress(FileNotFoundError):
                    descriptor = self._open(path, create=False)
                    if _try_lock(descriptor):
                        path.unlink()
                    else:
                        living = True
                    _unlock(descriptor)
        return living

    def _open(self, path: Path, *, create: bool = True) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, 0o600)
        _descriptors.add(descriptor)
        if create:
            self._give(descriptor)
        return descriptor

    def _give(self, target: Path | int) -> None:
        """Let the folder's owner use what root makes in it."""
        if os.geteuid() == 0 and (owner := self.path.stat()).st_uid != 0:
            os.chown(target, owner.st_uid, owner.st_gid)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    # Said before closing, since a forked child may still have the same lock open.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    _descriptors.discard(descriptor)
    os.close(descriptor)
