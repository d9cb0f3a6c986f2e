"""What a contract fixes about an owner's privacy, and what was spent of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.formats import infinite, plain
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon, gaussian_rho, zcdp_epsilon

OwnerId = int | str


@dataclass(frozen=True)
class PrivacyBudget:
    """The privacy terms that an owner's contract fixes before the job.

    ``sensitivity`` includes the rounding of the noise grid; it is infinite where the protection
    bounds nothing. ``rho_cap`` is what all releases may cost together.
    """

    owner: OwnerId
    protection: str
    sigma: float
    sensitivity: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    protects: str = "one record"
    delta: float = 1e-5
    rho_cap: float = math.inf
    simulated: bool = False

    def __post_init__(self) -> None:
        if not self.rho_cap >= 0.0:
            raise BadInput("rho_cap", self.rho_cap, "give a number that is not negative.")
        gaussian_epsilon(self.rho_per_round, self.delta)  # refuses values out of range

    @cached_property
    def rho_per_round(self) -> float:
        """What one release costs; infinite where nothing is guaranteed."""
        return gaussian_rho(self.sensitivity, self.sigma)

    @property
    def noise_multiplier(self) -> float:
        """Sigma / sensitivity, often called z."""
        return self.sigma / self.sensitivity if self.sensitivity else math.inf

    def to_dict(self) -> dict[str, Any]:
        return plain(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyBudget:
        numbers = {name: infinite(values[name]) for name in ("sigma", "sensitivity", "rho_cap")}
        neighbours = Neighbours.named(values["neighbours"])
        return cls(**{**values, **numbers, "neighbours": neighbours})


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy that one owner has spent so far, as text and as JSON.

    ``releases`` exceeds ``rounds`` when a round was run again. ``epsilon`` is exact,
    ``epsilon_general`` the tight bound for any zCDP mechanism. ``protects`` is None where nothing
    is bounded.
    """

    owner: OwnerId
    protection: str
    sigma: float
    noise_multiplier: float
    rho_per_round: float
    rounds: int
    releases: int
    rho_total: float
    rho_cap: float
    delta: float
    epsilon: float
    epsilon_general: float
    neighbours: Neighbours
    protects: str | None
    guaranteed: bool
    simulated: bool

    @classmethod
    def of(
        cls, budget: PrivacyBudget, total: float, rounds: int, releases: int
    ) -> PrivacyStatement:
        """That so many releases have cost ``total`` under these terms."""
        bounded = math.isfinite(total + budget.rho_per_round)
        return cls(
            owner=budget.owner,
            protection=budget.protection,
            sigma=budget.sigma,
            noise_multiplier=budget.noise_multiplier,
            rho_per_round=budget.rho_per_round,
            rounds=rounds,
            releases=releases,
            rho_total=total,
            rho_cap=budget.rho_cap,
            delta=budget.delta,
            epsilon=gaussian_epsilon(total, budget.delta),
            epsilon_general=zcdp_epsilon(total, budget.delta),
            neighbours=budget.neighbours,
            protects=budget.protects if bounded else None,
            guaranteed=bounded and not budget.simulated,
            simulated=budget.simulated,
        )

    def to_dict(self) -> dict[str, Any]:
        return plain(asdict(self))

    def text(self) -> str:
        released = f"{_counted(self.releases, 'upload')} in {_counted(self.rounds, 'round')}"
        first = f"Owner {self.owner}, protection {self.protection}, noise sigma {self.sigma:g}, "
        return " ".join([f"{first}{released}.", *privacy_sentences(self.to_dict())])


def privacy_sentences(stated: Mapping[str, Any]) -> list[str]:
    """The plain values of a statement, by an account or on a contract, in words."""
    times = stated.get("noise_multiplier")
    if stated["protects"] is None or stated["rho_per_round"] is None or stated["rho_total"] is None:
        why = "what was released has too little noise"
        if stated["sigma"] == 0.0:
            why = "no noise is added"
        elif not times:
            why = "no bound on what a record changes"
        out = [f"Nothing is guaranteed: {why}."]
    else:
        cap = "no cap" if stated["rho_cap"] is None else f"a cap of {stated['rho_cap']:.4g}"
        noise = f"The noise is {times:.4g} times the sensitivity: rho" if times else "Privacy: rho"
        out = [
            f"Hidden: {stated['protects']} (neighbours: {stated['neighbours']}).",
            f"{noise} {stated['rho_per_round']:.4g} a round, {stated['rho_total']:.4g} so far, "
            f"with {cap}.",
            f"That is epsilon {stated['epsilon']:.4g} at delta {stated['delta']:g}, exactly; at "
            f"most {stated['epsilon_general']:.4g} by the bound for any zCDP mechanism.",
        ]
    if stated["simulated"]:
        out.append(
            "NOT PRIVATE: noise from a fixed seed. Figures are those of secure noise of this size; "
            "anyone with the seed can remove this noise."
        )
    return out


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
