"""What contracts are worth, over no trade: to each owner, and to the curator.

The curator's worth is counted per owner, as the paper simplifies it (``CuratorSide``), and for the
one model that all train (``JointValue``): its quality is read off the loss surface at the effective
noise of the weighted mean and at the share of the owners that it rests on. Both follow from three
sums over the owners, of ``w``, ``w^2 sigma^2`` and ``w^2``: a change costs one owner. Where one
seller can reach the cap on weights, the sums are numbers of owners by size and level instead, and
the three follow from those.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.federated.aggregation import (
    Noise,
    PublicFigures,
    capped,
    counted,
    default_weight_cap,
    effective_noise,
    effective_share,
    owner_weights,
)
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, Levels, LossSurface

MOST_COUNTS = 20_000_000
"""Numbers that the counts of all owners at all levels may take: beyond it no cap is reckoned with,
which a market of so many owners or levels hardly notices."""


@dataclass(frozen=True)
class Worth:
    """What contracts are worth: means over the owners, and sums where said.

    ``curator_gain`` is per owner, over no trade; ``mean_quality`` the model quality of the loss
    surface, in per cent: both as if each owner trained a model of its own, which is the paper's
    game. ``owners_surplus`` is what all owners gain over no trade, together. ``model_quality`` is
    that of the one model that all train, and ``predicted_value`` what all contracts together are
    worth to its curator over no trade, before any training.
    """

    mean_saving: float
    mean_payment: float
    mean_owner_payoff: float
    mean_curator_payoff: float
    curator_gain: float
    mean_quality: float
    signed_share: float
    total_payment: float
    owners_surplus: float
    model_quality: float
    predicted_value: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def worth(environment: Environment, contracts: Contracts, done: BoolArray | None = None) -> Worth:
    """What contracts (of the owners that are ``done``) are worth by the last preferences."""
    sums = np.zeros(5)
    counted = np.ones(len(contracts), dtype=bool) if done is None else done
    for some in environment.slices():
        terms, keep = (contracts.saving[some], contracts.payment[some]), counted[some]
        owner, curator = environment.owner_side(some=some), environment.curator_side(some=some)
        own, payoffs = owner.payoffs_of(*terms), curator.payoffs_of(*terms)
        values = (
            own,
            payoffs,
            payoffs - curator.base(),
            curator.qualities_of(terms[0]),
            own - owner.base(),
        )
        sums += [float(value[keep].sum()) for value in values]
    count = max(int(counted.sum()), 1)
    mean_owner, mean_curator, gain, quality, _ = (sums / count).tolist()
    joint = JointValue.of(environment)
    paid = environment.levels.payments[contracts.payment[counted]]
    kept = Contracts(
        saving=np.where(counted, contracts.saving, 0),
        payment=np.where(counted, contracts.payment, 0),
        signed=contracts.signed & counted,
    )
    return Worth(
        mean_saving=float(environment.levels.savings[contracts.saving[counted]].sum()) / count,
        mean_payment=float(paid.sum()) / count,
        mean_owner_payoff=mean_owner,
        mean_curator_payoff=mean_curator,
        curator_gain=gain,
        mean_quality=quality,
        signed_share=float(contracts.signed[counted].sum()) / count,
        total_payment=float(paid.sum()),
        owners_surplus=float(sums[4]),
        model_quality=joint.fitted_quality(kept),
        predicted_value=joint.gain(kept),
    )


@dataclass(frozen=True, eq=False)
class JointValue:
    """A curator's value of all contracts together, from public figures and its own preferences.

    ``V = N varpi lambda_s Q(effective noise, mean beta, share) - (1 - varpi) mu sum(payments)``:
    the paper's sum over owners, with the one quality that all of them share. ``quality_price`` is N
    varpi lambda_s, ``money_price`` is (1 - varpi) mu, ``dealt`` the mean beta as data is dealt out.
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
        now, owners = environment.phases[-1], len(environment)
        return cls(
            levels=environment.levels,
            surface=environment.surface,
            records=counted(np.rint(environment.population.data_size).astype(np.int64)),
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
        figures = PublicFigures(sigma, self.records, 1, self.dealt)
        weights = capped(owner_weights(Noise(), figures), default_weight_cap(len(self)))
        noise, share = effective_noise(sigma, weights), effective_share(weights)
        return float(self.surface.quality(noise, self.beta, min(share, 1.0)))

    def value(self, contracts: Contracts) -> float:
        paid = math.fsum(self.levels.payments[contracts.payment])
        return self.quality_price * self.fitted_quality(contracts) - self.money_price * paid

    def gain(self, contracts: Contracts) -> float:
        """V of these contracts, less V of no trade."""
        return self.value(contracts) - self.value(Contracts.same(len(contracts), 0, 0))

    # The same by sums, where one contract changes at a time

    def terms(self, saving: ArrayLike, records: IntArray) -> FloatArray:
        """What owners of a size with a saving add to the sums: the last axis of the result."""
        level, sizes = np.broadcast_arrays(np.asarray(saving), records)
        if self._kinds is None:
            return self._moments(self.levels.sigmas[level], sizes)
        return np.asarray(self._kinds.one_of(level, sizes))

    def sale(self, saving: int) -> tuple[FloatArray, FloatArray]:
        """The sums over all owners without a trade, and what each owner's sale of a saving adds."""
        without, sold = (self.terms(level, self.records) for level in (0, saving))
        return without.sum(axis=0), sold - without

    def moments(self, sums: FloatArray) -> FloatArray:
        """The sums of ``w``, ``w^2 sigma^2`` and ``w^2``, no weight capped."""
        return sums if self._kinds is None else sums @ self._kinds.moments

    def quality(self, sums: FloatArray) -> FloatArray:
        """The quality at each of these sums over all owners."""
        moments = sums if self._kinds is None else self._kinds.capped_moments(sums)
        weight, noisy, square = (np.asarray(moments)[..., at] for at in range(3))
        share = np.minimum(weight**2 / (len(self) * square), 1.0)
        noise = np.sqrt(len(self) * np.maximum(noisy, 0.0)) / weight
        return self.surface.quality(noise, self.beta, share)

    def _moments(self, sigma: FloatArray, records: IntArray) -> FloatArray:
        figures = PublicFigures(sigma.reshape(-1), records.reshape(-1), 1, self.dealt)
        weight = Noise().weights(figures).reshape(sigma.shape)
        return np.stack([weight, weight**2 * sigma**2, weight**2], axis=-1)

    @cached_property
    def _kinds(self) -> _Kinds | None:
        """The kinds of owners, if a single seller can reach the cap on weights."""
        cap, sizes = default_weight_cap(len(self)), np.unique(self.records)
        levels = len(self.levels.sigmas)
        without = self._moments(np.full(len(self), self.levels.sigma_max), self.records)[:, 0]
        heaviest = float(
            self._moments(self.levels.sigmas[-1:], self.records.max(keepdims=True))[0, 0]
        )
        others = float(without.sum() - without.max())
        reached = heaviest > cap * (heaviest + others)
        if not reached or len(self) * len(sizes) * levels**2 > MOST_COUNTS:
            return None
        sigma = np.broadcast_to(self.levels.sigmas, (len(sizes), levels))
        moments = self._moments(sigma, np.broadcast_to(sizes[:, None], sigma.shape)).reshape(-1, 3)
        return _Kinds(sizes, moments, cap)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Kinds of owners, by size and then by saving level; sums are the number of owners of each."""

    sizes: IntArray
    moments: FloatArray
    cap: float

    def one_of(self, level: IntArray, records: IntArray) -> FloatArray:
        levels = len(self.moments) // len(self.sizes)
        kind = np.searchsorted(self.sizes, records) * levels + level
        return np.asarray(kind[..., None] == np.arange(len(self.moments)), dtype=float)

    def capped_moments(self, counts: FloatArray) -> FloatArray:
        """As ``aggregation.capped`` does it: the largest weights are lowered to one value."""
        order = np.argsort(-self.moments[:, 0], kind="stable")
        weight, noisy, square = self.moments[order].T
        number = counts[..., order]
        lowered = np.cumsum(number, axis=-1)
        left = np.cumsum((number * weight)[..., ::-1], axis=-1)[..., ::-1]
        # If all heavier kinds are lowered: the weight that makes each of them the cap's share.
        before = np.concatenate([np.zeros_like(lowered[..., :1]), lowered[..., :-1]], axis=-1)
        rest = 1.0 - before * self.cap
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(rest > 0.0, self.cap * left / rest, np.inf)
        enough = np.argmax(top >= weight, axis=-1)
        at_most = np.take_along_axis(top, enough[..., None], axis=-1)
        part = np.minimum(weight, at_most) / weight
        return np.stack(
            [
                (number * part * weight).sum(axis=-1),
                (number * part**2 * noisy).sum(axis=-1),
                (number * part**2 * square).sum(axis=-1),
            ],
            axis=-1,
        )
