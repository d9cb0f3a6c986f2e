"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.formats import finite, plain


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
    """All that an audit found. It is passed if no finding and no check is a breach.

    ``false_alarm`` bounds the probability that a right protection is accused, as computed for the
    worst case; it is below ``1 - confidence``. ``claimed`` is False where the protection claims
    nothing: then findings show what leaks, and cannot be breaches. ``source`` is what the noise
    came from.
    """

    protection: str
    bug: str | None
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
class Control:
    """A seeded bug and whether the audit caught it; ``bug`` is None for the right protection."""

    bug: str | None
    meaning: str
    result: AuditResult

    @property
    def as_hoped(self) -> bool:
        """Whether a bug was caught, or the right protection passed."""
        return self.result.passed == (self.bug is None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "bug": self.bug,
            "meaning": self.meaning,
            "as_hoped": self.as_hoped,
            "breaches": list(self.result.breaches),
            "mu": finite(self.result.worst.mu),
            "mu_low": self.result.worst.mu_low,
        }
