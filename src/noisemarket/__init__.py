"""noisemarket: a market in which data owners of a federated-learning job sell part of their
differential-privacy noise to the curator, by contract.

    import noisemarket as nm
    result = nm.negotiate(nm.Scenario.from_preset("market", owners=50), mechanism="dypp")
    print(result.summary())

    trained = nm.train(nm.Scenario.from_preset("market"), sigma=0.1)  # needs the extra cnn
    print(trained.accuracy, trained.statements[0].text())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noisemarket.errors import BadInput, NoisemarketError
    from noisemarket.federated.data import Dataset
    from noisemarket.federated.data_files import load_data, load_mnist
    from noisemarket.federated.protections import DPSGD, Clipped, Paper, Protection, Sharded
    from noisemarket.federated.weighting import Weighting, effective_noise, effective_share
    from noisemarket.learning.rule import Rule
    from noisemarket.market import MarketOutcome, MarketRun, events, run_market
    from noisemarket.mechanisms import MECHANISMS
    from noisemarket.mechanisms.mechanism import Mechanism
    from noisemarket.mechanisms.tables import AgreedContract
    from noisemarket.negotiation import Negotiation, negotiate
    from noisemarket.scenario import Scenario, dump_scenario, load_scenario
    from noisemarket.training import Training, train

__version__ = "0.1.0"

_HOMES = {
    "MECHANISMS": "noisemarket.mechanisms",
    "Mechanism": "noisemarket.mechanisms.mechanism",
    "Rule": "noisemarket.learning.rule",
    "AgreedContract": "noisemarket.mechanisms.tables",
    "Negotiation": "noisemarket.negotiation",
    "negotiate": "noisemarket.negotiation",
    "Scenario": "noisemarket.scenario",
    "load_scenario": "noisemarket.scenario",
    "dump_scenario": "noisemarket.scenario",
    "Dataset": "noisemarket.federated.data",
    "load_data": "noisemarket.federated.data_files",
    "load_mnist": "noisemarket.federated.data_files",
    "DPSGD": "noisemarket.federated.protections",
    "Clipped": "noisemarket.federated.protections",
    "Paper": "noisemarket.federated.protections",
    "Protection": "noisemarket.federated.protections",
    "Sharded": "noisemarket.federated.protections",
    "Weighting": "noisemarket.federated.weighting",
    "effective_noise": "noisemarket.federated.weighting",
    "effective_share": "noisemarket.federated.weighting",
    "Training": "noisemarket.training",
    "train": "noisemarket.training",
    "MarketOutcome": "noisemarket.market",
    "MarketRun": "noisemarket.market",
    "events": "noisemarket.market",
    "run_market": "noisemarket.market",
    "BadInput": "noisemarket.errors",
    "NoisemarketError": "noisemarket.errors",
}

__all__ = [
    "DPSGD",
    "MECHANISMS",
    "AgreedContract",
    "BadInput",
    "Clipped",
    "Dataset",
    "MarketOutcome",
    "MarketRun",
    "Mechanism",
    "Negotiation",
    "NoisemarketError",
    "Paper",
    "Protection",
    "Rule",
    "Scenario",
    "Sharded",
    "Training",
    "Weighting",
    "dump_scenario",
    "effective_noise",
    "effective_share",
    "events",
    "load_data",
    "load_mnist",
    "load_scenario",
    "negotiate",
    "run_market",
    "train",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that ``--help`` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
