"""An auction by quality per cost, with critical payments, in the style of CSRA (Yang et al. 2024).

Owners are ranked by what their sale adds to the model for the price that they name. What it adds is
public: by how much the weight of the owner's update in the noise-aware mean grows when it keeps the
floor instead of all its noise. Owners with more data weigh more.
"""

from __future__ import annotations

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.mechanisms.joint import JointValue
from noisemarket.mechanisms.mechanism import RunOptions
from noisemarket.mechanisms.proportional_share import ProportionalShare
from noisemarket.mechanisms.sealed_bids import Award, SealedBids


class CSRAAuction(SealedBids):
    """The owners with most quality for their price by sealed bids, each paid its critical bid."""

    def award(self, environment: Environment, options: RunOptions, saving: int) -> Award:
        scores = added_weight(JointValue.of(environment), saving)
        return ProportionalShare.of(environment, saving, scores, options.demand)


def added_weight(joint: JointValue, saving: int) -> FloatArray:
    """What each owner's sale of a saving adds to the weight of its update, over the most of all."""
    kept, all_noise = (
        joint.terms(joint.levels.sigma_left(level), joint.records)[:, 0] for level in (saving, 0)
    )
    more = kept - all_noise
    return np.asarray(more / more.max())
