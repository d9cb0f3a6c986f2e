"""What lying brings: the most that an owner gains by answering otherwise than by its own limit.

An owner that does not lie signs what pays for the privacy that it sells, its markup included. A
lie is any other way of answering, with all other owners answering as they do. What a lie brings is
counted in the owner's payoff over its limit (``surplus``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment, Games, games
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.sides import OwnerSide
from noisemarket.market.negotiation import Negotiation, run_options
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.pricing.auctions import PostedPrice, SealedBids
from noisemarket.pricing.bisection import Bisection
from noisemarket.pricing.clock import Clock, ClockAuction, floor_level
from noisemarket.pricing.mechanism import Agreement, Demand, Mechanism, RunOptions
from noisemarket.pricing.oracles import NoDP, Oracle, UniformDP
from noisemarket.pricing.pain_fl import PainFL

MOST_EXAMINED = 200
"""Owners that are examined at most: of more, as many that are spread evenly over the list."""

_REPORTS_AT_ONCE = 4096


def surplus(side: OwnerSide, saving: int | IntArray, payment: int | IntArray) -> FloatArray:
    """What a contract, or one for each owner, leaves it over its limit: markup counts as cost.

    An owner signs what leaves it something. So by this it also judges what a lie brings. What it
    would not sell at any price leaves it minus infinity.
    """
    at = np.arange(len(side)), np.broadcast_to(saving, len(side))
    more = side.base() - side.payoffs_of(at[1], np.zeros(len(side), np.int64))
    left = side.income()[payment] - (1.0 + side.markup) * more
    return np.where(side.sells()[at], left, -np.inf)


def side_of(side: OwnerSide, owners: IntArray) -> OwnerSide:
    """The side of these owners, by their index; each may be there several times."""
    return replace(
        side,
        privacy_cost=side.privacy_cost[owners],
        markup=side.markup[owners],
        floor=side.floors()[owners],
        key=None if side.key is None else side.key[owners],
    )


def gained_by_lying(result: Negotiation) -> FloatArray | None:
    """The most that each owner of a negotiation could gain by lying to its mechanism."""
    mechanism, options = find_mechanism(result.scenario.mechanism), run_options(result.scenario)
    return most_gained_by_lying(result.environment, mechanism, options, result.agreement)


def most_gained_by_lying(
    environment: Environment,
    mechanism: Mechanism,
    options: RunOptions,
    agreement: Agreement,
) -> FloatArray | None:
    """The most that each owner could gain by lying to a mechanism.

    Exact for auctions, menus and the exact answers, over all that an owner could say. For learners
    it is what the best answer to the curator's final policy would bring per interaction. One
    number an owner, 0 where nothing is gained and NaN where it was not examined; None where it is
    not known for this mechanism, or owners answer with errors anyway.
    """
    if not environment.behaviour.exact:
        return None
    gained = _gained(environment, mechanism, options, agreement)
    return None if gained is None else np.maximum(gained, 0.0)


def _gained(
    environment: Environment, mechanism: Mechanism, options: RunOptions, agreement: Agreement
) -> FloatArray | None:
    side, contracts = environment.owner_side(), agreement.contracts
    if isinstance(mechanism, UniformDP | NoDP | PostedPrice):
        # Nobody is asked; or about a price that no answer changes, which one takes or leaves.
        return np.zeros(len(environment))
    if isinstance(mechanism, Clock):
        return gained_by_staying(environment, options.demand, contracts)
    if isinstance(mechanism, SealedBids):
        saving = floor_level(environment.levels, options.demand.floor)
        award = mechanism.award(environment, options, saving)
        return gained_by_bids(side, ArrayAsker(environment).bid(saving), award)
    if isinstance(mechanism, PainFL):  # to pass for another type is to take its item
        menu = zip(*mechanism.menu(environment), strict=True)
        return gained_by_items(side, contracts, menu)
    if isinstance(mechanism, Bisection):
        # An owner that refuses all but the curator's limit ends there: nothing more is paid.
        limits = environment.curator_side().limits()
        items = (
            (np.where(limit >= 0, saving, 0), np.maximum(limit, 0))
            for saving, limit in enumerate(limits.T)
        )
        return gained_by_items(side, contracts, items)
    if isinstance(mechanism, Oracle):  # if it had to ask for costs
        signed = environment.protocol == "signed"
        return gained_by_costs(environment, contracts, mechanism.solve) if signed else None
    return agreement.owner_exploitability


def mean_and_most(gained: FloatArray | None) -> tuple[float | None, float | None]:
    """The mean over the owners that were examined, and the most of any; None where not known."""
    if gained is None or np.isnan(gained).all():
        return None, None
    return float(np.nanmean(gained)), float(np.nanmax(gained))


def examined(owners: int) -> IntArray:
    """The owners that are examined, by their index."""
    return np.unique(np.linspace(0, owners - 1, min(owners, MOST_EXAMINED)).astype(np.int64))


def gained_by_staying(environment: Environment, demand: Demand, contracts: Contracts) -> FloatArray:
    """What the best answers to a clock bring: an owner can only leave at a price of its choice.

    Leaving brings 0. Until an owner leaves, everything goes as if it never left. So another answer
    than its own could pay only after the price that it refused, where no price is higher: only if
    that one would pay is the clock run with an owner that never leaves.
    """
    side, refused = environment.owner_side(), np.zeros(len(environment), np.int64)
    auction, asker = ClockAuction(environment, demand), ArrayAsker(environment)
    while not auction.over:
        stay = asker.stay(auction.saving, auction.asked, auction.prices)
        refused[auction.asked[~stay]] = auction.prices[~stay]
        auction.hear(stay)
    sold = np.full(len(environment), auction.saving)
    hope = np.where(refused > 0, surplus(side, sold, refused), 0.0)
    best = np.maximum(surplus(side, auction.contracts().saving, auction.contracts().payment), 0)
    for owner in np.flatnonzero(hope > 0.0):
        auction = ClockAuction(environment, demand)
        try:
            while not auction.over:
                stay = asker.stay(auction.saving, auction.asked, auction.prices)
                auction.hear(stay | (auction.asked == owner))
        except BadInput:  # it misses a target: no trade
            best[owner] = 0.0
            continue
        stayed = auction.contracts()
        best[owner] = max(0.0, surplus(side, stayed.saving, stayed.payment)[owner])
    return gained_over(side, contracts, best)


def gained_over(side: OwnerSide, contracts: Contracts, best: FloatArray) -> FloatArray:
    """How much more the best surplus is than that of the contracts."""
    return np.asarray(best - surplus(side, contracts.saving, contracts.payment))


def gained_by_bids(
    side: OwnerSide, bids: IntArray, award: Callable[[IntArray], Contracts]
) -> FloatArray:
    """What the best bid brings each owner over its own, by trying every level.

    ``award`` gives the contracts that follow from all bids.
    """
    honest, gained = award(bids), np.full(len(bids), np.nan)
    kept = surplus(side, honest.saving, honest.payment)
    for owner in examined(len(bids)):
        said, got = bids[owner], []
        for bids[owner] in range(1, side.levels.payment_levels + 2):
            won = award(bids)
            got.append((won.saving[owner], won.payment[owner]))
        bids[owner] = said
        gained[owner] = max(kept[owner], _best_for(side, owner, *np.array(got).T))
        gained[owner] -= kept[owner]
    return gained


def gained_by_items(
    side: OwnerSide,
    contracts: Contracts,
    items: Iterable[tuple[int | IntArray, int | IntArray]],
) -> FloatArray:
    """What the best of some items (or none) brings each owner over what it took.

    An item is a saving and a payment for all owners, or one of each for every owner.
    """
    best = np.zeros(len(contracts))
    for saving, payment in items:
        best = np.maximum(best, surplus(side, saving, payment))
    return gained_over(side, contracts, best)


def gained_by_costs(
    environment: Environment, contracts: Contracts, solve: Callable[[Games], Contracts]
) -> FloatArray:
    """What the best report of its privacy cost brings each owner, where each is served by itself.

    Owners that differ in nothing but their cost have the same answers to choose from.
    """
    side, now = environment.owner_side(), environment.phases[-1]
    kept, gained = surplus(side, contracts.saving, contracts.payment), np.full(len(side), np.nan)
    some = examined(len(environment))
    public = np.column_stack([now.beta[some], now.markup[some], side.floors()[some]])
    _, kind = np.unique(public, axis=0, return_inverse=True)
    for number in range(kind.max() + 1):
        alike = some[kind.reshape(-1) == number]
        answers = _answers(environment, int(alike[0]), solve)
        for owner in alike:
            best = _best_for(side, owner, answers.saving, answers.payment)
            gained[owner] = best - kept[owner]
    return gained


def _best_for(side: OwnerSide, owner: int, saving: IntArray, payment: IntArray) -> float:
    """What the best of these contracts leaves one owner over its limit."""
    return float(surplus(side_of(side, np.full(len(saving), owner)), saving, payment).max())


def _answers(
    environment: Environment, owner: int, solve: Callable[[Games], Contracts]
) -> Contracts:
    """The contracts that one owner gets for all costs that it could report."""
    one = slice(owner, owner + 1)
    own, curator = environment.owner_side(-1, one), environment.curator_side(-1, one)
    costs, parts = _costs(own), []
    for start in range(0, len(costs), _REPORTS_AT_ONCE):
        said = costs[start : start + _REPORTS_AT_ONCE]
        same = np.zeros(len(said), np.int64)
        reporting = replace(side_of(own, same), privacy_cost=said)
        other = replace(curator, beta=curator.beta[same])
        parts.append(solve(games(reporting, other, environment.protocol)))
    return Contracts.joined(parts)


def _costs(side: OwnerSide) -> FloatArray:
    """One privacy cost from every stretch within which no answer of this owner changes.

    Answers change where a payment just pays for a saving, markup included, and where one saving
    becomes better than another.
    """
    traded, payments = side.traded(), side.levels.payments[1:]
    more = np.unique(np.round(np.abs(np.subtract.outer(traded, traded)), 12))
    worth = side.privacy_weight * more[more > 0.0]
    if not worth.all() or not side.payment_value > 0.0:
        return side.privacy_cost  # a cost, or a payment, that counts for nothing
    even = (side.payment_value * np.divide.outer(payments, worth)).reshape(-1)
    points = np.unique(np.round(np.concatenate([even, even / (1.0 + side.markup[0])]), 12))
    between = (points[1:] + points[:-1]) / 2.0
    return np.concatenate([[points[0] / 2.0], between, [2.0 * points[-1]], side.privacy_cost])
