"""noisemarket: a market in which data owners of a federated-learning job sell part of their
differential-privacy noise to the curator, by contract.

    import noisemarket as nm
    result = nm.negotiate(nm.Scenario.from_preset("market", owners=50), mechanism="dypp")
    print(result.summary())

    trained = nm.train(nm.Scenario.from_preset("market"), sigma=0.1)
    print(trained.accuracy, trained.statements[0].text())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noisemarket.errors import BadInput, NoisemarketError
    from noisemarket.federated.aggregation import Weighting, effective_noise, effective_share
    from noisemarket.federated.data import Dataset
    from noisemarket.federated.data_files import load_data
    from noisemarket.federated.protections import (
        DPSGD,
        Paper,
        PerRecord,
        Protection,
        Sharded,
    )
    from noisemarket.market import events
    from noisemarket.market.job import run_market
    from noisemarket.market.negotiation import AgreedContract, Negotiation, negotiate
    from noisemarket.market.outcome import MarketOutcome, MarketRun, Outcome
    from noisemarket.market.training import Training, train
    from noisemarket.pricing import MECHANISMS
    from noisemarket.pricing.mechanism import Mechanism
    from noisemarket.pricing.rule import Rule
    from noisemarket.scenario import Scenario, dump_scenario, load_scenario
    from noisemarket.study.compare import compare
    from noisemarket.study.job_surface import with_surface
    from noisemarket.study.results import Row

__version__ = "0.1.0"

_PUBLIC = {
    "noisemarket.errors": ("BadInput", "NoisemarketError"),
    "noisemarket.federated.data": ("Dataset",),
    "noisemarket.federated.data_files": ("load_data",),
    "noisemarket.federated.protections": (
        "DPSGD",
        "Paper",
        "PerRecord",
        "Protection",
        "Sharded",
    ),
    "noisemarket.federated.aggregation": ("Weighting", "effective_noise", "effective_share"),
    "noisemarket.pricing.rule": ("Rule",),
    "noisemarket.market": ("events",),
    "noisemarket.market.job": ("run_market",),
    "noisemarket.market.outcome": ("MarketOutcome", "MarketRun", "Outcome"),
    "noisemarket.pricing": ("MECHANISMS",),
    "noisemarket.pricing.mechanism": ("Mechanism",),
    "noisemarket.market.negotiation": ("AgreedContract", "Negotiation", "negotiate"),
    "noisemarket.scenario": ("Scenario", "dump_scenario", "load_scenario"),
    "noisemarket.market.training": ("Training", "train"),
    "noisemarket.study.job_surface": ("with_surface",),
    "noisemarket.study.compare": ("compare",),
    "noisemarket.study.results": ("Row",),
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "DPSGD",
    "MECHANISMS",
    "AgreedContract",
    "BadInput",
    "Dataset",
    "MarketOutcome",
    "MarketRun",
    "Mechanism",
    "Negotiation",
    "NoisemarketError",
    "Outcome",
    "Paper",
    "PerRecord",
    "Protection",
    "Row",
    "Rule",
    "Scenario",
    "Sharded",
    "Training",
    "Weighting",
    "compare",
    "dump_scenario",
    "effective_noise",
    "effective_share",
    "events",
    "load_data",
    "load_scenario",
    "negotiate",
    "run_market",
    "train",
    "with_surface",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that ``--help`` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "events":  # a module, of which the types of a run's events are
        return import_module("noisemarket.market.events")
    return getattr(import_module(_HOMES[name]), name)
