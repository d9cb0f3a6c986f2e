"""Reading ``.npy`` files, which come from anywhere: nothing in one is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a file.

    Raises:
        BadInput: there is none that can be read without unpickling.
    """
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        reason = getattr(problem, "strerror", None) or "not an array of plain numbers"
        raise BadInput("data", str(path), f"cannot be read ({reason}).") from None
    return array
