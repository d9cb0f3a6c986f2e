"""Data that features cannot be made of, or that are no features: one sentence, and exit code 2."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import call_here
from tests.tiny_images import idx

from noisemarket.errors import BadInput
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import read_npy

RNG = np.random.default_rng(0)
VECTORS: dict[str, Any] = {
    "train-features": RNG.normal(size=(80, 6)).astype(np.float32),
    "train-labels": np.arange(80) % 3,
    "test-features": RNG.normal(size=(9, 6)).astype(np.float32),
    "test-labels": np.arange(9) % 3,
}
PICTURES: dict[str, Any] = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (80, 28, 28)),
    "train-labels-idx1-ubyte": np.arange(80) % 3,
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (9, 28, 28)),
    "t10k-labels-idx1-ubyte": np.arange(9) % 3,
}
MISSING = object()


def zipped() -> bytes:
    made = io.BytesIO()
    np.savez(made, features=np.ones((80, 6)))
    return made.getvalue()


def write_vectors(folder: Path, **changes: Any) -> None:
    for name, value in (VECTORS | {k.replace("_", "-"): v for k, v in changes.items()}).items():
        file = folder / f"{name}.npy"
        if isinstance(value, bytes):
            file.write_bytes(value)
        elif value is not MISSING:
            np.save(file, value, allow_pickle=True)


def write_pictures(folder: Path, **changes: Any) -> None:
    for name, value in PICTURES.items():
        part = name.rpartition("-idx")[0].replace("-", "_")
        (folder / name).write_bytes(idx(changes.get(part, value)))


def said(folder: Path, *more: str) -> str:
    """What the command line says, without the words before it."""
    done = call_here(
        "run", "--set", "data=mine", "--set", "owners=4", "--set", "rounds=1",
        *more, "--out", "run", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, "one sentence, no traceback"
    return done.stderr.removeprefix("noisemarket: ").strip().replace(f"{folder}/", "")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"train_features": np.full((80, 6), np.nan)},
            "train_features is NaN or infinite values: give finite numbers only.",
        ),
        (
            {"test_features": np.full((9, 6), 1e300)},  # no single float
            "test_features is NaN or infinite values: give finite numbers only.",
        ),
        (
            {"train_labels": np.arange(79) % 3},
            "train_labels is 79 labels: give one label for each of the 80 train records.",
        ),
        (
            {"test_labels": np.arange(8) % 3},
            "test_labels is 8 labels: give one label for each of the 9 test records.",
        ),
        (
            {"test_features": np.ones((9, 5))},
            "test_features is 5 numbers a record: give 6 numbers a record, as in train_features.",
        ),
        (
            {"train_labels": np.full(80, 2)},
            "train_labels is class 2 alone: give records of at least two classes.",
        ),
        (
            {"train_features": np.ones((1, 6)), "train_labels": np.array([1])},
            "train_labels is a single record: give records of at least two classes.",
        ),
        (
            {"train_features": np.ones((0, 6)), "train_labels": np.array([], int)},
            "train_features is an array of shape (0, 6): give at least one record of at least one "
            "number.",
        ),
        (
            {"train_features": np.ones((80, 2, 3))},
            "train_features is float64 values of shape (80, 2, 3): give floats of shape (number, "
            "dimension).",
        ),
        (
            {"train_features": np.ones((80, 6), np.uint8)},
            "train_features is uint8 values of shape (80, 6): give floats of shape (number, "
            "dimension).",
        ),
        (
            {"train_labels": np.ones(80)},
            "train_labels is float64 values of shape (80,): give whole numbers, one for each "
            "record.",
        ),
        ({"test_labels": np.arange(9) - 1}, "test_labels is -1: give labels from 0 to 999."),
        (
            {"train_features": MISSING},
            "data is mine: the folder does not hold train-features.npy, only others of its four "
            ".npy files.",
        ),
        (
            {"train_features": np.array([{}] * 80)},
            "data mine/train-features.npy cannot be read (not one whole array of plain "
            "numbers): write it with numpy.save.",
        ),
    ],
)
def test_features_of_ones_own(mine: Path, changes: dict[str, Any], words: str) -> None:
    write_vectors(mine, **changes)
    assert said(mine.parent) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"train_images": np.zeros((80, 28, 20)), "t10k_images": np.zeros((9, 28, 20))},
            "data is items of 28 x 20: give square grey pictures of at least 8 x 8, features of "
            "your own, or another model.",
        ),
        (
            {"train_images": np.zeros((80, 5, 5)), "t10k_images": np.zeros((9, 5, 5))},
            "data is items of 5 x 5: give square grey pictures of at least 8 x 8, features of your "
            "own, or another model.",
        ),
        (
            {"t10k_images": np.zeros((9, 20, 20))},
            "test_images is uint8 images of shape (20, 20): give uint8 images of shape (28, 28) as "
            "in train_images.",
        ),
        (
            {"train_labels": np.ones(80)},
            "train_labels is class 1 alone: give records of at least two classes.",
        ),
        (
            {"train_images": np.zeros((1, 28, 28)), "train_labels": np.ones(1)},
            "train_labels is a single record: give records of at least two classes.",
        ),
    ],
)
def test_pictures(mine: Path, changes: dict[str, Any], words: str) -> None:
    write_pictures(mine, **changes)
    assert said(mine.parent) == words


def test_features_of_ones_own_are_not_for_the_cnn(mine: Path) -> None:
    write_vectors(mine)
    assert said(mine.parent, "--set", "model=cnn") == (
        "data is items of 6: the CNN takes square grey pictures: set training.model to features "
        "for vectors, or give a model of your own."
    )


def test_no_folder(mine: Path) -> None:
    mine.rmdir()
    words = "data mine does not exist: name a folder of records, or a CSV or Parquet file."
    assert said(mine.parent) == words
    mine.write_text("features")
    assert said(mine.parent).startswith("data mine is not a folder: name a folder of")


HEADER = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (80, 6), }"
HUGE = HEADER.replace(b"(80, 6)", b"(9999999999999, 6)")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"features",
        b"PK\x03\x04 no archive",
        zipped(),
        HEADER,
        HEADER.ljust(127) + b"\nshort",
        HUGE.ljust(127) + b"\nshort",
        HEADER.replace(b"(80, 6), }", b"(80, 6").ljust(127) + b"\n",
        HEADER.replace(b"(80, 6)", b"(-1, 6)").ljust(127) + b"\n" + bytes(1920),
        HEADER.replace(b"<f4", b"|O8").ljust(127) + b"\n" + bytes(1920),
    ],
)
def test_a_file_that_is_no_array(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.npy cannot be read .* write it with numpy\.save\.$"):
        read_npy(file)


def test_any_damage_to_a_header_is_found(tmp_path: Path) -> None:
    """Or leaves an array of plain numbers; there is no third way."""
    file = tmp_path / "a.npy"
    np.save(file, VECTORS["train-features"])
    whole = bytearray(file.read_bytes())
    rng = np.random.default_rng(1)
    for _ in range(300):
        damaged = whole.copy()
        for at in rng.integers(0, 128, 2):
            damaged[at] = rng.integers(0, 256)
        file.write_bytes(damaged)
        with contextlib.suppress(BadInput):
            assert read_npy(file).dtype != object


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a\.npy cannot be read \(No such file or directory\)"):
        read_npy(tmp_path / "a.npy")


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match=r"train_features is rows of different lengths: give an arr"):
        Dataset.of_features([[1.0], [1.0, 2.0]], [0, 1], [[1.0]], [0])  # type: ignore[list-item]
