"""The audit: attack a protection with canaries, and compare what leaks with what it claims.

An attack guesses which of two neighbours an upload came from. A false positive takes ``-`` for
``+``, a false negative the other way round. Under mu-GDP no test has a false positive rate ``a``
and a false negative rate ``b`` with ``ndtri(1 - a) - ndtri(b) > mu``. Counts bound both rates from
above (Clopper and Pearson: exact for any number of trials), so they bound mu from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, chi2

from noisemarket.errors import BadInput
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.protections import Protection
from noisemarket.formats import finite, plain
from noisemarket.privacy.noise import LARGEST, NoiseSource, SecureNoise
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon
from noisemarket.study import canaries
from noisemarket.study.canaries import LAYERS, MOST, WIDTH, Pair, few, probe_for

FloatArray = NDArray[np.float64]
Watch = Callable[[str, int], None]
"""Callback: a canary's name and the number of uploads since the last call."""

UNCLAIMED_SIGMA = 0.6
"""Default where nothing is claimed: no trade's noise in the default scenario."""
SILENT_UPLOADS = math.ceil(80_000 / (LAYERS * WIDTH))
"""Uploads for the noise check of several steps: 80,000 values are enough to find 2 % missing."""
LEAST_SIGMA = 2.0**-16
"""Noise much finer than the floats of a network's weights is rounded off."""
SHORTAGE = 0.8
"""A finding's power is that of telling noise of this share of sigma from the right noise."""


@dataclass(frozen=True)
class Target:
    """The model that is really trained: how to make it, the shape of an input, its classes."""

    maker: ModelMaker = field(default_factory=lambda: LinearMaker(10, 200))
    shape: tuple[int, ...] = (200,)
    classes: int = 10


@dataclass(frozen=True)
class AuditSettings:
    """How to audit.

    ``sigma`` is the noise of every canary, by default that at which the claim is ``mu``; at 2.5,
    wrong noise shows best. ``trials`` are uploads of each neighbour, ``confidence`` is the least
    probability that a right protection passes, over all canaries.
    """

    sigma: float | None = None
    mu: float = 2.5
    trials: int = 1000
    confidence: float = 0.999
    delta: float = 1e-5
    seed: int = 1
    target: Target = field(default_factory=Target)

    def __post_init__(self) -> None:
        if not 0.0 < self.mu <= 20.0:
            raise BadInput("mu", self.mu, "give a number above 0, up to 20.")
        if self.sigma is not None and not LEAST_SIGMA <= self.sigma <= LARGEST:
            limits = f"{LEAST_SIGMA:.2g} to {LARGEST:.0f}"
            remedy = f"give a number from {limits}: less noise is rounded off."
            raise BadInput("sigma", self.sigma, remedy)
        if not 20 <= self.trials <= 10**6:
            raise BadInput("trials", self.trials, "give a number from 20 to 1,000,000.")
        if not 0.5 <= self.confidence < 1.0:
            raise BadInput("confidence", self.confidence, "give a number from 0.5 to below 1.")
        if not 0.0 < self.delta < 1.0:
            raise BadInput("delta", self.delta, "give a number between 0 and 1, both excluded.")
        if self.seed < 0:
            raise BadInput("seed", self.seed, "give a whole number, not negative.")


@dataclass(frozen=True)
class Finding:
    """One canary: what was claimed, and what telling its two neighbours apart proves.

    ``reach_mu`` is what the attack would reach on a right protection: the noise-free distance of
    the two uploads over sigma. ``mu_low`` and ``epsilon_low_gaussian`` are what is proven if the
    noise is Gaussian, ``epsilon_low`` what is proven of any mechanism. ``power`` is the probability
    that 20 % too little noise would have shown in this canary; for a layer, no noise at all.
    """

    canary: str
    layer: str | None
    records: int
    sigma: float
    mu: float
    epsilon: float
    reach_mu: float
    trials: int
    false_positives: int
    false_negatives: int
    mu_low: float
    epsilon_low: float
    epsilon_low_gaussian: float
    power: float
    breach: bool
    scores: NDArray[np.float64] = field(repr=False, compare=False)
    """The scores of both arms, (2, trials), first ``-``, in standard deviations; threshold 0."""

    @property
    def name(self) -> str:
        return self.canary if self.layer is None else f"{self.canary} {self.layer}"

    def to_dict(self) -> dict[str, Any]:
        return plain({name: value for name, value in vars(self).items() if name != "scores"})


@dataclass(frozen=True)
class NoiseCheck:
    """The noise alone: its measured size over the stated one, and how likely so little is."""

    part: str
    layer: str | None
    degrees: int
    ratio: float
    p_value: float
    breach: bool


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit. It passes if no finding and no check is a breach.

    ``false_alarm`` bounds the probability that a right protection is accused, as computed for the
    worst case; it is below ``1 - confidence``. ``claimed`` is False where the protection claims
    nothing: then findings show what leaks, and cannot be breaches.
    """

    protection: str
    claimed: bool
    neighbours: str
    protects: str | None
    delta: float
    trials: int
    confidence: float
    false_alarm: float
    secure_noise: bool
    source: str
    findings: tuple[Finding, ...]
    noise: tuple[NoiseCheck, ...]

    @property
    def passed(self) -> bool:
        return not self.breaches

    @property
    def breaches(self) -> tuple[str, ...]:
        found = [finding.name for finding in self.findings if finding.breach]
        return (*found, *(f"noise of {one.layer or one.part}" for one in self.noise if one.breach))

    @property
    def worst(self) -> Finding:
        """The finding that comes closest to its claim, or passes it farthest."""
        if not self.claimed:
            return max(self.findings, key=lambda finding: finding.mu_low)
        return max(self.findings, key=lambda finding: finding.mu_low - finding.mu)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON, with the figures of the worst finding."""
        of_worst = ("mu", "mu_low", "epsilon", "epsilon_low", "epsilon_low_gaussian")
        return {
            **vars(self),
            **{name: finite(getattr(self.worst, name)) for name in of_worst},
            "passed": self.passed,
            "breaches": list(self.breaches),
            "findings": [finding.to_dict() for finding in self.findings],
            "noise": [plain(vars(check)) for check in self.noise],
        }


@dataclass(frozen=True)
class _Canary:
    """A pair of neighbours, both uploads without noise, and the noise that they get."""

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


class Audit:
    """A protection and the canaries to attack it with.

    Raises:
        BadInput: the protection cannot be audited with these settings.
    """

    def __init__(self, protection: Protection, settings: AuditSettings) -> None:
        for name in ("batch", "records_per_shard"):
            value = protection.settings().get(name, 1)
            if value > MOST:
                raise BadInput(name, value, f"audit at most {MOST}: the code is the same.")
        self.protection, self.settings = protection, settings
        target, seed = settings.target, settings.seed
        model = target.maker(seed)
        with model.one_thread():
            probe = probe_for(model)
            self.claimed = math.isfinite(protection.sensitivity(1, 1, Neighbours.REPLACE_ONE))
            self.silent = canaries.silent(protection, probe)
            self.silent_sigma = _sigma(protection, self.silent, settings)
            goal = protection.sensitivity(len(model), few(protection), Neighbours.REPLACE_ONE)
            enough = goal if self.claimed else 20.0 * (settings.sigma or UNCLAIMED_SIGMA)
            pairs = (
                canaries.whole(protection, probe, seed),
                canaries.partial(protection, probe, seed),
                canaries.network(protection, model, target.shape, target.classes, enough, seed),
            )
            self.canaries = [
                _Canary(pair, pair.plain(protection), _sigma(protection, pair, settings))
                for pair in pairs
            ]

    def run(self, noise: NoiseSource | None = None, watch: Watch | None = None) -> AuditResult:
        """Attack, and compare what is proven with what is claimed."""
        protection, settings = self.protection, self.settings
        source = SecureNoise() if noise is None else noise
        layers = list(self.canaries[-1].pair.model.layers())
        # Canaries; layers and their noise; the noise of steps and of repeats.
        tests = len(self.canaries) + 2 * len(layers) + 2
        alpha = (1.0 - settings.confidence) / tests
        findings: list[Finding] = []
        with self.silent.model.one_thread():
            checks = [*self._steps_noise(source.stream(0), alpha, watch)]
            for number, canary in enumerate(self.canaries, start=1):
                seen = _attack(protection, canary, settings.trials, source.stream(number), watch)
                findings.append(self._finding(canary, None, 0, seen, alpha))
                if canary is self.canaries[-1]:
                    for part, layer in enumerate(layers, start=1):
                        if seen.reach[part] > 0.0:  # else nothing can show in this layer
                            findings.append(self._finding(canary, layer, part, seen, alpha))
                        degrees = int(seen.sizes[part - 1])
                        squares = float(seen.squares[part - 1])
                        checks.append(noise_check("network", layer, squares, degrees, alpha))
        alarms = [chance(f.mu, f.mu, settings.trials, alpha) for f in findings if self.claimed]
        hidden = protection.protects(Neighbours.REPLACE_ONE)
        return AuditResult(
            protection=protection.name,
            claimed=self.claimed,
            neighbours=str(Neighbours.REPLACE_ONE),
            protects=hidden if self.claimed else None,
            delta=settings.delta,
            trials=settings.trials,
            confidence=settings.confidence,
            false_alarm=math.fsum(alarms) + alpha * len(checks),
            secure_noise=source.private,
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
        pair, sigma, count = self.silent, self.silent_sigma, SILENT_UPLOADS
        seen = np.empty((count, len(pair.model)))
        for number in range(count):
            task = pair.task(pair.plus, sigma, noise.stream(number), order_seed=0)
            seen[number] = self.protection.upload(task)
            if watch is not None:
                watch("noise", 1)
        seen /= sigma
        twice = count // 2 * 2
        apart = (seen[0:twice:2] - seen[1:twice:2]) / math.sqrt(2.0)
        return tuple(
            noise_check(part, None, float(np.vdot(values, values)), values.size, alpha)
            for part, values in (("several steps", seen), ("changes between uploads", apart))
        )

    def _finding(
        self, canary: _Canary, layer: str | None, part: int, seen: _Scores, alpha: float
    ) -> Finding:
        pair, sigma = canary.pair, canary.sigma
        trials, delta = self.settings.trials, self.settings.delta
        mu = _sensitivity(self.protection, pair) / sigma
        scores = seen.scores[:, :, part]
        wrong = int((scores[0] > 0.0).sum()), int((scores[1] <= 0.0).sum())
        low = mu_lower(*wrong, trials, alpha)
        reach = float(seen.reach[part])
        shown = math.inf if layer is not None else min(reach, mu) / SHORTAGE
        return Finding(
            canary=pair.canary if layer is None else "layer",
            layer=layer,
            records=len(pair.plus),
            sigma=sigma,
            mu=mu,
            epsilon=epsilon_of(mu, delta),
            reach_mu=reach,
            trials=trials,
            false_positives=wrong[0],
            false_negatives=wrong[1],
            mu_low=low,
            epsilon_low=epsilon_lower(*wrong, trials, alpha, delta),
            epsilon_low_gaussian=epsilon_of(low, delta),
            power=chance(shown, mu, trials, alpha) if self.claimed else 0.0,
            breach=self.claimed and low > mu,
            scores=scores,
        )


def audit(
    protection: Protection,
    *,
    noise: NoiseSource | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """Attack a protection, and compare what is proven with what it claims for ``replace_one``.

    The protection need not be one of this package. Noise is secure by default; ``settings`` are
    those of ``AuditSettings`` by name.

    Example:
        ::

            from noisemarket.study.audit import audit
            assert audit(nm.PerRecord(), trials=200).passed
    """
    return Audit(protection, AuditSettings(**settings)).run(noise, watch)


def uploads(trials: int) -> int:
    """How many uploads an audit makes, for a progress bar."""
    return 6 * trials + SILENT_UPLOADS


def _sigma(protection: Protection, pair: Pair, settings: AuditSettings) -> float:
    if settings.sigma is not None:
        return settings.sigma
    sensitivity, mu = _sensitivity(protection, pair), settings.mu
    if not math.isfinite(sensitivity):
        return UNCLAIMED_SIGMA
    if not LEAST_SIGMA <= sensitivity / mu <= LARGEST:
        least, most = mu * LEAST_SIGMA, mu * LARGEST
        remedy = f"choose clip and rate so that it lies between {least:.2g} and {most:.2g}."
        raise BadInput("sensitivity", sensitivity, remedy)
    return sensitivity / mu


def _attack(
    protection: Protection, canary: _Canary, trials: int, noise: NoiseSource, watch: Watch | None
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
    return _Scores(scores / per, reach / sigma, squares / sigma**2, sizes)


def noise_check(
    part: str, layer: str | None, squares: float, degrees: int, alpha: float
) -> NoiseCheck:
    """Whether a sum of squares of so many values of noise, over sigma^2, is too small."""
    p_value = float(chi2.cdf(squares, degrees))
    return NoiseCheck(part, layer, degrees, math.sqrt(squares / degrees), p_value, p_value < alpha)


def _sensitivity(protection: Protection, pair: Pair) -> float:
    """How far the protection lets the two neighbours be apart."""
    return protection.sensitivity(len(pair.model), len(pair.plus), Neighbours.REPLACE_ONE)


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
