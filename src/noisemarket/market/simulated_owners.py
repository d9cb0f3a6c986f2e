"""Owners that this process acts for, of one run or of many.

The preferences of a simulated owner are the scenario's, its records are a part of the shared data,
and worker processes train it. So it needs no files but its key, contract, receipts and statement.

An owner that outlives the run is as one on a Flower host: its folder has key, private numbers,
wallet and contracts, and what it has written down counts, not what the scenario draws for it. What
is left in its wallet is a floor of its noise: it takes no part in a job that its budget does not
cover.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.files import private_folder, write_json
from noisemarket.game.environment import Environment
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.market.orders import PreparedMarket
from noisemarket.market.run_folder import MarketFolder
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder, digest_of, owner_folder
from noisemarket.owner.invitations import GameRecord, JobInvitation, MenuInvitation, SaleRecord
from noisemarket.owner.terms import Plan
from noisemarket.owner.wallet import Balance, Wallet
from noisemarket.pricing.rule import seeds
from noisemarket.privacy.accountant import BudgetSpent, PrivacyBudget, PrivacyStatement
from noisemarket.privacy.zcdp import sigma_for_rho


def preferences(environment: Environment, index: int, seed: int) -> dict[str, Any]:
    """What an owner of a scenario knows of itself, as ``private.json`` holds it."""
    first, population = environment.phases[0], environment.population
    own: dict[str, Any] = {
        "privacy_cost": float(first.privacy_cost[index]),
        "markup": float(first.markup[index]),
        "floor": float(population.floor[index]),
        "sigma_max": environment.levels.sigma_max,
        "payment_value": environment.payment_value,
        "privacy_weight": environment.privacy_weight,
        "payoff": environment.payoff,
        "seed": seed,
    }
    changes = [
        {
            "at": phase.start,
            "privacy_cost": float(phase.privacy_cost[index]),
            "markup": float(phase.markup[index]),
        }
        for phase in environment.phases[1:]
    ]
    if changes:
        own["changes"] = changes
    if not environment.behaviour.exact:
        own |= {"behaviour": asdict(environment.behaviour), "key": int(population.key[index])}
    return own


class SimulatedOwner(OwnerAgent):
    """An owner of an embedded market; one with a ``wallet`` outlives the run."""

    def __init__(
        self, folder: OwnerFolder, own: Mapping[str, Any], wallet: Wallet | None = None
    ) -> None:
        super().__init__(folder, {"allow-simulated": True})
        self._own, self._wallet = own, wallet
        self._agreed: SaleRecord | None = None
        self.work: tuple[PrivacyBudget, PrivacyBudget, int] | None = None
        """What a round costs the owner, by the contract's relation of neighbours and by its own,
        and how many records it has."""
        self.statement: PrivacyStatement | None = None
        """What the owner gave up, once the job is trained."""
        self.dry = False
        """Whether its budget did not cover the job even with all its noise."""

    def agree(self, invitation: JobInvitation, saving: int, payment: int) -> None:
        """Remember what was agreed without messages, as the one item of a menu."""
        item = 0 if saving or payment else -1
        menu = MenuInvitation(**vars(invitation), items=((saving, payment),))
        self._agreed = SaleRecord(menu, item=item)

    def invited(self, invitation: JobInvitation) -> str:
        if self.dry:
            raise Declined("the privacy budget is spent")
        key = self.public_key
        if self._wallet is None:
            kept = {name: self._own[name] for name in ("privacy_cost", "markup", "floor")}
            self.folder.keep_private(kept)
        return key if self._agreed is not None else super().invited(invitation)

    def accept(self, contract: Contract, plan: Plan) -> str:
        return self._sign_agreed(contract, self._negotiated(contract.job), plan)

    def keep_accepted(self, signed: SignedContract, receipt: Receipt) -> Receipt:
        key = self._negotiated(signed.contract.job).invitation.curator_key
        return self.keep(signed, key, receipt)

    def _negotiated(self, job: str) -> GameRecord | SaleRecord:
        return self._agreed or super()._negotiated(job)

    def train(self, question: Any) -> Any:
        raise Declined("the worker processes train this owner")

    def _private(self) -> dict[str, Any]:
        return {**self._own, "allow_unbounded": True}

    def wallet(self) -> Wallet | None:
        return self._wallet

    def spend(self, job: str, number: int, release: str) -> bool:
        """Charge a release to the wallet, if there is one; False if it is not covered."""
        if self._wallet is None or self.work is None:
            return True
        try:
            self._wallet.spend(job, number, release, self.work[1].rho_per_round)
        except BudgetSpent:
            return False
        return True

    def _work(self, contract: Contract, plan: Plan) -> tuple[PrivacyBudget, PrivacyBudget, int]:
        if self.work is None:
            raise Declined("the job is not known yet")
        return self.work

    def _given_up(self, job: str, account: Balance | None) -> PrivacyStatement | None:
        return self.statement


LIMITS = "floors.json"
"""In the owners' part of a run folder: the least noise of each owner when the job began."""

_OWN = ("privacy_cost", "markup", "floor")


def own_numbers(market: PreparedMarket) -> Iterator[dict[str, Any]]:
    """What a scenario says of each owner, as ``private.json`` holds it."""
    scenario, environment = market.scenario, market.environment
    privacy, floors = scenario.privacy, environment.population.floor
    if math.isfinite(market.order.budgets[0].rho_cap):  # which has raised the floors of this job
        floors = scenario.environment().population.floor
    budgets = {"rho_budget": privacy.rho_budget, "epsilon_budget": privacy.epsilon_budget}
    for index, floor in enumerate(floors.tolist()):
        yield {
            "changes": [],
            **preferences(environment, index, seeds(scenario.play_seed())[0]),
            "floor": floor,
            **{name: value for name, value in budgets.items() if value > 0.0},
            "budget_delta": privacy.delta,
            "neighbours": privacy.neighbours,
        }


def records_of(market: PreparedMarket, index: int) -> str:
    """The digest of the records that an owner holds here, whatever the model makes of them."""
    data, held = market.order.job.data, market.order.job.partition.indices[index]
    return digest_of(data.train_images[held], data.train_labels[held])


def with_lasting_owners(
    market: PreparedMarket, folder: MarketFolder, root: Path, *, renew: bool = False
) -> tuple[PreparedMarket, list[SimulatedOwner]]:
    """The owners in ``root``, and the market with what they have written down.

    An owner that is not there yet gets a folder with the scenario's numbers; with ``renew`` all
    take these. A job that is resumed has the floors that it began with.
    """
    scenario, environment, order = market.scenario, market.environment, market.order
    for path in (root, folder.path, folder.owners):
        private_folder(path)
    known: Mapping[str, float] = {}
    if (kept := folder.owners / LIMITS).exists():
        known = json.loads(kept.read_text(encoding="utf-8"))
    dimension, sigma_max = order.job.first_weights().size, scenario.game.sigma_max
    owners, floors = list[SimulatedOwner](), dict[str, float]()
    columns: dict[str, list[float]] = {name: [] for name in _OWN}
    names = map(str, environment.population.names)
    for index, (name, numbers) in enumerate(zip(names, own_numbers(market), strict=True)):
        own_folder = OwnerFolder(name, private_folder(owner_folder(root, name)))
        own_folder.keep_private(numbers, renew=renew)
        own = own_folder.private()
        wallet = Wallet(own_folder.path, name, records_of(market, index))
        owner = SimulatedOwner(own_folder, own, wallet)
        if name not in known:
            size = int(order.job.partition.sizes[index])
            relation = own_folder.neighbours()
            sensitivity = order.job.protection.sensitivity(dimension, size, relation)
            allowed = min(owner.allowed(), order.budgets[index].rho_cap)
            least = sigma_for_rho(sensitivity, allowed / order.plan.rounds)
            floors[name] = max(float(own["floor"]), least)
        else:
            floors[name] = float(known[name])
        owner.dry = floors[name] > sigma_max * (1.0 + 1e-9)
        owners.append(owner)
        for field in ("privacy_cost", "markup"):
            columns[field].append(float(own[field]))
        columns["floor"].append(min(floors[name], sigma_max))
    if not known:
        write_json(kept, floors, private=True)
    told = _told(environment, {name: np.array(values) for name, values in columns.items()})
    return replace(market, environment=told), owners


def _told(environment: Environment, own: Mapping[str, Any]) -> Environment:
    """The game with what the owners say of themselves; what the scenario changes later stays."""
    first = environment.phases[0]
    phases = [
        replace(
            phase,
            **{
                name: np.where(
                    getattr(phase, name) == getattr(first, name), own[name], getattr(phase, name)
                )
                for name in ("privacy_cost", "markup")
            },
        )
        for phase in environment.phases
    ]
    population = replace(environment.population, **own)
    return replace(environment, population=population, phases=tuple(phases))
