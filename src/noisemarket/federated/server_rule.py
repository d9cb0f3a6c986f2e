"""How the server uses a mean update: rate, momentum and averaging, from public figures alone.

Contracts (sigmas), numbers of records, rounds and clip are public, and all of it works on what was
released, so none of it costs privacy.

**Linear models.** With features of length 1, noise of standard deviation s on every weight moves
each score by N(0, s^2). So what counts is the noise of the mean update against the length that an
update may have, not the number of weights. The less noise, the farther the model may travel along a
mean update in all, which is rate / (1 - momentum): in inverse proportion. It travels less the more
rounds there are, for noise piles up with their root. A short travel is a rate without momentum;
beyond ``RATE`` momentum makes it up, to ``MOST_MOMENTUM``; then the rate rises.

**Networks.** The rate keeps the noise that a round adds about what sigma = 0.3 of all owners would
add, from 1 to 3; there is no momentum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VERSION = 3
"""Of the rules: goes up with every change of what they give."""

TRAVEL = 0.36
"""The travel times the mean's noise over its length: 6 for 100 owners at sigma 0.6."""
ROUNDS = 30
"""The rounds at which ``TRAVEL`` was measured."""
LONGEST = 150.0
"""The longest travel, where there is next to no noise."""
RATE = 6.0
MOST_MOMENTUM = 0.9
LINEAR_AVERAGING = 0.8
NETWORK_AVERAGING = 0.6


@dataclass(frozen=True)
class ServerSteps:
    """velocity = momentum * velocity + mean update; model += rate * velocity.

    ``averaging`` is the weight of the past in an average of the global models.
    """

    rate: float
    momentum: float
    averaging: float


def linear_steps(noise: float, length: float, rounds: int = ROUNDS) -> ServerSteps:
    """The steps for a linear model, by the deviation of the mean update's noise on every weight.

    ``length`` is how long an update may be without its noise; infinite where nothing bounds it.
    Then the mean counts once: plain federated averaging.

    Example:
        >>> linear_steps(noise=0.06, length=1.0)
        ServerSteps(rate=6.0, momentum=0.0, averaging=0.8)
    """
    if math.isinf(length):
        return ServerSteps(1.0, 0.0, LINEAR_AVERAGING)
    piled = noise * math.sqrt(rounds / ROUNDS)
    travel = min(LONGEST, TRAVEL * length / piled) if piled > 0.0 else LONGEST
    momentum = min(MOST_MOMENTUM, max(0.0, 1.0 - RATE / travel))
    return ServerSteps(travel * (1.0 - momentum) / length, momentum, LINEAR_AVERAGING)


def network_steps(sigma: NDArray[np.float64], weights: NDArray[np.float64]) -> ServerSteps:
    """The steps for a network, by each owner's noise and weight."""
    usual = math.sqrt(float((weights * sigma**2).sum() / weights.sum()))
    rate = min(3.0, max(1.0, 0.3 / usual)) if usual > 0.0 else 3.0
    return ServerSteps(rate, 0.0, NETWORK_AVERAGING)
