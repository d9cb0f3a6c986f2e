from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.game.market_sides import rewards

from noisemarket.game.environment import Contracts, Games, Protocol, games
from noisemarket.game.equilibrium import (
    equilibrium,
    first_best,
    mutual_best_replies,
    signed_equilibrium,
    stage_equilibrium,
)
from noisemarket.game.levels import SURFACES, FloatArray, Levels
from noisemarket.game.sides import CuratorSide, OwnerSide, Payoff

pytestmark = pytest.mark.compiled

LEVELS = Levels()
seeds = st.integers(0, 2**32 - 1)


def market(
    costs: list[float] | FloatArray,
    protocol: Protocol,
    payoff: Payoff = "privacy_loss",
    beta: float = 1.0,
) -> Games:
    cost = np.asarray(costs, dtype=float)
    owners = OwnerSide(LEVELS, payoff, 0.08, 2.5, cost, np.full(len(cost), 0.2))
    curator = CuratorSide(LEVELS, SURFACES["printed"], 0.6, 0.2, 0.13, np.full(len(cost), beta))
    return games(owners, curator, protocol)


def one_shot(owner: FloatArray, curator: FloatArray) -> Games:
    everywhere = np.ones(owner.shape, dtype=bool)
    return Games(owner, curator, everywhere, sees_proposal=False)


def contracts(outcomes: Contracts) -> list[tuple[float, float]]:
    savings, payments = LEVELS.savings[outcomes.saving], LEVELS.payments[outcomes.payment]
    return [(round(s, 10), round(p, 10)) for s, p in zip(savings, payments, strict=True)]


def pure_equilibria(owner: FloatArray, curator: FloatArray) -> list[tuple[int, int]]:
    cells = np.argwhere(mutual_best_replies(owner[None], curator[None])[0])
    return [(int(saving), int(payment)) for saving, payment in cells]


PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
DILEMMA = np.array([[3.0, 0.0], [5.0, 1.0]])
ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
SEXES = np.array([[3.0, 0.0], [0.0, 2.0]]), np.array([[2.0, 0.0], [0.0, 3.0]])


class TestKnownGames:
    def test_prisoners_dilemma(self) -> None:
        assert pure_equilibria(DILEMMA, DILEMMA.T) == [(1, 1)]

    def test_matching_pennies(self) -> None:
        assert pure_equilibria(PENNIES, -PENNIES) == []

    def test_rock_paper_scissors(self) -> None:
        assert pure_equilibria(ROCK_PAPER_SCISSORS, -ROCK_PAPER_SCISSORS) == []

    def test_battle_of_the_sexes(self) -> None:
        assert pure_equilibria(*SEXES) == [(0, 0), (1, 1)]

    def test_rows_are_the_owners(self) -> None:
        owner = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
        curator = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 0.0]])
        assert pure_equilibria(owner, curator) == [(1, 1)]

    def test_rounding_does_not_hide_a_tie(self) -> None:
        owner = np.array([[0.1 + 0.2, 0.0], [0.3, 0.0]])
        assert pure_equilibria(owner, np.zeros((2, 2))) == [(0, 0), (0, 1), (1, 0), (1, 1)]


class TestStageEquilibrium:
    def test_mended_payoff_trades_nothing(self) -> None:
        found = stage_equilibrium(market([0.5, 1, 2, 4], "simultaneous"))
        assert contracts(found) == [(0.0, 0.0)] * 4
        assert not found.signed.any()

    def test_printed_payoff_gives_all_for_nothing(self) -> None:
        found = stage_equilibrium(market([0.5, 1, 2, 4], "simultaneous", "printed"))
        assert contracts(found) == [(0.6, 0.0)] * 4
        assert found.signed.all()

    def test_of_several_the_best_for_both(self) -> None:
        owner = np.array([[1.0, 0.0], [0.0, 4.0]])
        found = stage_equilibrium(one_shot(np.array([owner, owner[::-1]]), np.ones((2, 2, 2))))
        assert found.saving.tolist() == [1, 0]
        assert found.payment.tolist() == [1, 1]

    def test_of_equally_good_ones_the_lowest(self) -> None:
        owner, curator = SEXES
        found = stage_equilibrium(one_shot(owner[None], curator[None]))
        assert (found.saving.tolist(), found.payment.tolist()) == ([0], [0])

    @settings(max_examples=20)
    @given(seeds)
    def test_many_at_once_are_each_one_alone(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        owner, curator = rng.integers(0, 4, size=(2, 700, 3, 2)).astype(float)
        found = stage_equilibrium(one_shot(owner, curator))
        for n in rng.choice(700, size=40, replace=False):
            cells = pure_equilibria(owner[n], curator[n])
            if cells:
                sums = [owner[n][cell] + curator[n][cell] for cell in cells]
                assert (found.saving[n], found.payment[n]) == cells[int(np.argmax(sums))]

    @settings(max_examples=40)
    @given(seeds, st.sampled_from(["privacy_loss", "printed"]), st.floats(0.05, 20.0))
    def test_every_game_of_a_market_has_a_pure_one(
        self, seed: int, payoff: Payoff, beta: float
    ) -> None:
        costs = np.random.default_rng(seed).uniform(0.0, 10.0, 20)
        games = market(costs, "simultaneous", payoff, beta)
        assert mutual_best_replies(games.owner_rewards, games.curator_rewards).any((1, 2)).all()


def by_hand(game: Games, n: int) -> tuple[int, int]:
    """Backward induction in plain loops."""
    best, choice = -np.inf, (0, 0)
    savings, payments = game.agreed[n].shape
    for j in range(savings):
        quote = next((k for k in range(payments) if game.agreed[n, j, k]), None)
        worth = 0.0 if quote is None else game.owner_rewards[n, j, quote]
        if worth > best + 1e-9:
            best, choice = worth, (0, 0) if quote is None else (j, quote)
    return choice


class TestSignedEquilibrium:
    def test_known_contracts(self) -> None:
        found = signed_equilibrium(market([0.5, 1, 2, 4], "signed"))
        assert contracts(found) == [(0.6, 11.5), (0.35, 13.5), (0.2, 15.0), (0.1, 15.0)]
        assert found.signed.all()

    @settings(max_examples=30)
    @given(st.lists(st.floats(0.05, 40), min_size=1, max_size=8), st.floats(0.05, 20))
    def test_backward_induction_by_hand(self, costs: list[float], beta: float) -> None:
        game = market(costs, "signed", beta=beta)
        found = signed_equilibrium(game)
        for n in range(len(costs)):
            assert (found.saving[n], found.payment[n]) == by_hand(game, n)

    @given(seeds)
    def test_any_tables_by_hand(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        agreed = rng.random((20, 3, 4)) < 0.3
        owner = rng.integers(-2, 3, size=agreed.shape).astype(float)
        game = Games(owner, -owner, agreed, sees_proposal=True)
        found = signed_equilibrium(game)
        for n in range(20):
            assert (found.saving[n], found.payment[n]) == by_hand(game, n)

    def test_too_dear_an_owner_sells_nothing(self) -> None:
        game = market([1000.0], "signed")
        found = signed_equilibrium(game)
        assert contracts(found) == [(0.0, 0.0)]
        assert not found.signed.any()
        assert rewards(found, game.owner_rewards).tolist() == [0.0]


class TestFirstBest:
    @settings(max_examples=30)
    @given(st.lists(st.floats(0.05, 40), min_size=1, max_size=8), st.sampled_from([0.05, 1, 20]))
    def test_no_equilibrium_pays_the_curator_more(self, costs: list[float], beta: float) -> None:
        game = market(costs, "signed", beta=beta)
        best, found = first_best(game), equilibrium(game)
        least = rewards(found, game.curator_rewards) - 1e-9
        assert np.all(rewards(best, game.curator_rewards) >= least)
        assert np.all(rewards(best, game.owner_rewards) >= 0)

    def test_signed_against_every_cell(self) -> None:
        game = market(np.linspace(0.5, 4, 15), "signed")
        for n, reward in enumerate(rewards(first_best(game), game.curator_rewards)):
            assert reward == game.curator_rewards[n][game.agreed[n]].max()

    def test_simultaneous_leaves_no_owner_worse_off(self) -> None:
        game = market(np.linspace(0.5, 4, 15), "simultaneous")
        best = first_best(game)
        base = game.owner_rewards[:, 0, 0]
        assert np.all(rewards(best, game.owner_rewards) >= base - 1e-9)
        for n, reward in enumerate(rewards(best, game.curator_rewards)):
            accepted = game.owner_rewards[n] >= base[n] - 1e-9
            assert reward == pytest.approx(game.curator_rewards[n][accepted].max(), abs=1e-12)
        assert np.all(rewards(best, game.curator_rewards) > game.curator_rewards[:, 0, 0])

    def test_the_cap_binds_only_dear_owners(self) -> None:
        # No markup left to the owner: p = 37.5 c saving rounded up, quality 92.28 at saving 0.3.
        found = first_best(market([1.0], "signed"))
        assert contracts(found) == [(0.4, 15.0)]

    def test_nobody_agrees_to_anything(self) -> None:
        zeros = np.zeros((2, 3, 4))
        game = Games(zeros, zeros, zeros.astype(bool), sees_proposal=True)
        for found in (first_best(game), signed_equilibrium(game)):
            assert found.saving.tolist() == found.payment.tolist() == [0, 0]
            assert not found.signed.any()


class TestOutcomes:
    def test_the_protocol_picks_the_equilibrium(self) -> None:
        signed, simultaneous = market([1.0], "signed"), market([1.0], "simultaneous")
        assert contracts(equilibrium(signed)) == contracts(signed_equilibrium(signed))
        assert contracts(equilibrium(simultaneous)) == [(0.0, 0.0)]

    def test_rewards_of_signed_and_unsigned(self) -> None:
        game = market([0.5, 0.5, 4.0], "signed")
        played = Contracts.of(game, np.array([12, 0, 12]), np.array([23, 0, 1]))
        assert played.signed.tolist() == [True, False, False]
        np.testing.assert_allclose(rewards(played, game.owner_rewards), [0.08 * 11.5 - 0.75, 0, 0])
        assert rewards(played, game.curator_rewards)[0] == game.curator_rewards[0, 12, 23]
        assert rewards(played, game.curator_rewards)[1:].tolist() == [0, 0]

    def test_an_empty_market(self) -> None:
        for protocol in ("signed", "simultaneous"):
            game = market([], protocol)
            assert len(equilibrium(game).saving) == len(first_best(game).saving) == 0

    @pytest.mark.parametrize("payoff", ["privacy_loss", "printed"])
    @pytest.mark.parametrize("protocol", ["signed", "simultaneous"])
    def test_an_owner_with_an_enormous_cost_changes_nobody_elses_answer(
        self, protocol: Protocol, payoff: Payoff
    ) -> None:
        costs = np.linspace(0.5, 4.0, 20)
        alone, beside = market(costs, protocol, payoff), market([*costs, 1e9], protocol, payoff)
        for solve in (equilibrium, first_best, stage_equilibrium):
            expected, found = solve(alone), solve(beside)
            for name, values in vars(expected).items():
                np.testing.assert_array_equal(getattr(found, name)[:-1], values, err_msg=name)
        cells = mutual_best_replies(beside.owner_rewards, beside.curator_rewards)[:-1]
        expected_cells = mutual_best_replies(alone.owner_rewards, alone.curator_rewards)
        np.testing.assert_array_equal(cells, expected_cells)
