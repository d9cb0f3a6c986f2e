"""What owners sell, and how they answer: epsilon as the loss, floors of their own, errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.lying import gained_by_lying, side_of, surplus

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.sides import Behaviour, OwnerSide
from noisemarket.market.negotiation import negotiate
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.scenario import Scenario

DIRECT = [
    "clock", "pac_auction", "csra_auction", "posted_price", "best_portfolio", "equilibrium",
    "first_best",
]  # fmt: skip
FLOORS = {"distribution": "choice", "values": [0.0, 0.1, 0.22, 0.6, 5.0]}
SPREAD = {"distribution": "uniform", "low": 0.05, "high": 1.5}


def market(**settings: object) -> Environment:
    given = {"owners": 40, "privacy_cost": SPREAD, "model": "cnn"} | settings
    return Scenario.from_preset("market", **given).environment()


class TestEpsilonLoss:
    def test_it_is_the_epsilon_of_the_job_scaled_at_half_the_noise(self) -> None:
        sold = market(
            payoff="epsilon_loss", rounds=7, clip=0.5, records_per_shard=20, delta=1e-6
        ).sold

        def epsilon(sigma: float) -> float:  # 2 clip / (600 / 20) is what a record can move
            return gaussian_epsilon(7 * (2 * 0.5 / 30 / sigma) ** 2 / 2, 1e-6)

        unit = 0.3 / (epsilon(0.3) - epsilon(0.6))
        expected = [unit * (epsilon(0.6 - 0.05 * j) - epsilon(0.6)) for j in range(12)]
        assert sold is not None
        np.testing.assert_allclose(sold[:-1], expected, rtol=1e-9, atol=1e-12)
        assert sold[6] == pytest.approx(0.3)
        assert sold[-1] == math.inf

    def test_half_of_the_noise_costs_what_it_costs_in_the_linear_form(self) -> None:
        linear, epsilon = market(), market(payoff="epsilon_loss")
        for one in (linear.owner_side().payoffs(), linear.owner_side().signs()):
            assert one.shape == (40, 13, 33)
        np.testing.assert_allclose(
            epsilon.owner_side().payoffs()[:, 6], linear.owner_side().payoffs()[:, 6]
        )
        more, less = epsilon.owner_side().payoffs(), linear.owner_side().payoffs()
        assert (more[:, 7:] < less[:, 7:]).all()
        assert (more[:, 1:6] > less[:, 1:6]).all()

    @pytest.mark.parametrize("name", DIRECT)
    @pytest.mark.parametrize("cost", [SPREAD, 0.0])
    def test_all_noise_is_never_sold(self, name: str, cost: object) -> None:
        """Not even by owners to whom privacy is worth nothing: infinitely much would be sold."""
        scenario = Scenario.from_preset(
            "market", owners=20, payoff="epsilon_loss", floor=0.0, privacy_cost=cost, model="cnn"
        )
        contracts = negotiate(scenario, mechanism=name).agreement.contracts
        assert contracts.saving.max(initial=0) < 12
        side = scenario.environment().owner_side()
        assert not side.signs()[:, 12].any()
        assert (surplus(side, contracts.saving, contracts.payment)[contracts.signed] >= -1e-9).all()

    @pytest.mark.parametrize("name", DIRECT)
    def test_the_exact_answers_and_auctions_work_on_it(self, name: str) -> None:
        scenario = Scenario.from_preset(
            "market", owners=40, payoff="epsilon_loss", floor=0.25, budget=60.0,
            privacy_cost=SPREAD, model="cnn",
        )  # fmt: skip
        result = negotiate(scenario, mechanism=name)
        contracts, side = result.agreement.contracts, result.environment.owner_side()
        assert contracts.signed.any()
        rows = np.arange(40)
        assert side.signs()[rows, contracts.saving, contracts.payment].all()
        gained = gained_by_lying(result)
        if name not in ("best_portfolio", "equilibrium", "first_best"):
            assert gained is not None
            assert gained.max() <= 1e-9

    @pytest.mark.compiled
    def test_learners_play_it(self) -> None:
        scenario = Scenario.from_preset(
            "market", owners=20, payoff="epsilon_loss", model="cnn", iterations=3000
        )
        result = negotiate(scenario, mechanism="q_learning")
        contracts = result.agreement.contracts
        assert contracts.signed.any()
        assert contracts.saving.max() < 12
        assert np.isfinite(result.agreement.owner_exploitability).all()

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"protocol": "simultaneous"},
                "game.protocol is simultaneous: with payoff epsilon_loss",
            ),
            ({"protection": "paper"}, "game.payoff is epsilon_loss: paper has no epsilon"),
        ],
    )
    def test_where_it_makes_no_sense_it_is_refused(
        self, settings: dict[str, object], message: str
    ) -> None:
        with pytest.raises(BadInput, match=message):
            market(payoff="epsilon_loss", **settings)

    def test_a_menu_is_refused(self) -> None:
        scenario = Scenario.from_preset("market", payoff="epsilon_loss")
        with pytest.raises(BadInput, match=r"game.payoff is epsilon_loss: a menu needs"):
            negotiate(scenario, mechanism="pain_fl")


class TestFloors:
    @pytest.mark.parametrize("name", [*DIRECT, "pain_fl"])
    def test_nobody_sells_below_its_own_floor(self, name: str) -> None:
        settings = {"owners": 40, "privacy_cost": SPREAD, "model": "cnn"}
        free = Scenario.from_preset("market", **settings)
        bound = Scenario.from_preset("market", **{**settings, "population.floor": FLOORS})
        result = negotiate(bound, mechanism=name)
        floors, contracts = result.environment.population.floor, result.agreement.contracts
        kept = 0.6 - result.environment.levels.savings[contracts.saving]
        assert (kept[contracts.signed] >= floors[contracts.signed] - 1e-9).all()
        assert contracts.signed.any()
        without = negotiate(free, mechanism=name).agreement.contracts
        least = 0.6 - result.environment.levels.savings[without.saving]
        assert (least[without.signed] < floors[without.signed] - 1e-9).any(), "it did matter"

    @pytest.mark.compiled
    def test_learners_keep_floors(self) -> None:
        scenario = Scenario.from_preset(
            "market", owners=30, model="cnn", iterations=3000, **{"population.floor": 0.35}
        )
        contracts = negotiate(scenario, mechanism="q_learning").agreement.contracts
        assert contracts.signed.any()
        assert contracts.saving.max() <= 5

    def test_a_floor_counts_exactly_at_a_level(self) -> None:
        side = market(**{"population.floor": 0.1}).owner_side()
        assert side.sells()[:, 10].all()
        assert not side.sells()[:, 11:].any()
        assert not market(**{"population.floor": 0.1001}).owner_side().sells()[:, 10].any()


class TestErrors:
    def test_they_are_logistic_and_the_same_again(self) -> None:
        keys, questions = np.arange(400, dtype=np.uint64), np.arange(500)
        behaviour = Behaviour(temperature=0.5, answer_rate=0.8, seed=3)
        errors = behaviour.errors(keys, questions)
        np.testing.assert_array_equal(behaviour.errors(keys[7:9], questions), errors[7:9])
        assert abs(errors.mean()) < 0.02
        assert errors.std() == pytest.approx(0.5 * math.pi / math.sqrt(3.0), rel=0.02)
        for x in (-1.0, 0.2, 1.5):
            assert (errors > -x).mean() == pytest.approx(1 / (1 + math.exp(-x / 0.5)), abs=0.005)
        assert behaviour.answers(keys, questions).mean() == pytest.approx(0.8, abs=0.005)
        other = replace(behaviour, seed=4).errors(keys, questions)
        assert abs(np.corrcoef(errors.reshape(-1), other.reshape(-1))[0, 1]) < 0.02

    def test_without_any_all_answers_are_exact(self) -> None:
        exact, cold = market(), market(temperature=1e-12)
        np.testing.assert_array_equal(exact.owner_side().signs(), cold.owner_side().signs())
        np.testing.assert_array_equal(exact.owner_side().asks(), exact.owner_side().reserves())

    def test_an_owner_answers_alike_in_a_table_and_when_asked(self) -> None:
        side: OwnerSide = market(temperature=0.2, answer_rate=0.9).owner_side()
        table = side.signs()
        for saving, payment in ((3, 7), (10, 31), (0, 0), (12, 32)):
            np.testing.assert_array_equal(side.accepts(saving, payment), table[:, saving, payment])
        np.testing.assert_array_equal(side_of(side, np.array([5])).signs()[0], table[5])
        assert table[:, 0].all(), "to sell nothing is no question"

    def test_who_never_answers_never_sells(self) -> None:
        for name in (*DIRECT[:4], "equilibrium", "pain_fl"):
            scenario = Scenario.from_preset("market", owners=20, answer_rate=0.0, model="cnn")
            assert not negotiate(scenario, mechanism=name).agreement.contracts.signed.any(), name

    def test_what_a_lie_brings_is_not_said_of_owners_who_err(self) -> None:
        scenario = Scenario.from_preset("market", owners=5, temperature=0.1)
        assert gained_by_lying(negotiate(scenario, mechanism="clock")) is None

    @pytest.mark.parametrize("name", ["clock", "pac_auction", "csra_auction", "posted_price"])
    def test_the_budget_holds_with_errors_too(self, name: str) -> None:
        for seed in range(1, 6):
            scenario = Scenario.from_preset(
                "market", seed=seed, budget=50.0, temperature=0.3, answer_rate=0.95, model="cnn"
            )
            assert negotiate(scenario, mechanism=name).learned.total_payment <= 50.0

    @pytest.mark.parametrize(
        "wrong", ["temperature=-1", "temperature=warm", "answer_rate=1.1", "answer_rate=-0.1"]
    )
    def test_wrong_numbers_are_refused_by_their_name(self, wrong: str) -> None:
        from noisemarket.scenario import load_scenario

        with pytest.raises(BadInput, match=f"^behaviour.{wrong.split('=')[0]} is "):
            load_scenario(settings=[wrong])
