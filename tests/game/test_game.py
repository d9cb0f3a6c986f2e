"""The pricing game against the numbers and formulas of the paper, written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.game.market_sides import LEVELS, PAYOFFS, PRINTED, curator_side, owner_side, rewards

from noisemarket.game.environment import Contracts, games
from noisemarket.game.levels import SURFACES, Levels, LossSurface
from noisemarket.game.sides import Payoff


class TestLevels:
    def test_the_papers_grids(self) -> None:
        assert LEVELS.shape == (13, 33)
        np.testing.assert_allclose(LEVELS.savings, [0.05 * j for j in range(13)], atol=1e-15)
        np.testing.assert_allclose(LEVELS.payments, [0.5 * k for k in range(33)], atol=1e-15)

    @given(st.floats(1e-6, 1e6), st.integers(1, 300), st.floats(1e-6, 1e6), st.integers(1, 300))
    def test_any_grid_runs_evenly_from_nothing_to_everything(
        self, sigma_max: float, savings: int, payment_max: float, payments: int
    ) -> None:
        levels = Levels(sigma_max, savings, payment_max, payments)
        for grid, steps, end in (
            (levels.savings, savings, sigma_max),
            (levels.payments, payments, payment_max),
        ):
            assert len(grid) == steps + 1
            assert grid[0] == 0.0
            assert grid[-1] == pytest.approx(end, rel=1e-15)
            np.testing.assert_allclose(np.diff(grid), end / steps, rtol=1e-9)


class TestSurface:
    @pytest.mark.parametrize(("saving", "quality"), [(0.0, 62.25), (0.3, 92.28), (0.6, 96.83)])
    def test_quality_at_beta_one(self, saving: float, quality: float) -> None:
        assert PRINTED.quality(0.6 - saving, 1.0) == pytest.approx(quality, abs=0.005)

    @pytest.mark.parametrize(("beta", "quality"), [(0.05, 62.10), (20.0, 65.06)])
    def test_beta_moves_quality_little(self, beta: float, quality: float) -> None:
        assert PRINTED.quality(0.6, beta) == pytest.approx(quality, abs=0.005)

    @given(st.floats(0.0, 2.0), st.floats(0.05, 20.0))
    def test_the_formula(self, sigma: float, beta: float) -> None:
        loss = 0.013 * math.exp(-0.0044 * beta) / (0.0057 + math.exp(-8.18 * sigma)) + 0.14
        assert PRINTED.loss(sigma, beta) == pytest.approx(loss, rel=1e-12)
        assert PRINTED.quality(sigma, beta) == pytest.approx(102.2444 - 35.4278 * loss, rel=1e-12)

    @pytest.mark.parametrize("beta", [0.05, 1.0, 20.0])
    def test_quality_rises_and_is_concave_over_the_whole_range(self, beta: float) -> None:
        quality = PRINTED.quality(0.6 - np.linspace(0.0, 0.6, 601), beta)
        assert (np.diff(quality) > 0).all()
        assert (np.diff(quality, 2) < 0).all()

    def test_more_even_data_make_a_better_model(self) -> None:
        assert (np.diff(PRINTED.quality(0.3, np.linspace(0.05, 20, 50))) > 0).all()

    def test_every_named_surface_loses_quality_to_noise(self) -> None:
        for one in SURFACES.values():
            assert isinstance(one, LossSurface)
            assert (np.diff(one.quality(np.linspace(0, 0.6, 61), 1.0)) < 0).all()


class TestPayoffs:
    @given(st.floats(0.0, 10.0), st.integers(0, 12), st.integers(0, 32))
    def test_the_owners_with_the_right_sign(self, cost: float, j: int, k: int) -> None:
        payoff = owner_side([cost]).payoffs()[0, j, k]
        assert payoff == pytest.approx(
            0.08 * (k * 16 / 32) - 2.5 * cost * (j * 0.6 / 12), abs=1e-12
        )

    @given(st.floats(0.0, 10.0), st.integers(0, 12), st.integers(0, 32))
    def test_the_owners_as_printed(self, cost: float, j: int, k: int) -> None:
        payoff = owner_side([cost], payoff="printed").payoffs()[0, j, k]
        expected = 0.08 * (k * 16 / 32) - 2.5 * cost * (0.6 - j * 0.6 / 12)
        assert payoff == pytest.approx(expected, abs=1e-12)

    @given(st.floats(0.05, 20.0), st.integers(0, 12), st.integers(0, 32))
    def test_the_curators(self, beta: float, j: int, k: int) -> None:
        payoff = curator_side([beta]).payoffs()[0, j, k]
        quality = float(PRINTED.quality(0.6 - j * 0.6 / 12, beta))
        expected = 0.6 * 0.2 * quality - 0.4 * 0.13 * (k * 16 / 32)
        assert payoff == pytest.approx(expected, abs=1e-12)

    def test_numbers_worked_out_on_paper(self) -> None:
        # Saving 0.3, payment 8, cost 1: 0.08*8 - 2.5*1*0.3 = -0.11; 0.12*92.28 - 0.052*8 = 10.658.
        assert owner_side([1.0]).payoffs()[0, 6, 16] == pytest.approx(-0.11)
        assert owner_side([1.0], payoff="printed").payoffs()[0, 12, 0] == pytest.approx(0.0)
        assert owner_side([2.0], payoff="printed").payoffs()[0, 0, 0] == pytest.approx(-3.0)
        assert curator_side([1.0]).payoffs()[0, 6, 16] == pytest.approx(10.658, abs=1e-3)

    @pytest.mark.parametrize("payoff", PAYOFFS)
    def test_gains_are_payoffs_over_no_trade(self, payoff: Payoff) -> None:
        for side in (owner_side([0.5, 4.0], payoff=payoff), curator_side([0.05, 20.0])):
            assert side.payoffs().shape == (2, 13, 33)
            np.testing.assert_allclose(
                side.gains(), side.payoffs() - side.payoffs()[:, 0, 0][:, None, None]
            )
            assert not side.gains()[:, 0, 0].any()

    def test_printed_full_saving_is_dominant_for_free(self) -> None:
        # The erratum: with the sign as printed an owner gives up all its noise and asks nothing.
        payoffs = owner_side([0.5, 4.0], payoff="printed").payoffs()
        assert (payoffs.argmax(axis=1) == 12).all()
        assert (owner_side([0.5, 4.0]).payoffs().argmax(axis=1) == 0).all()

    def test_one_owners_row_does_not_depend_on_the_others(self) -> None:
        many, one = owner_side([0.5, 1.0, 4.0]), owner_side([1.0])
        np.testing.assert_array_equal(many.payoffs()[1], one.payoffs()[0])
        np.testing.assert_array_equal(many.signs()[1], one.signs()[0])
        curators, alone = curator_side([0.01, 1.0, 1e6]), curator_side([1.0])
        np.testing.assert_array_equal(curators.signs()[1], alone.signs()[0])
        np.testing.assert_array_equal(curators.limits()[1], alone.limits()[0])

    def test_limits_reserves_and_gains_say_the_same_as_the_tables(self) -> None:
        owners, curator = owner_side([0.0, 0.5, 1.0, 4.0]), curator_side([0.05, 1.0, 20.0, 20.0])
        gains, worth = owners.gains(), curator.gains()
        np.testing.assert_array_equal(curator.limits(), curator.signs().sum(axis=2) - 1)
        expected = worth >= -1e-9 * np.abs(worth).max(axis=(1, 2), keepdims=True)
        np.testing.assert_array_equal(curator.signs(), expected)
        np.testing.assert_allclose(
            curator.worth()[:, :, None] - curator.price(), worth, rtol=0, atol=1e-12
        )
        levels = np.minimum(owners.reserves(), 32)
        at = np.take_along_axis(gains, levels[:, :, None], axis=2)[:, :, 0]
        np.testing.assert_allclose(owners.gains_at(levels), at, rtol=0, atol=1e-12)


class TestSigning:
    def test_the_owner_signs_from_its_price_on(self) -> None:
        # p >= 1.2 * 2.5 * c * saving / 0.08 = 37.5 c saving: at c = 1, saving 0.2 that is 7.5.
        signs = owner_side([1.0]).signs()[0]
        assert not signs[4, 14]  # 7.0
        assert signs[4, 15]  # 7.5, exactly its limit
        assert signs[4, 16]
        assert signs[0].all()  # for nothing given up, any payment will do

    @pytest.mark.parametrize("cost", [0.5, 1.0, 2.0, 4.0, 1 / 3])
    @pytest.mark.parametrize("markup", [0.0, 0.2, 1.0])
    def test_the_owner_signs_exactly_at_its_limit(self, cost: float, markup: float) -> None:
        # A grid on which every limit (1 + markup) nu c saving / lambda_r is a level; computed in
        # floating point they miss it by a rounding error, which must not cost the deal.
        step = (1 + markup) * 2.5 * cost * 0.05 / 0.08
        levels = Levels(0.6, 12, 12 * step, 12)
        signs = owner_side([cost], markup=markup, levels=levels).signs()[0]
        np.testing.assert_array_equal(signs, np.triu(np.ones((13, 13), dtype=bool)))

    def test_a_hair_below_its_limit_it_does_not(self) -> None:
        limit = 37.5 * 0.2
        for payment, expected in ((limit, True), (limit - 1e-6, False), (limit + 1e-6, True)):
            levels = Levels(0.6, 12, payment, 1)
            assert owner_side([1.0], levels=levels).signs()[0, 4, 1] == expected

    def test_the_curator_signs_up_to_its_price(self) -> None:
        # 0.12 * (quality(0.05) - quality(0)) / 0.052, in payments; that is above the paper's p_max.
        gained = float(PRINTED.quality(0.55, 1.0) - PRINTED.quality(0.6, 1.0))
        limit = 0.12 * gained / 0.052
        levels = Levels(payment_max=64.0, payment_levels=128)
        signs = curator_side([1.0], levels=levels).signs()[0]
        np.testing.assert_array_equal(signs[1], levels.payments <= limit)
        assert 16.0 < limit < 64.0

    def test_the_curator_signs_exactly_at_its_limit(self) -> None:
        gained = PRINTED.quality(0.6 - LEVELS.savings, 1.0) - PRINTED.quality(0.6, 1.0)
        for j in range(1, 13):
            limit = 0.12 * float(gained[j]) / 0.052
            for payment, expected in ((limit, True), (limit + 1e-6, False)):
                side = curator_side([1.0], levels=Levels(0.6, 12, payment, 1))
                assert side.signs()[0, j, 1] == expected

    def test_the_curator_pays_nothing_for_nothing(self) -> None:
        signs = curator_side([1.0]).signs()[0]
        assert signs[0].tolist() == [True] + [False] * 32
        assert signs[:, 0].all()

    def test_a_markup_asks_for_more(self) -> None:
        low, high = (owner_side([1.0], markup=markup).signs() for markup in (0.0, 0.5))
        assert (low >= high).all()
        assert low.sum() > high.sum()


class TestProtocols:
    @pytest.mark.parametrize("payoff", PAYOFFS)
    def test_simultaneous_every_outcome_binds(self, payoff: Payoff) -> None:
        owners, curator = owner_side([0.5, 4.0], payoff=payoff), curator_side([1.0, 5.0])
        played = games(owners, curator, "simultaneous")
        assert not played.sees_proposal
        assert played.agreed.all()
        for table in (played.owner_rewards, played.owner_hopes):
            np.testing.assert_array_equal(table, owners.payoffs())
        for table in (played.curator_rewards, played.curator_hopes):
            np.testing.assert_array_equal(table, curator.payoffs())

    @pytest.mark.parametrize("payoff", PAYOFFS)
    def test_signed_only_what_both_sign_counts(self, payoff: Payoff) -> None:
        owners, curator = owner_side([0.5, 4.0], payoff=payoff), curator_side([1.0, 5.0])
        played = games(owners, curator, "signed")
        assert played.sees_proposal
        assert len(played) == 2
        np.testing.assert_array_equal(played.agreed, owners.signs() & curator.signs())
        np.testing.assert_array_equal(played.owner_hopes, owners.gains())
        np.testing.assert_array_equal(played.curator_hopes, curator.gains())
        for reward, gains in (
            (played.owner_rewards, owners.gains()),
            (played.curator_rewards, curator.gains()),
        ):
            np.testing.assert_array_equal(reward[played.agreed], gains[played.agreed])
            assert not reward[~played.agreed].any()

    def test_outcomes_are_worth_nothing_unless_signed(self) -> None:
        played = games(owner_side([1.0] * 4), curator_side([1.0] * 4), "signed")
        # A deal; a quote below the owner's limit; a payment for nothing; nothing.
        outcomes = Contracts.of(played, np.array([4, 4, 0, 0]), np.array([15, 14, 1, 0]))
        assert outcomes.signed.tolist() == [True, False, False, False]
        owner = rewards(outcomes, played.owner_rewards)
        curator = rewards(outcomes, played.curator_rewards)
        assert owner[0] == pytest.approx(0.08 * 7.5 - 2.5 * 0.2)
        assert curator[0] > 0
        assert not owner[1:].any()
        assert not curator[1:].any()

    def test_no_trade_in_the_simultaneous_game_still_pays_its_base(self) -> None:
        played = games(owner_side([1.0], payoff="printed"), curator_side([1.0]), "simultaneous")
        outcomes = Contracts.of(played, np.array([0]), np.array([0]))
        assert not outcomes.signed[0]
        assert rewards(outcomes, played.owner_rewards)[0] == pytest.approx(-1.5)
