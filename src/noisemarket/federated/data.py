"""The data of a job: images or features with their labels, from any arrays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.features import FeatureMap, features_for

if TYPE_CHECKING:
    from noisemarket.federated.columns import Description

Images: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]

MOST_CLASSES = 1000


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels, for training and for the test; all arrays are read-only.

    Make one with ``Dataset.of``, ``Dataset.of_features`` or ``load_data``. ``scaling`` is the mean
    and deviation by which inputs are standardised: public constants, because statistics of the
    owners' own data would be a release that no account counts. ``channel`` gives pictures an axis
    for their one channel. ``features`` is what a model gets instead of every item's values
    (``with_features``). Where ``owners`` are named, ``holders`` numbers the owner of each training
    record, and nothing deals them out anew. ``remarks`` are what a reader of results should know.

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
    features: FeatureMap | None = None
    owners: tuple[str, ...] = ()
    holders: NDArray[np.int64] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.train_images.shape[1:]

    @property
    def description(self) -> Description | None:
        """What both sides agree that a record is, where records come from tables."""
        return getattr(self.features, "description", None)

    @property
    def records_of(self) -> dict[str, int]:
        """How many training records each named owner has; empty where owners are not named."""
        if self.holders is None:
            return {}
        counts = np.bincount(self.holders, minlength=len(self.owners))
        return dict(zip(self.owners, counts.tolist(), strict=True))

    @cached_property
    def sha256(self) -> str:
        """Of all images and labels and of how they are made ready; not of where they were found."""
        parts: tuple[NDArray[Any], ...]
        parts = self.train_images, self.train_labels, self.test_images, self.test_labels
        how = (self.scaling, self.channel) if self.features is None else self.features.label
        digest = hashlib.sha256(repr(how).encode())
        if self.holders is not None:
            digest.update(repr(self.owners).encode())
            parts = (*parts, self.holders)
        for part in parts:
            digest.update(repr((part.dtype.str, part.shape)).encode())
            digest.update(part.data)
        return digest.hexdigest()

    def ready(self, images: ArrayLike) -> NDArray[np.float32]:
        """Images as the model gets them: features, or scaled floats (bytes count from 0 to 1)."""
        given: NDArray[Any] = np.asarray(images)
        if self.features is not None:
            return self.features.extract(given)
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

    def train_inputs(self, chosen: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Training images, or those chosen, as the model gets them; features are computed once."""
        if self.features is not None:
            return self._train_features if chosen is None else self._train_features[chosen]
        return self.ready(self.train_images if chosen is None else self.train_images[chosen])

    @cached_property
    def test_inputs(self) -> NDArray[np.float32]:
        return self.ready(self.test_images)

    @cached_property
    def _train_features(self) -> NDArray[np.float32]:
        return self.ready(self.train_images)

    def laid_out(self, chosen: NDArray[np.int64]) -> Dataset:
        """The features of these training records, in this order, and of the test; no images."""
        images = self.train_images[:0], self.test_images[:0]
        labels = self.train_labels[chosen]
        made = replace(self, train_images=images[0], test_images=images[1], train_labels=labels)
        made.__dict__["_train_features"] = self.train_inputs(chosen)
        made.__dict__["test_inputs"] = self.test_inputs
        return made

    def with_features(self) -> Dataset:
        """The same data for a linear model: a pure function of each item, at no cost in privacy."""
        return self if self.features is not None else self._with_features

    @cached_property
    def _with_features(self) -> Dataset:
        chosen = features_for(self.train_images)
        for part in (self.train_images, self.test_images):
            chosen.check(part)
        return replace(self, features=chosen)

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
        """A dataset from any arrays, each checked. By default bytes are brought to -1..1."""
        train, marks = _half("train", train_images, train_labels)
        test, test_marks = _half("test", test_images, test_labels)
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            remedy = f"give {_kind(train)} as in train_images."
            raise BadInput("test_images", _kind(test), remedy)
        classes = 1 + int(max(marks.max(), test_marks.max()))
        if (marks == marks[0]).all():
            shown = "a single record" if len(train) == 1 else f"class {marks[0]} alone"
            raise BadInput("train_labels", shown, "give records of at least two classes.")
        scaling = _scaling(scaling, train.dtype == np.uint8)
        return cls(train, marks, test, test_marks, classes, name, source, scaling, channel)

    @classmethod
    def of_features(
        cls,
        train_features: ArrayLike,
        train_labels: ArrayLike,
        test_features: ArrayLike,
        test_labels: ArrayLike,
        *,
        name: str = "features",
        source: str = "arrays",
    ) -> Dataset:
        """A dataset of features of one's own, for the scenario's linear model.

        Features are floats of shape (number, dimension), such as the embeddings of a frozen
        pre-trained model; each record is scaled to length 1. They must not have been learned from
        the owners' data.

        Example:
            >>> Dataset.of_features([[1.0, 0.0], [0.0, 2.0]], [0, 1], [[3.0, 4.0]], [1]).classes
            2
        """
        train = _vectors("train_features", train_features)
        test = _vectors("test_features", test_features)
        if train.shape[1] != test.shape[1]:
            remedy = f"give {train.shape[1]} numbers a record, as in train_features."
            raise BadInput("test_features", f"{test.shape[1]} numbers a record", remedy)
        arrays = train, train_labels, test, test_labels
        return cls.of(*arrays, name=name, source=source, channel=False).with_features()


def _half(name: str, images: ArrayLike, labels: ArrayLike) -> tuple[Images, Labels]:
    """The images and labels for training, or those of the test, checked."""
    pictures = _images(f"{name}_images", images)
    marks = _labels(f"{name}_labels", labels)
    if len(pictures) != len(marks):
        remedy = f"give one label for each of the {len(pictures):,} {name} records."
        raise BadInput(f"{name}_labels", f"{len(marks):,} labels", remedy)
    return pictures, marks


def _vectors(field: str, given: ArrayLike) -> Images:
    array = _array(field, given)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        shown = f"{array.dtype} values of shape {array.shape}"
        raise BadInput(field, shown, "give floats of shape (number, dimension).")
    if array.size == 0:
        shown = f"an array of shape {array.shape}"
        raise BadInput(field, shown, "give at least one record of at least one number.")
    return _images(field, array)


def _array(field: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError:
        remedy = "give an array, or lists of one length."
        raise BadInput(field, "rows of different lengths", remedy) from None


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
    array = _array(field, given)
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


def _labels(field: str, given: ArrayLike) -> Labels:
    """Labels as a one-dimensional array of whole numbers from 0 to 999, else an error."""
    array = _array(field, given)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        shown = f"{array.dtype} values of shape {array.shape}"
        raise BadInput(field, shown, "give whole numbers, one for each record.")
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
