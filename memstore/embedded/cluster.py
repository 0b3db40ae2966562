"""One PostgreSQL data folder: made, started and stopped through PostgreSQL's own programs.

Nothing here takes a lock; `memstore.embedded.server` calls it while it holds the folder's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg.pq import PGconn, Ping

from memstore.embedded.account import Account, switch
from memstore.embedded.address import SOCKET, url
from memstore.embedded.wheel import binaries_for, major_version
from memstore.errors import ConfigurationError, StorageError

DATABASE = "memstore"
LOG_LIMIT = 8 * 1024 * 1024

# To flush a folder of 1,000 files one by one took 4 s here; the whole file system, 0.1 s.
FLUSH = "syncfs" if sys.platform == "linux" else "fsync"

# Written into postgresql.conf once, where the user may change them. What keeps commits durable
# (fsync, full_page_writes, synchronous_commit, data checksums) is PostgreSQL's default.
INITIAL_SETTINGS = {
    "shared_buffers": "128MB",
    "min_wal_size": "32MB",
    "max_wal_size": "512MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "max_logical_replication_workers": "0",
}

# Given at each start, since the supervisor relies on them.
FIXED_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    # Relative to the cluster's folder: short however long its path is, and 0700 like the folder.
    "unix_socket_directories": ".",
    "unix_socket_permissions": "0700",
    "logging_collector": "on",
    "log_directory": "log",
    "log_filename": "postgres-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    # What a start after a crash does first.
    "recovery_init_sync_method": FLUSH,
}


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    is_child: bool  # A backend or a background process: useless once its postmaster is dead.
    kill: Callable[[], None]  # psutil's, which makes sure that the pid still names this process.


class Cluster:
    """The data folder of one server.

    `account` is the user that runs it, None being the current one. Root's server is told that
    its folder is ``/proc/self/cwd`` and is started inside it: so it works below folders that
    its user may not enter, such as a 0700 home, and the data stay where the caller put them.
    """

    def __init__(self, folder: Path, account: Account | None) -> None:
        self.folder = folder
        self.account = account
        self.installation = binaries_for(account)

    def clear(self) -> None:
        """Remove what an unfinished `create` left; it may still be written to, so never fail."""
        for left in self.folder.parent.glob(f"{self.folder.name}.new-*"):
            shutil.rmtree(left, ignore_errors=True)

    def create(self) -> None:
        """Make the cluster and its database; a crash half-way leaves nothing that counts."""
        fresh = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}.new-", dir=self.folder.parent))
        self._own(fresh)
        data = self._data()
        try:
            self._run(
                fresh,
                "initdb",
                f"--pgdata={data}",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                # Only the owner of the 0700 folder reaches the socket in it. `peer` would not
                # do: root's clients and root's server are different users.
                "--auth-local=trust",
                "--auth-host=reject",
                "--no-instructions",
                "--no-sync",
                *(f"--set={name}={value}" for name, value in INITIAL_SETTINGS.items()),
            )
            self._run(
                fresh,
                "postgres",
                *("--single", "-F", "-D", data, "-c", "exit_on_error=on", "postgres"),
                # The first OID that is the user's: this mode would give it a system object's.
                stdin=f"CREATE DATABASE {DATABASE} OID 16384\n",
            )
            # All at once, at the end.
            flush = ("--sync-only", f"--sync-method={FLUSH}")
            self._run(fresh, "initdb", *flush, f"--pgdata={data}")
            fresh.rename(self.folder)
            _flush(self.folder.parent)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def check_version(self) -> None:
        """Refuse a folder that another major version made, or that is no cluster at all."""
        try:
            made_by = (self.folder / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise ConfigurationError(
                f"{self.folder} is not a PostgreSQL data folder: move it away, or name another"
            ) from None
        ours = major_version(self.installation)
        if made_by != ours:
            raise ConfigurationError(
                f"{self.folder} was made by PostgreSQL {made_by}, this memstore brings {ours}: "
                f"dump it with PostgreSQL {made_by} and restore it, or name another folder"
            )

    def _ping(self) -> Ping:
        """Ask the server whether it takes connections."""
        return Ping(PGconn.ping(f"{url(self.folder, DATABASE)}&connect_timeout=5".encode()))

    def ensure_running(self, timeout: float) -> None:
        """Return once the server takes connections; start it if it does not run.

        Handles what a SIGKILL leaves: a stale pid file, whatever process it names by now;
        backends that outlived their postmaster; and a start or a stop that is still under way
        because only the process that asked for it was killed.
        """
        deadline = time.monotonic() + timeout
        attempts = 0
        while (answer := self._ping()) != Ping.OK:
            living = self._processes()
            if answer == Ping.REJECT or any(not process.is_child for process in living):
                time.sleep(0.02)
            elif living:
                self._end_orphans()
            else:
                attempts += 1
                try:
                    self._start(deadline - time.monotonic())
                except StorageError:
                    if attempts == 3:
                        raise
            if time.monotonic() > deadline:
                raise StorageError(
                    f"the server in {self.folder} took no connections for {timeout:.0f} s; "
                    f"{self._tail()}"
                )

    def stop(self, timeout: float) -> None:
        """Stop the server, with a checkpoint if there is time for it; do nothing if it is down."""
        for mode in ("fast", "immediate"):
            if not any(process.pid == self._pid_in_file() for process in self._processes()):
                break  # A pid file alone is no reason to signal a process.
            with suppress(StorageError):
                self._pg_ctl("stop", f"--mode={mode}", timeout=timeout)
        self._end_orphans()
        if self._processes():
            raise StorageError(f"the server in {self.folder} does not stop; {self._tail()}")

    def _start(self, timeout: float) -> None:
        for name in ("postmaster.pid", SOCKET, f"{SOCKET}.lock"):
            (self.folder / name).unlink(missing_ok=True)
        self._own(self.folder)
        log = self.folder / "log"
        if not log.exists():
            log.mkdir(mode=0o700)
            self._own(log)
        for file in log.iterdir():
            if file.name == "start.log" or file.stat(follow_symlinks=False).st_size > LOG_LIMIT:
                file.unlink()
        settings = FIXED_SETTINGS | {
            "cluster_name": self._token(),
            "dynamic_shared_memory_type": _shared_memory(),
        }
        options = " ".join(shlex.quote(f"--{name}={value}") for name, value in settings.items())
        self._pg_ctl("start", "--log=log/start.log", f"--options={options}", timeout=timeout)

    def _pg_ctl(self, *arguments: str, timeout: float) -> None:
        try:
            self._run(
                self.folder,
                "pg_ctl",
                *(*arguments, "--wait", f"--timeout={max(1, int(timeout))}"),
                f"--pgdata={self._data()}",
                timeout=timeout + 5,
            )
        except StorageError as error:
            raise StorageError(f"{error}; {self._tail()}") from error

    def _run(
        self, cwd: Path, program: str, *arguments: str, stdin: str = "", timeout: float = 120
    ) -> None:
        variables = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
        environment = {name: os.environ[name] for name in variables if name in os.environ}
        # Files, not pipes: a server that inherits a pipe would keep us waiting for its end.
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
            source.write(stdin.encode())
            source.seek(0)
            try:
                result = subprocess.run(
                    [self.installation / "bin" / program, *arguments],
                    cwd=cwd,
                    env=environment | {"LC_ALL": "C", "TZ": "UTC"},
                    stdin=source,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    umask=0o077,
                    timeout=timeout,
                    **switch(self.account),
                )
                failure = f"ended with status {result.returncode}" if result.returncode else ""
            except subprocess.TimeoutExpired:
                failure = f"took more than {timeout:.0f} s"
            except OSError as error:
                raise StorageError(f"{program} cannot be run in {cwd}: {error}") from error
            if failure:
                output.seek(0)
                said = output.read().decode(errors="replace")[-2000:].strip()
                raise StorageError(f"{program} {failure} in {cwd}: {said}")

    def _data(self) -> str:
        """Name the cluster's folder for a program that is run inside it.

        Not by its path, which `pg_ctl` would hand to a shell unquoted.
        """
        return "/proc/self/cwd" if self.account and sys.platform == "linux" else "."

    def _own(self, folder: Path) -> None:
        """Give a folder to the server's user, with all that is in it, and to nobody else."""
        folder.chmod(0o700)
        if self.account and folder.stat().st_uid != self.account.uid:
            # The folder itself last: until then, the next start does it all again.
            for parent, folders, files in os.walk(folder, topdown=False):
                for path in (*(os.path.join(parent, name) for name in folders + files), parent):
                    os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def _token(self) -> str:
        """Name the folder, wherever it is moved, so that its processes' titles tell them apart.

        No such name is part of another.
        """
        status = self.folder.stat()
        return f"memstore[{status.st_dev:x}:{status.st_ino:x}]"

    def _processes(self) -> list[_Process]:
        """Find this server's living processes, and those of a `pg_ctl` that starts it.

        By their titles, since Linux shows another user's working folder only to a root that has
        CAP_SYS_PTRACE, which it lacks in a container. A zombie has no title.
        """
        import psutil

        token = self._token()
        uid = self.account.uid if self.account else os.geteuid()
        living = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                title = process.cmdline()
                if any(token in part for part in title) and process.uids().real == uid:
                    program = title[0].rsplit("/", 1)[-1]
                    if program.startswith(("postgres", "pg_ctl", "sh")):
                        is_child = program.startswith("postgres:")
                        living.append(_Process(process.pid, is_child, process.kill))
        return living

    def _end_orphans(self) -> None:
        """Wait for a server that is ending, and end what outlives it.

        To the data a backend that outlived its postmaster is part of one crash, which the next
        start recovers from.
        """
        import psutil

        deadline = time.monotonic() + 5
        while (living := self._processes()) and time.monotonic() < deadline:
            if all(process.is_child for process in living):
                for process in living:
                    with suppress(psutil.Error):
                        process.kill()
            time.sleep(0.01)

    def _pid_in_file(self) -> int | None:
        try:
            return int((self.folder / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None

    def _tail(self) -> str:
        """Return the last lines of what the server logged."""
        logs = sorted((self.folder / "log").glob("*.log"), key=lambda file: file.stat().st_mtime)
        text = "\n".join(file.read_text(errors="replace") for file in logs[-2:])
        return f"its log ends with: {text[-1500:].strip()}"


def _shared_memory() -> str:
    """Prefer POSIX shared memory, unless /dev/shm is as small as Docker's default of 64 MB.

    There a parallel index build fails; System V shared memory has no such limit.
    """
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return "posix"
    return "posix" if status.f_blocks * status.f_frsize >= 2**30 else "sysv"


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
