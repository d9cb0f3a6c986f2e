"""An owner that a simulation acts for: the same door, with what the simulation knows of it.

Its preferences are the scenario's, its records are a part of the shared data, and its training is
done by worker processes. So it needs no files but its key, contract, receipts and statement. An
owner that outlives the run has a wallet, too, and its preferences are those in its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from noisemarket.game.environment import Environment
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.invitations import GameRecord, JobInvitation, MenuInvitation, SaleRecord
from noisemarket.owner.terms import Plan
from noisemarket.owner.wallet import Balance, Wallet
from noisemarket.privacy.accountant import BudgetSpent, PrivacyBudget, PrivacyStatement


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
        self.refuses = ""
        """Why it takes no part in the job, if it does not."""

    def agree(self, invitation: JobInvitation, saving: int, payment: int) -> None:
        """Remember what was agreed without messages, as the one item of a menu."""
        item = 0 if saving or payment else -1
        menu = MenuInvitation(**vars(invitation), items=((saving, payment),))
        self._agreed = SaleRecord(menu, item=item)

    def invited(self, invitation: JobInvitation) -> str:
        if self.refuses:
            raise Declined(self.refuses)
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
