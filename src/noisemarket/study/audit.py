"""The audit: attack a protection with canaries, and compare what leaks with what it claims.

A canary is a pair of neighbours, as far apart as the claim allows. Both go through
``Protection.upload`` like any records: the auditor may choose the model, the weights it starts from
and all records, because the claim holds for any of them. Two models serve:

- a probe, a linear model of two classes that starts from 0: a record's gradient is the record for
  one class and its opposite for the other, so the worst case is met exactly;
- the model that is really trained, from weights at which a record's two labels pull in opposite
  directions.

The attack guesses which neighbour, ``-`` or ``+``, an upload came from. A false positive takes
``-`` for ``+``, a false negative the other way round. Under mu-GDP no test has a false positive
rate ``a`` and a false negative rate ``b`` with ``ndtri(1 - a) - ndtri(b) > mu``. Counts bound both
rates from above (Clopper and Pearson: exact for any number of trials), so they bound mu from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.models.linear import LinearMaker, LinearModel
from noisemarket.federated.models.model import Flat, Model, ModelMaker, Records
from noisemarket.federated.protections import Protection, UploadTask
from noisemarket.formats import plain
from noisemarket.privacy.noise import LARGEST, NoiseSource, SecureNoise, SimulatedNoise
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon

FloatArray = NDArray[np.float64]

UNCLAIMED_SIGMA = 0.6
"""Default where nothing is claimed: no trade's noise in the default scenario."""
LEAST_SIGMA = 2.0**-16
"""Noise much finer than the floats of a network's weights is rounded off."""
MOST = 4096
"""Largest number of shards, or of records in a shard or batch, that is audited."""
FEW = 8
"""Records of the owner with the real network, at most."""
BATCHES, SHARDS = 4, 4
"""Steps of DP-SGD (with a single one, wrong noise per step cannot show), and full shards, where
their number follows from the records."""
WIDTH = 1024
"""Inputs of the probe, which has twice as many weights."""
SILENT_UPLOADS = math.ceil(80_000 / (2 * WIDTH))
"""Uploads for the noise check of several steps: 80,000 values are enough to find 2 % missing."""


class Target(NamedTuple):
    """The model that is really trained: how to make it, the shape of an input, its classes."""

    maker: ModelMaker = LinearMaker(10, 200)
    shape: tuple[int, ...] = (200,)
    classes: int = 10


@dataclass(frozen=True)
class Finding:
    """One canary: what was claimed, and what telling its two neighbours apart proves.

    ``reach_mu`` is what the attack would reach on a right protection: the noise-free distance of
    the two uploads over sigma.
    """

    name: str
    records: int
    sigma: float
    mu: float
    epsilon: float
    reach_mu: float
    false_positives: int
    false_negatives: int
    mu_low: float
    epsilon_low: float
    breach: bool


@dataclass(frozen=True)
class NoiseCheck:
    """The noise alone: its measured size over the stated one, and how likely so little is."""

    name: str
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
    protects: str | None
    delta: float
    trials: int
    confidence: float
    secure_noise: bool
    findings: tuple[Finding, ...]
    noise: tuple[NoiseCheck, ...]

    @property
    def passed(self) -> bool:
        return not self.breaches

    @property
    def breaches(self) -> tuple[str, ...]:
        every: list[Finding | NoiseCheck] = [*self.findings, *self.noise]
        return tuple(one.name for one in every if one.breach)

    @property
    def worst(self) -> Finding:
        """The finding that comes closest to its claim, or passes it farthest."""
        claim = (lambda one: one.mu) if self.claimed else (lambda one: 0.0)
        return max(self.findings, key=lambda one: one.mu_low - claim(one))

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON, with the figures of the worst finding."""
        worst = {name: getattr(self.worst, name) for name in ("mu", "mu_low", "epsilon")}
        return {
            **vars(self),
            **plain({**worst, "epsilon_low": self.worst.epsilon_low}),
            "passed": self.passed,
            "breaches": list(self.breaches),
            "findings": [plain(vars(one)) for one in self.findings],
            "noise": [plain(vars(one)) for one in self.noise],
        }


class Audit:
    """A protection and the canaries to attack it with; ``run`` attacks.

    ``sigma`` is the noise of every canary, by default that at which the claim is ``mu``; at 2.5,
    wrong noise shows best. ``trials`` are uploads of each neighbour, ``confidence`` is the least
    probability that a right protection passes, over all canaries. The protection need not be one
    of this package.

    Example:
        ::

            from noisemarket.study.audit import Audit
            assert Audit(nm.PerRecord(), trials=200).run().passed
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
        limits = f"from {LEAST_SIGMA:.2g} to {LARGEST:.0f}: less noise is rounded off"
        for name, value, sound, remedy in (
            ("mu", mu, 0.0 < mu <= 20.0, "above 0, up to 20"),
            ("sigma", sigma, sigma is None or LEAST_SIGMA <= sigma <= LARGEST, limits),
            ("trials", trials, 20 <= trials <= 10**6, "from 20 to 1,000,000"),
            ("confidence", confidence, 0.5 <= confidence < 1.0, "from 0.5 to below 1"),
            ("delta", delta, 0.0 < delta < 1.0, "between 0 and 1, both excluded"),
            ("seed", seed, seed >= 0, "of at least 0"),
        ):
            if not sound:
                raise BadInput(name, value, f"give a number {remedy}.")
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
            self.silent = silent(protection, probe)
            self.sigma_of(self.silent)  # refused here if it cannot be
            goal = protection.sensitivity(len(model), few(protection), Neighbours.REPLACE_ONE)
            enough = goal if self.claimed else 20.0 * (sigma or UNCLAIMED_SIGMA)
            self.canaries = (
                whole(protection, probe, seed),
                partial(protection, probe, seed),
                network(protection, model, target, enough, seed),
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

    def run(
        self, noise: NoiseSource | None = None, watch: Callable[[int], object] = lambda more: None
    ) -> AuditResult:
        """Attack, and compare what is proven with what is claimed; by default with secure noise.

        ``watch`` is called with the number of uploads since its last call.
        """
        source = SecureNoise() if noise is None else noise
        layers = self.canaries[-1].model.layers()
        # Canaries; the noise of layers, of steps and of repeats.
        alpha = (1.0 - self.confidence) / (len(self.canaries) + len(layers) + 2)
        findings: list[Finding] = []
        with self.silent.model.one_thread():
            checks = self._steps_noise(source.stream(0), alpha, watch)
            for number, pair in enumerate(self.canaries, start=1):
                finding, left = self._attack(pair, source.stream(number), alpha, watch)
                findings.append(finding)
        for layer, here in layers.items():  # of the network, which comes last
            degrees = 2 * self.trials * (here.stop - here.start)
            checks.append(noise_check(f"layer {layer}", float(left[here].sum()), degrees, alpha))
        hidden = self.protection.protects(Neighbours.REPLACE_ONE, len(self.silent.minus))
        return AuditResult(
            protection=self.protection.name,
            claimed=self.claimed,
            protects=hidden if self.claimed else None,
            delta=self.delta,
            trials=self.trials,
            confidence=self.confidence,
            secure_noise=source.private,
            findings=tuple(findings),
            noise=tuple(checks),
        )

    def _steps_noise(
        self, noise: NoiseSource, alpha: float, watch: Callable[[int], object]
    ) -> list[NoiseCheck]:
        """The noise of an owner that has nothing to tell, over as many steps as its records make.

        Differences of neighbouring uploads, over sqrt(2), must be as large as the noise itself:
        where noise repeats, they are not.
        """
        pair, sigma = self.silent, self.sigma_of(self.silent)
        seen = np.empty((SILENT_UPLOADS, len(pair.model)))
        for number in range(SILENT_UPLOADS):
            task = pair.task(pair.plus, sigma, noise.stream(number))
            seen[number] = self.protection.upload(task)
            watch(1)
        seen /= sigma
        twice = SILENT_UPLOADS // 2 * 2
        apart = (seen[0:twice:2] - seen[1:twice:2]) / math.sqrt(2.0)
        return [
            noise_check(part, float(np.vdot(values, values)), values.size, alpha)
            for part, values in (("several steps", seen), ("changes between uploads", apart))
        ]

    def _attack(
        self, pair: Pair, noise: NoiseSource, alpha: float, watch: Callable[[int], object]
    ) -> tuple[Finding, FloatArray]:
        """Upload both neighbours ``trials`` times, and guess which of them each upload is of.

        Direction and threshold come from the noise-free uploads, before a single trial: the guess
        is the side of the middle between them, along the line that joins them, on which an upload
        lies. Also gives, summed over all uploads, the squares of what an upload is beside its
        noise-free self, over sigma^2: of one step, the noise alone.
        """
        sigma, trials, silent = self.sigma_of(pair), self.trials, pair.plain(self.protection)
        apart, middle = silent[1] - silent[0], (silent[0] + silent[1]) / 2.0
        wrong, squares = [0, 0], np.zeros(len(apart))
        for trial in range(trials):
            for arm, records in enumerate((pair.minus, pair.plus)):
                task = pair.task(records, sigma, noise.stream(trial, arm))
                upload = self.protection.upload(task).astype(np.float64)
                wrong[arm] += bool(((upload - middle) * apart).sum() > 0.0) != bool(arm)
                squares += np.square((upload - silent[arm]) / sigma)
            watch(2)
        mu, low = self._sensitivity(pair) / sigma, mu_lower(wrong[0], wrong[1], trials, alpha)
        finding = Finding(
            name=pair.canary,
            records=len(pair.plus),
            sigma=sigma,
            mu=mu,
            epsilon=epsilon_of(mu, self.delta),
            reach_mu=float(np.linalg.norm(apart)) / sigma,
            false_positives=wrong[0],
            false_negatives=wrong[1],
            mu_low=low,
            epsilon_low=epsilon_of(low, self.delta),
            breach=self.claimed and low > mu,
        )
        return finding, squares


# What counts prove


def noise_check(part: str, squares: float, degrees: int, alpha: float) -> NoiseCheck:
    """Whether a sum of squares of so many values of noise, over sigma^2, is too small."""
    from scipy.stats import chi2

    p_value = float(chi2.cdf(squares, degrees))
    ratio = math.sqrt(squares / degrees)
    return NoiseCheck(f"noise of {part}", ratio, p_value, p_value < alpha)


def rate_upper(errors: ArrayLike, trials: int, alpha: float) -> FloatArray:
    """Clopper-Pearson: an error rate above this gives so few errors with probability < alpha."""
    from scipy.stats import beta

    seen = np.asarray(errors, dtype=np.float64)
    left = np.maximum(trials - seen, 1.0)  # no beta law where all trials erred; the bound is 1
    bound = beta.ppf(1.0 - alpha, seen + 1.0, left)
    return np.asarray(np.where(seen >= trials, 1.0, bound), dtype=np.float64)


def mu_lower(false_positives: int, false_negatives: int, trials: int, alpha: float) -> float:
    """The mu that the counts prove, wrong with probability at most ``alpha``; 0 if none."""
    from scipy.special import ndtri

    one, other = -ndtri(rate_upper([false_positives, false_negatives], trials, alpha / 2.0))
    return max(float(one + other), 0.0)


def epsilon_of(mu: float, delta: float) -> float:
    """The exact epsilon of a Gaussian release with this mu."""
    return gaussian_epsilon(mu * mu / 2.0, delta)


# Canaries


@dataclass(frozen=True)
class Pair:
    """Two neighbours: the same owner with the canary planted as ``-`` and as ``+``.

    ``order_seed`` fixes the order of batches, which must not matter to the claim.
    """

    canary: str
    model: Model
    start: Flat
    minus: Records
    plus: Records
    order_seed: int = 0

    def task(self, side: Records, sigma: float, noise: NoiseSource) -> UploadTask:
        """What a protection is to upload for one of the two neighbours."""
        seed = np.random.SeedSequence(self.order_seed)
        return UploadTask(self.model, self.start, side, sigma, noise, seed)

    def plain(self, protection: Protection) -> FloatArray:
        """Both uploads without noise, (2, dimension): what the attack has to tell apart."""
        tasks = (self.task(side, 0.0, SimulatedNoise(0)) for side in (self.minus, self.plus))
        return np.stack([protection.upload(task).astype(np.float64) for task in tasks])

    def distance(self, protection: Protection) -> float:
        """How far these are apart; 0 where that is no number."""
        minus, plus = self.plain(protection)
        with np.errstate(invalid="ignore"):
            apart = float(np.linalg.norm(plus - minus))
        return apart if np.isfinite(apart) else 0.0


def probe_for(model: Model) -> Model:
    """The probe that goes through the same code as this model."""
    if isinstance(model, LinearModel):
        return LinearMaker(2, WIDTH)(0)
    from torch import nn

    from noisemarket.federated.models.torch_model import TorchModel

    return TorchModel(nn.Linear(WIDTH, 2, bias=False))


def setting(protection: Protection, name: str, default: float) -> float:
    """A setting of a protection by name, or the default."""
    return float(getattr(protection, name, default))


def few(protection: Protection) -> int:
    """Records of the owner with the real model: no second one in the canary's shard."""
    if setting(protection, "records_per_shard", 1) > 1:
        return 1
    fixed = protection.parts(1)  # however few records an owner has
    return min(FEW, fixed) if fixed > 1 else FEW


def whole(protection: Protection, probe: Model, seed: int) -> Pair:
    """The canary is all there is: nothing else is in its shard or batch, nor in the owner."""
    vectors = _directions(seed, 1) * _loud(protection, 1)
    return _probe_pair("whole", probe, vectors, [[1], [0]])


def partial(protection: Protection, probe: Model, seed: int) -> Pair:
    """The canary is one record among others in its shard or batch.

    Those in its shard pull across. In other shards records are blank: that must not matter either.
    """
    count, quiet = _owner(protection)
    if protection.noise_in_steps:
        count = protection.parts(1)
    vectors = _directions(seed, count) * quiet
    vectors[0] *= _loud(protection, 3) / quiet
    if not protection.noise_in_steps:
        vectors[np.arange(count) % protection.parts(count) != 0] = 0.0
    labels = [i % 2 for i in range(1, count)]
    return _probe_pair("partial", probe, vectors, [[1, *labels], [0, *labels]])


def silent(protection: Protection, probe: Model) -> Pair:
    """An owner of records without gradient: its upload is the noise alone, over several steps."""
    count, _ = _owner(protection)
    return _probe_pair("silent", probe, np.zeros((count, WIDTH)), [[0] * count] * 2)


def network(protection: Protection, model: Model, target: Target, enough: float, seed: int) -> Pair:
    """The model that is trained, and an owner of a few records, one of which is the canary.

    It starts where for the canary two labels are as likely and the others impossible: then the two
    labels' gradients are opposite in every layer. The canary's input is made larger until the
    uploads are ``enough`` apart; the other inputs stay as they are.
    """
    count = few(protection)
    inputs = np.random.default_rng(seed).random((count, *target.shape), np.float32)
    first = model.first_weights()
    scores = np.full(target.classes, -50.0, np.float32)
    scores[:2] = 0.0
    labels = [i % 2 for i in range(1, count)]
    best: tuple[float, Pair | None] = 0.0, None
    for power in range(12):
        bright = np.concatenate((inputs[:1] * np.float32(2.0**power), inputs[1:]))
        start = model.aim(first, bright[:1], scores)
        minus, plus = (model.records(bright, np.array([label, *labels])) for label in (1, 0))
        pair = Pair("network", model, start, minus, plus, seed)
        try:
            apart = pair.distance(protection)
        except BadInput:  # so bright that the update is no longer one; earlier ones are kept
            break
        if apart > best[0]:
            best = apart, pair
        if apart >= 0.97 * enough:
            break
    if best[1] is None:
        raise BadInput("model", type(model).__name__, "no record moves it: nothing to find.")
    return best[1]


def _owner(protection: Protection) -> tuple[int, float]:
    """How many records an owner of the usual size has, and how long its gradients are."""
    clip = setting(protection, "clip", math.inf)
    if math.isinf(clip):
        return 128, 1.0
    if protection.noise_in_steps:
        return BATCHES * protection.parts(1), 2.0 * clip
    size = int(setting(protection, "records_per_shard", 0))
    count = SHARDS * size + 1 if size else 2 * protection.parts(1) + 1
    return count, clip / setting(protection, "rate", 1.0)


def _loud(protection: Protection, among: int) -> float:
    """A length that drowns the other records of a shard or batch and is sure to be clipped."""
    clip = setting(protection, "clip", math.inf)
    if math.isinf(clip):
        return 1e4
    if protection.noise_in_steps:
        return 100.0 * clip * protection.parts(1)
    return 1000.0 * among * clip / setting(protection, "rate", 1.0)


def _directions(seed: int, count: int) -> FloatArray:
    """Random unit vectors, all others across the first."""
    drawn = np.random.default_rng(seed).standard_normal((count, WIDTH))
    drawn[0] /= np.linalg.norm(drawn[0])
    drawn[1:] -= np.outer(drawn[1:] @ drawn[0], drawn[0])
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _probe_pair(canary: str, probe: Model, vectors: FloatArray, labels: list[list[int]]) -> Pair:
    inputs = vectors.astype(np.float32)
    minus, plus = (probe.records(inputs, np.array(some)) for some in labels)
    return Pair(canary, probe, np.zeros(len(probe), np.float32), minus, plus)
