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
    from noisemarket.federated.data import Dataset
    from noisemarket.federated.data_files import load_data, load_mnist
    from noisemarket.federated.engine import Engine
    from noisemarket.federated.protections import DPSGD, Clipped, Paper, Protection, Sharded
    from noisemarket.federated.weighting import Weighting, effective_noise, effective_share
    from noisemarket.learning.rule import Rule
    from noisemarket.ledger.backend import LedgerBackend
    from noisemarket.market import MarketOutcome, MarketRun, events, run_market
    from noisemarket.mechanisms import MECHANISMS
    from noisemarket.mechanisms.mechanism import Mechanism
    from noisemarket.mechanisms.tables import AgreedContract
    from noisemarket.negotiation import Negotiation, negotiate
    from noisemarket.scenario import Scenario, dump_scenario, load_scenario
    from noisemarket.training import Training, train

__version__ = "0.1.0"

_PUBLIC = {
    "noisemarket.errors": ("BadInput", "NoisemarketError"),
    "noisemarket.federated.data": ("Dataset",),
    "noisemarket.federated.data_files": ("load_data", "load_mnist"),
    "noisemarket.federated.engine": ("Engine",),
    "noisemarket.federated.protections": ("DPSGD", "Clipped", "Paper", "Protection", "Sharded"),
    "noisemarket.federated.weighting": ("Weighting", "effective_noise", "effective_share"),
    "noisemarket.learning.rule": ("Rule",),
    "noisemarket.ledger.backend": ("LedgerBackend",),
    "noisemarket.market": ("MarketOutcome", "MarketRun", "events", "run_market"),
    "noisemarket.mechanisms": ("MECHANISMS",),
    "noisemarket.mechanisms.mechanism": ("Mechanism",),
    "noisemarket.mechanisms.tables": ("AgreedContract",),
    "noisemarket.negotiation": ("Negotiation", "negotiate"),
    "noisemarket.scenario": ("Scenario", "dump_scenario", "load_scenario"),
    "noisemarket.training": ("Training", "train"),
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "DPSGD",
    "MECHANISMS",
    "AgreedContract",
    "BadInput",
    "Clipped",
    "Dataset",
    "Engine",
    "LedgerBackend",
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
