"""An encoder that takes so many calls at once: those that find no place are refused, not queued."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memstore.encoding.vectors import legible_share
from memstore.errors import TooBusy
from memstore.types import Encoder


class EncoderLimit:
    """Places at an encoder. A call waits `patience` seconds for one, in its own thread."""

    def __init__(self, places: int, patience: float) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._patience = patience

    def of(self, encoder: Encoder) -> Encoder:
        """Return the encoder behind this limit."""
        return _Limited(encoder, self)

    def encode(self, encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
        if not self._places.acquire(timeout=self._patience):
            raise TooBusy("the encoder is busy", retry_after=self._patience)
        try:
            return encoder.encode(texts)
        finally:
            self._places.release()


class _Limited:
    def __init__(self, encoder: Encoder, limit: EncoderLimit) -> None:
        self._encoder = encoder
        self._limit = limit

    @property
    def name(self) -> str:
        return self._encoder.name

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._limit.encode(self._encoder, texts)

    def legible(self, text: str) -> float:
        return legible_share(self._encoder, text)

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        return self._encoder.chunks(text, reserve=reserve)
