"""From a round's uploads to the next global model: screen them, refuse some, take their mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.weighting import capped

Refused = tuple[tuple[int, str], ...]
"""Owners whose uploads do not count in a round, and why."""


def screen(uploads: dict[int, Upload | None], dimension: int) -> tuple[dict[int, Upload], Refused]:
    """The uploads that can be used, and why the others cannot."""
    good: dict[int, Upload] = {}
    refused = []
    for owner, upload in sorted(uploads.items()):
        if upload is None:
            refused.append((owner, "missing"))
        elif upload.shape != (dimension,):
            refused.append((owner, "wrong shape"))
        elif upload.dtype != np.float32:
            refused.append((owner, "wrong type"))
        elif not np.isfinite(upload).all():
            refused.append((owner, "not finite"))
        else:
            good[owner] = upload
    return good, tuple(refused)


def refuse(
    refusals: Mapping[int, str],
    good: dict[int, Upload],
    refused: Refused,
    uploads: Mapping[int, Upload | None],
) -> tuple[dict[int, Upload], Refused]:
    """Take out what the caller refuses; what could not be used anyway keeps its own reason."""
    for owner in refusals:
        if owner not in uploads:
            raise BadInput("inspect", owner, "refuse only owners that took part in the round.")
    more = tuple((owner, str(why)) for owner, why in refusals.items() if owner in good)
    left = {owner: upload for owner, upload in good.items() if owner not in refusals}
    return left, tuple(sorted(refused + more))


def aggregate(
    weights: Weights,
    uploads: dict[int, Upload],
    shares: NDArray[np.float64],
    decay: float = 0.0,
    rate: float = 1.0,
    weight_cap: float = 1.0,
) -> Weights:
    """The global model moved by the weighted mean of the updates, summed in the owners' order.

    The mean counts ``rate`` times. The model is first shrunk by ``decay``, which keeps the noise of
    past rounds from piling up. No owner has a larger part in the mean than ``weight_cap``.
    """
    present = sorted(uploads)
    counts = capped(shares[present], weight_cap) if present else np.zeros(0)
    whole = float(counts.sum())
    if whole <= 0.0:
        return weights
    moved = (1.0 - decay) * weights
    for owner, count in zip(present, counts.tolist(), strict=True):
        moved += (rate * count / whole) * uploads[owner].astype(np.float64)
    return moved
