"""Mechanisms by name: each turns a population into contracts. Every learning rule is one too."""

from __future__ import annotations

from noisemarket.errors import BadInput
from noisemarket.parts import Parts
from noisemarket.pricing.auctions import CSRAAuction, PACAuction, PostedPrice
from noisemarket.pricing.bisection import Bisection
from noisemarket.pricing.clock import Clock
from noisemarket.pricing.dypp import Learned
from noisemarket.pricing.mechanism import Mechanism
from noisemarket.pricing.oracles import EQUILIBRIUM, FIRST_BEST, BestPortfolio, NoDP, UniformDP
from noisemarket.pricing.pain_fl import PainFL
from noisemarket.pricing.rule import Rule

MECHANISMS = Parts[Mechanism](
    "mechanism",
    {
        "dypp": Learned("wolf_phc"),
        "phc": Learned("phc"),
        "q_learning": Learned("q_learning"),
        "greedy": Learned("greedy"),
        "bisection": Bisection(),
        "clock": Clock(),
        "pac_auction": PACAuction(),
        "csra_auction": CSRAAuction(),
        "posted_price": PostedPrice(),
        "pain_fl": PainFL(),
        "uniform": UniformDP(),
        "no_dp": NoDP(),
        "equilibrium": EQUILIBRIUM,
        "best_portfolio": BestPortfolio(),
        "first_best": FIRST_BEST,
    },
    Mechanism,
    Rule,
)
"""All mechanisms by name, read only.

Your own are named by ``package.module:Name``: a ``Mechanism`` class, which is called without
arguments, or a ``Rule`` class, which plays both sides.

Example:
    >>> import noisemarket as nm
    >>> nm.MECHANISMS["pain_fl"].knows
    'how costs and data are spread among these owners'
"""


def find_mechanism(mechanism: str | Mechanism | type[Rule]) -> Mechanism:
    """A mechanism by name, or one's own: an instance, or a class of learning rule."""
    given: object = mechanism
    if isinstance(given, str):
        given = MECHANISMS.find(given, load=True)
        if isinstance(given, type) and issubclass(given, Mechanism):
            given = given()
    if isinstance(given, Mechanism):
        return given
    if isinstance(given, type) and issubclass(given, Rule):
        return Learned(given)
    remedy = "give a name, an instance of Mechanism, or a subclass of Rule."
    raise BadInput("mechanism", mechanism, remedy)
