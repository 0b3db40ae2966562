"""The encoder's thread: fills in vectors while the process goes on.

The embedded store runs one; ``memstore worker`` runs the same loop as a process of its own.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import Any

from memstore._sync import encoding_queue, vectors
from memstore._sync.database import Database
from memstore.config import Settings
from memstore.encoding.source import EncoderSource
from memstore.errors import ConfigurationError, EncoderMismatch, MemstoreError
from memstore.space import Space

logger = logging.getLogger("memstore.worker")

IDLE_SECONDS = 1.0
LONGEST_PAUSE = 30.0
INDEX_SECONDS = 300.0  # between two looks for memories that outgrew the exact scan
STOP_SECONDS = 10.0  # a model being exported is not waited for: the thread is a daemon


class Worker:
    """Encodes whatever is due in one space, for every tenant, until it is stopped."""

    def __init__(
        self, url: str, encoders: EncoderSource, space: Space, settings: Settings, **database: Any
    ) -> None:
        self._database = {
            "pool_size": 1,
            "connect_timeout": settings.connect_timeout,
            "prepare": settings.prepare,
        } | database
        self._url = url
        self._encoders = encoders
        self._space = space
        self._lease = settings.lease_seconds
        self._index_above = settings.index_above
        self._index_at = 0.0
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; it is a daemon, for a process may end without closing its store."""
        self._thread = threading.Thread(target=self.run, name="memstore-encoder", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs: it ends by itself where the encoder does not fit its space."""
        return self._thread is not None and self._thread.is_alive()

    def wake(self) -> None:
        """Say that something was appended."""
        self._due.set()

    def stop(self) -> None:
        """Stop after the batch at hand and wait for it. What is left stays queued."""
        self._stopping.set()
        self._due.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def run(self) -> None:
        """Encode until stopped; failures of the encoder or the database are logged and outlived."""
        database: Database | None = None
        pause = IDLE_SECONDS
        while not self._stopping.is_set():
            try:
                database = database or self._opened()
                self._due.clear()
                while self._encode(database) is not None:
                    pause = IDLE_SECONDS
                pause = IDLE_SECONDS
                self._index(database)
            except EncoderMismatch as error:
                logger.error("the encoder does not fit its space, encoding stops: %s", error)
                break
            except MemstoreError as error:
                logger.warning("encoding is held up: %s", error)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception:
                logger.exception("encoding is held up")
                pause = min(pause * 2, LONGEST_PAUSE)
            if not self._stopping.is_set():  # it may have been told so before the look at the queue
                self._due.wait(pause)
        if database is not None:
            database.close()

    def drain(self) -> int:
        """Encode here until nothing is due, and return how many entries were.

        The encoder is loaded only where something is. Raises `EncoderFailed` when it fails on
        all that is due.
        """
        database = self._opened()
        try:
            total = 0
            while (done := self._encode(database)) is not None:
                total += done
            return total
        finally:
            database.close()

    def _opened(self) -> Database:
        """Open a pool: a new one each time, for one that found no server can't be opened again."""
        database = Database(self._url, **self._database)
        database.open()
        return database

    def _index(self, database: Database) -> None:
        """From time to time index what is large; without the right to, leave it to the owner."""
        if not self._index_above or self._stopping.is_set() or monotonic() < self._index_at:
            return
        self._index_at = monotonic() + INDEX_SECONDS
        try:
            indexed = vectors.index_large(database, self._space, self._index_above)
        except ConfigurationError as error:
            self._index_above = 0
            logger.warning("large memories are scanned: %s", error)
        else:
            if indexed.created or indexed.dropped:
                logger.info("indexed %d memories, dropped %d", indexed.created, indexed.dropped)

    def _encode(self, database: Database) -> int | None:
        """Encode a batch for each memory with a backlog; None where there is none, or no time."""
        if self._stopping.is_set() or not encoding_queue.backlog(database, self._space):
            return None
        encoder = self._encoders.get()
        if encoder.dimension != self._space.dimension:
            raise EncoderMismatch(
                f"{encoder.name!r} gives {encoder.dimension} dimensions, "
                f"its space has {self._space.dimension}"
            )
        return encoding_queue.encode_due(
            database, encoder, self._space, self._lease, self._stopping.is_set
        )
