"""The clock auction over Flower: the curator asks, each owner says whether it stays.

Who left in each lot is kept, so a market that was killed asks for none twice. An owner that cannot
be reached, or whose answers cannot be used, has left the clock and the job.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.files import digest, write_json
from noisemarket.flower import wire
from noisemarket.flower.asking import Asking
from noisemarket.game.environment import Environment
from noisemarket.ledger.canonical import canonical
from noisemarket.mechanisms.clock import ClockAuction
from noisemarket.mechanisms.mechanism import Agreement, Demand, Progress, same_for_all
from noisemarket.owner.clock_record import ClockInvitation
from noisemarket.owner.terms import JobTerms

LOTS_KEPT = "clock.json"


class RemoteClock:
    """A clock auction with owners over a line.

    Args:
        environment: the game; nothing private of its owners is used.
        demand: floor, budget and target.
        asking: asks the owners.
        folder: where the curator keeps who left.
    """

    def __init__(
        self, environment: Environment, demand: Demand, asking: Asking, folder: Path
    ) -> None:
        self._auction = ClockAuction.of(environment, demand)
        self._levels, self._asking = environment.levels, asking
        self._kept = _Lots(folder / LOTS_KEPT, _name_of(environment, demand, asking.line.names))

    def run(
        self,
        terms: JobTerms,
        curator_key: str,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Agreement:
        """Run the clock until it stops."""
        auction, owners = self._auction, len(self._auction.active)
        saving = auction.saving
        invitation = ClockInvitation(terms.job, curator_key, self._levels, saving, terms.public())
        for left in self._kept.lots:
            auction.hear(~np.isin(auction.asked, left))
        if not auction.over:
            self._asking.line.meet(self._asking.line.bounds.wait)
        while not auction.over:
            if stop():
                raise Interrupted("stopped while negotiating; nothing was signed yet.")
            left = self._ask(invitation)
            if not self._asking.taking_part():
                raise NoisemarketError("No owner has taken part in the negotiation.")
            self._kept.add(left)
            auction.hear(~np.isin(auction.asked, left))
            fallen = 1.0 - auction.price / self._levels.payment_levels
            watch(Progress(slice(0, 0), same_for_all(0, 0, 0), int(fallen * owners), owners))
        messages = auction.answers / owners
        return Agreement(auction.contracts(), np.ones(owners, dtype=bool), messages=messages)

    def _ask(self, invitation: ClockInvitation) -> list[int]:
        """One question to each owner of a lot; gives those that leave."""
        stays: set[int] = set()

        def take(index: int, reply: Any) -> bool:
            stay = wire.read_stay(reply)
            if stay:
                stays.add(index)
            return stay is not None

        here = set(self._asking.taking_part())
        lot = dict(zip(self._auction.asked.tolist(), self._auction.prices.tolist(), strict=True))
        questions = {price: wire.price(invitation, price) for price in set(lot.values())}
        asked = {index: questions[price] for index, price in lot.items() if index in here}
        self._asking.ask(wire.PRICE, asked, take)
        return sorted(set(lot) - stays)


class _Lots:
    """Who left in each lot so far, on disk."""

    def __init__(self, path: Path, auction: str) -> None:
        self._path, self._name = path, auction
        self.lots: list[list[int]] = []
        if not path.exists():
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            same, self.lots = kept["auction"] == auction, kept["left"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise BadInput("clock", str(path), f"cannot be read ({problem}).") from None
        if not same:
            raise BadInput("clock", str(path), "is of another auction: restore its scenario.")

    def add(self, left: list[int]) -> None:
        """One more lot; on disk when this returns."""
        self.lots.append(left)
        write_json(self._path, {"auction": self._name, "left": self.lots})


def _name_of(environment: Environment, demand: Demand, names: list[str]) -> str:
    """All that decides how a clock goes on after the same answers."""
    now, population = environment.phases[-1], environment.population
    public = [asdict(one) for one in (environment.levels, environment.surface, demand)]
    weights = [now.quality_weight, now.quality_value, now.payment_cost]
    arrays = population.data_size, now.beta, population.key
    text = canonical([*public, names, weights])
    return digest(text.encode(), *(one.tobytes() for one in arrays)).hex()
