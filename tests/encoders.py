"""Encoders that tests can read, hold up and break: words hashed to directions."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PATIENCE = 60.0


class HashEncoder:
    """Words hashed to directions: deterministic, quick, and alike for texts that share words."""

    name = "hash"
    dimension = 64

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = []
        for text in texts:
            found = re.findall(r"\w+", text.casefold()) or ["none"]
            rows.append(sum(np.random.default_rng(hash_of(w)).normal(size=64) for w in found))
        array = np.array(rows, np.float32)
        unit: NDArray[np.float32] = array / np.linalg.norm(array, axis=1, keepdims=True)
        return unit

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        return [(start, min(start + 400, len(text))) for start in range(0, len(text), 400)]


def hash_of(word: str) -> int:
    return int.from_bytes(word.encode()[:8].ljust(8, b"\0"), "little")


class Recording(HashEncoder):
    """Keeps every text that it encodes; `broken` makes it raise first, `noted` it always does."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls = 0
        self.broken = False
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._lock:
            self.calls += 1
            if self.broken:
                raise RuntimeError("no encoder today")
            self.texts += texts
        return super().encode(texts)


class Gated(HashEncoder):
    """Says when it is asked to encode, and waits until it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may = threading.Event()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.set()
        assert self.may.wait(PATIENCE)
        return super().encode(texts)
