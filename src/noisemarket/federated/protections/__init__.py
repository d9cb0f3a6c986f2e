"""Protections by name."""

from __future__ import annotations

from noisemarket.federated.protections.dp_sgd import DPSGD
from noisemarket.federated.protections.paper import Paper
from noisemarket.federated.protections.per_record import PerRecord
from noisemarket.federated.protections.protection import Protection, Upload, UploadTask
from noisemarket.federated.protections.sharded import Sharded
from noisemarket.parts import Parts

PROTECTIONS = Parts[type[Protection]](
    "privacy.protection",
    {
        "per_record": PerRecord,
        "sharded": Sharded,
        "dp_sgd": DPSGD,
        "paper": Paper,
    },
    Protection,
)
"""All protections by name; your own by ``package.module:Name``."""

__all__ = [
    "DPSGD",
    "PROTECTIONS",
    "Paper",
    "PerRecord",
    "Protection",
    "Sharded",
    "Upload",
    "UploadTask",
]
