"""The learning rules by name. To add one: a file of its own, and a line here."""

from __future__ import annotations

from noisemarket.errors import BadInput
from noisemarket.learning.greedy import Greedy
from noisemarket.learning.phc import PHC
from noisemarket.learning.q_learning import QLearning
from noisemarket.learning.rule import Rule
from noisemarket.learning.wolf_phc import WolfPHC

RULES: dict[str, type[Rule]] = {
    "wolf_phc": WolfPHC,
    "phc": PHC,
    "q_learning": QLearning,
    "greedy": Greedy,
}


def find_rule(rule: str | type[Rule]) -> type[Rule]:
    """The learning rule of that name; a class of one's own is taken as it is."""
    if not isinstance(rule, str):
        return rule
    if rule not in RULES:
        raise BadInput("rule", rule, f"choose one of: {', '.join(RULES)}.")
    return RULES[rule]
