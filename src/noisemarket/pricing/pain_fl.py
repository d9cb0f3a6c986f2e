"""A Pain-FL style menu: the curator knows the distribution of costs, not any owner's.

Owners come in types ``theta_1 < ... < theta_M`` (reservation privacy costs) with probabilities
``q_m``. An owner that gives up noise ``s`` for a payment ``p`` gets
``payment_value p - privacy_weight theta s``. The curator gets ``value(s) - price_weight p`` and
cannot see theta, so it posts one menu of (saving, payment) items and lets every owner pick.
``best_menu`` finds the best menu on the levels of the game, exactly, for a value of any shape.
"""

from __future__ import annotations

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.game.sides import SLACK
from noisemarket.pricing.asker import asker_of
from noisemarket.pricing.mechanism import Direct, RunOptions

TYPES = 64
"""Owner types in the menu: bins of equal weight."""


def types_from_sample(costs: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Types and probabilities from a sample, or an even grid of quantiles, of reservation costs.

    The sample is cut into ``count`` bins of equal weight and each stands for its largest cost, so
    that an item made for a type is no loss to anyone in the bin. Equal types are merged.
    """
    last_of_bin = [-(-m * costs.size // count) - 1 for m in range(1, count + 1)]
    types, weight = np.unique(np.sort(costs)[last_of_bin], return_counts=True)
    return types, weight / count


def best_menu(
    types: FloatArray,
    probabilities: FloatArray,
    savings: FloatArray,
    values: FloatArray,
    payments: FloatArray,
    *,
    payment_value: float,
    privacy_weight: float,
    price_weight: float,
) -> tuple[IntArray, IntArray, float]:
    """The best of all menus whose items lie on the grid of savings and payments.

    ``types`` rise; savings and payments are evenly spaced from 0; ``values`` are the curator's at
    each saving. Gives one item for each type as level numbers (0 and 0 for a type that is not
    served), and the curator's expected gain per owner over no trade.

    Rounding the best continuous menu to the grid would make some types prefer another item; here
    every type takes its own, as ``game.sides.chosen_items`` decides it, and no other set of grid
    contracts earns more from these types.

    Dynamic programming from the costliest type up. Raising the saving by ``i`` steps for ``k`` more
    steps of payment is taken by the types up to a break-even cost that depends on (i, k) only. So
    each (i, k) is possible between exactly one pair of neighbours, m and m + 1, and there it is a
    shift of the table over (saving, payment). Beyond type M stands one that takes nothing.
    """
    theta, q = types, probabilities / probabilities.sum()
    saving_step, payment_step = (float(grid[-1]) / (grid.size - 1) for grid in (savings, payments))
    gains = (values - values[0])[:, None] - price_weight * payments
    gains[0, 1:] = -np.inf  # paying for nothing
    up, more = np.indices(gains.shape)[:, 1:, :].reshape(2, -1)
    income = payment_value * payment_step * more + SLACK
    takers = np.searchsorted(theta, income / (privacy_weight * saving_step * up), side="right")

    total = np.full(gains.shape, -np.inf)
    total[0, 0] = 0.0
    rows, columns = gains.shape
    next_items = np.empty((theta.size, gains.size), dtype=np.intp)
    for m in range(theta.size, 0, -1):
        best, source = total.copy(), np.arange(gains.size).reshape(gains.shape)
        item = source.copy()
        for i, k in zip(up[takers == m], more[takers == m], strict=True):
            candidate = total[: rows - i, : columns - k]
            better = candidate > best[i:, k:]
            best[i:, k:][better] = candidate[better]
            source[i:, k:][better] = item[: rows - i, : columns - k][better]
        next_items[m - 1] = source.reshape(-1)
        total = q[m - 1] * gains + best

    items = [int(np.argmax(total))]
    for following in next_items[:-1]:
        items.append(int(following[items[-1]]))
    chosen = np.unravel_index(items, gains.shape)
    saving, payment = (np.asarray(one, dtype=np.int64) for one in chosen)
    return saving, payment, float(q @ gains[saving, payment])


class PainFL(Direct):
    """Gives every owner the same screening menu; each takes the item that is best for it.

    The type of an owner is its reservation cost, privacy cost times (1 + markup). Of the non-IID
    degrees the menu knows only the spread, so it is computed for the mean quality over owners.
    """

    knows = "how costs and data are spread among these owners"
    questions = 1  # which item it takes

    def check(self, environment: Environment, options: RunOptions) -> None:
        super().check(environment, options)
        if environment.payoff == "epsilon_loss":
            remedy = "a menu needs a loss that is linear in the noise: give privacy_loss."
            raise BadInput("game.payoff", environment.payoff, remedy)
        for name in ("payment_value", "privacy_weight"):
            value = getattr(environment, name)
            if not value > 0:
                raise BadInput(name, value, "give a finite number above 0.")

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        self.check(environment, options)
        savings, payments = self.menu(environment)
        item = asker_of(environment, options).choose(savings, payments)
        taken = item >= 0
        saving = np.where(taken, savings[item], 0)
        payment = np.where(taken, payments[item], 0)
        return Contracts(saving, payment, taken & ((saving > 0) | (payment > 0)))

    @staticmethod
    def menu(environment: Environment) -> tuple[IntArray, IntArray]:
        """The savings and payments of the best menu for this population, as level numbers."""
        now, levels = environment.phases[-1], environment.levels
        qualities = environment.curator_side().qualities().mean(axis=0)
        savings, payments, _ = best_menu(
            *types_from_sample(now.privacy_cost * (1.0 + now.markup), TYPES),
            levels.savings,
            now.quality_weight * now.quality_value * qualities,
            levels.payments,
            payment_value=environment.payment_value,
            privacy_weight=environment.privacy_weight,
            price_weight=(1.0 - now.quality_weight) * now.payment_cost,
        )
        return savings, payments
