"""The attack: upload both neighbours again and again, count wrong guesses, and judge the claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from noisemarket.audit import canaries
from noisemarket.audit.bugs import BUGS, Buggy, bugs_of
from noisemarket.audit.canaries import Pair
from noisemarket.audit.findings import AuditResult, Control, Finding, NoiseCheck
from noisemarket.audit.statistics import (
    chance,
    epsilon_lower,
    epsilon_of,
    low_noise_p,
    mu_lower,
)
from noisemarket.errors import BadInput
from noisemarket.federated.model import CNN, FlatModel, ModelMaker
from noisemarket.federated.protections import Protection
from noisemarket.privacy.noise import LARGEST, NoiseSource, SecureNoise
from noisemarket.privacy.zcdp import Neighbours

FloatArray = NDArray[np.float64]
Watch = Callable[[str, int], None]
"""Told which canary has had how many more uploads."""

TARGET_MU = 2.5
"""Where no sigma is given, the one at which a release claims this mu: wrong noise shows best."""
UNCLAIMED_SIGMA = 0.6
"""Where none is given and nothing is claimed: no trade's noise in the default scenario."""
NOISE_VALUES = 80_000
"""Values of noise that the noise check of several steps draws: enough to find 2 % missing."""
SHORTAGE = 0.8
LEAST_SIGMA = 2.0**-16
"""Noise that is much finer than the weights of a network can hold, as floats, is rounded off."""


@dataclass(frozen=True)
class Target:
    """The network that is really trained: how to make it, its images and its classes."""

    maker: ModelMaker = CNN
    shape: tuple[int, ...] = (1, 28, 28)
    classes: int = 10


@dataclass(frozen=True)
class _Canary:
    """A pair of neighbours, what both upload without noise, and the noise that they get."""

    pair: Pair
    plain: FloatArray
    sigma: float


@dataclass(frozen=True)
class _Scores:
    """Scores per arm, trial and part (first everything, then layer by layer), and noise squares."""

    scores: FloatArray
    reach: FloatArray
    squares: FloatArray
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class Prepared:
    """An audit whose canaries are made: what cannot be audited has been refused."""

    protection: Protection
    canaries: tuple[_Canary, ...]
    silent: Pair
    silent_sigma: float
    trials: int
    confidence: float
    delta: float
    claimed: bool

    def run(self, noise: NoiseSource | None = None, watch: Watch | None = None) -> AuditResult:
        """Attack, and hold what can be proven against what is claimed."""
        protection, trials = self.protection, self.trials
        source = SecureNoise() if noise is None else noise
        layers = list(self.canaries[-1].pair.model.layers())
        # Canaries; layers and their noise; the noise of steps and of repeats.
        tests = len(self.canaries) + 2 * len(layers) + 2
        alpha = (1.0 - self.confidence) / tests
        judge = _Judge(protection, trials, alpha, self.delta, self.claimed)
        findings: list[Finding] = []
        with _one_thread():
            checks = [*self._steps_noise(source.stream(0), alpha, watch)]
            for number, canary in enumerate(self.canaries, start=1):
                seen = _attack(protection, canary, trials, source.stream(number), watch)
                findings.append(judge.finding(canary, None, 0, seen))
                if canary is self.canaries[-1]:
                    for part, layer in enumerate(layers, start=1):
                        if seen.reach[part] > 0.0:  # else nothing can show in this layer
                            findings.append(judge.finding(canary, layer, part, seen))
                        degrees = int(seen.sizes[part - 1])
                        squares = float(seen.squares[part - 1])
                        checks.append(_noise_check("network", layer, squares, degrees, alpha))
        alarms = [chance(f.mu, f.mu, trials, alpha) if self.claimed else 0.0 for f in findings]
        hidden = protection.protects(Neighbours.REPLACE_ONE)
        return AuditResult(
            protection=protection.name,
            bug=protection.bug if isinstance(protection, Buggy) else None,
            claimed=self.claimed,
            neighbours=str(Neighbours.REPLACE_ONE),
            protects=hidden if self.claimed else None,
            delta=self.delta,
            trials=trials,
            confidence=self.confidence,
            false_alarm=math.fsum(alarms) + alpha * len(checks),
            private=source.private,
            source=source.name,
            findings=tuple(findings),
            noise=tuple(checks),
        )

    def _steps_noise(
        self, noise: NoiseSource, alpha: float, watch: Watch | None
    ) -> tuple[NoiseCheck, ...]:
        """The noise of an owner that has nothing to tell, over as many steps as its records make.

        Differences of neighbouring uploads, over sqrt(2), must be as large as the noise itself:
        where noise repeats, they are not.
        """
        pair, sigma, count = self.silent, self.silent_sigma, _steps_noise_uploads()
        made = np.empty((count, len(pair.model)))
        for number in range(count):
            rng = np.random.default_rng(0)
            made[number] = self.protection.upload(
                pair.model, pair.start, pair.plus, sigma, noise.stream(number), rng
            )
            if watch is not None:
                watch("noise", 1)
        made /= sigma
        twice = count // 2 * 2
        apart = (made[0:twice:2] - made[1:twice:2]) / math.sqrt(2.0)
        return tuple(
            _noise_check(part, None, float(np.vdot(values, values)), values.size, alpha)
            for part, values in (("several steps", made), ("changes between uploads", apart))
        )


def prepare(
    protection: Protection,
    *,
    sigma: float | None = None,
    mu: float = TARGET_MU,
    trials: int = 1000,
    confidence: float = 0.999,
    delta: float = 1e-5,
    seed: int = 1,
    target: Target | None = None,
) -> Prepared:
    """Make the canaries of an audit, or refuse it; the options are those of ``audit``."""
    if not 0.0 < mu <= 20.0:
        raise BadInput("mu", mu, "give a number above 0, up to 20.")
    _check(protection, sigma, trials, confidence, delta, seed)
    real = Target() if target is None else target
    with _one_thread():
        right = canaries.right_part(protection)
        claimed = math.isfinite(right.sensitivity(1, 1, Neighbours.REPLACE_ONE))
        silent = canaries.silent(protection)
        silent_sigma = _sigma(protection, silent, sigma, mu)
        dimension = len(FlatModel(real.maker()))
        goal = right.sensitivity(dimension, 1, Neighbours.REPLACE_ONE)  # of one step
        enough = goal if claimed else 20.0 * (sigma or UNCLAIMED_SIGMA)
        pairs = (
            canaries.whole(protection, seed),
            canaries.partial(protection, seed),
            canaries.network(protection, real.maker, real.shape, real.classes, enough, seed),
        )
        made = tuple(
            _Canary(pair, pair.plain(protection), _sigma(protection, pair, sigma, mu))
            for pair in pairs
        )
    return Prepared(protection, made, silent, silent_sigma, trials, confidence, delta, claimed)


def audit(
    protection: Protection,
    *,
    sigma: float | None = None,
    mu: float = TARGET_MU,
    trials: int = 1000,
    confidence: float = 0.999,
    delta: float = 1e-5,
    seed: int = 1,
    noise: NoiseSource | None = None,
    target: Target | None = None,
    watch: Watch | None = None,
) -> AuditResult:
    """Attack a protection as it is, and hold what can be proven against what it claims.

    A right protection passes with probability ``confidence`` at least, over all canaries together.
    Without ``sigma`` every canary gets the noise at which the claim is ``mu``. Noise is secure
    unless another source is given. The neighbours are those of ``replace_one``.
    """
    ready = prepare(
        protection, sigma=sigma, mu=mu, trials=trials, confidence=confidence, delta=delta,
        seed=seed, target=target,
    )  # fmt: skip
    return ready.run(noise, watch)


def controls(
    protection: Protection,
    *,
    sigma: float | None = None,
    mu: float = TARGET_MU,
    trials: int = 1000,
    confidence: float = 0.999,
    delta: float = 1e-5,
    seed: int = 1,
    noise: NoiseSource | None = None,
    target: Target | None = None,
    watch: Watch | None = None,
) -> Iterator[Control]:
    """Audit the right protection, then each seeded bug that makes a difference to it.

    All canaries are made by the call; the audits run one by one as they are asked for.
    """
    ready = {
        name: prepare(
            protection if name is None else Buggy(protection, name), sigma=sigma, mu=mu,
            trials=trials, confidence=confidence, delta=delta, seed=seed, target=target,
        )
        for name in (None, *bugs_of(protection))
    }  # fmt: skip
    return (
        Control(name, "as it is" if name is None else BUGS[name].meaning, one.run(noise, watch))
        for name, one in ready.items()
    )


def _check(
    protection: Protection,
    sigma: float | None,
    trials: int,
    confidence: float,
    delta: float,
    seed: int,
) -> None:
    """Refuse what cannot be audited."""
    if sigma is not None and not LEAST_SIGMA <= sigma <= LARGEST:
        remedy = (
            f"give a number from {LEAST_SIGMA:.2g} to {LARGEST:.0f}: less noise is rounded off."
        )
        raise BadInput("--sigma", sigma, remedy)
    if not 20 <= trials <= 10**6:
        raise BadInput("--trials", trials, "give a number from 20 to 1,000,000.")
    if not 0.5 <= confidence < 1.0:
        raise BadInput("--confidence", confidence, "give a number from 0.5 to below 1.")
    if not 0.0 < delta < 1.0:
        raise BadInput("delta", delta, "give a number between 0 and 1, both excluded.")
    if seed < 0:
        raise BadInput("--seed", seed, "give a whole number, not negative.")
    canaries.check_size(protection)


def uploads(trials: int) -> int:
    """How many uploads an audit makes, for a progress bar."""
    return 6 * trials + _steps_noise_uploads()


@dataclass(frozen=True)
class _Judge:
    """Turns counts into findings."""

    protection: Protection
    trials: int
    alpha: float
    delta: float
    claimed: bool

    def finding(self, canary: _Canary, layer: str | None, part: int, seen: _Scores) -> Finding:
        pair, sigma = canary.pair, canary.sigma
        mu = _sensitivity(self.protection, pair) / sigma
        scores = seen.scores[:, :, part]
        wrong = int((scores[0] > 0.0).sum()), int((scores[1] <= 0.0).sum())
        low = mu_lower(*wrong, self.trials, self.alpha)
        reach = float(seen.reach[part])
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
            power=self._power(layer, min(reach, mu), mu),
            breach=self.claimed and low > mu,
            scores=scores,
        )

    def _power(self, layer: str | None, reach: float, mu: float) -> float:
        if not self.claimed:
            return 0.0
        true = math.inf if layer is not None else reach / SHORTAGE
        return chance(true, mu, self.trials, self.alpha)


def _attack(
    protection: Protection,
    canary: _Canary,
    trials: int,
    noise: NoiseSource,
    watch: Watch | None,
) -> _Scores:
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
            rng = np.random.default_rng(pair.order_seed)
            upload = protection.upload(
                pair.model, pair.start, records, sigma, noise.stream(trial, arm), rng
            ).astype(np.float64)
            along = np.add.reduceat((upload - middle) * apart, starts)
            scores[arm, trial, 0] = along.sum()
            scores[arm, trial, 1:] = along
            if pair.one_step:
                left = upload - plain[arm]
                squares += np.add.reduceat(left * left, starts)
        if watch is not None:
            watch(pair.canary, 2)
    sizes = np.array([here.stop - here.start for here in slices]) * 2 * trials
    return _Scores(scores / per, reach / sigma, squares / sigma**2, sizes)


def _steps_noise_uploads() -> int:
    return math.ceil(NOISE_VALUES / (canaries.LAYERS * canaries.WIDTH))


def _noise_check(
    part: str, layer: str | None, squares: float, degrees: int, alpha: float
) -> NoiseCheck:
    p_value = low_noise_p(squares, degrees)
    return NoiseCheck(part, layer, degrees, math.sqrt(squares / degrees), p_value, p_value < alpha)


def _sensitivity(protection: Protection, pair: Pair) -> float:
    return protection.sensitivity(len(pair.model), len(pair.plus), Neighbours.REPLACE_ONE)


def _sigma(protection: Protection, pair: Pair, given: float | None, mu: float) -> float:
    if given is not None:
        return given
    sensitivity = _sensitivity(protection, pair)
    if not math.isfinite(sensitivity):
        return UNCLAIMED_SIGMA
    if not LEAST_SIGMA <= sensitivity / mu <= LARGEST:
        least, most = mu * LEAST_SIGMA, mu * LARGEST
        remedy = f"choose clip and rate so that it lies between {least:.2g} and {most:.2g}."
        raise BadInput("sensitivity", sensitivity, remedy)
    return sensitivity / mu


@contextmanager
def _one_thread() -> Iterator[None]:
    """As in a worker of the engine; threads only slow single records down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
