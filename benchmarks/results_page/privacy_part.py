"""What noise costs under each protection, for docs/explanation/privacy.md."""

from __future__ import annotations

from benchmarks.results_page.common import table
from noisemarket.scenario import Scenario
from noisemarket.show.privacy_report import privacy_answer

SIGMAS = 0.05, 0.1, 0.2, 0.3, 0.6
PROTECTIONS: dict[str, dict[str, object]] = {
    "`per_record`": {},
    "`sharded`, 10 records a shard": {"protection": "sharded", "records_per_shard": 10},
    "`dp_sgd`, the CNN's learning rate 0.05": {"protection": "dp_sgd", "model": "cnn"},
    "`sharded`, one shard (the whole owner)": {"protection": "sharded", "records_per_shard": 600},
}
"""What the rows are called, and what they change in the preset."""


def privacy_part() -> str:
    """Epsilon of a whole job of the preset ``market``, as ``noisemarket privacy`` counts it."""
    rows = []
    for name, changed in PROTECTIONS.items():
        scenario = Scenario.from_preset("market", **changed)
        told = [privacy_answer(scenario, sigma)["at_sigma"]["epsilon"] for sigma in SIGMAS]
        rows.append([name, *(f"{one:,.0f}" if one >= 100 else f"{one:.2g}" for one in told)])
    return table(["epsilon at sigma", *(f"{sigma:g}" for sigma in SIGMAS)], rows)
