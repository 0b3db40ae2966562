"""Clients that are slow to ask or to take: they hold nothing of the database, and are cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from memstore import MemoryStore
from tests.processes import eventually, sessions
from tests.serving import application, running
from tests.stores import QUIET

LONGEST = 60.0
LARGE = "x" * 100_000
ENTRIES = 150
LOG = "/v1/agents/a/users/u/events"


@pytest.fixture
def address(database_url: str) -> Iterator[str]:
    """A server with one connection to the database, and little patience."""
    app = application(database_url, insecure=True, pool_size=1, body_timeout=0.4, send_timeout=0.4)
    with running(app) as found:
        yield found


@pytest.fixture
def log(database_url: str) -> None:
    """A log that no socket's buffers hold."""
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        store.memory(agent="a", user="u").append([{"payload": LARGE}] * ENTRIES)


@contextmanager
def connected(address: str, *, window: int | None = None) -> Iterator[socket.socket]:
    """Connect as no library would, with a small window where one is given."""
    parts = urlsplit(address)
    with socket.socket() as made:
        if window is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        made.settimeout(LONGEST)
        made.connect((parts.hostname, parts.port))
        yield made


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def left(one: socket.socket) -> bytes:
    """Read what still comes until the connection ends; it may end by a reset."""
    found = bytearray()
    try:
        while part := one.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return bytes(found)


def under_way(address: str) -> float:
    text = httpx.get(f"{address}/metrics").text
    (line,) = [x for x in text.splitlines() if x.startswith("memstore_requests_under_way ")]
    return float(line.split()[1])


def test_who_takes_no_answer_is_cut_and_holds_no_transaction(
    address: str, log: None, database_url: str
) -> None:
    for newest_first in ("false", "true"):
        with connected(address, window=4_096) as one:
            path = f"{LOG}?newest_first={newest_first}"
            one.sendall(head("GET", path, "Accept: application/x-ndjson"))
            begun = one.recv(100)
            assert begun.startswith(b"HTTP/1.1 200")
            # It is being answered, and waited for; the only connection is free all the same.
            eventually(lambda: not sessions(database_url, "state <> 'idle'"))
            answer = httpx.post(
                f"{address}/v1/agents/b/users/u/events", json={"content": "x"}, timeout=LONGEST
            )
            assert answer.status_code == 201
            eventually(lambda: under_way(address) == 0)
            taken = len(begun) + len(left(one))
            assert taken < ENTRIES * len(LARGE)
    assert not sessions(database_url, "state <> 'idle'")


def test_who_takes_the_answer_steadily_gets_all_of_it(address: str, log: None) -> None:
    with httpx.stream(
        "GET", f"{address}{LOG}", headers={"Accept": "application/x-ndjson"}, timeout=LONGEST
    ) as answer:
        lines = sum(1 for _ in answer.iter_lines())
    assert lines == ENTRIES


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
def test_a_body_that_drips_is_given_up(address: str, database_url: str, media_type: str) -> None:
    """No pause is too long by itself; the whole of it is."""
    with connected(address) as one:
        one.sendall(
            head("POST", LOG, f"Content-Type: {media_type}", "Content-Length: 100000")
            + b'{"content": "'
        )
        answered, told = threading.Event(), bytearray()

        def listen() -> None:
            told.extend(one.recv(65_536))
            answered.set()

        listener = threading.Thread(target=listen)
        listener.start()
        dripped = 0
        while not answered.wait(0.02):
            assert not sessions(database_url, "state <> 'idle'")
            one.sendall(b"x")
            dripped += 1
            assert dripped < LONGEST / 0.02
        listener.join(LONGEST)
        assert told.startswith(b"HTTP/1.1 408")
        assert b"application/problem+json" in told
        assert dripped > 1
    eventually(lambda: under_way(address) == 0)


@pytest.mark.parametrize(
    "begin", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"]
)
def test_a_request_whose_head_does_not_come_is_cut(address: str, begin: bytes) -> None:
    with connected(address) as one:
        one.sendall(begin)
        assert left(one) == b""


def test_a_second_head_on_the_same_connection_that_drips_is_cut_too(address: str) -> None:
    with connected(address) as one:
        one.sendall(head("GET", "/healthz"))
        assert one.recv(65_536).startswith(b"HTTP/1.1 200")
        one.sendall(b"GET /healthz HTTP/1.1\r\n")
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.02):
                try:
                    one.sendall(b"X")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert not left(one).startswith(b"HTTP/1.1 200")
        finally:
            ended.set()
            dripping.join(LONGEST)


def test_requests_one_after_the_other_on_a_connection_are_all_answered(address: str) -> None:
    with httpx.Client(base_url=address) as http:
        assert {http.get("/healthz").status_code for _ in range(50)} == {200}
