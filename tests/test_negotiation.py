"""What ``negotiate`` returns: the summary, the contracts, the exact answers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from tests.conformance.mechanism_suite import negotiated

import noisemarket
from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.value import Worth, worth
from noisemarket.market.negotiation import negotiate, run_options
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.dypp import Learned
from noisemarket.pricing.mechanism import Agreement
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

REQUIRED = {
    "preset", "mechanism", "owners", "iterations", "seed", "mean_saving", "mean_payment",
    "mean_owner_payoff", "curator_gain", "signed_share", "converged_at", "equilibrium",
    "first_best", "exploitability",
}  # fmt: skip
FIGURES = {"mean_saving", "mean_payment", "mean_owner_payoff", "curator_gain"}


class TestTheSummary:
    @pytest.mark.parametrize("name", MECHANISMS)
    @pytest.mark.parametrize("scenario", ["market", "paper", "one owner", "a change"])
    def test_holds_what_scripts_rely_on(self, name: str, scenario: str) -> None:
        result = negotiated(scenario, name)
        summary = result.summary()
        assert set(summary) >= REQUIRED
        for exact in ("equilibrium", "first_best"):
            assert set(summary[exact]) >= FIGURES  # type: ignore[arg-type]
        again = json.loads(json.dumps(summary, allow_nan=False))
        assert again == summary
        assert summary["mechanism"] == name
        assert summary["preset"] == result.scenario.preset
        assert summary["owners"] == len(result.environment)
        assert summary["complete"] is True

    def test_learners_have_an_exploitability_and_the_others_none(self) -> None:
        for name in MECHANISMS:
            summary = negotiated("market", name).summary()
            if isinstance(MECHANISMS[name], Learned):
                total = summary["owner_exploitability"] + summary["curator_exploitability"]  # type: ignore[operator]
                assert summary["exploitability"] == pytest.approx(total)
            else:
                assert summary["exploitability"] is None
                assert summary["converged_at"] is None

    def test_beside_each_figure_stand_the_exact_ones(self) -> None:
        result = negotiated("market", "dypp")
        for exact in ("equilibrium", "first_best"):
            assert result.summary()[exact] == negotiated("market", exact).learned.as_dict()

    def test_a_change_is_in_the_summary(self) -> None:
        (one,) = negotiated("a change", "dypp").summary()["recoveries"]  # type: ignore[misc]
        assert one["at"] == 500
        assert set(one) >= {"iterations", "efficiency_before", "efficiency_after"}

    def test_the_mechanism_given_overrides_the_scenarios(self) -> None:
        scenario = Scenario.from_preset("market", owners=2, iterations=20, mechanism="greedy")
        assert negotiate(scenario).summary()["mechanism"] == "greedy"
        assert negotiate(scenario, mechanism="uniform").summary()["mechanism"] == "uniform"
        assert scenario.mechanism == "greedy"

    def test_the_public_names_are_these(self) -> None:
        assert noisemarket.negotiate is negotiate
        assert noisemarket.MECHANISMS is MECHANISMS
        with pytest.raises(AttributeError, match="auction"):
            noisemarket.auction  # noqa: B018


class TestContracts:
    def test_one_for_every_owner_in_units(self) -> None:
        result = negotiated("market", "first_best")
        levels, agreed = result.environment.levels, result.agreement.contracts
        assert len(result.contracts) == len(result.environment)
        for index, contract in enumerate(result.contracts):
            assert contract.owner == str(index)
            assert contract.saving == pytest.approx(levels.savings[agreed.saving[index]])
            assert contract.saving + contract.sigma == pytest.approx(levels.sigma_max)
            assert contract.payment == levels.payments[agreed.payment[index]]
            assert contract.signed == agreed.signed[index]
        total = sum(contract.payment for contract in result.contracts)
        assert total == pytest.approx(result.learned.total_payment)

    def test_as_csv(self) -> None:
        result = negotiated("market", "dypp")
        rows = list(csv.DictReader(result.contracts_csv().splitlines()))
        assert len(rows) == len(result.contracts)
        for row, contract in zip(rows, result.contracts, strict=True):
            signed = "true" if contract.signed else "false"
            assert row == {n: str(v) for n, v in vars(contract).items()} | {"signed": signed}

    def test_of_finished_owners_only(self) -> None:
        result = negotiate(Scenario.from_preset("market", owners=4), stop=lambda: True)
        assert result.contracts == ()


class TestTallies:
    @staticmethod
    def run(owners: int) -> tuple[Environment, Agreement]:
        scenario = Scenario.from_preset("market", owners=owners)
        environment = scenario.environment()
        return environment, find_mechanism("first_best").run(environment, run_options(scenario))

    def test_many_owners_are_counted_in_slices(self) -> None:
        environment, agreement = self.run(9_000)
        row = np.arange(9_000)
        contracts = agreement.contracts
        gains = environment.curator_side().gains()[row, contracts.saving, contracts.payment]
        figures = worth(environment, contracts)
        assert isinstance(figures, Worth)
        assert figures.curator_gain == pytest.approx(gains.mean())
        assert figures.signed_share == contracts.signed.mean()

    def test_only_the_owners_that_are_done_count(self) -> None:
        environment, agreement = self.run(10)
        done = np.arange(10) < 4
        payments = environment.levels.payments[agreement.contracts.payment]
        figures = worth(environment, agreement.contracts, done)
        assert figures.mean_payment == pytest.approx(payments[:4].mean())
        assert figures.total_payment == pytest.approx(payments[:4].sum())


def test_each_exact_answer_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.from_preset("market", owners=3, iterations=50)
    result, solved = negotiate(scenario), []
    run = type(MECHANISMS["equilibrium"]).run

    def counted(self: object, *given: object) -> object:
        solved.append(self)
        return run(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(type(MECHANISMS["equilibrium"]), "run", counted)
    for _ in range(3):
        assert result.equilibrium == result.exactly("equilibrium", 0)
        result.summary()
    assert len(solved) == len(set(solved)) == 2  # with the first best


@pytest.mark.parametrize(
    ("iterations", "spacing"),
    [(1, 50), (5_000, 50), (10**6, 50), (10**6 + 1, 100), (10**9, 50_000)],
)
def test_no_run_has_an_endless_trace(iterations: int, spacing: int) -> None:
    """A billion iterations at 50 a point would be 20 million rows, and as much memory."""
    made = Scenario.from_preset("market", iterations=iterations)
    play = run_options(made).play
    assert play.trace_every == spacing
    assert play.blocks <= 20_000


@pytest.mark.parametrize("field", ["payment_value", "privacy_weight"])
def test_a_menu_for_owners_to_whom_money_or_privacy_is_worth_nothing_is_refused(field: str) -> None:
    free = Scenario.from_preset("market", owners=4, **{field: 0.0})
    with pytest.raises(BadInput, match=f"{field} is 0"):
        find_mechanism("pain_fl").check(free.environment(), run_options(free))


def test_numbers_far_beyond_use_give_no_warning() -> None:
    """Warnings are errors here; a user would see them."""
    made = Scenario.from_preset("market", owners=2, sigma_max=1e30)
    assert np.isfinite(negotiate(made, mechanism="equilibrium").learned.mean_quality)
