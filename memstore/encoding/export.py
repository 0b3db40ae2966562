"""Make the fast form of a model once, in a process of its own, and keep it in the cache.

The export is written beside its place and moved there whole, after it was checked against the
reference; a lock keeps two processes from making it at once. What a killed export left behind
is removed by the next.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memstore.encoding.weights import Weights
from memstore.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from filelock import FileLock

FORMAT = 2  # raise when what is in an export's folder changes
LIBRARIES = ("torch", "transformers", "sentence-transformers", "onnx", "onnxscript", "onnxruntime")
Progress = Callable[[str], None]

log = logging.getLogger(__name__)


class NotExportable(Exception):
    """The model cannot run on the fast path, or not with the reference's vectors."""


def exported(weights: Weights, cache: Path, progress: Progress | None = None) -> Path:
    """Return the folder of a model's checked export, making it if it is not there yet.

    Raises `NotExportable` (remembered until one of the libraries changes), `MissingExtra`, and
    `ConfigurationError` when the cache cannot be written or the model not be loaded.
    """
    place = cache / "encoders" / f"{weights.digest[:32]}-{FORMAT}"
    if place.is_dir():
        return place
    lock = _lock(place, cache)
    try:
        if not place.is_dir():
            _make(weights, place, progress or log.info)
    finally:
        lock.release()
    return place


def _lock(place: Path, cache: Path) -> FileLock:
    """Wait until no other process makes this export, and keep others from it."""
    try:
        from filelock import FileLock
    except ImportError as error:
        raise MissingExtra("filelock", "encoders") from error
    lock = FileLock(place.with_suffix(".lock"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise ConfigurationError(
            f"the cache {cache} cannot be written ({error}): give cache_dir, or set "
            "MEMSTORE_CACHE_DIR"
        ) from error
    return lock


def discard(place: Path) -> None:
    """Remove an export that turned out to be damaged."""
    shutil.rmtree(place, ignore_errors=True)


def _make(weights: Weights, place: Path, progress: Progress) -> None:
    """Export into a temporary folder and move it to its place; the lock is held."""
    refusal = place.with_suffix(".refused.json")
    _raise_if_refused(refusal)
    for module in ("torch", "sentence_transformers", "onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(module.replace("_", "-"), "encoders")
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
    partial.mkdir()
    try:
        _run(weights, partial, progress)
        os.replace(partial, place)
    except NotExportable as error:
        refusal.write_text(json.dumps({"reason": str(error), "made_with": versions()}))
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    refusal.unlink(missing_ok=True)


def _run(weights: Weights, partial: Path, progress: Progress) -> None:
    """Run the worker, tell its progress, and raise what it reports."""
    root = str(Path(__file__).absolute().parents[2])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "ORT_DISABLE_TELEMETRY": "1",
    }
    environment.pop("PYTHONWARNINGS", None)  # the exporter warns a lot, about itself
    module = f"{__package__}.export_worker"
    command = [sys.executable, "-P", "-m", module, str(weights.folder), str(partial), weights.name]
    progress(f"{weights.name}: preparing the fast encoder, once (some 20 s)")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        # The worker ends when its standard input does: it does not outlive a killed parent.
        worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            encoding="utf-8",
        )
        last: dict[str, str] = {}
        try:
            assert worker.stdout is not None
            for line in worker.stdout:
                last = json.loads(line)
                if "step" in last:
                    progress(f"{weights.name}: {last['step']}")
        finally:
            worker.kill()  # it has said all, or this process is being interrupted
            worker.communicate()
        if "refused" in last:
            raise NotExportable(last["refused"])
        if "error" in last:
            raise ConfigurationError(last["error"])
        if "done" not in last:
            errors.seek(0)
            tail = errors.read()[-2_000:].strip()
            raise ConfigurationError(
                f"the export of {weights.name} broke off (code {worker.returncode}): {tail}"
            )


def _raise_if_refused(refusal: Path) -> None:
    try:
        record = json.loads(refusal.read_text())
    except (OSError, ValueError):
        return
    if record.get("made_with") == versions():
        raise NotExportable(record.get("reason", ""))


def versions() -> str:
    """Name the libraries that shape an export, with their versions."""
    found = []
    for library in LIBRARIES:
        try:
            found.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
