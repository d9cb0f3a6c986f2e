"""Both sides of bisection: what they believe after each answer, and where that leads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.game.test_game_laws import markets

from noisemarket.game.environment import games
from noisemarket.game.equilibrium import signed_equilibrium
from noisemarket.game.levels import IntArray
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing.bisection import (
    UNKNOWN,
    Wants,
    bargain_all,
    compiled_loop,
    curator_beliefs,
    hear_answer,
    hear_quote,
    make_proposal,
    owner_beliefs,
    quote,
    stands,
    wants_of,
)

pytestmark = pytest.mark.compiled

Sides = tuple[OwnerSide, CuratorSide]


def play(market: Sides, most: int = 60, *, compiled: bool = True) -> tuple[IntArray, IntArray]:
    """The deals of all pairs, and how many interactions each took."""
    owners, curator = market
    deals, messages = np.zeros((len(owners), 2), np.int64), np.zeros(len(owners), np.int64)
    loop = compiled_loop() if compiled else bargain_all
    loop(wants_of(owners), curator.limits(), most, deals, messages)
    return deals, messages


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

    def test_forgets_signatures_that_no_longer_hold(self) -> None:
        beliefs = curator_beliefs(4)
        for quoted, signs in ((14, True), (6, True), (2, False)):
            hear_answer(beliefs, 3, quoted, signs)
        hear_answer(beliefs, 3, 8, False)  # refuses more than it signed
        assert beliefs.signed.tolist() == [UNKNOWN] * 4
        assert quote(beliefs, self.LIMITS, 3) == 14

    def test_forgets_refusals_that_no_longer_hold(self) -> None:
        beliefs = curator_beliefs(4)
        for quoted, signs in ((14, True), (6, False), (4, True)):  # signs less than it refused
            hear_answer(beliefs, 3, quoted, signs)
        assert beliefs.refused.tolist() == [-1] * 4
        assert beliefs.signed[3] == 4


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
    deals, _ = play(market)
    saving, payment = deals.T
    wants, rows = wants_of(owners), np.arange(len(saving))
    signed = games(owners, curator, "signed")
    exact = signed_equilibrium(signed)
    best = np.where(exact.signed, signed.owner_rewards[rows, exact.saving, exact.payment], 0.0)
    np.testing.assert_allclose(wants.gains[rows, saving], best, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(payment, wants.reserves[rows, saving])
    assert (payment <= curator.limits()[rows, saving]).all()


@settings(max_examples=20, deadline=None)
@given(markets())
def test_compiled_and_plain_play_the_same(market: Sides) -> None:
    for compiled, plain in zip(play(market), play(market, compiled=False), strict=True):
        np.testing.assert_array_equal(compiled, plain)
