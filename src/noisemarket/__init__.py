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
    from noisemarket.errors import BadInput as BadInput
    from noisemarket.errors import NoisemarketError as NoisemarketError
    from noisemarket.federated.aggregation import Weighting as Weighting
    from noisemarket.federated.aggregation import effective_noise as effective_noise
    from noisemarket.federated.aggregation import effective_share as effective_share
    from noisemarket.federated.data import Dataset as Dataset
    from noisemarket.federated.data_files import load_data as load_data
    from noisemarket.federated.protections import DPSGD as DPSGD
    from noisemarket.federated.protections import Paper as Paper
    from noisemarket.federated.protections import PerRecord as PerRecord
    from noisemarket.federated.protections import Protection as Protection
    from noisemarket.federated.protections import Sharded as Sharded
    from noisemarket.market import events as events
    from noisemarket.market.job import run_market as run_market
    from noisemarket.market.negotiation import AgreedContract as AgreedContract
    from noisemarket.market.negotiation import Negotiation as Negotiation
    from noisemarket.market.negotiation import negotiate as negotiate
    from noisemarket.market.outcome import MarketOutcome as MarketOutcome
    from noisemarket.market.outcome import MarketRun as MarketRun
    from noisemarket.market.outcome import Outcome as Outcome
    from noisemarket.market.training import Training as Training
    from noisemarket.market.training import train as train
    from noisemarket.pricing import MECHANISMS as MECHANISMS
    from noisemarket.pricing.mechanism import Mechanism as Mechanism
    from noisemarket.pricing.rule import Rule as Rule
    from noisemarket.scenario import Scenario as Scenario
    from noisemarket.scenario import dump_scenario as dump_scenario
    from noisemarket.scenario import load_scenario as load_scenario
    from noisemarket.study.compare import compare as compare
    from noisemarket.study.job_surface import with_surface as with_surface
    from noisemarket.study.results import Row as Row

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

__all__ = sorted(_HOMES)


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
