"""The learning rules by name."""

from __future__ import annotations

from noisemarket.parts import Parts
from noisemarket.pricing.greedy import Greedy
from noisemarket.pricing.q_learning import QLearning
from noisemarket.pricing.rule import Rule
from noisemarket.pricing.wolf_phc import PHC, WolfPHC

RULES = Parts[type[Rule]](
    "rule", {"wolf_phc": WolfPHC, "phc": PHC, "q_learning": QLearning, "greedy": Greedy}, Rule
)
"""All rules by name; your own by ``package.module:Name``."""


def find_rule(rule: str | type[Rule]) -> type[Rule]:
    """The learning rule of that name; a class is taken as it is."""
    return RULES.find(rule) if isinstance(rule, str) else rule
