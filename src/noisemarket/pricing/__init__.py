"""Mechanisms by name: each turns a population into contracts. Every learning rule is one too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.pricing.bisection_mechanism import Bisection
from noisemarket.pricing.clock import Clock
from noisemarket.pricing.learned import Learned
from noisemarket.pricing.mechanism import Mechanism
from noisemarket.pricing.oracles import Equilibrium, FirstBest
from noisemarket.pricing.pain_fl import PainFL
from noisemarket.pricing.portfolio import BestPortfolio
from noisemarket.pricing.posted_price import PostedPrice
from noisemarket.pricing.proportional_share import CSRAAuction, PACAuction
from noisemarket.pricing.rule import Rule
from noisemarket.pricing.rules import RULES
from noisemarket.pricing.unasked import NoDP, UniformDP
from noisemarket.registry import Registry, subclass_of


class _Mechanisms(Registry[Any]):
    """An entry point names a class, which is called without arguments; a rule is looked up last."""

    def __getitem__(self, name: str) -> Mechanism:
        try:
            part = super().__getitem__(name)
        except KeyError:
            if name not in self._rules():
                raise
            RULES.find(name)
            return Learned(name)
        mechanism: Mechanism = part() if isinstance(part, type) else part
        return mechanism

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        yield from self._rules()

    def __len__(self) -> int:
        return super().__len__() + len(self._rules())

    def _rules(self) -> list[str]:
        """The rules of other packages; WoLF-PHC is known as dypp."""
        known = {"wolf_phc", *super().__iter__()}
        return [name for name in RULES if name not in known]


MECHANISMS: Registry[Mechanism] = _Mechanisms(
    "mechanism",
    "noisemarket.pricing",
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
        "equilibrium": Equilibrium(),
        "best_portfolio": BestPortfolio(),
        "first_best": FirstBest(),
    },
    subclass_of(Mechanism),
)
"""All mechanisms by name, a mapping that is read only.

Packages add theirs as entry points of ``noisemarket.pricing`` (a ``Mechanism`` class) or of
``noisemarket.rules`` (a ``Rule`` class, played by both sides).

Example:
    >>> import noisemarket as nm
    >>> nm.MECHANISMS["pain_fl"].knows
    'how costs and data are spread among these owners'
"""


def find_mechanism(mechanism: str | Mechanism | type[Rule]) -> Mechanism:
    """A mechanism by name, or one's own: an instance, or a class of learning rule.

    Raises:
        BadInput: there is no mechanism of that name, or the argument is none.
    """
    if isinstance(mechanism, str):
        return MECHANISMS.find(mechanism)
    if isinstance(mechanism, Mechanism):
        return mechanism
    given: object = mechanism
    if isinstance(given, type) and issubclass(given, Rule):
        return Learned(given)
    remedy = "give a name, an instance of Mechanism, or a subclass of Rule."
    raise BadInput("mechanism", mechanism, remedy)
