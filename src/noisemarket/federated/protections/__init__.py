"""Protections by name."""

from __future__ import annotations

from noisemarket.federated.protections.clipped import Clipped
from noisemarket.federated.protections.dp_sgd import DPSGD
from noisemarket.federated.protections.paper import Paper
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.federated.protections.sharded import Sharded
from noisemarket.parts import Parts

PROTECTIONS = Parts[type[Protection]](
    "privacy.protection",
    {"paper": Paper, "sharded": Sharded, "dp_sgd": DPSGD, "clipped": Clipped},
    Protection,
)
"""All protections by name; your own by ``package.module:Name``."""

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
