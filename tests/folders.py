"""Data folders, and what runs in them."""

from __future__ import annotations

from pathlib import Path

import psutil
import psycopg

from memstore.embedded import EmbeddedServer


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
