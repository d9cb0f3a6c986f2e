"""Trials of an attack: upload both neighbours again and again, score, and count wrong guesses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from noisemarket.federated.protections import Protection
from noisemarket.privacy.noise import NoiseSource
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.study.audit.canaries import Pair
from noisemarket.study.audit.findings import Finding, NoiseCheck
from noisemarket.study.audit.statistics import chance, epsilon_lower, epsilon_of, mu_lower

FloatArray = NDArray[np.float64]
Watch = Callable[[str, int], None]
"""Called with a canary's name and how many more uploads it has had."""

SHORTAGE = 0.8
"""A finding's power is that of telling noise of this part of sigma from the right noise."""


@dataclass(frozen=True)
class Canary:
    """A pair of neighbours, what both upload without noise, and the noise that they get."""

    pair: Pair
    plain: FloatArray
    sigma: float


@dataclass(frozen=True)
class Scores:
    """Scores per arm, trial and part (first everything, then layer by layer), and noise squares."""

    scores: FloatArray
    reach: FloatArray
    squares: FloatArray
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class Judge:
    """Turns counts into findings."""

    protection: Protection
    trials: int
    alpha: float
    delta: float
    claimed: bool

    def finding(self, canary: Canary, layer: str | None, part: int, seen: Scores) -> Finding:
        pair, sigma = canary.pair, canary.sigma
        mu = sensitivity_of(self.protection, pair) / sigma
        scores = seen.scores[:, :, part]
        wrong = int((scores[0] > 0.0).sum()), int((scores[1] <= 0.0).sum())
        low = mu_lower(*wrong, self.trials, self.alpha)
        reach = float(seen.reach[part])
        shown = math.inf if layer is not None else min(reach, mu) / SHORTAGE
        return Finding(
            canary=pair.canary if layer is None else "layer",
            layer=layer,
            records=len(pair.plus),
            sigma=sigma,
            mu=mu,
            epsilon=epsilon_of(mu, self.delta),
            reach_mu=reach,
            trials=self.trials,
            false_positives=wrong[0],
            false_negatives=wrong[1],
            mu_low=low,
            epsilon_low=epsilon_lower(*wrong, self.trials, self.alpha, self.delta),
            epsilon_low_gaussian=epsilon_of(low, self.delta),
            power=chance(shown, mu, self.trials, self.alpha) if self.claimed else 0.0,
            breach=self.claimed and low > mu,
            scores=scores,
        )


def attack(
    protection: Protection, canary: Canary, trials: int, noise: NoiseSource, watch: Watch | None
) -> Scores:
    """Upload both neighbours ``trials`` times and score each upload against a fixed threshold.

    Direction and threshold come from the noise-free uploads, before a single trial: the score is
    how far an upload lies from the middle between them, along the line that joins them.
    """
    pair, plain, sigma = canary.pair, canary.plain, canary.sigma
    apart, middle = plain[1] - plain[0], (plain[0] + plain[1]) / 2.0
    slices = list(pair.model.layers().values())
    starts = [here.start for here in slices]
    length = np.sqrt(np.add.reduceat(apart * apart, starts))
    reach = np.concatenate(([math.sqrt(float(length @ length))], length))
    scores = np.empty((2, trials, len(reach)))
    squares = np.zeros(len(slices))
    per = np.where(reach > 0.0, reach, 1.0) * sigma
    sides = (pair.minus, pair.plus)
    for trial in range(trials):
        for arm, records in enumerate(sides):
            task = pair.task(records, sigma, noise.stream(trial, arm), pair.order_seed)
            upload = protection.upload(task).astype(np.float64)
            along = np.add.reduceat((upload - middle) * apart, starts)
            scores[arm, trial, 0] = along.sum()
            scores[arm, trial, 1:] = along
            if pair.one_step:
                left = upload - plain[arm]
                squares += np.add.reduceat(left * left, starts)
        if watch is not None:
            watch(pair.canary, 2)
    sizes = np.array([here.stop - here.start for here in slices]) * 2 * trials
    return Scores(scores / per, reach / sigma, squares / sigma**2, sizes)


def noise_check(
    part: str, layer: str | None, squares: float, degrees: int, alpha: float
) -> NoiseCheck:
    """Whether a sum of squares of so many values of noise, over sigma^2, is too small."""
    p_value = float(chi2.cdf(squares, degrees))
    return NoiseCheck(part, layer, degrees, math.sqrt(squares / degrees), p_value, p_value < alpha)


def sensitivity_of(protection: Protection, pair: Pair) -> float:
    """How far the protection lets the two neighbours be apart."""
    return protection.sensitivity(len(pair.model), len(pair.plus), Neighbours.REPLACE_ONE)
