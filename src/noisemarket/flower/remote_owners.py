"""The owners of a market over Flower: each on its SuperNode, with its secrets.

How contracts are negotiated is in ``remote_negotiation.py``; here is all that comes after.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisemarket.errors import BadInput, BadSignature, NoisemarketError
from noisemarket.federated.engine import Engine
from noisemarket.files import digest, write_json
from noisemarket.flower import wire
from noisemarket.flower.flower_engine import FlowerEngine
from noisemarket.flower.house import read_houses
from noisemarket.flower.line import Asking, Bounds, Line
from noisemarket.flower.remote_negotiation import RemoteClock, RemoteGame
from noisemarket.game.environment import Environment
from noisemarket.ledger.contract import Contract, is_key
from noisemarket.ledger.keys import OWNER, SignedContract, holds
from noisemarket.ledger.receipts import Receipt
from noisemarket.market.deals import Deals
from noisemarket.market.market_folder import JOURNAL, JobManifest, MarketFolder
from noisemarket.market.negotiation import Negotiation, run_options
from noisemarket.market.offers import job_terms
from noisemarket.market.orders import Order
from noisemarket.market.owners import Owners
from noisemarket.owner.terms import Assignment
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.bisection import BISECTION, Bisection
from noisemarket.pricing.clock import Clock
from noisemarket.pricing.learned import Learned
from noisemarket.pricing.mechanism import Stop, Watch
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.scenario import Scenario
from noisemarket.scenario.schema import BehaviourSection

if TYPE_CHECKING:
    from flwr.serverapp import Grid

KEYS, TRAFFIC = "keys.json", "traffic.json"


class RemoteOwners(Owners):
    """Owners over a grid, inside a ServerApp. ``houses`` is the file that lists which SuperNodes
    serve several owners, if any do."""

    def __init__(
        self,
        grid: Grid,
        scenario: Scenario,
        folder: MarketFolder,
        bounds: Bounds,
        houses: Path | None = None,
    ) -> None:
        self._grid, self._scenario, self._bounds, self._houses = grid, scenario, bounds, houses
        self._environment = scenario.environment(secrets=False)
        self._folder = folder.curator
        self._names = [str(name) for name in self._environment.population.names]
        self._line: Line
        self._asking: Asking  # both from ``negotiate`` on: before, another run may hold the folder
        self._job = ""

    @property
    def journal(self) -> Path:
        return self._folder / JOURNAL

    @property
    def left_out(self) -> Mapping[str, str]:
        return self._asking.left_out

    # Negotiation

    @staticmethod
    def check(scenario: Scenario) -> Learned | Bisection | Clock:
        """The mechanism of a scenario; refuses one that is not played by messages."""
        chosen = find_mechanism(scenario.mechanism)
        by_class = isinstance(chosen, Learned) and not isinstance(chosen.rule, str)
        if by_class or not isinstance(chosen, Learned | Bisection | Clock):
            remedy = (
                "is not played by messages: over Flower, choose clock, dypp, bisection, "
                "q_learning, phc, greedy."
            )
            raise BadInput("mechanism", scenario.mechanism, remedy)
        if scenario.behaviour != BehaviourSection():
            remedy = "over Flower owners answer for themselves: drop [behaviour]."
            raise BadInput("behaviour", scenario.behaviour.model_dump(), remedy)
        if scenario.changes:
            remedy = (
                "over Flower each owner changes its own numbers, in its folder: drop [[changes]]."
            )
            raise BadInput("changes", len(scenario.changes), remedy)
        return chosen

    def negotiate(
        self, manifest: JobManifest, curator_key: str, watch: Watch, stop: Stop
    ) -> Negotiation:
        scenario, environment, folder = self._scenario, self._environment, self._folder
        mechanism = self.check(scenario)
        self._job = manifest.job
        listed = read_houses(self._houses, self._names) if self._houses else None
        self._line = Line(self._grid, self._names, self._bounds, listed)
        self._asking = Asking(self._line, folder)
        terms = job_terms(scenario, manifest)
        if isinstance(mechanism, Clock):
            demand = run_options(scenario).demand
            clock = RemoteClock(environment, demand, self._asking, folder)
            agreement = clock.run(terms, curator_key, watch, stop)
        else:
            rule = str(mechanism.rule) if isinstance(mechanism, Learned) else BISECTION
            game = RemoteGame(scenario, environment, rule, self._asking, folder)
            agreement = game.play(terms, curator_key, watch, stop)
        return Negotiation(scenario, environment, agreement)

    # Contracts

    def with_noise(self, order: Order) -> Order:
        if order.job.noise != "secure":
            return order
        # Asked again from the same model, owners send the same bits. The curator knows nothing of
        # their noise, but when it is the same: this key gives releases names for its own account.
        names = digest(b"names of releases", self._job.encode())
        return replace(order, job=replace(order.job, noise_key=names))

    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        file, found = self._folder / KEYS, dict[int, str]()
        if file.exists():  # the ledger has them: they cannot change
            return dict(json.loads(file.read_text(encoding="utf-8")))

        def take(index: int, reply: Any) -> bool:
            key = wire.message_text(reply, "key") or ""
            if is_key(key):
                found[index] = key
            return index in found

        asked = {index: wire.with_config() for index in self._asking.taking_part()}
        self._asking.ask(wire.KEY, asked, take)
        keys = {self._names[index]: key for index, key in sorted(found.items())}
        write_json(file, keys)
        return keys

    def sign(self, contracts: Mapping[int, Contract], order: Order) -> dict[int, str]:
        model, found = order.job.model.settings(), dict[int, str]()

        def take(index: int, reply: Any) -> bool:
            signature = wire.message_text(reply, "signature") or ""
            if holds(OWNER, contracts[index], signature):
                found[index] = signature
            return index in found

        asked = {
            index: wire.contract(contract, Assignment(index, order.job.seed, model))
            for index, contract in contracts.items()
        }
        self._asking.ask(wire.CONTRACT, asked, take)
        return found

    def keep(
        self, signed: Mapping[int, SignedContract], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        """An owner that does not get it trains nothing, and says so when it is asked to."""
        asked = {index: wire.signed_by_both(one, receipts[index]) for index, one in signed.items()}
        found: dict[int, Receipt] = {}

        def kept(index: int, reply: Any) -> bool:
            if (receipt := _countersigned(reply, receipts[index])) is not None:
                found[index] = receipt
            return index in found

        self._asking.ask(wire.SIGNED, asked, kept, leave_out=False)
        return found

    # Training and after

    def engine(self, order: Order) -> Engine:
        return FlowerEngine(self._line, order.job, self._job)

    def present(self, owners: Sequence[int]) -> Sequence[int]:
        wanted = set(owners)
        end = time.monotonic() + self._bounds.wait
        while not (here := wanted & set(self._line.meet(0.0))):
            if time.monotonic() > end:
                raise NoisemarketError("No owner is here: run again later.")
            time.sleep(0.5)
        return sorted(here)

    def settled(
        self, statements: Mapping[int, PrivacyStatement], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        asked = {self._names[index]: wire.receipt(receipts[index]) for index in statements}
        self._line.meet(0.0)
        replies = self._line.ask(wire.SETTLED, asked, timeout=min(60.0, self._bounds.timeout))
        found = {
            index: _countersigned(replies.get(self._names[index]), receipts[index])
            for index in statements
        }
        write_json(self._folder / TRAFFIC, [asdict(one) for one in self._line.traffic])
        return {index: receipt for index, receipt in found.items() if receipt is not None}


def _countersigned(reply: Any, issued: Receipt) -> Receipt | None:
    """An owner's receipt out of its reply: this one with its signature, or one that it had before;
    None if it is neither."""
    found = wire.receipt_of(reply)
    if found is None or (found.contract, found.owner_key) != (issued.contract, issued.owner_key):
        return None
    try:
        found.check(issued.curator_key, owner=True)
    except BadSignature:
        return None
    return found
