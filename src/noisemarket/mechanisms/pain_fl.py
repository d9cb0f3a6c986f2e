"""A Pain-FL style menu: the curator knows how costs are spread, not who has which."""

from __future__ import annotations

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.mechanisms.lying import gained_by_items
from noisemarket.mechanisms.mechanism import Agreement, Contracts, Direct, RunOptions
from noisemarket.mechanisms.menu import MenuProblem, types_from_sample


class PainFL(Direct):
    """Gives every owner the same screening menu; each takes the item that is best for it.

    The type of an owner is its reservation cost, privacy cost times (1 + markup). Of the non-IID
    degrees the menu knows only the spread, so it is computed for the mean quality over owners.
    """

    knows = "how costs and data are spread among these owners"
    questions = 1  # which item it takes

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        self.problem(environment, options.menu_types)

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        now = environment.phases[-1]
        reservation = now.privacy_cost * (1.0 + now.markup)
        menu = self.problem(environment, options.menu_types).solve()
        side, levels = environment.owner_side(), environment.levels
        item = menu.choose(reservation, levels.sigma_max - side.floors())
        taken = item >= 0
        savings = np.rint(menu.savings / levels.savings[1]).astype(np.int64)
        payments = np.rint(menu.payments / levels.payments[1]).astype(np.int64)
        for one in np.unique(item[taken]) if not environment.behaviour.exact else ():
            taken &= (item != one) | side.accepts(int(savings[one]), int(payments[one]))
        saving = np.where(taken, savings[item], 0)
        payment = np.where(taken, payments[item], 0)
        return Contracts(saving, payment, taken & ((saving > 0) | (payment > 0)))

    def gained_by_lying(
        self, environment: Environment, options: RunOptions, agreement: Agreement
    ) -> FloatArray | None:
        """Exact: the menu stands, and to pass for another type is to take its item."""
        menu = self.problem(environment, options.menu_types).solve()
        levels = environment.levels
        savings, payments = menu.savings / levels.savings[1], menu.payments / levels.payments[1]
        items = {(round(s), round(p)) for s, p in zip(savings, payments, strict=True)}
        return gained_by_items(environment.owner_side(), agreement.contracts, sorted(items))

    @staticmethod
    def problem(environment: Environment, types: int) -> MenuProblem:
        """What the best menu for this population is sought for."""
        if environment.payoff == "epsilon_loss":
            remedy = "a menu needs a loss that is linear in the noise: give privacy_loss."
            raise BadInput("game.payoff", environment.payoff, remedy)
        now = environment.phases[-1]
        thetas, shares = types_from_sample(now.privacy_cost * (1.0 + now.markup), types)
        curator = environment.curator_side()
        return MenuProblem(
            thetas,
            shares,
            savings=environment.levels.savings,
            values=now.quality_weight * now.quality_value * curator.qualities().mean(axis=0),
            payments=environment.levels.payments,
            payment_value=environment.payment_value,
            privacy_weight=environment.privacy_weight,
            price_weight=(1.0 - now.quality_weight) * now.payment_cost,
        )
