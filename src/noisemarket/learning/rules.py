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


def rule(name: str) -> type[Rule]:
    """The learning rule of that name."""
    if name not in RULES:
        raise BadInput("rule", name, f"choose one of: {', '.join(RULES)}.")
    return RULES[name]
