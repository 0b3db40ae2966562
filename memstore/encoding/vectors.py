"""The one check that every encoder's output passes before it is used or stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from memstore.errors import EncoderFailed, EncoderMismatch


def check_vectors(vectors: object, dimension: int, count: int | None = None) -> NDArray[np.float32]:
    """Return an encoder's output as an (n, dimension) float32 array of unit rows.

    Raises `EncoderMismatch` when the shape is not (n, `dimension`), and `EncoderFailed` when
    there are not `count` rows or a row is zero or not finite: such a row would sort before or
    beside every true answer.
    """
    array = np.asarray(vectors)
    if array.dtype.kind not in "fiu":
        raise EncoderFailed(f"the encoder returned {array.dtype} values instead of numbers")
    array = array.astype(np.float32)
    if array.ndim != 2 or array.shape[1] != dimension:
        raise EncoderMismatch(
            f"the encoder returned vectors of shape {array.shape}, expected (n, {dimension}): "
            "this is another encoder than the one the vectors were declared with; load that "
            "one, or add a space for the new one"
        )
    if count is not None and len(array) != count:
        raise EncoderFailed(f"the encoder returned {len(array)} vectors for {count} texts")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise EncoderFailed(f"the encoder returned a vector that is not finite, for text {row}")
    # The largest entry is divided out first: squares of very small or large entries would
    # otherwise under- or overflow.
    peak = np.abs(array).max(axis=1, keepdims=True, initial=0.0)
    if not peak.all():
        row = int(np.flatnonzero(peak[:, 0] == 0)[0])
        raise EncoderFailed(f"the encoder returned a zero vector, for text {row}")
    array = array / peak
    unit: NDArray[np.float32] = array / np.linalg.norm(array, axis=1, keepdims=True)
    return unit


def legible_share(encoder: object, text: str) -> float:
    """Ask an encoder what share of a text it can read, from 0 to 1; 1 where it can't say."""
    ask: Callable[[str], float] | None = getattr(encoder, "legible", None)
    return 1.0 if ask is None else ask(text)
