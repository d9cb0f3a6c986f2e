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
from scipy.special import ndtri
from scipy.stats import beta, chi2

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


@dataclass(frozen=True)
class Target:
    """The model that is really trained: how to make it, the shape of an input, its classes."""

    maker: ModelMaker = field(default_factory=lambda: LinearMaker(10, 200))
    shape: tuple[int, ...] = (200,)
    classes: int = 10


@dataclass(frozen=True)
class Finding:
    """One canary: what was claimed, and what telling its two neighbours apart proves.

    ``reach_mu`` is what the attack would reach on a right protection: the noise-free distance of
    the two uploads over sigma. ``mu_low`` and ``epsilon_low_gaussian`` are what is proven if the
    noise is Gaussian, ``epsilon_low`` what is proven of any mechanism.
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
    breach: bool

    @property
    def name(self) -> str:
        return self.canary if self.layer is None else f"{self.canary} {self.layer}"

    def to_dict(self) -> dict[str, Any]:
        return plain(vars(self))


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

    A right protection passes with probability ``confidence`` at least. ``claimed`` is False where
    the protection claims nothing: then findings show what leaks, and cannot be breaches.
    """

    protection: str
    claimed: bool
    neighbours: str
    protects: str | None
    delta: float
    trials: int
    confidence: float
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
class _Scores:
    """Scores per arm, trial and part (first everything, then layer by layer), and noise squares."""

    scores: FloatArray
    reach: FloatArray
    squares: FloatArray
    sizes: NDArray[np.int64]


class Audit:
    """A protection and the canaries to attack it with.

    ``sigma`` is the noise of every canary, by default that at which the claim is ``mu``; at 2.5,
    wrong noise shows best. ``trials`` are uploads of each neighbour, ``confidence`` is the least
    probability that a right protection passes, over all canaries.
    """

    def __init__(
        self,
        protection: Protection,
        *,
        sigma: float | None = None,
        mu: float = 2.5,
        trials: int = 1000,
        confidence: float = 0.999,
        delta: float = 1e-5,
        seed: int = 1,
        target: Target | None = None,
    ) -> None:
        if not 0.0 < mu <= 20.0:
            raise BadInput("mu", mu, "give a number above 0, up to 20.")
        if sigma is not None and not LEAST_SIGMA <= sigma <= LARGEST:
            limits = f"{LEAST_SIGMA:.2g} to {LARGEST:.0f}"
            remedy = f"give a number from {limits}: less noise is rounded off."
            raise BadInput("sigma", sigma, remedy)
        if not 20 <= trials <= 10**6:
            raise BadInput("trials", trials, "give a number from 20 to 1,000,000.")
        if not 0.5 <= confidence < 1.0:
            raise BadInput("confidence", confidence, "give a number from 0.5 to below 1.")
        if not 0.0 < delta < 1.0:
            raise BadInput("delta", delta, "give a number between 0 and 1, both excluded.")
        if seed < 0:
            raise BadInput("seed", seed, "give a whole number, not negative.")
        for name in ("batch", "records_per_shard"):
            value = protection.settings().get(name, 1)
            if value > MOST:
                raise BadInput(name, value, f"audit at most {MOST}: the code is the same.")
        self.protection, self.trials, self.confidence = protection, trials, confidence
        self.delta, self._sigma, self._mu = delta, sigma, mu
        target = target or Target()
        model = target.maker(seed)
        with model.one_thread():
            probe = probe_for(model)
            self.claimed = math.isfinite(protection.sensitivity(1, 1, Neighbours.REPLACE_ONE))
            self.silent = canaries.silent(protection, probe)
            self.sigma_of(self.silent)  # refused here if it cannot be
            goal = protection.sensitivity(len(model), few(protection), Neighbours.REPLACE_ONE)
            enough = goal if self.claimed else 20.0 * (sigma or UNCLAIMED_SIGMA)
            self.canaries = (
                canaries.whole(protection, probe, seed),
                canaries.partial(protection, probe, seed),
                canaries.network(protection, model, target.shape, target.classes, enough, seed),
            )
        for pair in self.canaries:
            self.sigma_of(pair)

    @property
    def uploads(self) -> int:
        """How many uploads it makes, for a progress bar."""
        return 2 * len(self.canaries) * self.trials + SILENT_UPLOADS

    def sigma_of(self, pair: Pair) -> float:
        """The noise that a canary gets."""
        if self._sigma is not None:
            return self._sigma
        sensitivity, mu = self._sensitivity(pair), self._mu
        if not math.isfinite(sensitivity):
            return UNCLAIMED_SIGMA
        if not LEAST_SIGMA <= sensitivity / mu <= LARGEST:
            least, most = mu * LEAST_SIGMA, mu * LARGEST
            remedy = f"choose clip and rate so that it lies between {least:.2g} and {most:.2g}."
            raise BadInput("sensitivity", sensitivity, remedy)
        return sensitivity / mu

    def _sensitivity(self, pair: Pair) -> float:
        """How far the protection lets the two neighbours be apart."""
        dimension, records = len(pair.model), len(pair.plus)
        return self.protection.sensitivity(dimension, records, Neighbours.REPLACE_ONE)

    def run(self, noise: NoiseSource | None = None, watch: Watch | None = None) -> AuditResult:
        """Attack, and compare what is proven with what is claimed."""
        source = SecureNoise() if noise is None else noise
        layers = list(self.canaries[-1].model.layers())
        # Canaries; layers and their noise; the noise of steps and of repeats.
        tests = len(self.canaries) + 2 * len(layers) + 2
        alpha = (1.0 - self.confidence) / tests
        findings: list[Finding] = []
        with self.silent.model.one_thread():
            checks = [*self._steps_noise(source.stream(0), alpha, watch)]
            for number, pair in enumerate(self.canaries, start=1):
                seen = self._attack(pair, source.stream(number), watch)
                findings.append(self._finding(pair, None, 0, seen, alpha))
                if pair is self.canaries[-1]:
                    for part, layer in enumerate(layers, start=1):
                        if seen.reach[part] > 0.0:  # else nothing can show in this layer
                            findings.append(self._finding(pair, layer, part, seen, alpha))
                        degrees = int(seen.sizes[part - 1])
                        squares = float(seen.squares[part - 1])
                        checks.append(noise_check("network", layer, squares, degrees, alpha))
        hidden = self.protection.protects(Neighbours.REPLACE_ONE, len(self.silent.minus))
        return AuditResult(
            protection=self.protection.name,
            claimed=self.claimed,
            neighbours=str(Neighbours.REPLACE_ONE),
            protects=hidden if self.claimed else None,
            delta=self.delta,
            trials=self.trials,
            confidence=self.confidence,
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
        pair, sigma, count = self.silent, self.sigma_of(self.silent), SILENT_UPLOADS
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
        self, pair: Pair, layer: str | None, part: int, seen: _Scores, alpha: float
    ) -> Finding:
        sigma, trials = self.sigma_of(pair), self.trials
        mu = self._sensitivity(pair) / sigma
        scores = seen.scores[:, :, part]
        wrong = int((scores[0] > 0.0).sum()), int((scores[1] <= 0.0).sum())
        low = mu_lower(*wrong, trials, alpha)
        return Finding(
            canary=pair.canary if layer is None else "layer",
            layer=layer,
            records=len(pair.plus),
            sigma=sigma,
            mu=mu,
            epsilon=epsilon_of(mu, self.delta),
            reach_mu=float(seen.reach[part]),
            trials=trials,
            false_positives=wrong[0],
            false_negatives=wrong[1],
            mu_low=low,
            epsilon_low=epsilon_lower(*wrong, trials, alpha, self.delta),
            epsilon_low_gaussian=epsilon_of(low, self.delta),
            breach=self.claimed and low > mu,
        )

    def _attack(self, pair: Pair, noise: NoiseSource, watch: Watch | None) -> _Scores:
        """Upload both neighbours ``trials`` times and score each upload against a fixed threshold.

        Direction and threshold come from the noise-free uploads, before a single trial: the score
        is how far an upload lies from the middle between them, along the line that joins them.
        """
        sigma, trials, plain = self.sigma_of(pair), self.trials, pair.plain(self.protection)
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
                upload = self.protection.upload(task).astype(np.float64)
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


def audit(
    protection: Protection,
    *,
    noise: NoiseSource | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """Attack a protection, and compare what is proven with what it claims for ``replace_one``.

    The protection need not be one of this package. Noise is secure by default; ``settings`` are
    those of ``Audit`` by name.

    Example:
        ::

            from noisemarket.study.audit import audit
            assert audit(nm.PerRecord(), trials=200).passed
    """
    return Audit(protection, **settings).run(noise, watch)


def noise_check(
    part: str, layer: str | None, squares: float, degrees: int, alpha: float
) -> NoiseCheck:
    """Whether a sum of squares of so many values of noise, over sigma^2, is too small."""
    p_value = float(chi2.cdf(squares, degrees))
    return NoiseCheck(part, layer, degrees, math.sqrt(squares / degrees), p_value, p_value < alpha)


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


def _half_mu(errors: ArrayLike, trials: int, alpha: float) -> NDArray[Any]:
    return np.asarray(-ndtri(rate_upper(errors, trials, alpha / 2.0)))
