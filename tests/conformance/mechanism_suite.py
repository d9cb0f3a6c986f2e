"""What every mechanism must hold, whether it comes with noisemarket or from another package.

A test module gets the suite for a mechanism of its own like this::

    @pytest.mark.parametrize("mechanism", [MyMechanism()])
    @pytest.mark.parametrize("scenario", SCENARIOS)
    class TestMine(MechanismConformance): ...

``VoluntaryConformance`` adds what holds where owners agree to their contracts.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from noisemarket.game.levels import FloatArray
from noisemarket.game.sides import SLACK
from noisemarket.market.negotiation import Negotiation, negotiate
from noisemarket.pricing.mechanism import Mechanism, Progress
from noisemarket.scenario import Scenario

SCENARIOS: dict[str, tuple[str, dict[str, object]]] = {
    "market": ("market", {"owners": 24, "iterations": 1_500}),
    "paper": ("paper", {"owners": 24, "iterations": 1_500}),
    "paper, privacy loss": ("paper", {"owners": 24, "iterations": 1_500, "payoff": "privacy_loss"}),
    "many kinds": (
        "market",
        {
            "owners": 30, "iterations": 1_000,
            "beta": {"distribution": "log_uniform", "low": 0.05, "high": 20.0},
            "markup": {"distribution": "choice", "values": [0.0, 0.2, 1.0]},
            "privacy_cost": {"distribution": "lognormal", "median": 1.0, "sd": 0.8},
        },
    ),
    "one owner": ("market", {"owners": 1, "iterations": 300}),
    "3 x 2 levels, paper": ("paper", {"owners": 10, "iterations": 300, "J": 2, "K": 1}),
    "2 x 2 levels": (
        "market", {"owners": 10, "iterations": 300, "J": 1, "K": 1, "floor": 0.0},
    ),
    "a change": (
        "market",
        {
            "owners": 16, "iterations": 1_000,
            "changes": [{"at": 500, "scale": {"privacy_cost": 2.0}}],
        },
    ),
    "worthless payments": ("market", {"owners": 8, "iterations": 300, "payment_value": 0.0}),
    "no privacy loss": ("market", {"owners": 8, "iterations": 300, "privacy_weight": 0.0}),
    "a curator who wants nothing": ("market", {"owners": 8, "iterations": 300, "varpi": 0.0}),
    "a curator who pays anything": ("market", {"owners": 8, "iterations": 300, "varpi": 1.0}),
}  # fmt: skip
SIGNED = [name for name, (preset, _) in SCENARIOS.items() if preset == "market"]
"""Small markets of every kind that matters: presets, grids, populations, a change, edge cases."""


@cache
def negotiated(scenario: str, mechanism: str | Mechanism) -> Negotiation:
    """The contracts of a mechanism, negotiated once for all tests."""
    preset, settings = SCENARIOS[scenario]
    given = Scenario.from_preset(preset, surface="printed", **settings)
    return negotiate(given, mechanism=mechanism, threads=2)


def curator_gains(result: Negotiation) -> FloatArray:
    """What the curator gains on each owner, over no trade."""
    contracts, gains = result.agreement.contracts, result.environment.curator_side().gains()
    return np.asarray(gains[np.arange(len(contracts)), contracts.saving, contracts.payment])


class MechanismConformance:
    """The suite; a subclass parametrises it with ``mechanism`` and ``scenario``."""

    def test_makes_a_contract_for_every_owner(
        self, mechanism: str | Mechanism, scenario: str
    ) -> None:
        result = negotiated(scenario, mechanism)
        owners, contracts = len(result.environment), result.agreement.contracts
        savings, payments = result.environment.levels.shape
        assert len(contracts) == owners
        for levels, count in ((contracts.saving, savings), (contracts.payment, payments)):
            assert levels.shape == (owners,)
            assert levels.dtype == np.int64
            assert levels.min() >= 0
            assert levels.max() < count
        assert contracts.signed.shape == (owners,)
        assert contracts.signed.dtype == np.bool_
        assert result.agreement.complete
        assert result.agreement.done.shape == (owners,)

    def test_pays_nothing_without_a_signature(
        self, mechanism: str | Mechanism, scenario: str
    ) -> None:
        contracts = negotiated(scenario, mechanism).agreement.contracts
        assert not contracts.payment[~contracts.signed].any()
        assert ((contracts.saving > 0) | (contracts.payment > 0))[contracts.signed].all()

    def test_its_figures_add_up(self, mechanism: str | Mechanism, scenario: str) -> None:
        result = negotiated(scenario, mechanism)
        contracts, environment = result.agreement.contracts, result.environment
        row, j, k = np.arange(len(contracts)), contracts.saving, contracts.payment
        levels, figures = environment.levels, result.learned
        assert figures.mean_saving == pytest.approx(levels.savings[j].mean())
        assert figures.mean_payment == pytest.approx(levels.payments[k].mean())
        assert figures.total_payment == pytest.approx(levels.payments[k].sum())
        owner = environment.owner_side().payoffs()[row, j, k]
        assert figures.mean_owner_payoff == pytest.approx(owner.mean(), abs=1e-12)
        curator = environment.curator_side().payoffs()
        assert figures.mean_curator_payoff == pytest.approx(curator[row, j, k].mean())
        assert figures.curator_gain == pytest.approx(curator_gains(result).mean(), abs=1e-9)
        quality = environment.curator_side().qualities()[row, j]
        assert figures.mean_quality == pytest.approx(quality.mean())
        assert figures.signed_share == contracts.signed.mean()

    def test_gives_the_same_contracts_again(
        self, mechanism: str | Mechanism, scenario: str
    ) -> None:
        """And tells who watches of every owner once."""
        first = negotiated(scenario, mechanism)
        seen: list[Progress] = []
        again = negotiate(first.scenario, mechanism=mechanism, threads=1, watch=seen.append)
        for name, values in vars(first.agreement.contracts).items():
            np.testing.assert_array_equal(getattr(again.agreement.contracts, name), values)
        reported = np.zeros(len(again.environment), dtype=int)
        for progress in seen:
            reported[progress.owners] += 1
            where = again.agreement.contracts.saving[progress.owners]
            np.testing.assert_array_equal(progress.contracts.saving, where)
        assert (reported == 1).all()
        assert seen[-1].done == seen[-1].total == len(reported)
        assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)


class VoluntaryConformance(MechanismConformance):
    """The suite of a mechanism whose owners agree to their contracts."""

    def test_trades_nothing_without_a_signature(
        self, mechanism: str | Mechanism, scenario: str
    ) -> None:
        contracts = negotiated(scenario, mechanism).agreement.contracts
        traded = (contracts.saving > 0) | (contracts.payment > 0)
        np.testing.assert_array_equal(contracts.signed, traded)

    def test_nobody_signs_at_a_loss(self, mechanism: str | Mechanism, scenario: str) -> None:
        """In the paper's game, where every outcome binds, both sides may lose."""
        result = negotiated(scenario, mechanism)
        contracts, owners = result.agreement.contracts, result.environment.owner_side()
        at = np.arange(len(contracts)), contracts.saving, contracts.payment
        if result.environment.protocol == "signed":
            assert owners.gains()[at].min() >= -SLACK
            assert owners.signs()[at].all()
            assert result.learned.curator_gain >= -SLACK

    def test_is_bounded_by_first_best_and_no_dp(
        self, mechanism: str | Mechanism, scenario: str
    ) -> None:
        result = negotiated(scenario, mechanism)
        highest = negotiated(scenario, "no_dp").learned.mean_quality
        assert highest >= result.learned.mean_quality
        if result.environment.protocol == "signed":
            best = curator_gains(negotiated(scenario, "first_best"))
            assert (best >= curator_gains(result) - 1e-8).all()
