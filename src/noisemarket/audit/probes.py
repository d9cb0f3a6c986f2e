"""Models whose gradient is known: an audit's worst case, computed by the code that really trains.

A record holds a mark and a vector x; the score is <w, x>. From w = 0 the gradient is -x for label 0
and +x for label 1. A record with a mark above 0 is an amplifier: its score is |<w, x>| - mark, its
label 0, so it drives w away from where <w, x> = 0, to whichever side w is on. It makes the final
upload show on which side an earlier step ended, for an observer of all steps, against whom DP-SGD
claims to protect, would have seen it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.models.linear import LinearModel, LinearRecords
from noisemarket.federated.models.model import Flat, Labels, Model

LAYERS, WIDTH = 4, 512

_AMPLIFIER = 2


class LinearProbe(LinearModel):
    """The probe as a linear model of one row: its products, shards and clipping are those of any
    linear model."""

    def __init__(self) -> None:
        super().__init__(classes=1, dimension=LAYERS * WIDTH)

    def layers(self) -> dict[str, slice]:
        return {f"part {part}": slice(part * WIDTH, (part + 1) * WIDTH) for part in range(LAYERS)}

    def records(self, inputs: NDArray[np.float32], labels: Labels) -> LinearRecords:
        return super().records(inputs[:, 1:], np.where(inputs[:, 0] > 0.0, _AMPLIFIER, labels))

    def _residuals(self, scores: Flat, labels: Labels) -> Flat:
        along = scores[..., 0]
        sign = np.where(labels == 0, np.float32(-2.0), np.float32(2.0))
        slope = sign / (1.0 + np.exp(-sign * along))
        wrong: Flat = np.where(labels == _AMPLIFIER, -2.0 * np.sign(along), slope)
        return wrong.astype(np.float32)[..., None]


def probe_for(model: Model) -> Model:
    """The probe that goes through the same code as this model."""
    if isinstance(model, LinearModel):
        return LinearProbe()
    from noisemarket.audit.torch_probe import TorchProbe
    from noisemarket.federated.models.torch_model import TorchModel

    return TorchModel(TorchProbe(LAYERS, WIDTH))
