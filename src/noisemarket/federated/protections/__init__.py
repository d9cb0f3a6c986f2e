"""Protections by name: those of this package, and those of the user's own packages."""

from __future__ import annotations

from noisemarket.federated.protections.clipped import Clipped
from noisemarket.federated.protections.dp_sgd import DPSGD
from noisemarket.federated.protections.paper import Paper
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.federated.protections.sharded import Sharded
from noisemarket.registry import Registry, subclass_of

PROTECTIONS = Registry[type[Protection]](
    "privacy.protection",
    "noisemarket.protections",
    {"paper": Paper, "sharded": Sharded, "dp_sgd": DPSGD, "clipped": Clipped},
    subclass_of(Protection),
)
"""All protections by name; packages add theirs as entry points of ``noisemarket.protections``."""

__all__ = [
    "DPSGD",
    "PROTECTIONS",
    "Clipped",
    "Paper",
    "Protection",
    "Sharded",
    "Upload",
    "UploadTask",
]
