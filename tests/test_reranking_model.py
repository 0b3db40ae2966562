"""A real cross-encoder and a real encoder by path: small ones of random weights, really loaded."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eval import results
from eval.__main__ import main
from memstore import MemoryStore, NewEvent, Settings
from memstore.reranking import load_reranker

WORDS = "which where is the key cat pot mat shed under on in a of . ? [image] so".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SAID = [
    "the cat is on the mat",
    "the key is under the pot",
    "the pot is in the shed",
    "the mat is in the shed",
    "a key is in the shed",
]
ASKED = "where is the key?"


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `CrossEncoder.save` writes it: BERT with one layer that gives one number."""
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    torch.manual_seed(3)
    raw = tmp_path_factory.mktemp("raw")
    (raw / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    BertTokenizer(vocab=str(raw / "vocab.txt")).save_pretrained(raw)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(raw)
    folder = tmp_path_factory.mktemp("models") / "tiny-cross-encoder"
    CrossEncoder(str(raw), device="cpu").save_pretrained(str(folder))
    return folder


@pytest.fixture
def store(database_url: str, cross_encoder: Path) -> Iterator[MemoryStore]:
    settings = Settings(encode_in_background=False, reranker=str(cross_encoder), encoder="none")
    with MemoryStore.connect(database_url, settings=settings) as opened:
        yield opened


def test_a_model_in_a_folder_orders_what_is_found(store: MemoryStore, cross_encoder: Path) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append([NewEvent(content=text) for text in SAID])
    found = memory.search(ASKED, k=5)
    assert not found.degraded
    scores = [hit.legs["reranker"].score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(SAID)
    alone = load_reranker(str(cross_encoder)).predict([(ASKED, hit.event.content) for hit in found])
    assert np.allclose(alone, scores, atol=1e-5)
    context = memory.resume(ASKED, budget=400)
    assert not context.degraded
    assert context.search is not None
    told = [hit.event.position for hit in context.search]
    assert told == [hit.event.position for hit in found]


def test_threads_share_a_model(cross_encoder: Path) -> None:
    model = load_reranker(str(cross_encoder))
    pairs = [(ASKED, f"{text} {'the cat is on the mat ' * n}") for n, text in enumerate(SAID)]
    expected = model.predict(pairs)
    with ThreadPoolExecutor(8) as pool:
        for scores in pool.map(model.predict, [pairs] * 32):
            assert np.allclose(scores, expected, atol=1e-5)


def test_an_evaluation_takes_one(cross_encoder: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "set", tmp_path / "out.json"
    folder.mkdir()
    (folder / "messages.jsonl").write_text(
        "\n".join(f'{{"conv": "c", "id": "{n}", "text": "{t}"}}' for n, t in enumerate(SAID)),
        encoding="utf-8",
    )
    (folder / "queries.jsonl").write_text(
        f'{{"qid": "q", "conv": "c", "question": "{ASKED}", "evidence": ["1"]}}', encoding="utf-8"
    )
    given = ["--dataset", "generic", "--path", str(folder), "--json", str(out)]
    given += ["--encoder", "none", "--reranker", str(cross_encoder)]
    done = CliRunner().invoke(main, ["run", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = results.read_json(out)
    assert result["reranker"] == str(cross_encoder)
    assert "rerank" in result["milliseconds"]
