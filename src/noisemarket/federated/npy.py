"""Reading ``.npy`` files, which come from anywhere: nothing in one is run."""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a file.

    The file is mapped before it is read, so that a header which promises more than there is takes
    no memory.

    Raises:
        BadInput: there is none that can be read without unpickling.
    """
    try:
        return np.array(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError) as bad:
        reason = getattr(bad, "strerror", None) or "not one whole array of plain numbers"
        remedy = f"cannot be read ({reason}): write it with numpy.save."
        raise BadInput("data", str(path), remedy) from None
