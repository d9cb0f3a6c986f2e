"""Mechanisms by name: each maps a population to contracts. Every learning rule is one too."""

from __future__ import annotations

from noisemarket.errors import BadInput
from noisemarket.learning.rules import RULES
from noisemarket.mechanisms.learned import Learned
from noisemarket.mechanisms.mechanism import Mechanism
from noisemarket.mechanisms.no_dp import NoDP
from noisemarket.mechanisms.oracles import Equilibrium, FirstBest
from noisemarket.mechanisms.pain_fl import PainFL
from noisemarket.mechanisms.uniform import UniformDP

MECHANISMS: dict[str, Mechanism] = {
    "dypp": Learned("wolf_phc"),
    **{name: Learned(name) for name in RULES if name != "wolf_phc"},
    "pain_fl": PainFL(),
    "uniform": UniformDP(),
    "no_dp": NoDP(),
    "equilibrium": Equilibrium(),
    "first_best": FirstBest(),
}


def find_mechanism(name: str) -> Mechanism:
    """The mechanism of that name."""
    if name not in MECHANISMS:
        raise BadInput("mechanism", name, f"choose one of: {', '.join(MECHANISMS)}.")
    return MECHANISMS[name]
