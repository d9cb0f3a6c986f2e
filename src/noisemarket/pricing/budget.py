"""What a budget pays, to the micro-unit: money on the ledger is whole micro-units."""

from __future__ import annotations

import math

MICRO = 1_000_000
_ROUNDING = 1e-4  # micro-units by which a float may miss the amount that it is printed as


def micro_up(amount: float) -> int:
    """An amount in micro-units, rounded up: never less than the ledger would book."""
    return max(int(amount > 0.0), math.ceil(amount * MICRO - _ROUNDING))


def micro_down(amount: float) -> int:
    """An amount in micro-units, rounded down: never more than the ledger would allow."""
    return math.floor(amount * MICRO + _ROUNDING)


def affordable(budget: float | None, price: float, owners: int) -> int:
    """How many of these owners a budget pays at one price; all of them without a budget."""
    if budget is None or price == 0.0:
        return owners
    return min(owners, micro_down(budget) // micro_up(price))
