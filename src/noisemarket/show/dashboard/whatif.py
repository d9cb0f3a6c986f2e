"""What if: the clock, the exact equilibrium and the frontier of a changed market, in no time.

Nothing is trained: quality is what the measured loss surface says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.value import worth
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import with_caps
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.pricing.clock import ClockAuction
from noisemarket.pricing.mechanism import Demand
from noisemarket.pricing.oracles import best_portfolio
from noisemarket.scenario import load_scenario
from noisemarket.show.dashboard.form import checked_settings, form

MOST_OWNERS = 1000
"""Owners up to which the answers come while a slider is dragged."""

SLIDERS = (
    ("market.budget", "Budget", 0, 400, 5),
    ("market.floor", "Floor: noise that sellers keep", 0.05, 0.55, 0.05),
    ("game.payment_max", "Highest payment (p_max)", 2, 40, 1),
    ("game.quality_weight", "Weight of quality (varpi)", 0, 1, 0.02),
    ("population.privacy_cost.low", "Lowest privacy cost", 0, 4, 0.1),
    ("population.privacy_cost.high", "Highest privacy cost", 0.1, 8, 0.1),
    ("population.markup", "Markup of the owners", 0, 1, 0.05),
)
"""What can be dragged, from where to where and in which steps."""

_POINTS = 14


def sliders(preset: str) -> list[dict[str, Any]]:
    """What can be dragged, and where it stands in a preset."""
    fields = {one["key"]: one for group in form(preset)["groups"] for one in group["fields"]}
    names = ("key", "name", "min", "max", "step")
    return [
        {
            **dict(zip(names, slider, strict=True)),
            "none": slider[0] == "market.budget",
            "value": fields[slider[0]]["value"],
            "help": fields[slider[0]]["help"],
        }
        for slider in SLIDERS
    ]


def answer_of(preset: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The market of a preset under these settings."""
    return _answer(preset, tuple(checked_settings(preset, settings)))


@lru_cache(maxsize=256)
def _answer(preset: str, words: tuple[str, ...]) -> dict[str, Any]:
    scenario = load_scenario(preset=preset, settings=words)
    if scenario.population.owners > MOST_OWNERS:
        remedy = f"for this page, give at most {MOST_OWNERS:,}."
        raise BadInput("population.owners", scenario.population.owners, remedy)
    environment, options = with_caps(scenario), run_options(scenario)
    none = find_mechanism("uniform").run(environment, options).contracts

    def figures(contracts: Contracts) -> dict[str, Any]:
        found = worth(environment, contracts)
        return {
            "sellers": int(contracts.signed.sum()),
            "paid": found.total_payment,
            "quality": found.model_quality,
            "surplus": found.owners_surplus,
            "value": found.predicted_value,
        }

    auction = ClockAuction(environment, options.demand)
    clock = clock_course(auction, environment)
    best = best_portfolio(environment, options.demand)
    equilibrium = find_mechanism("equilibrium").run(environment, options).contracts
    answers = {
        "uniform": figures(none),
        "clock": figures(auction.contracts()),
        "equilibrium": figures(equilibrium),
        "best_portfolio": figures(best),
    }
    most = max(answers["best_portfolio"]["paid"], answers["clock"]["paid"], 1.0)
    return {
        "currency": scenario.market.currency,
        "answers": answers,
        "clock": clock,
        "equilibrium": _by_cost(environment, equilibrium),
        "frontier": [*_frontier(environment, options.demand, 1.25 * most)],
    }


def clock_course(auction: ClockAuction, environment: Environment) -> dict[str, Any]:
    """Play an auction; the price of every question, and how many owners stayed."""
    asker, questions = ArrayAsker(environment), []
    while not auction.over:
        price = float(environment.levels.payments[auction.price])
        auction.hear(asker.stay(auction.saving, auction.asked, auction.prices))
        questions.append((price, int(auction.active.sum())))
    return {
        "question": list(range(1, len(questions) + 1)),
        "price": [price for price, _ in questions],
        "staying": [staying for _, staying in questions],
    }


def _by_cost(environment: Environment, contracts: Contracts) -> dict[str, list[float]]:
    """Savings in equilibrium over the owners' privacy cost."""
    cost = environment.phases[-1].privacy_cost
    order = np.argsort(cost, kind="stable")
    return {
        "cost": np.round(cost[order], 4).tolist(),
        "saving": np.round(environment.levels.savings[contracts.saving[order]], 6).tolist(),
    }


def _frontier(environment: Environment, demand: Demand, most: float) -> Iterator[dict[str, Any]]:
    """Quality over money: the clock's, and the best that full knowledge could buy."""

    def figures(contracts: Contracts) -> dict[str, float]:
        found = worth(environment, contracts)
        return {"paid": found.total_payment, "quality": found.model_quality}

    for budget in np.linspace(0.0, most, _POINTS).round(2).tolist():
        limited = replace(demand, target=None, budget=budget)
        auction = ClockAuction(environment, limited)
        clock_course(auction, environment)  # plays the auction; the course is not needed here
        best = best_portfolio(environment, limited)
        yield {"clock": figures(auction.contracts()), "best": figures(best)}
