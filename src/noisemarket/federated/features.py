"""Fixed features: what a linear model sees of a record, as a pure function of that record alone.

Nothing is learned from anybody's data, so they cost no privacy. Every feature map has a name and a
version, which stand in the fingerprint of a job.

**Edges** of a grey image with values from 0 to 1, by direction on a coarse grid:

1. 3 x 3 Sobel gradients (black outside); for each of 8 directions the rectified component, squared
   and divided by (length of the gradient + ``SOFT``).
2. Averages over ``CELLS`` x ``CELLS`` overlapping triangular windows, then square roots.
3. In each cell the mean over the directions is taken off and only ``ENERGY`` of it (less its own
   mean over the cells) is put back.
4. The space spanned by the features of three drawn ``SHAPES`` is projected away: edges that nearly
   all images share would fill the clip and carry noise.
5. Scaled to length 1. A blank image gives zeros.

Only IEEE 754 operations in a fixed order are used, with the image's index last: an image has the
same bits alone and in any batch, on any machine and with any number of threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.machine import available_cores

Floats = NDArray[np.float32]

TINY = 1e-12
"""Shorter records than this are not stretched to length 1."""
SMALLEST = 8
"""The smallest side of an image."""
USUAL = 28
"""Images of twice this side or more are first averaged down to about this side."""
CELLS = 5
DIRECTIONS = 8
SOFT = 0.1
ENERGY = 0.3
SHAPES = ((10.0 / 28.0, 7.0 / 28.0, 1), (13.0 / 28.0, 9.0 / 28.0, 2), (0.25, 0.25, 1))
"""Half height and half width as parts of the side, and s of |y|^2s + |x|^2s = 1."""
DIMENSION = CELLS * CELLS * DIRECTIONS

_KEPT_BYTES = 2**25 - 2**16  # the largest that glibc learns from
_CHUNK = 256  # images worked on at a time: few calls, little memory
_DIAGONAL = np.float32(0.5**0.5)


@dataclass(frozen=True)
class UnitVectors:
    """Vectors of one's own, such as embeddings, each scaled to length 1; one of zeros stays so."""

    dimension: int
    label = "unit-vectors v1"

    def check(self, records: NDArray[Any]) -> None:
        if records.ndim != 2 or records.shape[1] != self.dimension:
            shape = " x ".join(map(str, records.shape[1:]))
            remedy = f"give vectors of {self.dimension} numbers."
            raise BadInput("data", f"items of {shape}", remedy)

    def extract(self, records: NDArray[Any]) -> Floats:
        self.check(records)
        columns = np.ascontiguousarray(records.T, dtype=np.float64)
        return np.ascontiguousarray(unit(columns).T, dtype=np.float32)


@dataclass(frozen=True)
class Edges:
    """Edges of square grey images by direction."""

    label = "edges-5x5x8 v1"
    dimension = DIMENSION

    def check(self, records: NDArray[Any]) -> None:
        if records.ndim != 3 or records.shape[1] != records.shape[2] or records.shape[1] < SMALLEST:
            shape = " x ".join(map(str, records.shape[1:]))
            remedy = (
                f"give square grey pictures of at least {SMALLEST} x {SMALLEST}, features of your "
                "own, or another model."
            )
            raise BadInput("data", f"items of {shape}", remedy)
        bounded = records.dtype == np.uint8 or not records.size
        if not bounded and not (records.min() >= 0.0 and records.max() <= 1.0):
            remedy = "give bytes, or floats from 0 to 1."
            raise BadInput("data", "pictures with values outside of 0 to 1", remedy)

    def extract(self, records: NDArray[Any]) -> Floats:
        """The features of images (number, side, side): uint8 from 0 to 255, floats from 0 to 1."""
        self.check(records)
        side = records.shape[1]
        away = _common(side // max(1, side // USUAL))
        features = np.empty((len(records), DIMENSION), np.float32)

        def work(start: int) -> None:
            part = slice(start, start + _CHUNK)
            found = _edges(_reduced(_scaled(records[part])))
            for direction in away:
                found -= total(direction[:, None] * found) * direction[:, None]
            features[part] = unit(found).T

        starts = range(0, len(records), _CHUNK)
        np.empty(_KEPT_BYTES, np.uint8)  # given back at once: from then on glibc keeps smaller ones
        with ThreadPoolExecutor(min(available_cores(), max(1, len(starts)))) as pool:
            list(pool.map(work, starts))
        return features


class FeatureMap(Protocol):
    """Turns records into features, each on its own, with the same bits alone and in any batch.

    A change of what ``extract`` gives, be it in the last bit, needs another ``label``.
    """

    @property
    def label(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def check(self, records: NDArray[Any]) -> None:
        """Refuse records that it has no features of."""

    def extract(self, records: NDArray[Any]) -> Floats:
        """The features of records."""


def features_for(records: NDArray[Any]) -> FeatureMap:
    """The features of records of this shape: edges of pictures, vectors as they are."""
    return UnitVectors(records.shape[1]) if records.ndim == 2 else Edges()


def unit(columns: NDArray[Any]) -> NDArray[Any]:
    """Records, one a column, each at length 1; one of zeros stays so."""
    lengths = np.sqrt(total(columns * columns))
    scaled: NDArray[Any] = columns / np.maximum(lengths, columns.dtype.type(TINY))
    return scaled


def total(values: NDArray[Any]) -> NDArray[Any]:
    """The sum along the first axis, by halves in an order that depends on its length alone."""
    while len(values) > 1:
        half = len(values) // 2
        added = values[:half] + values[half : 2 * half]
        if len(values) % 2:
            added[0] += values[-1]
        values = added
    whole: NDArray[Any] = values[0]
    return whole


def _scaled(images: NDArray[Any]) -> Floats:
    """Values from 0 to 1 as (row, column, image)."""
    turned = np.ascontiguousarray(images.transpose(1, 2, 0), dtype=np.float32)
    return turned / np.float32(255.0) if images.dtype == np.uint8 else turned


def _reduced(pixels: Floats) -> Floats:
    """Large images averaged over square blocks; what is left at the border is left out evenly."""
    side = len(pixels)
    block = max(1, side // USUAL)
    if block == 1:
        return pixels
    small = side // block
    first = (side - small * block) // 2
    last = first + small * block
    rows = pixels[first:last:block].copy()
    for offset in range(1, block):
        rows += pixels[first + offset : last : block]
    both = rows[:, first:last:block].copy()
    for offset in range(1, block):
        both += rows[:, first + offset : last : block]
    return both / np.float32(block * block)


def _edges(pixels: Floats) -> Floats:
    """Steps 1 to 3 for pixels (row, column, image): (feature, image)."""
    side, _, count = pixels.shape
    framed = np.zeros((side + 2, side + 2, count), np.float32)
    framed[1:-1, 1:-1] = pixels
    across = framed[:, 2:] - framed[:, :-2]
    across = across[:-2] + across[2:] + across[1:-1] + across[1:-1]
    down = framed[2:] - framed[:-2]
    down = down[:, :-2] + down[:, 2:] + down[:, 1:-1] + down[:, 1:-1]
    across *= np.float32(0.25)
    down *= np.float32(0.25)
    length = np.sqrt(across * across + down * down)
    length += np.float32(SOFT)

    parts = np.empty((DIRECTIONS, side, side, count), np.float32)
    rising, falling = (across + down) * _DIAGONAL, (down - across) * _DIAGONAL
    for number, along in enumerate((across, rising, down, falling)):
        np.maximum(along, 0.0, out=parts[number])
        np.maximum(-along, 0.0, out=parts[number + 4])
    parts *= parts
    parts /= length

    cells = np.sqrt(_pooled(_pooled(parts).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3))
    energy = total(cells) / np.float32(DIRECTIONS)
    level = total(energy.reshape(CELLS * CELLS, count)) / np.float32(CELLS * CELLS)
    cells -= energy
    cells += np.float32(ENERGY) * (energy - level)
    return cells.reshape(DIMENSION, count)


def _pooled(values: Floats) -> Floats:
    """Weighted means over windows along the second axis."""
    windows = _windows(values.shape[1])
    out = np.zeros((values.shape[0], CELLS, *values.shape[2:]), np.float32)
    for cell, weights in enumerate(windows):
        for at in np.flatnonzero(weights):
            out[:, cell] += weights[at] * values[:, at]
    return out


@lru_cache(maxsize=16)
def _windows(side: int) -> Floats:
    """Triangles that reach from each cell's middle to its neighbours' middles: (cell, row)."""
    spacing = side / CELLS
    middles = (np.arange(CELLS) + 0.5) * spacing - 0.5
    far = np.abs(np.arange(side)[None, :] - middles[:, None]) / spacing
    weights = np.maximum(0.0, 1.0 - far)
    for row in weights:
        row /= sum(row.tolist())
    return weights.astype(np.float32)


@lru_cache(maxsize=16)
def _common(side: int) -> Floats:
    """Orthonormal directions that span the features of the drawn shapes: (shape, feature)."""
    middle = (side - 1) / 2.0
    offset = np.abs(np.arange(side) - middle)
    drawn = np.empty((side, side, len(SHAPES)), np.float32)
    for number, (high, wide, twice) in enumerate(SHAPES):
        down, across = offset / (high * side), offset / (wide * side)
        for _ in range(twice):
            down, across = down * down, across * across
        radius = down[:, None] + across[None, :]
        for _ in range(twice):
            radius = np.sqrt(radius)
        drawn[:, :, number] = np.minimum(1.0, np.maximum(0.0, (1.15 - radius) / 0.3))
    kept: list[NDArray[np.float64]] = []
    for column in _edges(drawn).astype(np.float64).T:
        for before in kept:
            column = column - float(total(before * column)) * before
        kept.append(column / float(np.sqrt(total(column * column))))
    return np.stack(kept).astype(np.float32)
