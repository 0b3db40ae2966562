"""Text to vectors: the default encoder, the fast path to it, and what of an event is embedded.

A model is exported once to ONNX, checked against sentence-transformers and cached; from then
on it runs on onnxruntime and tokenizers alone, so a process starts without importing torch.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from memstore.config import DEFAULT_ENCODER
from memstore.encoding.chunking import split
from memstore.encoding.passages import Passage, is_blank, passage_frame, passages
from memstore.encoding.vectors import check_vectors, legible_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from memstore.encoding.onnx import OnnxEncoder
    from memstore.encoding.reference import SentenceTransformerEncoder
    from memstore.types import Encoder

__all__ = [
    "DEFAULT_ENCODER",
    "OnnxEncoder",
    "Passage",
    "SentenceTransformerEncoder",
    "check_vectors",
    "is_blank",
    "legible_share",
    "load_encoder",
    "passage_frame",
    "passages",
    "split",
]

log = logging.getLogger(__name__)


def load_encoder(
    name: str | os.PathLike[str] = DEFAULT_ENCODER,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    fast: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Encoder:
    """Load an encoder by name or path.

    `name` is a folder, a model that an installed package carries (the default one), or a name
    on the Hugging Face hub; only the last needs a network, and only the first time. The first
    load of a model exports it to ONNX (some 15 s, in a process of its own) into `cache_dir`,
    by default the user's cache folder; `progress` is told what is being done. A model that
    cannot be exported, or whose export does not agree with it, runs on sentence-transformers;
    ``fast=False`` asks for that.

    `threads` is the number of cores that one call may use, by default one less than there are,
    and at most four: encoding then leaves room for the agent.

    Raises `MissingExtra` when the libraries are not installed, and `ConfigurationError` when
    the model is not found, its file is not the official one, or the cache cannot be written.
    """
    from memstore.encoding.weights import cache_folder, resolve

    folder = cache_folder(cache_dir)
    weights = resolve(name, folder)
    if fast:
        from memstore.encoding.export import NotExportable, discard, exported
        from memstore.encoding.onnx import OnnxEncoder, UnreadableExport

        try:
            for attempt in (1, 2):
                model = exported(weights, folder, progress)
                try:
                    return OnnxEncoder(model, threads=threads)
                except UnreadableExport:
                    if attempt == 2:
                        raise
                    log.warning("the export in %s cannot be read; it is made anew", model)
                    discard(model)
        except NotExportable as error:
            log.warning("%s runs on sentence-transformers: %s", weights.name, error)
    from memstore.encoding.reference import SentenceTransformerEncoder

    return SentenceTransformerEncoder(name, cache_dir=folder)


def __getattr__(attribute: str) -> object:
    # The classes import their libraries, so they are looked up when they are asked for.
    if attribute == "OnnxEncoder":
        from memstore.encoding.onnx import OnnxEncoder

        return OnnxEncoder
    if attribute == "SentenceTransformerEncoder":
        from memstore.encoding.reference import SentenceTransformerEncoder

        return SentenceTransformerEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
