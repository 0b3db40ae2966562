"""The reference encoder: any sentence-transformers model, loaded when it is first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memstore.encoding.chunking import LONGEST_CHUNK, chunk_room, split
from memstore.encoding.onnx import clean, known_share
from memstore.encoding.vectors import check_vectors
from memstore.encoding.weights import cache_folder, resolve
from memstore.errors import ConfigurationError, EncoderFailed, MissingExtra

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

BATCH = 32


class SentenceTransformerEncoder:
    """Encode with any sentence-transformers model, by name or path; safe to share.

    The model's default prompt, if it has one, goes before every text, as in that library.
    Importing it takes seconds. Raises `MissingExtra` when it is not installed and
    `ConfigurationError` when the model cannot be loaded.
    """

    def __init__(
        self,
        name: str | os.PathLike[str],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        device: str | None = None,
    ) -> None:
        weights = resolve(name, cache_folder(cache_dir))
        self._name = weights.name
        self._model = load_model(weights.folder, device)
        self._dimension = dimension_of(self._model)
        # transformers sets truncation and padding on its tokenizer at each call, and two
        # threads that do so at once get an error from it.
        self._lock = threading.Lock()
        self._tokenizer = plain_tokenizer(self._model)
        self._room = self._window()

    @property
    def name(self) -> str:
        """The name of the space that the vectors belong to."""
        return self._name

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""
        return self._dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode n texts to an (n, dimension) float32 array of unit vectors.

        Texts beyond the window are cut: see `chunks`. Raises `EncoderFailed`.
        """
        if not len(texts):
            return np.empty((0, self.dimension), np.float32)
        try:
            with self._lock:
                vectors = self._model.encode(
                    [clean(text) for text in texts],
                    batch_size=BATCH,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                )
        except Exception as error:  # whatever a model may raise
            raise EncoderFailed(f"{self.name}: {error}") from error
        return check_vectors(vectors, self.dimension, len(texts))

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        """Split a text into (start, stop) spans that each fit the window less `reserve` tokens.

        A reserve that leaves less than a quarter of the window is cut to leave that much.
        """
        return split(clean(text), self._offsets, chunk_room(self._room, reserve))

    def legible(self, text: str) -> float:
        """Return the share of a text's tokens that the model's vocabulary has, from 0 to 1."""
        return known_share(self._tokenizer.encode(clean(text), add_special_tokens=False).tokens)

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        offsets: list[tuple[int, int]] = self._tokenizer.encode(
            text, add_special_tokens=False
        ).offsets
        return offsets

    def _window(self) -> int:
        """Count the tokens of text that fit the window."""
        limit = self._model.max_seq_length
        room: int = LONGEST_CHUNK if limit is None else int(min(limit, LONGEST_CHUNK))
        room -= self._tokenizer.num_special_tokens_to_add(is_pair=False)
        prompt = default_prompt(self._model)
        return max(1, room - (len(self._offsets(prompt)) if prompt else 0))


def load_model(folder: Path, device: str | None = None) -> SentenceTransformer:
    """Load a sentence-transformers model from its folder, without the network."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "encoders") from error
    try:
        return SentenceTransformer(str(folder), device=device, local_files_only=True).eval()
    except Exception as error:  # a folder of another shape, a model that needs more memory
        raise ConfigurationError(f"{folder} cannot be loaded as an encoder: {error}") from error


def dimension_of(model: SentenceTransformer) -> int:
    """Return the length of the vectors that come out, whatever the model declares."""
    return int(model.encode(["a"], show_progress_bar=False).shape[1])


def default_prompt(model: SentenceTransformer) -> str:
    """Return the text that the model puts before every text, or an empty one."""
    name = model.default_prompt_name
    return model.prompts.get(name) or "" if name else ""


def plain_tokenizer(model: SentenceTransformer) -> Any:
    """Copy the model's tokenizer, without truncation and padding.

    Raises `ConfigurationError` for the few models whose tokenizer gives no offsets.
    """
    from tokenizers import Tokenizer

    own = model.tokenizer
    backend = own if isinstance(own, Tokenizer) else getattr(own, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ConfigurationError(
            f"the model's tokenizer ({type(own).__name__}) gives no offsets, so its window "
            "cannot be kept: choose a model with a fast tokenizer"
        )
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy
