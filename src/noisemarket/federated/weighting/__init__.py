"""Weightings by name: those of this package, and those of the user's own packages."""

from __future__ import annotations

from noisemarket.federated.weighting.by_noise import Noise
from noisemarket.federated.weighting.data_size import DataSize
from noisemarket.federated.weighting.effective import effective_noise, effective_share
from noisemarket.federated.weighting.equal import Equal
from noisemarket.federated.weighting.weighting import PublicFigures, Weighting, owner_weights
from noisemarket.registry import Registry, subclass_of

WEIGHTINGS = Registry[type[Weighting]](
    "training.weighting",
    "noisemarket.weightings",
    {"noise": Noise, "data_size": DataSize, "equal": Equal},
    subclass_of(Weighting),
)
"""All weightings by name; packages add theirs as entry points of ``noisemarket.weightings``."""

__all__ = [
    "WEIGHTINGS",
    "DataSize",
    "Equal",
    "Noise",
    "PublicFigures",
    "Weighting",
    "effective_noise",
    "effective_share",
    "owner_weights",
]
