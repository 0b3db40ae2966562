"""A store for an evaluation, and the bars that show how far it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from eval.runner import Progress as Told
from memstore import Encoder, MemoryStore, Settings


@contextmanager
def opened(
    keep: Path | None, encoder: str | Encoder | None = None, reranker: str | None = None
) -> Iterator[MemoryStore]:
    """Open a store of its own: in a folder to keep, or in one that goes when it is done."""
    settings = Settings(encode_in_background=False, reranker=reranker)
    with (
        tempfile.TemporaryDirectory(prefix="memstore-eval-") as folder,
        MemoryStore.embedded(
            keep or folder, encoder=encoder or settings.encoder, settings=settings
        ) as store,
    ):
        yield store


@contextmanager
def bars() -> Iterator[Told]:
    """Show progress on the error stream, one bar a step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def told(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step)
            progress.update(tasks[step], completed=done, total=total)

        yield told
