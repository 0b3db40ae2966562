"""The process that exports a model to ONNX and compares it with sentence-transformers.

It reports on standard output, one JSON object a line: ``step``, then ``done``, ``refused`` (the
model has no faithful export) or ``error``. It stops when standard input closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from memstore.encoding.export import NotExportable, versions
from memstore.encoding.onnx import MODEL_FILE, OUTPUT, TOKENIZER_FILE, Card, OnnxEncoder
from memstore.encoding.reference import default_prompt, dimension_of, load_model, plain_tokenizer
from memstore.encoding.vectors import check_vectors
from memstore.errors import MemstoreError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

LOWEST_COSINE = 0.9999
UNBOUNDED = 512  # tokens, for models that declare no window

CHECKED_TEXTS = (
    ".",
    "a",
    "  Leading and trailing blanks \n",
    "When did we settle on PostgreSQL 16 with pgvector?",
    "ALL CAPITALS, and MiXeD; numbers 1,024.50, paths /etc/hosts and snake_case_names",
    "Melanie (8 May 2023): I painted that lake sunrise last year! | Wow, is it yours?",
    "def f(x: int) -> str:\n\treturn f'{x!r}'  # code",
    "Größe, naïve café, Ångström, ﬁne, cafe\u0301, ½, ²",
    "我们决定使用带有向量扩展的数据库。",
    "データベースは昨日の夜に更新されました。",
    "데이터베이스를 업데이트했습니다.",
    "Мы выбрали базу данных вчера вечером.",
    "اخترنا قاعدة البيانات أمس",
    "ฐานข้อมูลถูกอัปเดตเมื่อวานนี้",
    "emoji 👍🏽 👩‍👩‍👧 and \u200b zero width \ufffd",
    "A" * 300,
    "The report was long. " * 40,
    "One line of a log, 2024-01-01T00:00:00Z level=info msg=ok\n" * 40,
)
"""Short, long, beyond usual windows, in several scripts: where tokenizers and masks go wrong."""


def export(source: Path, target: Path, name: str, report: Any) -> None:
    """Write the graph, the tokenizer and the card to `target`, and check them.

    Raises `NotExportable` when the model has no faithful export.
    """
    report(step="loading the model")
    model = load_model(source, "cpu")
    report(step="exporting it to ONNX")
    try:
        tokenizer = plain_tokenizer(model)
        special = tokenizer.num_special_tokens_to_add(is_pair=False)
        limit = model.max_seq_length
        card = Card(
            name=name,
            dimension=dimension_of(model),
            max_tokens=UNBOUNDED + special if limit is None else int(min(limit, 1 << 20)),
            pad_id=getattr(model.tokenizer, "pad_token_id", None) or 0,
            prompt=default_prompt(model),
        )
        tokenizer.save(str(target / TOKENIZER_FILE))
        card.save(target)
        _write_graph(model, target / MODEL_FILE)
        report(step="comparing it with the reference")
        cosine = compare(model, OnnxEncoder(target))
    except (OSError, MemoryError):  # of this moment, not of this model
        raise
    except Exception as error:  # the exporter raises many types for what it does not support
        first = str(error).strip().partition("\n")[0]
        raise NotExportable(f"no ONNX export ({type(error).__name__}: {first})") from error
    if not cosine >= LOWEST_COSINE:
        raise NotExportable(f"the export differs from the reference (cosine {cosine:.5f})")
    replace(card, cosine=round(cosine, 6), made_with=versions()).save(target)
    for path in target.iterdir():
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())


def compare(model: SentenceTransformer, encoder: OnnxEncoder) -> float:
    """Return the lowest cosine between both forms, batched and one by one."""
    texts = list(CHECKED_TEXTS)
    expected = check_vectors(model.encode(texts, show_progress_bar=False), encoder.dimension)
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    return min(float((expected * found).sum(axis=1).min()) for found in (together, alone))


def _write_graph(model: SentenceTransformer, path: Path) -> None:
    """Export the whole pipeline, pooling and normalisation included; weights beside the graph."""
    import torch

    class Pipeline(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            features = {"input_ids": input_ids, "attention_mask": attention_mask}
            output: torch.Tensor = self.model(features)["sentence_embedding"]
            return output

    ids = torch.ones((3, 7), dtype=torch.long)
    mask = torch.ones((3, 7), dtype=torch.long)
    mask[1, 4:] = 0
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad():
        torch.onnx.export(
            Pipeline().eval(),
            (ids, mask),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=[OUTPUT],
            dynamic_shapes={"input_ids": shape, "attention_mask": shape},
            dynamo=True,
            external_data=True,  # mapped into memory at loading: 0.1 s and 90 MB less
        )


def main() -> int:
    """Export the folder given first into the folder given second, under the name given third."""
    source, target, name = sys.argv[1:]
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to standard output as they like
    threading.Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()

    def report(**message: Any) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        export(Path(source), Path(target), name, report)
    except NotExportable as error:
        report(refused=str(error))
        return 1
    except MemstoreError as error:
        report(error=str(error))
        return 1
    report(done=name)
    return 0


def _end_with(stream: IO[str]) -> None:
    stream.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
