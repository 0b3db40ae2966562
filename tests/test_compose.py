"""docker-compose.yml and api/Dockerfile without a Docker engine.

Compose itself reads the one and hadolint the other. Then what they say is run: the image's
packages alone, the services' commands, variables and health checks as they are written, before a
Postgres that is set up as the image's entry point does it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import psycopg
import pytest
from packaging.requirements import Requirement

from memstore import Settings
from memstore.cli import main
from memstore.embedded.account import account_for, switch
from memstore.embedded.wheel import binaries, binaries_for, major_version
from memstore.types import Encoder
from tests.containers import (
    COMPOSE,
    DOCKERFILE,
    LAST,
    PASSWORDS,
    ROOT,
    build_context,
    commands,
    compose,
    instructions,
    of_image,
    project,
    variables,
)
from tests.processes import eventually
from tests.test_docs import blocks
from tests.test_packaging import BASE, EXTRAS, closure, normal

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LONGEST = 60.0


# What is written


@pytest.mark.parametrize("left_out", sorted(PASSWORDS))
@pytest.mark.parametrize("value", [None, ""])
def test_compose_refuses_without_a_password(left_out: str, value: str | None) -> None:
    given = {name: text for name, text in PASSWORDS.items() if name != left_out}
    if value is not None:
        given[left_out] = value
    done = compose("config", "--quiet", variables=given)
    assert done.returncode != 0
    assert f"{left_out} is missing a value" in done.stderr


def test_compose_accepts_it_and_would_not_accept_another(tmp_path: Path) -> None:
    assert compose("config", "--quiet").returncode == 0
    text = COMPOSE.read_text(encoding="utf-8")
    for right, wrong in (
        ("read_only: true", "readonly: true"),
        ("interval: 5s", "interval: often"),
    ):
        assert right in text
        broken = tmp_path / "broken.yml"
        broken.write_text(text.replace(right, wrong))
        assert compose("config", "--quiet", file=broken).returncode != 0


def test_the_dockerfile_passes_the_linter() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_service_is_confined() -> None:
    found = project()
    for name, service in found["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices", "network_mode", "pid"} & set(service), name
        limits = service["deploy"]["resources"]["limits"]
        assert set(limits) == {"cpus", "memory", "pids"}, name
        assert re.search(r":\w*\d", service["image"]), f"{name} has no version"
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1"
        for volume in service.get("volumes", ()):
            assert volume["type"] == "volume" or volume["read_only"], volume
        user = service.get("user") or of_image("USER")[0]
        assert user not in {"root", "0"}, name
    assert found["networks"]["inside"]["internal"]
    outside = {n for n, service in found["services"].items() if "outside" in service["networks"]}
    assert outside == {"server"}
    assert set(found["volumes"]) == {"database"}


def test_no_password_is_written_down_and_the_owners_stays_with_the_owner() -> None:
    services = project()["services"]
    owners, servers = PASSWORDS["OWNER_PASSWORD"], PASSWORDS["SERVER_PASSWORD"]
    for name in ("server", "worker"):
        assert services[name]["environment"]["PGPASSWORD"] == servers
        assert owners not in json.dumps(services[name])
    assert services["migrate"]["environment"]["PGPASSWORD"] == owners
    written = re.findall(r"PASSWORD: (.*)", COMPOSE.read_text(encoding="utf-8"))
    assert len(written) == 4
    assert all(re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) for value in written)
    assert "PASSWORD" not in DOCKERFILE.read_text(encoding="utf-8")


def test_what_is_run_is_what_is_tested() -> None:
    """The image's Postgres and pgvector are the tests'; the image is this version's."""
    services = project()["services"]
    control = next(binaries().rglob("vector.control")).read_text()
    vector = re.search(r"default_version = '(.*)'", control)
    assert vector is not None
    image = services["database"]["image"]
    assert image.startswith(f"pgvector/pgvector:{vector[1]}-pg{major_version(binaries())}-")
    for name in ("migrate", "server", "worker"):
        assert services[name]["image"] == f"memstore:{PROJECT['version']}"
    python = next(i.rest for i in instructions() if i.name == "ARG").partition("=")[2]
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_every_setting_that_they_name_exists() -> None:
    named = {name for service in project()["services"].values() for name in service["environment"]}
    from memstore_api import ServerSettings

    known = {f"MEMSTORE_{name}".upper() for name in ServerSettings.model_fields}
    assert {name for name in named | set(variables()) if name.startswith("MEMSTORE_")} <= known


# What the image holds


def installed() -> Iterator[tuple[str, list[str], bool]]:
    """What each `pip install` puts into which environment, and whether with what that needs."""
    for command in commands():
        if command[0].endswith("/pip"):
            flags = {"--no-deps", "--constraint", "constraints.txt"}
            names = [word for word in command[2:] if word not in flags]
            yield str(Path(command[0]).parent.parent), names, "--no-deps" not in command


def test_pip_installs_what_there_is() -> None:
    ours = {normal(Requirement(text).name) for extra in EXTRAS.values() for text in extra}
    for _, names, _ in installed():
        for name in names:
            if name.startswith("."):
                assert set(name[2:-1].split(",")) <= set(EXTRAS)
            else:  # what the image has beside it is of an extra that the tests run with
                assert normal(name) in ours
    copied = of_image("COPY")
    assert copied == ["--from=build", "/opt/memstore", "/opt/memstore"]
    assert variables()["PATH"].startswith("/opt/memstore/bin:")
    assert variables()["MEMSTORE_CACHE_DIR"].startswith("/opt/memstore/")


def image(folder: Path) -> Path:
    """Make the folder of packages that the image has, memstore's wheel built as the build does."""
    context = build_context(folder)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    done = subprocess.run([*command, context], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = folder / "site"
    with ZipFile(next((context / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(site)
    wanted: set[str] = set()
    for place, names, with_needs in installed():
        if place == "/opt/memstore":
            for name in names:
                extras = name[2:-1].split(",") if name.startswith(".") else []
                listed = [*BASE, *(text for extra in extras for text in EXTRAS[extra])]
                needed = closure(listed if extras else [name])
                wanted |= needed if with_needs else {normal(name)}
    for name in wanted:
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return site


# What the services do


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def database(service: dict[str, Any], folder: Path, port: int) -> Iterator[dict[str, str]]:
    """Set up and run the database's command as its image's entry point does."""
    account = account_for(folder, folder / "data")
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    programs = binaries_for(account) / "bin"
    given = service["environment"]
    environment = os.environ | given
    environment |= {
        "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
        "PGDATA": str(folder / "data"),
        "PGPORT": str(port),
        "PGPASSWORD": given["POSTGRES_PASSWORD"],
    }

    def run(*command: str) -> None:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            **switch(account),
        )
        assert done.returncode == 0, done.stdout + done.stderr

    password = folder / "password"
    password.write_text(given["POSTGRES_PASSWORD"])
    password.chmod(0o644)
    user = f"--username={given['POSTGRES_USER']}"
    run("initdb", user, f"--pwfile={password}", "--no-sync")
    rules = folder / "data" / "pg_hba.conf"
    # Loopback, which is trusted in the container, stands for the network here.
    asked = re.sub(r"^(host .*)trust$", r"\1scram-sha-256", rules.read_text(), flags=re.MULTILINE)
    rules.write_text(f"{asked}host all all all scram-sha-256\n")
    with (folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write(f"listen_addresses = '127.0.0.1'\nunix_socket_directories = '{folder}'\n")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            service["command"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            **switch(account),
        )
    try:
        check = service["healthcheck"]["test"]
        assert check[0] == "CMD"
        ask = {"env": environment, "capture_output": True}
        eventually(lambda: subprocess.run(check[1:], **ask).returncode == 0)
        psql = ("psql", "-v", "ON_ERROR_STOP=1", user, "--no-psqlrc", f"--host={folder}")
        run(*psql, "--dbname=postgres", f"--command=CREATE DATABASE {given['POSTGRES_DB']}")
        for volume in service["volumes"]:
            if volume["target"].startswith("/docker-entrypoint-initdb.d/"):
                text = Path(volume["source"]).read_text()
                (folder / "init.sql").write_text(text)
                (folder / "init.sql").chmod(0o644)
                run(*psql, f"--dbname={given['POSTGRES_DB']}", "--file=init.sql")
        yield environment
    finally:
        process.send_signal(signal.SIGINT)  # the image's STOPSIGNAL
        process.wait(LONGEST)


def program(folder: Path, name: str, *arguments: str) -> None:
    """Write a program that runs Python with the image's packages and no others."""
    words = " ".join(f"'{word}'" for word in (sys.executable, "-S", *arguments))
    (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (folder / name).chmod(0o755)


def test_the_services_run_as_written(encoder: Encoder, tmp_path: Path) -> None:
    services = project()["services"]
    port, served = free_port(), free_port()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program(bin_folder, "python")
    program(bin_folder, "memstore", "-c", "from memstore.cli import main; main()")
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("MEMSTORE_", "PYTHON"))}
    outer = inherited | variables()
    outer |= {
        # Where the image's paths and names lead on this machine.
        "PATH": os.pathsep.join((str(bin_folder), os.environ["PATH"])),
        "PYTHONPATH": str(image(tmp_path)),
        "MEMSTORE_CACHE_DIR": str(Settings().cache_dir),
        "MEMSTORE_HOST": "127.0.0.1",
        "MEMSTORE_PORT": str(served),
        "HOME": "/nonexistent",
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": str(port),
    }
    (tmp_path / "app").mkdir()

    def started(name: str, command: list[str] | None = None) -> subprocess.Popen[str]:
        service = services[name]
        with (tmp_path / f"{name}.log").open("w") as log:
            return subprocess.Popen(
                [*of_image("ENTRYPOINT"), *(command or service["command"])],
                cwd=tmp_path / "app",
                env=outer | service["environment"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def finished(name: str, *command: str) -> str:
        process = started(name, list(command) or None)
        said, _ = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, (tmp_path / f"{name}.log").read_text()
        return said

    def healthy(name: str, test: list[str]) -> bool:
        environment = outer | services[name]["environment"]
        done = subprocess.run(test, env=environment, cwd=tmp_path, capture_output=True)
        return done.returncode == 0

    last = commands()[-2]  # of the build's last stage but one: what the image must be able to do
    assert last[:2] == ["/opt/memstore/bin/python", "-c"]
    said = subprocess.run(
        ["python", *last[1:]], env=outer, cwd=tmp_path, capture_output=True, text=True
    )
    assert said.stdout.strip() == encoder.name, said.stderr

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memstore-compose-")))
        place.chmod(0o755)
        stack.enter_context(database(services["database"], place, port))
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"host=127.0.0.1 port={port} user=owner password=x dbname=memstore")

        assert "applied 0001 core" in finished("migrate")
        assert finished("migrate") == "up to date\n"
        arguments = ("keys", "create", "k", "--scope", "read", "--scope", "write")
        token = finished("migrate", *arguments).strip()
        url = f"host=127.0.0.1 port={port} user=server dbname=memstore"
        with closing(psycopg.connect(url, password=PASSWORDS["SERVER_PASSWORD"])) as conn:
            for statement in (
                "CREATE TABLE memstore.t ()",
                "UPDATE memstore.events SET content = ''",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
                    conn.execute(statement.encode())

        running = [started("server"), started("worker")]
        try:
            check = of_image("HEALTHCHECK")
            assert not healthy("server", [*check[:-1], check[-1].replace("readyz", "nothing")])
            eventually(lambda: healthy("server", check))
            memory = f"http://127.0.0.1:{served}/v1/agents/a/users/u"
            with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
                sent = {"content": "We settled on Postgres for the pilot."}
                assert http.post(f"{memory}/events", json=sent).status_code < 300
                query = {"query": "which database was chosen?"}
                eventually(
                    lambda: not http.post(f"{memory}/search", json=query).json()["unencoded"]
                )
                hits = http.post(f"{memory}/search", json=query).json()["hits"]
                assert hits[0]["event"]["content"] == sent["content"]
            test = services["worker"]["healthcheck"]["test"]
            assert test[0] == "CMD"
            assert healthy("worker", test[1:]), finished("worker", *test[2:])
        finally:
            for process in running:
                process.terminate()
            codes = [process.wait(LONGEST) for process in running]
            for process in running:
                assert process.stdout is not None
                process.stdout.close()
        # uvicorn hands the signal on when all is finished.
        assert codes == [-signal.SIGTERM, 0]
        assert "Finished server process" in (tmp_path / "server.log").read_text()


def test_the_page_names_services_and_commands_that_there_are() -> None:
    services = project()["services"]
    text = "\n".join(block.text for block in blocks(ROOT / "docs" / "docker.md"))
    named = re.findall(r"docker compose (?:exec|run)(?: --?\w+)* (\w+) (.*)", text)
    assert {service for service, _ in named} == {"database", "migrate"}
    for service, command in named:
        words = shlex.split(re.split(r" [<>] ", command)[0])
        if services[service]["image"].startswith("memstore:"):
            assert words[0] in main.commands, command
        else:
            assert (binaries() / "bin" / words[0]).exists(), command
    for path in re.findall(r"--file (\S+) ", text):
        assert (ROOT / path).exists()
    assert all(f"{name}=%s" in text for name in PASSWORDS)


def test_the_stages_are_two_and_the_last_has_no_build_tools() -> None:
    assert LAST == 2
    assert {i.name for i in instructions() if i.stage == LAST} <= {
        *("FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "EXPOSE"),
        *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
