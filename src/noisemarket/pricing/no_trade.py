"""Why nothing was bought: the trade that comes nearest to paying, from the owners' own costs.

For one party that holds all secrets, as a simulation does: no curator knows what an owner asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisemarket.game.environment import Environment
from noisemarket.game.sides import SLACK
from noisemarket.game.value import JointValue
from noisemarket.pricing.clock import floor_level
from noisemarket.pricing.mechanism import Demand


@dataclass(frozen=True)
class NearestTrade:
    """The sale whose worth to the curator comes nearest to what its sellers ask.

    So many ``owners`` would keep the noise ``left`` for the payment ``asked`` each, and what each
    sells is ``worth`` so much money to the curator. ``pays``: some payment level suits both sides.
    """

    owners: int
    left: float
    asked: float
    worth: float
    pays: bool


def why_nothing(
    environment: Environment, demand: Demand, *, joint: bool, currency: str = "units"
) -> str:
    """A sentence on why a mechanism bought nothing (``joint``: for the one model of all)."""
    if environment.protocol == "simultaneous":
        return "Nothing is bought: both sides settled on a saving of 0."
    if joint and demand.target is not None:
        return f"Nothing is bought: no seller is needed for a quality of {demand.target:g} %."
    found = _for_one_model(environment, demand) if joint else _with_one_owner(environment)
    if found is None:
        levels = environment.levels
        least = levels.sigma_left(floor_level(levels, demand.floor) if joint else 1)
        bound = int((environment.population.floor > least * (1.0 + SLACK)).sum())
        sale = f"lower its noise to {least:g}" if joint else "sell any noise"
        highest = f"the highest payment, {levels.payment_max:g} (game.payment_max)"
        return f"Nothing is bought: no owner would {sale} for {highest}" + (
            f"; {bound:,} of {len(environment):,} may not at any, by floor, privacy cap or budget."
            if bound
            else "."
        )
    one = found.owners == 1
    who = "the cheapest owner asks" if one else f"the {found.owners:,} cheapest owners ask"
    each, its = ("", "its") if one else (" each", "their")
    terms = (
        f"{who} {found.asked:,.2f} {currency}{each} to lower {its} noise to {found.left:g}, "
        f"which is worth {found.worth:,.2f} {currency}{each} to the curator"
    )
    if joint and demand.budget is not None and found.owners * found.asked > demand.budget:
        return f"The budget of {demand.budget:g} {currency} pays nobody: {terms}."
    if found.pays:
        return f"No trade was agreed, though one would pay: {terms}."
    if found.worth < found.asked:
        return f"No trade pays: {terms}."
    step, most = environment.levels.payments[1], environment.levels.payment_max
    grid = f"payments go up to {most:g} (game.payment_max) in steps of {step:g}"
    return f"No payment suits both sides: {terms}; {grid}."


def _with_one_owner(environment: Environment) -> NearestTrade | None:
    """Of all owners and savings, on what the curator gets from that owner alone."""
    best, found = -1.0, None
    for some in environment.slices():
        owner, curator = environment.owner_side(some=some), environment.curator_side(some=some)
        money = (1.0 - curator.quality_weight) * curator.payment_cost
        pays = (owner.reserves() <= curator.limits())[:, 1:]
        asked, worth = owner.least_payments()[:, 1:], _money(curator.worth()[:, 1:], money)
        score = _ratio(worth, asked) + np.where(pays, 1e6, 0.0)
        at = np.unravel_index(int(np.argmax(score)), score.shape)
        if np.isfinite(asked[at]) and score[at] > best:
            best = float(score[at])
            left = environment.levels.sigma_left(int(at[1]) + 1)
            found = NearestTrade(1, left, float(asked[at]), float(worth[at]), bool(pays[at]))
    return found


def _for_one_model(environment: Environment, demand: Demand) -> NearestTrade | None:
    """Of the k cheapest owners for every k, if all of them sold down to the floor at one price."""
    joint, levels = JointValue.of(environment), environment.levels
    saving = floor_level(levels, demand.floor)
    asked = environment.owner_side().least_payments()[:, saving]
    order = np.argsort(asked, kind="stable")[: int((asked <= levels.payment_max).sum())]
    if not len(order):
        return None
    without, more = joint.sale(saving)
    counts = np.arange(1, len(order) + 1)
    gained = joint.quality(without + np.cumsum(more[order], axis=0)) - joint.quality(without)
    worth = _money(joint.quality_price * gained / counts, joint.money_price)
    score = _ratio(worth, asked[order])
    if demand.budget is not None:
        paid = counts * asked[order] <= demand.budget
        score = np.where(paid, score, -1.0) if paid.any() else -counts.astype(float)
    at = int(np.argmax(score))
    price = float(asked[order[at]])
    level = int(np.searchsorted(levels.payments, price - 1e-9))
    pays = level <= levels.payment_levels and levels.payments[level] <= worth[at]
    return NearestTrade(at + 1, levels.sigma_left(saving), price, float(worth[at]), bool(pays))


def _money(payoff: np.ndarray, price: float) -> np.ndarray:
    """A curator's payoff in money; without limit where money costs it nothing."""
    if price > 0.0:
        return np.asarray(payoff / price)
    return np.where(payoff > 0.0, np.inf, 0.0)


def _ratio(worth: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Worth by unit of money, from 0 to 1,000; an owner that asks nothing has the most."""
    return np.asarray(np.clip(worth / np.maximum(asked, 1e-9), 0.0, 1000.0))
