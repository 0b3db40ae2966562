"""A real PgBouncer in transaction mode before the tests' server.

The one on the machine, else Debian's package, unpacked where the test runs: to fetch and unpack
it takes no root.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg

from memstore.embedded import EmbeddedServer
from memstore.embedded.account import Account, account_for, switch
from tests.conftest import administer
from tests.processes import eventually

PORT = 6432
UNPACKED = "package"
TRACKS_PREPARED = (1, 21)  # the first version that knows a client's prepared statements
ROLES = "memstore_server, memstore_worker, memstore_eraser, memstore_authenticator"


@dataclass(frozen=True, slots=True)
class Program:
    """A PgBouncer that the server's account can run."""

    path: Path
    environment: dict[str, str]
    version: tuple[int, ...]


class Pooler:
    """A running PgBouncer, to be stopped and started again at the same address."""

    def __init__(
        self, program: Program, folder: Path, cluster: Path, account: Account | None
    ) -> None:
        self.program = program
        self._folder = folder
        self._cluster = cluster
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self.user = f"agent_{secrets.token_hex(4)}"
        self.password = secrets.token_hex(8)

    def url(self, database: str) -> str:
        host = quote(str(self._folder), safe="")
        return f"postgresql://{self.user}:{self.password}@/{database}?host={host}&port={PORT}"

    def configure(self, **options: object) -> None:
        settings = {
            "pool_mode": "transaction",
            "unix_socket_dir": self._folder,
            "listen_port": PORT,
            "auth_type": "scram-sha-256",
            "auth_file": self._folder / "users.txt",
            "max_client_conn": 100,
            "query_wait_timeout": 30,
        } | options
        if self.program.version >= TRACKS_PREPARED:
            settings["max_prepared_statements"] = 100
        # Root's server lies in a folder that its account may not enter, but be started in.
        host = "/proc/self/cwd" if sys.platform == "linux" else self._cluster
        lines = [f"[databases]\n* = host={host} port=5432\n[pgbouncer]\n"]
        lines += [f"{name} = {value}\n" for name, value in settings.items()]
        self._write("pgbouncer.ini", "".join(lines))
        self._write("users.txt", f'"{self.user}" "{self.password}"\n')

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.write_text(text)
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)

    def start(self) -> None:
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [self.program.path, self._folder / "pgbouncer.ini"],
                cwd=self._cluster,
                env=os.environ | self.program.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **switch(self._account),
            )

        def listens() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "log").read_text()
            return (self._folder / f".s.PGSQL.{PORT}").exists()

        eventually(listens)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # newer ones wait for their clients when they are asked to end
            self._process.wait()
            (self._folder / f".s.PGSQL.{PORT}").unlink(missing_ok=True)


@contextmanager
def pooling(server: EmbeddedServer, **options: object) -> Iterator[Pooler]:
    """Run a PgBouncer before a server, with a login that owns nothing."""
    cluster = server.data_dir / "postgres"
    account = account_for(server.data_dir, cluster)
    with tempfile.TemporaryDirectory(prefix="memstore-pooler-") as name:
        folder = Path(name)
        if account is not None:
            os.chown(folder, account.uid, account.gid)
        pooler = Pooler(program_for(folder), folder, cluster, account)
        administer(
            server,
            f"CREATE ROLE {pooler.user} LOGIN PASSWORD '{pooler.password}' IN ROLE {ROLES}",
        )
        pooler.configure(**options)
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.stop()
            eventually(lambda: not _connected(server, pooler.user))
            administer(server, f"DROP ROLE {pooler.user}")


def _connected(server: EmbeddedServer, user: str) -> bool:
    with closing(psycopg.connect(server.url)) as connection:
        found = connection.execute("SELECT FROM pg_stat_activity WHERE usename = %s", (user,))
        return found.fetchone() is not None


def program_for(folder: Path) -> Program:
    """Find PgBouncer on the machine, or fetch Debian's into a folder."""
    path, environment = _installed(), dict[str, str]()
    if path is None:
        _fetch(folder)
        path = folder / UNPACKED / "usr/sbin/pgbouncer"
        libraries = {str(found.parent) for found in (folder / UNPACKED).rglob("*.so.*")}
        environment = {"LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries))}
    said = subprocess.run(
        [path, "--version"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    assert found is not None, said.stdout
    return Program(path, environment, (int(found[1]), int(found[2])))


@cache
def _installed() -> Path | None:
    places = [*os.environ["PATH"].split(os.pathsep), "/usr/sbin", "/usr/local/sbin"]
    found = shutil.which("pgbouncer", path=os.pathsep.join(places))
    return Path(found) if found else None


def _fetch(folder: Path) -> None:
    """Fetch and unpack Debian's or Ubuntu's package with the libraries that a machine may lack."""
    if shutil.which("apt-get") is None:
        raise RuntimeError("PgBouncer is needed, and is not here: install it")
    packages, options = folder / "packages", list[str]()
    packages.mkdir()
    names = _needed(options)
    if not names:  # the machine has no lists yet
        lists = packages / "lists"
        (lists / "partial").mkdir(parents=True)
        options = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={packages}"]
        _apt(packages, "apt-get", *options, "update")
        names = _needed(options)
    _apt(packages, "apt-get", *options, "download", "pgbouncer", *names)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder / UNPACKED], check=True)
    shutil.rmtree(packages)


def _needed(options: list[str]) -> list[str]:
    command = ["apt-cache", *options, "depends", "pgbouncer"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    return re.findall(r"Depends: (lib(?:event|c-?ares)\S*)", said)


def _apt(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [command[0], "--quiet", "-o", "Acquire::Retries=3", *command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
