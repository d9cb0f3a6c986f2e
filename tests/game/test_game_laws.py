"""Laws of the game on random markets, and what each side can learn of the other."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.game.market_sides import PAYOFFS, PRINTED, PROTOCOLS, curator_side, owner_side, rewards

from noisemarket.game.environment import Contracts, Games, Protocol, games
from noisemarket.game.equilibrium import (
    CheapestDeals,
    equilibrium,
    first_best,
    signed_equilibrium,
)
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.sides import SLACK, CuratorSide, OwnerSide
from noisemarket.scenario import Scenario

constants = st.floats(1e-3, 50.0)


@st.composite
def markets(draw: st.DrawFn) -> tuple[OwnerSide, CuratorSide]:
    """Any market: constants over orders of magnitude, any grid, owners of any kind."""
    levels = Levels(
        draw(st.floats(0.05, 3.0)), draw(st.integers(1, 15)),
        draw(st.floats(0.1, 100.0)), draw(st.integers(1, 40)),
    )  # fmt: skip
    owners = draw(st.integers(1, 4))
    costs, markups, betas = (
        np.array(draw(st.lists(values, min_size=owners, max_size=owners)))
        for values in (st.floats(0.0, 20.0), st.floats(0.0, 3.0), st.floats(0.01, 100.0))
    )
    payoff = draw(st.sampled_from(PAYOFFS))
    owner = OwnerSide(levels, payoff, draw(constants), draw(constants), costs, markups)
    weight = draw(st.floats(0.0, 1.0))
    curator = CuratorSide(levels, PRINTED, weight, draw(constants), draw(constants), betas)
    return owner, curator


def rounding(gains: FloatArray) -> float:
    """How far below nothing a gain may be that counts as none: in proportion to the largest."""
    return 2.0 * SLACK * float(np.abs(gains).max())


class TestLaws:
    @given(markets())
    def test_nobody_signs_at_a_loss(self, market: tuple[OwnerSide, CuratorSide]) -> None:
        owners, curator = market
        played = games(owners, curator, "signed")
        assert played.agreed[:, 0, 0].all()
        gains, worth = owners.gains(), curator.gains()
        assert gains[played.agreed].min() >= -rounding(gains)
        assert worth[played.agreed].min() >= -rounding(worth)
        assert played.owner_rewards.min() >= -rounding(gains)
        assert played.curator_rewards.min() >= -rounding(worth)

    @given(markets())
    def test_owners_keep_their_markup(self, market: tuple[OwnerSide, CuratorSide]) -> None:
        owners, _ = market
        if owners.payoff == "printed":
            return
        n, j, k = np.nonzero(owners.signs())
        income = owners.payment_value * owners.levels.payments[k]
        loss = owners.privacy_weight * owners.privacy_cost[n] * owners.levels.savings[j]
        slack = 2 * SLACK * owners.payment_value * owners.levels.payment_max
        assert (income - (1 + owners.markup[n]) * loss >= -slack).all()

    @given(markets())
    def test_signing_is_monotone(self, market: tuple[OwnerSide, CuratorSide]) -> None:
        owners, curator = market
        wants, agrees = owners.signs().astype(int), curator.signs().astype(int)
        assert (np.diff(wants, axis=2) >= 0).all()  # owners like to be paid more
        assert (np.diff(agrees, axis=2) <= 0).all()  # the curator does not like to pay it
        assert (np.diff(agrees, axis=1) >= 0).all()  # but likes more savings for the same money
        if owners.payoff == "privacy_loss":
            assert (np.diff(wants, axis=1) <= 0).all()

    @given(markets(), st.sampled_from(PROTOCOLS))
    def test_exact_answers_pay_within_the_range(
        self, market: tuple[OwnerSide, CuratorSide], protocol: Protocol
    ) -> None:
        owners, curator = market
        played = games(owners, curator, protocol)
        for outcomes in (equilibrium(played), first_best(played)):
            payments = owners.levels.payments[outcomes.payment]
            assert payments.min() >= 0.0
            assert payments.max() <= owners.levels.payment_max * (1 + 1e-12)
            assert len(outcomes.saving) == len(played)

    @given(markets())
    def test_in_equilibrium_nobody_loses_and_the_first_best_is_best(
        self, market: tuple[OwnerSide, CuratorSide]
    ) -> None:
        owners, curator = market
        played = games(owners, curator, "signed")
        solved, best = signed_equilibrium(played), first_best(played)
        for outcomes in (solved, best):
            assert rewards(outcomes, played.owner_rewards).min() >= -rounding(owners.gains())
            assert rewards(outcomes, played.curator_rewards).min() >= -rounding(curator.gains())
        gap = rewards(best, played.curator_rewards) - rewards(solved, played.curator_rewards)
        assert gap.min() >= -1e-8

    @given(markets())
    def test_the_exact_answers_need_no_tables(self, market: tuple[OwnerSide, CuratorSide]) -> None:
        """By both sides' limits alone the same deals; the curator's best within rounding."""
        played, deals = games(*market, "signed"), CheapestDeals.between(*market)
        solved, found = signed_equilibrium(played), deals.best_for_owner()
        for name in ("saving", "payment", "signed"):
            np.testing.assert_array_equal(getattr(found, name), getattr(solved, name))
        best, found = first_best(played), deals.best_for_curator()
        np.testing.assert_allclose(
            rewards(found, played.curator_rewards), rewards(best, played.curator_rewards),
            rtol=1e-8, atol=rounding(played.curator_rewards),
        )  # fmt: skip

    @given(markets(), st.data())
    def test_any_moves_make_an_outcome_nobody_regrets(
        self, market: tuple[OwnerSide, CuratorSide], data: st.DataObject
    ) -> None:
        owners, curator = market
        played = games(owners, curator, "signed")
        savings, payments = owners.levels.shape
        j, k = (
            np.array(data.draw(st.lists(st.integers(0, top - 1), min_size=n, max_size=n)))
            for top, n in ((savings, len(played)), (payments, len(played)))
        )
        outcomes = Contracts.of(played, j, k)
        assert rewards(outcomes, played.owner_rewards).min() >= -rounding(owners.gains())
        assert rewards(outcomes, played.curator_rewards).min() >= -rounding(curator.gains())


class TestPrivateInformation:
    """Each side's object holds what that side knows and nothing of the other's secrets."""

    def test_the_curators_side_has_no_secret_of_an_owner(self) -> None:
        side = curator_side([1.0, 2.0])
        names = {field.name for field in fields(side)}
        assert names == {
            "levels", "surface", "quality_weight", "quality_value", "payment_cost", "beta",
        }  # fmt: skip
        for secret in ("privacy_cost", "markup", "privacy_weight", "payment_value"):
            assert not hasattr(side, secret)

    def test_an_owners_side_has_no_weight_of_the_curators(self) -> None:
        side = owner_side([1.0, 2.0])
        for secret in ("quality_weight", "quality_value", "payment_cost", "surface", "beta"):
            assert not hasattr(side, secret)

    def test_nothing_that_the_curator_knows_tells_costs_apart(self) -> None:
        cheap, dear = (
            Scenario.from_preset("market", owners=5, privacy_cost=cost, markup=markup).environment()
            for cost, markup in ((0.5, 0.0), (4.0, 2.0))
        )
        one, other = cheap.curator_side(), dear.curator_side()
        np.testing.assert_array_equal(one.payoffs(), other.payoffs())
        np.testing.assert_array_equal(one.signs(), other.signs())
        hopes = [environment.games().curator_hopes for environment in (cheap, dear)]
        np.testing.assert_array_equal(*hopes)

    def test_nothing_that_an_owner_knows_tells_curators_apart(self) -> None:
        keen, reluctant = (
            Scenario.from_preset("market", owners=5, quality_weight=weight).environment()
            for weight in (0.9, 0.1)
        )
        np.testing.assert_array_equal(keen.owner_side().payoffs(), reluctant.owner_side().payoffs())
        hopes = [environment.games().owner_hopes for environment in (keen, reluctant)]
        np.testing.assert_array_equal(*hopes)


def test_games_hold_one_table_per_owner() -> None:
    played = games(owner_side([1.0, 2.0, 3.0]), curator_side([1.0, 1.0, 1.0]), "signed")
    assert isinstance(played, Games)
    for name in ("owner_rewards", "curator_rewards", "owner_hopes", "curator_hopes", "agreed"):
        assert getattr(played, name).shape == (3, 13, 33)
