"""An encoder by name or as given, loaded once, when it is first needed."""

from __future__ import annotations

import threading
from pathlib import Path

from memstore.config import DEFAULT_ENCODER
from memstore.encoding.weights import resolve
from memstore.types import Encoder

_KNOWN_DIMENSIONS = {DEFAULT_ENCODER: 384}


class EncoderSource:
    """Names an encoder and loads it at the first `get`, from any thread, once.

    `encoder` is a model's name or path, an `Encoder`, or None (or "none") for no encoder.
    """

    def __init__(self, encoder: str | Encoder | None, cache_dir: Path) -> None:
        self._lock = threading.Lock()
        self._cache_dir = cache_dir
        self._encoder = None if encoder is None or isinstance(encoder, str) else encoder
        self._name = encoder if isinstance(encoder, str) and encoder != "none" else None

    @property
    def name(self) -> str | None:
        """The encoder's name, known without loading it; None where there is no encoder."""
        if self._encoder is not None:
            return self._encoder.name
        return None if self._name is None else resolve(self._name, self._cache_dir).name

    @property
    def loaded(self) -> Encoder | None:
        """The encoder, if it was loaded."""
        return self._encoder

    def dimension(self) -> int:
        """Return the vectors' dimension, loading the encoder only where it is not known."""
        return _KNOWN_DIMENSIONS.get(self.name or "") or self.get().dimension

    def get(self) -> Encoder:
        """Load the encoder at the first call. Raises what loading raises, each time again."""
        from memstore.encoding import load_encoder

        with self._lock:
            if self._encoder is None:
                assert self._name is not None
                self._encoder = load_encoder(self._name, cache_dir=self._cache_dir)
            return self._encoder
