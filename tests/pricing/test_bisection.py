"""Both sides of bisection: what they believe after each answer, and where that leads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.game.test_game_laws import markets

from noisemarket.game.equilibrium import signed_equilibrium
from noisemarket.game.levels import Levels
from noisemarket.game.protocol import games
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.game.surface import LossSurface
from noisemarket.pricing.bisection import (
    ASKS_AFTER,
    PATIENCE,
    UNKNOWN,
    Bargains,
    Wants,
    bargain_batch,
    curator_beliefs,
    hear_answer,
    hear_quote,
    make_proposal,
    owner_beliefs,
    quote,
    stands,
    wants_of,
)
from noisemarket.pricing.mechanism import PlayConfig
from noisemarket.pricing.rule import Settings
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

CONFIG = PlayConfig(Settings(), iterations=150, seed=1, trace_every=7)
Sides = tuple[OwnerSide, CuratorSide]


def play(*phases: Sides, every: int = 1_000, compiled: bool = True, until: int = 150) -> Bargains:
    """Phases of the same length, one after the other."""
    owners, curators = zip(*phases, strict=True)
    config = replace(CONFIG, compiled=compiled, iterations=until)
    starts = [every * i for i in range(len(phases))]
    return bargain_batch(config, owners, curators, starts)


class TestTheCurator:
    LIMITS = np.array([0, 10, 12, 14])

    def test_opens_with_all_that_a_proposal_is_worth_and_pays_nothing_for_nothing(self) -> None:
        beliefs = curator_beliefs(4)
        assert [quote(beliefs, self.LIMITS, proposal) for proposal in range(4)] == [0, 10, 12, 14]

    def test_finds_the_least_that_is_signed_by_bisection(self) -> None:
        for least in range(15):
            beliefs, quotes = curator_beliefs(4), []
            while not quotes or not stands(beliefs, 3, quotes[-1]):
                quotes.append(quote(beliefs, self.LIMITS, 3))
                hear_answer(beliefs, 3, quotes[-1], quotes[-1] >= least)
            assert beliefs.signed[3] == least == quote(beliefs, self.LIMITS, 3)
            assert len(quotes) <= 1 + 4 + 1  # the limit, four halvings of 15 levels, the standing

    def test_answers_count_for_other_proposals_and_quotes(self) -> None:
        beliefs = curator_beliefs(4)
        hear_answer(beliefs, 2, 8, True)
        hear_answer(beliefs, 2, 3, False)
        assert beliefs.signed.tolist() == [UNKNOWN, 8, 8, UNKNOWN]
        assert beliefs.refused.tolist() == [-1, -1, 3, 3]

    def test_never_quotes_above_its_limit(self) -> None:
        beliefs = curator_beliefs(4)
        hear_answer(beliefs, 2, 8, True)
        lower = np.array([0, 2, 5, 6])
        assert quote(beliefs, lower, 2) == 5
        hear_answer(beliefs, 2, 5, False)
        assert quote(beliefs, lower, 2) == 5

    def test_where_not_even_nothing_is_worth_it_it_quotes_what_it_does_not_sign(self) -> None:
        assert quote(curator_beliefs(2), np.array([0, -1]), 1) == 0

    def test_tries_less_after_a_while_and_forgets_refusals_that_no_longer_hold(self) -> None:
        beliefs, least, tries = curator_beliefs(4), 9, []
        for t in range(4 * PATIENCE):
            least = 4 if t > 2 * PATIENCE else 9
            quoted = quote(beliefs, self.LIMITS, 3)
            if stands(beliefs, 3, quoted + 1):
                tries.append(t)
            hear_answer(beliefs, 3, quoted, quoted >= least)
        assert tries
        assert np.diff(tries).max(initial=0) <= PATIENCE + 10
        assert beliefs.signed[3] == 4

    def test_forgets_signatures_that_no_longer_hold(self) -> None:
        beliefs = curator_beliefs(4)
        for quoted, signs in ((14, True), (6, True), (2, False)):
            hear_answer(beliefs, 3, quoted, signs)
        hear_answer(beliefs, 3, 8, False)  # refuses more than it signed
        assert beliefs.signed.tolist() == [UNKNOWN] * 4
        assert quote(beliefs, self.LIMITS, 3) == 14


class TestTheOwner:
    WANTS = Wants(np.array([0, 3, 6, 9, 33]), np.array([0.0, 0.1, 0.2, 0.3, -np.inf]))

    def test_proposes_what_is_best_and_can_be_paid(self) -> None:
        assert make_proposal(owner_beliefs(5), self.WANTS) == 3

    def test_drops_a_proposal_whose_quote_is_repeated_and_those_that_cannot_be_paid_then(
        self,
    ) -> None:
        beliefs = owner_beliefs(5)
        hear_quote(beliefs, self.WANTS, 3, 5, False)
        assert make_proposal(beliefs, self.WANTS) == 3
        hear_quote(beliefs, self.WANTS, 3, 5, False)
        assert beliefs.limits[1:4].tolist() == [5, 5, 5]
        assert make_proposal(beliefs, self.WANTS) == 1  # 2 wants 6: no more than 5 is paid for less

    def test_keeps_a_proposal_while_its_quotes_rise(self) -> None:
        beliefs = owner_beliefs(5)
        for quoted in range(9):
            hear_quote(beliefs, self.WANTS, 3, quoted, False)
            assert make_proposal(beliefs, self.WANTS) == 3

    def test_proposes_nothing_where_nothing_pays(self) -> None:
        nothing = Wants(np.zeros(3, np.int64), np.zeros(3))
        assert make_proposal(owner_beliefs(3), nothing) == 0

    def test_takes_the_smaller_of_two_savings_that_gain_the_same(self) -> None:
        same = Wants(np.zeros(4, np.int64), np.array([0.0, 0.1, 0.1 + 1e-17, 0.05]))
        assert make_proposal(owner_beliefs(4), same) == 1

    def test_asks_again_now_and_then_for_what_it_has_dropped(self) -> None:
        beliefs, proposals = owner_beliefs(5), []
        for t in range(3 * ASKS_AFTER):
            proposal = make_proposal(beliefs, self.WANTS)
            quoted = 12 if t > 2 * ASKS_AFTER else (5, 5, 5, 5, 5)[proposal]
            hear_quote(
                beliefs, self.WANTS, proposal, quoted, quoted >= self.WANTS.reserves[proposal]
            )
            proposals.append(proposal)
        assert proposals[:4] == [3, 3, 1, 1]
        asked = [t for t, proposal in enumerate(proposals) if proposal == 3 and t > 1]
        assert ASKS_AFTER in asked
        assert proposals[-1] == 3  # the curator pays more by now

    def test_a_quote_that_the_curator_itself_does_not_sign_is_no_deal(self) -> None:
        free = Wants(np.array([0, 0]), np.array([0.0, 0.4]))
        beliefs = owner_beliefs(2)
        for _ in range(2):
            hear_quote(beliefs, free, 1, 0, False)
        assert make_proposal(beliefs, free) == 0


@settings(max_examples=60)
@given(markets())
def test_the_pair_ends_in_the_equilibrium(market: Sides) -> None:
    owners, curator = market
    played = play(market)
    saving, payment = played.deals.T
    wants, rows = wants_of(owners), np.arange(len(saving))
    signed = games(owners, curator, "signed")
    exact = signed_equilibrium(signed)
    best = np.where(exact.signed, signed.owner_rewards[rows, exact.saving, exact.payment], 0.0)
    np.testing.assert_allclose(wants.gains[rows, saving], best, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(payment, wants.reserves[rows, saving])
    assert (payment <= curator.limits()[rows, saving]).all()


@settings(max_examples=25)
@given(markets(), st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_after_any_change_no_side_is_held_to_what_it_would_not_sign(
    market: Sides, cost: float, worth: float
) -> None:
    """That the new equilibrium is reached is measured on the shipped surfaces: not every grid."""
    owners, curator = market
    after = (
        replace(owners, privacy_cost=cost * owners.privacy_cost),
        replace(curator, quality_value=worth * curator.quality_value),
    )
    saving, payment = play(market, after, every=150, until=450).deals.T
    rows, wants = np.arange(len(saving)), wants_of(after[0])
    assert (payment >= wants.reserves[rows, saving]).all()
    assert (payment <= after[1].limits()[rows, saving]).all()


def test_both_sides_do_not_try_something_at_the_same_time_every_time() -> None:
    """Then the owner would never hear that the curator pays more by now."""
    levels = Levels(sigma_max=1.0, saving_levels=8, payment_max=6.0, payment_levels=1)
    ones = np.ones(1)
    owners = OwnerSide(levels, "privacy_loss", 1.0, 1.0, ones, np.zeros(1), np.zeros(1))
    surface = LossSurface((0.013, 0.0044, 0.0057, 8.18, 0.14), (35.4278, 102.2444))
    curator = CuratorSide(levels, surface, 0.5, 1.0, 1.0, ones)
    after = owners, replace(curator, quality_value=2.0)
    changed, alone = play((owners, curator), after, every=150, until=450), play(after)
    np.testing.assert_array_equal(changed.deals, alone.deals)


@settings(max_examples=20, deadline=None)
@given(markets(), st.floats(0.2, 5.0))
def test_compiled_and_plain_play_the_same(market: Sides, cost: float) -> None:
    owners, curator = market
    after = replace(owners, privacy_cost=cost * owners.privacy_cost), curator
    compiled, plain = (
        play(market, after, every=60, compiled=compiled) for compiled in (True, False)
    )
    for name in ("counts", "deals"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(plain, name), err_msg=name)
    np.testing.assert_allclose(compiled.payoffs, plain.payoffs, rtol=1e-12, atol=1e-12)


def test_deals_that_stand_are_counted_one_by_one() -> None:
    """The loop passes over them in one go; step by step the same moves are made."""
    scenario = Scenario.from_preset("market", surface="sharded-mnist", owners=6, iterations=200)
    environment = scenario.environment()
    sides = environment.owner_side(), environment.curator_side()
    config = replace(CONFIG, iterations=200, trace_every=1)
    for n in range(6):
        one = slice(n, n + 1)
        alone = environment.owner_side(-1, one), environment.curator_side(-1, one)
        batch = bargain_batch(config, [alone[0]], [alone[1]], [0])
        wants, limits = (part[0] for part in wants_of(alone[0])), alone[1].limits()[0]
        wanted = Wants(*wants)
        owner, curator = owner_beliefs(len(limits)), curator_beliefs(len(limits))
        for t in range(200):
            proposal = make_proposal(owner, wanted)
            quoted = quote(curator, limits, proposal)
            signs = bool(quoted >= wanted.reserves[proposal])
            hear_answer(curator, proposal, quoted, signs)
            hear_quote(owner, wanted, proposal, quoted, signs)
            traded = signs and proposal + quoted > 0
            row = [proposal, quoted, proposal * traded, quoted * traded, int(traded)]
            assert batch.counts[t].tolist() == row
            gains = [side.gains()[n, proposal, quoted] * traded for side in sides]
            np.testing.assert_allclose(batch.payoffs[t], gains, rtol=0, atol=1e-9)


@pytest.mark.parametrize("most", [0.0, 30.0])
def test_payoffs_in_full_where_no_trade_is_not_the_start(most: float) -> None:
    environment = Scenario.from_preset("paper", owners=4, payoff="privacy_loss").environment()
    owners, curator = environment.owner_side(), environment.curator_side()
    owners = replace(owners, privacy_cost=np.full(4, 0.5 + most))
    batch = bargain_batch(
        replace(CONFIG, iterations=20, trace_every=20), [owners], [curator], [0],
        over_no_trade=False,
    )  # fmt: skip
    over = play((owners, curator), until=20)
    base = 20 * curator.payoffs()[:, 0, 0].sum()
    np.testing.assert_allclose(batch.payoffs.sum(0)[1] - over.payoffs.sum(0)[1], base)
