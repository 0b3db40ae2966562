"""The fast encoder: an exported model on onnxruntime and tokenizers, without torch.

Full precision: dynamic int8 weights were 2.2 times as fast, but a tenth of the ten nearest
neighbours of 300 conversation turns were others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memstore.encoding.chunking import chunk_room, split
from memstore.encoding.vectors import check_vectors
from memstore.errors import ConfigurationError, EncoderFailed, MissingExtra

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
CARD_FILE = "card.json"
OUTPUT = "memstore_vector"  # must not be the name of an inner node of any model

MAX_BATCH = 32  # rows
MAX_BATCH_TOKENS = 2_048  # rows times padded length; larger batches were no faster, and took more

UNKNOWN = frozenset({"[UNK]", "<unk>"})
SURROGATE = re.compile("[\ud800-\udfff]")


class UnreadableExport(ConfigurationError):
    """The cached export is damaged, or was made for another onnxruntime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of an exported model besides its graph; stored beside it as JSON.

    `max_tokens` is the window, special tokens included. `prompt` goes before every text.
    `cosine` is the lowest similarity to the reference when the export was checked.
    """

    name: str
    dimension: int
    max_tokens: int
    pad_id: int = 0
    prompt: str = ""
    cosine: float | None = None
    made_with: str = ""

    def save(self, folder: Path) -> None:
        """Write the card into an export's folder."""
        (folder / CARD_FILE).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Card:
        """Read the card from an export's folder."""
        return cls(**json.loads((folder / CARD_FILE).read_text(encoding="utf-8")))


class OnnxEncoder:
    """Encode with an exported model; safe to share between threads.

    `folder` is what `memstore.encoding.export.exported` returns. `threads` is the number of
    cores that one call may use. Nothing spins between calls, so an idle encoder takes no CPU.
    """

    def __init__(self, folder: str | os.PathLike[str], *, threads: int | None = None) -> None:
        # Its wheels report their use to their maker, unless this is said before they are loaded.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtra("onnxruntime", "encoders") from error
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtra("tokenizers", "encoders") from error
        place = Path(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or default_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._card = Card.load(place)
            tokenizer: Tokenizer = Tokenizer.from_file(str(place / TOKENIZER_FILE))
            self._session = onnxruntime.InferenceSession(
                str(place / MODEL_FILE), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # both libraries raise bare or private exception types
            raise UnreadableExport(f"the export in {place} cannot be read: {error}") from error
        # Set once, never while encoding: a tokenizer that is changed cannot be shared.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._room = self._card.max_tokens - tokenizer.num_special_tokens_to_add(is_pair=False)
        self._prompt_tokens = len(self._offsets(self._card.prompt)) if self._card.prompt else 0

    @property
    def name(self) -> str:
        """The name of the space that the vectors belong to."""
        return self._card.name

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""
        return self._card.dimension

    @property
    def max_tokens(self) -> int:
        """The tokens of the window, special ones included; what is beyond is not read."""
        return self._card.max_tokens

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode n texts to an (n, dimension) float32 array of unit vectors.

        Texts beyond the window are cut: see `chunks`. Rows do not depend on which texts are
        encoded together, beyond float rounding. Raises `EncoderFailed`.
        """
        ids = [self._ids(text) for text in texts]
        vectors = np.empty((len(ids), self.dimension), np.float32)
        # Texts of like length go together, so that little of a batch is padding.
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        for rows in batches(order, [len(row) for row in ids]):
            vectors[rows] = self._run([ids[row] for row in rows])
        return vectors

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        """Split a text into (start, stop) spans that each fit the window less `reserve` tokens.

        A reserve that leaves less than a quarter of the window is cut to leave that much.
        """
        room = chunk_room(self._room - self._prompt_tokens, reserve)
        return split(clean(text), self._offsets, room)

    def legible(self, text: str) -> float:
        """Return the share of a text's tokens that the model's vocabulary has, from 0 to 1.

        Of other scripts an English model knows little, and its cosines of them say little.
        """
        return known_share(self._encoding(clean(text)).tokens)

    def _encoding(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _offsets(self, text: str) -> list[tuple[int, int]]:
        return self._encoding(text).offsets

    def _ids(self, text: str) -> list[int]:
        encoding = self._encoding(self._card.prompt + clean(text))
        encoding.truncate(self._room)
        return self._tokenizer.post_process(encoding, None, True).ids

    def _run(self, batch: list[list[int]]) -> NDArray[np.float32]:
        width = max(1, max(map(len, batch)))
        ids = np.full((len(batch), width), self._card.pad_id, np.int64)
        mask = np.zeros((len(batch), width), np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        try:
            (output,) = self._session.run([OUTPUT], {"input_ids": ids, "attention_mask": mask})
        except Exception as error:  # onnxruntime's exception types are private
            raise EncoderFailed(f"{self.name}: {error}") from error
        return check_vectors(output, self.dimension, len(batch))


def known_share(tokens: Sequence[str]) -> float:
    """Return the share of tokens that are not unknown; 1 for none."""
    unknown = sum(token in UNKNOWN for token in tokens)
    return 1.0 - unknown / len(tokens) if tokens else 1.0


def default_threads() -> int:
    """Return the cores that encoding may take: all but one, and at most four."""
    if hasattr(os, "sched_getaffinity"):  # what a container grants, not what the machine has
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 2
    return max(1, min(4, cores - 1))


def clean(text: str) -> str:
    """Replace lone surrogates, which no tokenizer takes, one for one: offsets stay true."""
    return SURROGATE.sub("\ufffd", text)


def batches(order: list[int], lengths: list[int]) -> list[list[int]]:
    """Group rows, given by ascending length, into batches of bounded size."""
    batches: list[list[int]] = []
    current: list[int] = []
    for row in order:
        if current and (
            len(current) == MAX_BATCH or (len(current) + 1) * lengths[row] > MAX_BATCH_TOKENS
        ):
            batches.append(current)
            current = []
        current.append(row)
    if current:
        batches.append(current)
    return batches
