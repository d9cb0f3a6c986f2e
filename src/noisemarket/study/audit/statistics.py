"""What counted errors prove: exact bounds on error rates, on mu and epsilon, and on the noise.

An attack guesses which of two neighbours an upload came from. A false positive takes ``-`` for
``+``, a false negative the other way round. Under mu-GDP no test has a false positive rate ``a``
and a false negative rate ``b`` with ``ndtri(1 - a) - ndtri(b) > mu``. Counts bound both rates from
above (Clopper and Pearson: exact for any number of trials), so they bound mu from below.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from noisemarket.privacy.zcdp import gaussian_epsilon

FloatArray = NDArray[np.float64]


def rate_upper(errors: ArrayLike, trials: int, alpha: float) -> FloatArray:
    """Clopper-Pearson: an error rate above this gives so few errors with probability < alpha."""
    seen = np.asarray(errors, dtype=np.float64)
    left = np.maximum(trials - seen, 1.0)  # no beta law where all trials erred; the bound is 1
    bound = beta.ppf(1.0 - alpha, seen + 1.0, left)
    return np.asarray(np.where(seen >= trials, 1.0, bound), dtype=np.float64)


def mu_lower(false_positives: int, false_negatives: int, trials: int, alpha: float) -> float:
    """The mu that the counts prove, wrong with probability at most ``alpha``; 0 if none."""
    one, other = _half_mu([false_positives, false_negatives], trials, alpha)
    return max(float(one + other), 0.0)


def epsilon_lower(
    false_positives: int, false_negatives: int, trials: int, alpha: float, delta: float
) -> float:
    """The epsilon that the counts prove of any mechanism: ln((1 - delta - b) / a)."""
    a, b = rate_upper([false_positives, false_negatives], trials, alpha / 2.0)
    shown = [math.log((1.0 - delta - y) / x) for x, y in ((a, b), (b, a)) if y < 1.0 - delta]
    return max(0.0, *shown) if shown else 0.0


def epsilon_of(mu: float, delta: float) -> float:
    """The exact epsilon of a Gaussian release with this mu."""
    return gaussian_epsilon(mu * mu / 2.0, delta)


def chance(true_mu: float, claimed_mu: float, trials: int, alpha: float) -> float:
    """The exact probability that a Gaussian release of ``true_mu`` is found to pass the claim.

    With ``true_mu`` at the claim it is the probability of a false alarm, above it the power.
    """
    error = float(ndtr(-true_mu / 2.0))
    counts = np.arange(trials + 1)
    half = _half_mu(counts, trials, alpha)  # falls with the count
    probability = binom.pmf(counts, trials, error)
    # A first arm's count passes with every second count whose half is above what is missing.
    passing = np.searchsorted(-half, half - claimed_mu, side="left")
    return float(probability @ binom.cdf(passing - 1, trials, error))


def _half_mu(errors: ArrayLike, trials: int, alpha: float) -> NDArray[Any]:
    return np.asarray(-ndtri(rate_upper(errors, trials, alpha / 2.0)))
