"""The learning rules by name: those of this package, and those of the user's own packages."""

from __future__ import annotations

from noisemarket.pricing.greedy import Greedy
from noisemarket.pricing.q_learning import QLearning
from noisemarket.pricing.rule import Rule
from noisemarket.pricing.wolf_phc import PHC, WolfPHC
from noisemarket.registry import Registry, subclass_of

RULES = Registry[type[Rule]](
    "rule",
    "noisemarket.rules",
    {"wolf_phc": WolfPHC, "phc": PHC, "q_learning": QLearning, "greedy": Greedy},
    subclass_of(Rule),
)
"""All rules by name; packages add theirs as entry points of ``noisemarket.rules``."""


def find_rule(rule: str | type[Rule]) -> type[Rule]:
    """The learning rule of that name; a class is taken as it is."""
    return RULES.find(rule) if isinstance(rule, str) else rule
