"""A budget-feasible auction of privacy, in the style of Ghosh and Roth (2011).

There, each of ``k`` sellers out of ``n`` sells epsilon ``1 / (n - k)``, which costs an owner of
unit cost ``v`` the amount ``v / (n - k)``. With owners in the order of their costs, the largest
``k`` with ``v_k / (n - k) <= B / k`` sell, and each is paid ``min(B / k, v_{k+1} / (n - k))``.

Here every seller sells the same, down to the floor, however many they are. What that costs an owner
is its limit, and takes the place of ``v / (n - k)``.
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.mechanisms.mechanism import RunOptions
from noisemarket.mechanisms.proportional_share import ProportionalShare
from noisemarket.mechanisms.sealed_bids import Award, SealedBids


class PACAuction(SealedBids):
    """The cheapest owners by sealed bids, as many as equal shares of the budget pay."""

    def award(self, environment: Environment, options: RunOptions, saving: int) -> Award:
        alike = np.ones(len(environment))
        return ProportionalShare.of(environment, saving, alike, options.demand)
