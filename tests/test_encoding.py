"""The default encoder on its fast path: its vectors, its limits, its threads, its imports."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from memstore.encoding import check_vectors, load_encoder
from memstore.encoding.onnx import MAX_BATCH, MAX_BATCH_TOKENS, batches
from memstore.encoding.weights import cache_folder
from memstore.errors import ConfigurationError, EncoderFailed, EncoderMismatch, MissingExtra
from memstore.types import Encoder

TEXTS = [
    "We settled on Postgres with pgvector.",
    "The cat sat on the windowsill all afternoon.",
    "我们决定使用带有向量扩展的数据库。",
    "a",
    "One line of a log.\n" * 300,
    "emoji 👍🏽 and café",
]


def test_vectors_are_unit_rows_of_the_declared_dimension(encoder: Encoder) -> None:
    assert (encoder.name, encoder.dimension) == ("all-MiniLM-L6-v2", 384)
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert encoder.encode([]).shape == (0, 384)


def test_like_meanings_are_nearer_than_others(encoder: Encoder) -> None:
    query, near, far = encoder.encode(["Which database do we use?", TEXTS[0], TEXTS[1]])
    assert query @ near > query @ far + 0.2


def test_published_similarities_hold(encoder: Encoder) -> None:
    """The values that the model's library documents for these sentences."""
    vectors = encoder.encode(
        [
            "The weather is lovely today.",
            "It's so sunny outside!",
            "He drove to the stadium.",
        ]
    )
    expected = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    assert np.allclose(vectors @ vectors.T, expected, atol=5e-4)


def test_a_row_does_not_depend_on_its_company_or_order(encoder: Encoder) -> None:
    many = TEXTS * 8
    together = encoder.encode(many)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    assert np.allclose(together, np.tile(alone, (8, 1)), atol=1e-5)


def test_the_fact_in_the_last_line_of_a_long_text_is_found(encoder: Encoder) -> None:
    # trap 11
    filler = "\n".join(f"Item {n}: the weekly report was filed as usual." for n in range(400))
    fact = "The spare key is under the blue flowerpot."
    long = f"{filler}\n{fact}"
    others = ["The car is in the garage.", "My sister likes tulips.", "Lunch is at noon."]
    query = encoder.encode(["Where is the spare key hidden?"])[0]
    spans = encoder.chunks(long)
    best = int(np.argmax(encoder.encode([long[start:stop] for start, stop in spans]) @ query))
    assert fact in long[slice(*spans[best])]
    best_chunk = encoder.encode([long[slice(*spans[best])]])[0] @ query
    assert best_chunk > (encoder.encode(others) @ query).max()
    assert best_chunk > encoder.encode([long])[0] @ query + 0.1  # cut at the window, silently


@pytest.mark.parametrize(
    "text",
    ["", " ", "\x00", "\udc97", "half \ud83d", "\u200b", "x" * 100_000, "👩‍👩‍👧" * 500],
    ids=lambda text: f"{len(text)}-{text[:1]!a}",
)
def test_any_text_has_a_finite_vector(text: str, encoder: Encoder) -> None:
    # traps 1, 2, 5 and 13: what is not worth embedding is decided by `is_blank`, not here
    assert np.isfinite(encoder.encode([text])).all()
    encoder.chunks(text)


def test_lone_surrogates_do_not_move_offsets(encoder: Encoder) -> None:
    # trap 2
    text = "\udc97 " + "word " * 600 + "\ud83d end"
    spans = encoder.chunks(text)
    assert text[spans[-1][0] : spans[-1][1]].endswith("\ud83d end")


def test_threads_can_share_an_encoder(encoder: Encoder) -> None:
    expected = encoder.encode(TEXTS[:4])
    cuts = encoder.chunks(TEXTS[4])

    def work(_: int) -> bool:
        same = np.allclose(encoder.encode(TEXTS[:4]), expected, atol=1e-5)
        return same and encoder.chunks(TEXTS[4]) == cuts

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_batches_are_bounded_in_rows_and_tokens() -> None:
    lengths = [3] * 100 + [250] * 20 + [5_000]
    made = batches(list(range(len(lengths))), lengths)
    assert sorted(row for batch in made for row in batch) == list(range(len(lengths)))
    for batch in made:
        padded = len(batch) * max(lengths[row] for row in batch)
        assert len(batch) <= MAX_BATCH
        assert padded <= MAX_BATCH_TOKENS or len(batch) == 1


def test_loading_and_encoding_import_neither_torch_nor_transformers(encoder: Encoder) -> None:
    code = """
import sys
from memstore.encoding import load_encoder
encoder = load_encoder(threads=1)
encoder.encode(["hello"]), encoder.chunks("hello")
heavy = {"torch", "transformers", "sentence_transformers", "huggingface_hub", "onnx", "onnxscript"}
print(*sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (run.stdout.strip(), run.stderr.strip()) == ("", "")


@pytest.mark.parametrize("module", ["onnxruntime", "tokenizers"])
def test_a_missing_library_names_the_extra(
    module: str, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match="memstore's extra 'encoders'"):
        load_encoder()


def test_check_vectors_refuses_another_encoders_vectors() -> None:
    # trap 12
    with pytest.raises(EncoderMismatch, match=r"\(2, 192\), expected \(n, 768\)"):
        check_vectors(np.ones((2, 192)), 768)
    for shape in [(), (768,), (1, 1, 768), (0, 0)]:
        with pytest.raises(EncoderMismatch):
            check_vectors(np.ones(shape), 768)
    assert issubclass(EncoderMismatch, ConfigurationError)


@pytest.mark.parametrize(
    "vectors",
    [
        [[1.0, np.nan]],
        [[1.0, 1.0], [np.inf, 0.0]],
        [[1.0, 1.0], [0.0, 0.0]],
        [["1", "2"]],
        [[None, 1.0]],
        [[1j, 1.0]],
    ],
)
def test_check_vectors_refuses_what_would_sort_first(vectors: list[list[object]]) -> None:
    # trap 13
    with pytest.raises(EncoderFailed):
        check_vectors(vectors, 2)


def test_check_vectors_counts_and_makes_unit_rows() -> None:
    with pytest.raises(EncoderFailed, match="1 vectors for 2 texts"):
        check_vectors([[1.0, 0.0]], 2, 2)
    for row in ([3, 4], [3e30, 4e30], [3e-30, 4e-30]):
        assert np.allclose(check_vectors([row], 2), [[0.6, 0.8]])
    assert check_vectors(np.empty((0, 2)), 2).shape == (0, 2)
    given = np.array([[3.0, 4.0]], np.float32)
    check_vectors(given, 2)
    assert given.tolist() == [[3.0, 4.0]]


def test_the_library_below_reports_to_nobody(encoder: Encoder, tmp_path: Path) -> None:
    """onnxruntime's wheels do unless told otherwise, and keep a device's id in the home."""
    quiet = {"CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in quiet}
    code = """
        import sys
        from memstore.encoding import load_encoder
        load_encoder(cache_dir=sys.argv[1]).encode(["x"])
        """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), cache_folder()],
        env=environment | {"HOME": str(tmp_path)},
        check=True,
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
