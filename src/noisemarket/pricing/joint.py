"""What contracts are worth together: there is one model, and all owners' information adds up.

The paper lets the curator value each owner's noise as if it trained a model of its own. Here the
quality of the one model is read off the loss surface at the effective noise of the weighted mean
and at the share of the owners that it rests on. Updates are weighed by noise, as
``federated/aggregation.py:Noise`` does.

Effective noise and share follow from three sums over the owners: of weights ``w``, of
``w^2 sigma^2`` and of ``w^2``. So what changes when one owner's contract changes costs no more than
one owner, however many there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.federated.aggregation import (
    Noise,
    PublicFigures,
    effective_noise,
    effective_share,
    owner_weights,
)
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray, IntArray, Levels
from noisemarket.game.surface import LossSurface
from noisemarket.pricing.mechanism import Contracts


@dataclass(frozen=True, eq=False)
class JointValue:
    """A curator's value of all contracts together, from public figures and its own preferences.

    ``V = N varpi lambda_s Q(effective noise, mean beta, share) - (1 - varpi) mu sum(payments)``:
    the paper's sum over owners, with the one quality that all of them share.

    Args:
        levels: the grids of savings and payments.
        surface: how noise turns into quality.
        records: how many records each owner has.
        beta: mean non-IID degree of the owners' data, as it counts in the quality.
        dealt: the same as the data is dealt out, which is what updates are weighed by.
        quality_price: N varpi lambda_s, what one point of quality is worth.
        money_price: (1 - varpi) mu, what one unit of money is worth.
    """

    levels: Levels
    surface: LossSurface
    records: IntArray
    beta: float
    dealt: float
    quality_price: float
    money_price: float

    @classmethod
    def of(cls, environment: Environment) -> JointValue:
        """The joint value by the last preferences."""
        now, owners = environment.phases[-1], len(environment)
        return cls(
            levels=environment.levels,
            surface=environment.surface,
            records=np.rint(environment.population.data_size).astype(np.int64),
            beta=math.fsum(now.beta) / owners,
            dealt=math.fsum(environment.population.beta) / owners,
            quality_price=owners * now.quality_weight * now.quality_value,
            money_price=(1.0 - now.quality_weight) * now.payment_cost,
        )

    def __len__(self) -> int:
        return len(self.records)

    def fitted_quality(self, contracts: Contracts) -> float:
        """The quality of the one model under these contracts, in per cent."""
        sigma = self.levels.sigmas[contracts.saving]
        weights = owner_weights(Noise(), PublicFigures(sigma, self.records, 1, self.dealt))
        noise, share = effective_noise(sigma, weights), effective_share(weights)
        return float(self.surface.quality(noise, self.beta, min(share, 1.0)))

    def value(self, contracts: Contracts) -> float:
        """V of these contracts."""
        paid = math.fsum(self.levels.payments[contracts.payment])
        return self.quality_price * self.fitted_quality(contracts) - self.money_price * paid

    def gain(self, contracts: Contracts) -> float:
        """V of these contracts, less V of no trade."""
        nothing = np.zeros(len(contracts), np.int64)
        none = Contracts(nothing, nothing, np.zeros(len(contracts), bool))
        return self.value(contracts) - self.value(none)

    # The same by sums, for whoever changes one contract at a time

    def terms(self, sigma: ArrayLike, records: IntArray) -> FloatArray:
        """What owners with this noise add to the three sums: the last axis of the result."""
        noise, sizes = np.broadcast_arrays(np.asarray(sigma, dtype=float), records)
        figures = PublicFigures(noise.reshape(-1), sizes.reshape(-1), 1, self.dealt)
        weight = Noise().weights(figures).reshape(noise.shape)
        return np.stack([weight, weight**2 * noise**2, weight**2], axis=-1)

    def sale(self, saving: int) -> tuple[FloatArray, FloatArray]:
        """The sums over all owners without a trade, and what each owner's sale of a saving adds."""
        without, sold = (self.terms(self.levels.sigmas[j], self.records) for j in (0, saving))
        return without.sum(axis=0), sold - without

    def quality(self, sums: FloatArray) -> FloatArray:
        """The quality at each of these sums over all owners."""
        weight, noisy, square = (np.asarray(sums)[..., at] for at in range(3))
        share = np.minimum(weight**2 / (len(self) * square), 1.0)
        noise = np.sqrt(len(self) * np.maximum(noisy, 0.0)) / weight
        return self.surface.quality(noise, self.beta, share)
