"""The two sides at the table: each has its own key and folder, and sees only what is its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from noisemarket.errors import NoisemarketError
from noisemarket.federated.protections import DPSGD, Protection
from noisemarket.ledger.contracts import Contract
from noisemarket.ledger.keys import CURATOR, OWNER, KeyPair, SignedContract, holds
from noisemarket.market.deals import Deal
from noisemarket.privacy.statement import PrivacyBudget, PrivacyStatement, protected
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.runfolder import write_whole

PRIVATE = "private.json"
"""An owner's secrets, in its folder."""


@dataclass(frozen=True)
class Terms:
    """What is the same in all contracts of a job."""

    job: str
    rounds: int
    protection: Protection
    missed_rounds: str
    minimum_share: float
    false_alarm: float
    offered_at: str
    expires_at: str


def privacy_cap(budget: PrivacyBudget, rounds: int) -> float:
    """The zCDP that a contract allows in all: that of its rounds, or the job's cap if lower."""
    return min(budget.rho_cap, rounds * budget.rho_per_round)


class Curator:
    """The curator's desk: its key, and what it offers. Of owners it knows name and public key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = KeyPair.obtain(folder)

    @property
    def public_key(self) -> str:
        """What others know it by."""
        return self._key.public_hex

    def offer(
        self, deal: Deal, owner_key: str, budget: PrivacyBudget, terms: Terms, records: int
    ) -> Contract:
        """A contract on these terms; the same whenever it is asked for, so a job can resume.

        How many ``records`` the owner has counts where the protection's steps depend on it.
        """
        cap = privacy_cap(budget, terms.rounds)
        settings = dict(asdict(terms.protection))  # type: ignore[call-overload]
        clip, shards = settings.pop("clip", None), settings.pop("shards", None)
        if isinstance(terms.protection, DPSGD):
            settings["reach"] = terms.protection.reach(records)
        nonce = hashlib.sha256(f"{terms.job}\0{deal.owner}".encode()).hexdigest()[:32]
        return Contract(
            job=terms.job,
            owner=deal.owner,
            owner_key=owner_key,
            curator_key=self.public_key,
            saving=deal.saving,
            sigma=deal.sigma,
            payment=deal.payment,
            protection=terms.protection.name,
            clip=clip,
            shards=shards,
            settings=settings,
            rounds=terms.rounds,
            rho_per_round=budget.rho_per_round,
            rho_cap=cap,
            epsilon=gaussian_epsilon(cap, budget.delta),
            delta=budget.delta,
            neighbours=str(budget.neighbours),
            protects=protected(budget.protection, budget.neighbours, budget.whole_owner),
            whole_owner=budget.whole_owner,
            simulated=budget.simulated,
            missed_rounds=terms.missed_rounds,
            minimum_share=terms.minimum_share,
            false_alarm=terms.false_alarm,
            offered_at=terms.offered_at,
            expires_at=terms.expires_at,
            nonce=nonce,
        )

    def countersign(self, contract: Contract, owner_signature: str) -> SignedContract:
        """Sign what the owner has signed, if it has."""
        signature = self._key.sign(CURATOR, contract)
        signed = SignedContract(contract, owner_signature, signature)
        signed.verify(contract.owner_key, self.public_key)
        return signed


class Owner:
    """An owner's desk: its key, its secrets, and the deal that it made."""

    def __init__(self, folder: Path, deal: Deal, secrets: Mapping[str, float]) -> None:
        self.folder, self.deal = folder, deal
        self._key = KeyPair.obtain(folder)
        keep_secrets(folder, secrets)

    @property
    def public_key(self) -> str:
        """What others know it by."""
        return self._key.public_hex

    def accept(self, contract: Contract, budget: PrivacyBudget, terms: Terms) -> str:
        """Sign a contract, if it says what was agreed; refuse any other."""
        agreed = (self.deal.owner, self.deal.saving, self.deal.sigma, self.deal.payment)
        said = (contract.owner, contract.saving, contract.sigma, contract.payment)
        asked, usual = (
            (one.job, one.rounds, one.missed_rounds, one.minimum_share, one.false_alarm)
            for one in (contract, terms)
        )
        same = said == agreed and asked == usual and contract.protection == terms.protection.name
        if not same:
            raise NoisemarketError(f"owner {self.deal.owner} refuses: that is not what it agreed.")
        if contract.rho_cap > privacy_cap(budget, terms.rounds) * (1.0 + 1e-12):
            raise NoisemarketError(f"owner {self.deal.owner} refuses: the cap is not its own.")
        return self._key.sign(OWNER, contract)

    def keep(self, signed: SignedContract) -> None:
        """Keep a copy of the contract, once the curator's signature holds."""
        if not holds(CURATOR, signed.contract, signed.curator_signature):
            raise NoisemarketError(f"owner {self.deal.owner} got no valid signature back.")
        document = {
            "contract": signed.contract.to_dict(),
            "owner_signature": signed.owner_signature,
            "curator_signature": signed.curator_signature,
        }
        write_whole(self.folder / "contract.json", json.dumps(document, indent=2) + "\n")

    def keep_statement(self, statement: PrivacyStatement, paid: int | None) -> None:
        """Keep what was given up, and what it brought."""
        document: dict[str, Any] = statement.to_dict() | {"text": statement.text(), "paid": paid}
        write_whole(self.folder / "statement.json", json.dumps(document, indent=2) + "\n")


def keep_secrets(folder: Path, secrets: Mapping[str, Any]) -> None:
    """Write an owner's secrets into its folder, for its owner alone; what is there stays."""
    place = folder / PRIVATE
    if not place.exists():
        write_whole(place, json.dumps(dict(secrets), indent=2) + "\n")
        place.chmod(0o600)


def owner_folder(parent: Path, name: str) -> Path:
    """A folder for an owner, whatever it is called."""
    safe = quote(name, safe="")
    if len(safe) > 100:
        safe = safe[:60] + "-" + hashlib.sha256(name.encode()).hexdigest()[:24]
    return parent / f"owner-{safe}"
