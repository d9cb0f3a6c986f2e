"""The audit: make canaries, attack a protection with them, and hold what leaks to its claim."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.protections import Protection
from noisemarket.privacy.noise import LARGEST, NoiseSource, SecureNoise
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.study.audit import canaries
from noisemarket.study.audit.bugs import BUGS, Buggy, bugs_of
from noisemarket.study.audit.canaries import LAYERS, WIDTH, Pair, probe_for
from noisemarket.study.audit.findings import AuditResult, Control, Finding, NoiseCheck
from noisemarket.study.audit.statistics import chance
from noisemarket.study.audit.trials import Canary, Judge, Watch, attack, noise_check, sensitivity_of

UNCLAIMED_SIGMA = 0.6
"""Where none is given and nothing is claimed: no trade's noise in the default scenario."""
SILENT_UPLOADS = math.ceil(80_000 / (LAYERS * WIDTH))
"""Uploads for the noise check of several steps: 80,000 values are enough to find 2 % missing."""
LEAST_SIGMA = 2.0**-16
"""Noise that is much finer than the weights of a network can hold, as floats, is rounded off."""


@dataclass(frozen=True)
class Target:
    """The model that is really trained: how to make it, the shape of an input, its classes."""

    maker: ModelMaker = field(default_factory=lambda: LinearMaker(10, 200))
    shape: tuple[int, ...] = (200,)
    classes: int = 10


@dataclass(frozen=True)
class AuditSettings:
    """How to audit.

    Args:
        sigma: the noise of every canary; without it, the noise at which the claim is ``mu``.
        mu: what a release claims where no sigma is given; at 2.5, wrong noise shows best.
        trials: uploads of each neighbour.
        confidence: a right protection passes at least that often, over all canaries.
        delta: the delta of (epsilon, delta).
        seed: of the canaries.
        target: the model that is really trained.

    Raises:
        BadInput: a value is out of range.
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
class Prepared:
    """An audit whose canaries are made: what cannot be audited has been refused."""

    protection: Protection
    settings: AuditSettings
    canaries: tuple[Canary, ...]
    silent: Pair
    silent_sigma: float
    claimed: bool

    def run(self, noise: NoiseSource | None = None, watch: Watch | None = None) -> AuditResult:
        """Attack, and hold what can be proven against what is claimed."""
        protection, settings = self.protection, self.settings
        source = SecureNoise() if noise is None else noise
        layers = list(self.canaries[-1].pair.model.layers())
        # Canaries; layers and their noise; the noise of steps and of repeats.
        tests = len(self.canaries) + 2 * len(layers) + 2
        alpha = (1.0 - settings.confidence) / tests
        judge = Judge(protection, settings.trials, alpha, settings.delta, self.claimed)
        findings: list[Finding] = []
        with self.silent.model.one_thread():
            checks = [*self._steps_noise(source.stream(0), alpha, watch)]
            for number, canary in enumerate(self.canaries, start=1):
                seen = attack(protection, canary, settings.trials, source.stream(number), watch)
                findings.append(judge.finding(canary, None, 0, seen))
                if canary is self.canaries[-1]:
                    for part, layer in enumerate(layers, start=1):
                        if seen.reach[part] > 0.0:  # else nothing can show in this layer
                            findings.append(judge.finding(canary, layer, part, seen))
                        degrees = int(seen.sizes[part - 1])
                        squares = float(seen.squares[part - 1])
                        checks.append(noise_check("network", layer, squares, degrees, alpha))
        alarms = [chance(f.mu, f.mu, settings.trials, alpha) for f in findings if self.claimed]
        hidden = protection.protects(Neighbours.REPLACE_ONE)
        return AuditResult(
            protection=protection.name,
            bug=protection.bug if isinstance(protection, Buggy) else None,
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


def prepare_audit(protection: Protection, settings: AuditSettings) -> Prepared:
    """Make the canaries of an audit.

    Raises:
        BadInput: the protection cannot be audited with these settings.
    """
    canaries.check_size(protection)
    target, seed = settings.target, settings.seed
    model = target.maker(seed)
    with model.one_thread():
        right, probe = canaries.right_part(protection), probe_for(model)
        claimed = math.isfinite(right.sensitivity(1, 1, Neighbours.REPLACE_ONE))
        silent = canaries.silent(protection, probe)
        silent_sigma = _sigma(protection, silent, settings)
        goal = right.sensitivity(len(model), 1, Neighbours.REPLACE_ONE)  # of one step
        enough = goal if claimed else 20.0 * (settings.sigma or UNCLAIMED_SIGMA)
        pairs = (
            canaries.whole(protection, probe, seed),
            canaries.partial(protection, probe, seed),
            canaries.network(protection, model, target.shape, target.classes, enough, seed),
        )
        ready = tuple(
            Canary(pair, pair.plain(protection), _sigma(protection, pair, settings))
            for pair in pairs
        )
    return Prepared(protection, settings, ready, silent, silent_sigma, claimed)


def audit(
    protection: Protection,
    *,
    noise: NoiseSource | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """Attack a protection as it is, and hold what can be proven against what it claims.

    The neighbours are those of ``replace_one``.

    Args:
        protection: what to attack; it need not be one of this package.
        noise: where its noise comes from; secure noise unless another source is given.
        watch: is called with a canary's name and how many more uploads it has had.
        settings: those of ``AuditSettings`` by name, such as ``trials=200``.

    Returns:
        All findings; ``passed`` says whether nothing speaks against the claim.

    Raises:
        BadInput: a setting is out of range, or the protection cannot be audited.

    Example:
        ::

            from noisemarket.study.audit import audit
            assert audit(nm.Sharded(shards=4), trials=200).passed
    """
    return prepare_audit(protection, AuditSettings(**settings)).run(noise, watch)


def controls(
    protection: Protection,
    settings: AuditSettings,
    noise: NoiseSource | None = None,
    watch: Watch | None = None,
) -> Iterator[Control]:
    """Audit the right protection, then each seeded bug that makes a difference to it.

    All canaries are made by the call; the audits run one by one as they are asked for.
    """
    ready = {
        name: prepare_audit(protection if name is None else Buggy(protection, name), settings)
        for name in (None, *bugs_of(protection))
    }
    return (
        Control(name, "as it is" if name is None else BUGS[name].meaning, one.run(noise, watch))
        for name, one in ready.items()
    )


def uploads(trials: int) -> int:
    """How many uploads an audit makes, for a progress bar."""
    return 6 * trials + SILENT_UPLOADS


def _sigma(protection: Protection, pair: Pair, settings: AuditSettings) -> float:
    if settings.sigma is not None:
        return settings.sigma
    sensitivity, mu = sensitivity_of(protection, pair), settings.mu
    if not math.isfinite(sensitivity):
        return UNCLAIMED_SIGMA
    if not LEAST_SIGMA <= sensitivity / mu <= LARGEST:
        least, most = mu * LEAST_SIGMA, mu * LARGEST
        remedy = f"choose clip and rate so that it lies between {least:.2g} and {most:.2g}."
        raise BadInput("sensitivity", sensitivity, remedy)
    return sensitivity / mu
