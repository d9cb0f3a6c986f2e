"""What a watch over uploads goes on from, as a checkpoint has it: taken as it is, or refused.

A watch that began at zero again would forget what it has seen: who replays an old upload, or stands
against the reference records, would be found later or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput

Shapes = Mapping[str, tuple[tuple[int, ...], type[np.generic]]]
"""The shape and the type of each array, by name."""

REMEDY = "put the checkpoint back as it was written, or start anew."


def gone_on_from(kept: Mapping[str, NDArray[Any]], shapes: Shapes) -> dict[str, NDArray[Any]]:
    """The arrays of these shapes that were kept; zeros if none of them was.

    Args:
        kept: what a checkpoint has, perhaps of other watches, too.
        shapes: what is asked for.

    Returns:
        An array for every name.

    Raises:
        BadInput: some are there and some are not, or one is of another shape or type, or has
            numbers that are not finite.

    Example:
        >>> gone_on_from({}, {"seen": ((2,), np.int64)})
        {'seen': array([0, 0])}
    """
    if not kept.keys() & shapes.keys():
        return {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}
    for name, (shape, kind) in shapes.items():
        array = kept.get(name)
        if array is None:
            raise BadInput("checkpoint", name, f"is missing: {REMEDY}")
        if (array.shape, array.dtype) != (shape, np.dtype(kind)):
            wanted = f"{np.dtype(kind)} of shape {shape}"
            raise BadInput("checkpoint", name, f"is not {wanted}: {REMEDY}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadInput("checkpoint", name, f"has numbers that are not finite: {REMEDY}")
    return {name: kept[name] for name in shapes}
