"""What a set of contracts is worth, to the owners and to the curator."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray
from noisemarket.pricing.joint import JointValue
from noisemarket.pricing.mechanism import Contracts


@dataclass(frozen=True)
class Tally:
    """Means over the owners. ``curator_gain`` is per owner, over no trade; ``mean_quality`` the
    model quality of the loss surface, in per cent: both as if each owner trained a model of its
    own, which is the paper's game. ``model_quality`` is that of the one model that all train, and
    ``joint_gain`` what all contracts together are worth to its curator, over no trade."""

    mean_saving: float
    mean_payment: float
    mean_owner_payoff: float
    mean_curator_payoff: float
    curator_gain: float
    mean_quality: float
    signed_share: float
    total_payment: float
    model_quality: float
    joint_gain: float

    def as_dict(self) -> dict[str, float]:
        """All figures by name."""
        return asdict(self)


def tally(environment: Environment, contracts: Contracts, done: BoolArray | None = None) -> Tally:
    """What contracts (of the owners that are ``done``) are worth by the last preferences."""
    owners = len(contracts)
    sums = np.zeros(4)
    counted = np.ones(owners, dtype=bool) if done is None else done
    for some in environment.slices():
        terms, keep = (contracts.saving[some], contracts.payment[some]), counted[some]
        curator = environment.curator_side(some=some)
        payoffs = curator.payoffs_of(*terms)
        values = (
            environment.owner_side(some=some).payoffs_of(*terms),
            payoffs,
            payoffs - curator.base(),
            curator.qualities_of(terms[0]),
        )
        sums += [float(value[keep].sum()) for value in values]
    count = max(int(counted.sum()), 1)
    owner, payoff, gain, quality = sums / count
    joint = JointValue.of(environment)
    paid = environment.levels.payments[contracts.payment[counted]]
    return Tally(
        mean_saving=float(environment.levels.savings[contracts.saving[counted]].sum()) / count,
        mean_payment=float(paid.sum()) / count,
        mean_owner_payoff=float(owner),
        mean_curator_payoff=float(payoff),
        curator_gain=float(gain),
        mean_quality=float(quality),
        signed_share=float(contracts.signed[counted].sum()) / count,
        total_payment=float(paid.sum()),
        model_quality=joint.fitted_quality(contracts),
        joint_gain=joint.gain(contracts),
    )
