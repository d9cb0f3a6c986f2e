"""From a scenario and its contracts to a trained model and a privacy statement per owner."""

from __future__ import annotations

from noisemarket.scenario.account import protection_of
from noisemarket.training.orders import Order, order
from noisemarket.training.session import Training, carry_out, train
from noisemarket.training.sigmas import one_sigma, read_contracts

__all__ = [
    "Order",
    "Training",
    "carry_out",
    "one_sigma",
    "order",
    "protection_of",
    "read_contracts",
    "train",
]
