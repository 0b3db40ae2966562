"""A model's way to the fast path, with a small model of random weights, really exported."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest

from memstore.encoding import OnnxEncoder, SentenceTransformerEncoder, load_encoder
from memstore.encoding.export import FORMAT, NotExportable, exported
from memstore.encoding.weights import resolve
from memstore.errors import ConfigurationError, EncoderFailed, MissingExtra
from memstore.types import Encoder

if TYPE_CHECKING:
    pass

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "cat", "sat", "on", "a", "mat", "key", "is", "under", "pot", ".", ",", "?", "日"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
VOCABULARY += [letter for letter in LETTERS if letter != "a"]
VOCABULARY += [f"##{letter}" for letter in LETTERS]
TEXTS = ["The cat sat on a mat.", "key", "日日", "is the key under the pot? " * 30, "zzz unknown"]


def build(folder: Path, *, seed: int) -> Path:
    """Write a sentence-transformers model: BERT with two layers, 32 entries, 48 tokens.

    It pools the first token, has a prompt, and does not normalise: unlike the default model.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(seed)
    raw = folder.with_name(f"{folder.name}-raw")
    raw.mkdir()
    (raw / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    BertTokenizer(vocab=str(raw / "vocab.txt")).save_pretrained(raw)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(raw)
    first = Transformer(str(raw), max_seq_length=48)
    model = SentenceTransformer(
        modules=[first, Pooling(32, pooling_mode="cls")],
        device="cpu",
        prompts={"own": "a key: "},
        default_prompt_name="own",
    )
    model.save(str(folder))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny", seed=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the tests that leave it as it was."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first_load(tiny: Path, cache: Path) -> tuple[Encoder, list[str]]:
    """The encoder of the load that made the export, and what it said meanwhile."""
    steps: list[str] = []
    return load_encoder(tiny, cache_dir=cache, progress=steps.append), steps


@pytest.fixture(scope="module")
def reference(tiny: Path, cache: Path) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(tiny, cache_dir=cache, device="cpu")


def test_any_model_is_exported_once_and_then_loaded(
    tiny: Path,
    cache: Path,
    first_load: tuple[Encoder, list[str]],
    reference: SentenceTransformerEncoder,
) -> None:
    steps = first_load[1]
    assert [step.partition(": ")[2][:9] for step in steps] == [
        "preparing",
        "loading t",
        "exporting",
        "comparing",
    ]
    encoder = load_encoder(tiny, cache_dir=cache, progress=steps.append)
    assert len(steps) == 4
    assert isinstance(encoder, OnnxEncoder)
    assert isinstance(first_load[0], OnnxEncoder)
    assert encoder.name == reference.name
    assert encoder.name.startswith("tiny@")
    assert encoder.dimension == reference.dimension == 32
    assert encoder.max_tokens == 48
    expected = reference.encode(TEXTS)
    assert ((encoder.encode(TEXTS) * expected).sum(axis=1) > 0.9999).all()
    for text in TEXTS:
        assert encoder.chunks(text, reserve=5) == reference.chunks(text, reserve=5)
    # The window is less by two special tokens and the prompt's three.
    assert len(encoder.chunks("mat " * 43)) == 1
    assert len(encoder.chunks("mat " * 44)) == 2
    (card,) = (cache / "encoders").glob("*/card.json")
    assert json.loads(card.read_text())["cosine"] >= 0.9999


def test_a_model_without_an_export_runs_on_its_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.WordPiece({word: n for n, word in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    static = StaticEmbedding(tokenizer, embedding_dim=16)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "static"))

    steps: list[str] = []
    for _ in range(2):  # tried once, and remembered
        encoder = load_encoder(tmp_path / "static", cache_dir=tmp_path, progress=steps.append)
        assert isinstance(encoder, SentenceTransformerEncoder)
        assert [step for step in steps if "exporting" in step] == steps[2:3]
    assert encoder.encode(TEXTS[:1]).shape == (1, 16)
    spans = encoder.chunks("the cat sat on a mat. " * 500)
    assert len(spans) > 1
    # trap 13: a text without one known token is a zero vector here
    with pytest.raises(EncoderFailed, match="zero vector"):
        encoder.encode(["the cat", ""])

    # With another version of a library it is tried again.
    (record,) = (tmp_path / "encoders").glob("*.refused.json")
    refusal = json.loads(record.read_text())
    assert "torch 2" in refusal["made_with"]
    record.write_text(json.dumps(refusal | {"made_with": "torch 0.1"}))

    def again(*_: object) -> None:
        raise NotExportable("tried again")

    monkeypatch.setattr("memstore.encoding.export._run", again)
    with pytest.raises(NotExportable, match="tried again"):
        exported(resolve(tmp_path / "static", tmp_path), tmp_path)


def test_an_export_that_differs_from_its_reference_is_told(
    tiny: Path, tmp_path: Path, first_load: tuple[Encoder, list[str]]
) -> None:
    from memstore.encoding.export_worker import LOWEST_COSINE, compare
    from memstore.encoding.reference import load_model

    other = load_model(build(tmp_path / "other", seed=3), "cpu")
    fast = first_load[0]
    assert isinstance(fast, OnnxEncoder)
    assert compare(load_model(tiny, "cpu"), fast) >= LOWEST_COSINE
    assert compare(other, fast) < LOWEST_COSINE


LOADER = """
import sys
from memstore.encoding import load_encoder
encoder = load_encoder(sys.argv[1], cache_dir=sys.argv[2], progress=lambda s: print(s, flush=True))
print(type(encoder).__name__, encoder.encode(["the cat"]).shape, "torch" in sys.modules, flush=True)
"""


def loader(model: Path, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOADER, str(model), str(cache)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_damaged_cache_a_killed_export_and_two_at_once(tiny: Path, tmp_path: Path) -> None:
    weights = resolve(tiny, tmp_path)
    place = tmp_path / "encoders" / f"{weights.digest[:32]}-{FORMAT}"
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(b"\x08\x0a cut short")

    # The damaged export is made anew, and its maker is killed on the way.
    with loader(tiny, tmp_path) as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if "exporting" in line:
                break
        (worker,) = psutil.Process(killed.pid).children()
        killed.send_signal(signal.SIGKILL)
    psutil.wait_procs([worker], timeout=30)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert not place.exists()

    # Two processes then want it: one makes it, and both use it.
    with loader(tiny, tmp_path) as one, loader(tiny, tmp_path) as two:
        outputs = [process.communicate(timeout=240) for process in (one, two)]
    for output, errors in outputs:
        assert output.endswith("OnnxEncoder (1, 32) False\n"), errors
    assert sum(output.count("exporting") for output, _ in outputs) == 1
    assert sorted(path.name for path in place.parent.iterdir()) == [
        place.name,
        f"{place.name}.lock",
    ]


def test_a_truncated_or_incomplete_export_is_unreadable(
    tiny: Path, cache: Path, tmp_path: Path, first_load: tuple[Encoder, list[str]]
) -> None:
    whole = exported(resolve(tiny, cache), cache)
    for file in ("model.onnx", "model.onnx.data", "tokenizer.json", "card.json"):
        for damage in ("gone", "cut", "empty"):
            copy = tmp_path / f"{file}-{damage}"
            shutil.copytree(whole, copy)
            content = (copy / file).read_bytes()
            (copy / file).write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
            if damage == "gone":
                (copy / file).unlink()
            with pytest.raises(ConfigurationError, match="cannot be read"):
                OnnxEncoder(copy)


def test_a_cache_that_cannot_be_written_is_named(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="MEMSTORE_CACHE_DIR"):
        load_encoder(tiny, cache_dir=tmp_path / "file" / "cache")


def test_a_model_that_cannot_be_loaded_is_named(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ConfigurationError, match=r"broken cannot be loaded as an encoder"):
        load_encoder(broken, cache_dir=tmp_path)
    assert not list(tmp_path.glob("encoders/*.refused.json"))


@pytest.mark.parametrize(
    ("module", "package"),
    [("sentence_transformers", "sentence-transformers"), ("torch", "torch"), ("onnx", "onnx")],
)
def test_an_export_needs_its_libraries(
    module: str, package: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed.*'encoders'"):
        load_encoder(tiny, cache_dir=tmp_path)


def test_the_reference_needs_its_library(
    tiny: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match="sentence-transformers"):
        SentenceTransformerEncoder(tiny, cache_dir=cache)


def test_threads_can_share_the_reference(reference: SentenceTransformerEncoder) -> None:
    expected = reference.encode(TEXTS)

    def work(_: int) -> bool:
        reference.chunks(TEXTS[3])
        return np.allclose(reference.encode(TEXTS), expected, atol=1e-5)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(18)))


def test_the_reference_takes_any_text(reference: SentenceTransformerEncoder) -> None:
    assert reference.encode([]).shape == (0, 32)
    for text in ("", "\x00", "\udc97", "half \ud83d", "x" * 20_000):
        assert np.isfinite(reference.encode([text])).all()
        reference.chunks(text)


def test_a_model_that_fails_raises_encoder_failed(
    reference: SentenceTransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # trap 14
    monkeypatch.setattr(reference._model, "forward", None)
    with pytest.raises(EncoderFailed, match="tiny@"):
        reference.encode(["the cat"])
