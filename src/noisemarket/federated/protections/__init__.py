"""Protections by name."""

from __future__ import annotations

from noisemarket.federated.protections.dp_sgd import DPSGD
from noisemarket.federated.protections.paper import Paper
from noisemarket.federated.protections.protection import Protection, Records, Upload
from noisemarket.federated.protections.sharded import Sharded

PROTECTIONS: dict[str, type[Protection]] = {"paper": Paper, "sharded": Sharded, "dp_sgd": DPSGD}

__all__ = ["DPSGD", "PROTECTIONS", "Paper", "Protection", "Records", "Sharded", "Upload"]
