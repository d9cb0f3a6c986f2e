"""The two sides at the table: each has its own key and folder, and sees only what is its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.protections import Protection
from noisemarket.files import write_json
from noisemarket.ledger.contract import Contract, moment, nonce_of
from noisemarket.ledger.keys import CURATOR, OWNER, PRIVATE, KeyPair, SignedContract
from noisemarket.ledger.ledger_errors import BadSignature
from noisemarket.market.deals import Deal
from noisemarket.market.folder import JobManifest
from noisemarket.privacy.statement import PrivacyBudget, PrivacyStatement
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.scenario import Scenario
from noisemarket.training import protection_of


@dataclass(frozen=True)
class JobTerms:
    """What is the same in all contracts of a job."""

    job: str
    rounds: int
    protection: Protection
    missed_rounds: str
    minimum_share: float
    false_alarm: float
    offered_at: str
    expires_at: str


def terms_of(scenario: Scenario, card: JobManifest) -> JobTerms:
    """The terms of a scenario's job."""
    market = scenario.market
    return JobTerms(
        job=card.job,
        rounds=scenario.training.rounds,
        protection=protection_of(scenario),
        missed_rounds=market.missed_rounds,
        minimum_share=market.minimum_share,
        false_alarm=market.false_alarm,
        offered_at=card.opened_at,
        expires_at=card.expires_at,
    )


def privacy_cap(budget: PrivacyBudget, rounds: int) -> float:
    """The zCDP that a contract allows in all: that of its rounds, or the job's cap if lower."""
    return min(budget.rho_cap, rounds * budget.rho_per_round)


def contract_of(
    deal: Deal,
    owner_key: str,
    curator_key: str,
    budget: PrivacyBudget,
    terms: JobTerms,
    records: int,
) -> Contract:
    """The contract that follows from a deal and the terms: what a curator offers, and what an owner
    expects.

    How many ``records`` the owner has counts where the protection's steps depend on it.
    """
    cap = privacy_cap(budget, terms.rounds)
    settings = terms.protection.contract_settings(records)
    clip, shards = settings.pop("clip", None), settings.pop("shards", None)
    return Contract(
        job=terms.job,
        owner=deal.owner,
        owner_key=owner_key,
        curator_key=curator_key,
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
        protects=budget.protects,
        whole_owner=terms.protection.whole_owner,
        simulated=budget.simulated,
        missed_rounds=terms.missed_rounds,
        minimum_share=terms.minimum_share,
        false_alarm=terms.false_alarm,
        offered_at=terms.offered_at,
        expires_at=terms.expires_at,
        nonce=nonce_of(terms.job, deal.owner),
    )


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
        self, deal: Deal, owner_key: str, budget: PrivacyBudget, terms: JobTerms, records: int
    ) -> Contract:
        """A contract on these terms; the same whenever it is asked for, so a job can resume."""
        return contract_of(deal, owner_key, self.public_key, budget, terms, records)

    def countersign(self, contract: Contract, owner_signature: str) -> SignedContract:
        """Sign what the owner has signed, if it has, and the offer still stands."""
        _refuse_expired(contract)
        signature = self._key.sign(CURATOR, contract)
        signed = SignedContract(contract, owner_signature, signature)
        signed.verify(contract.owner_key, self.public_key)
        return signed


class Owner:
    """An owner's desk: its key, its secrets, and the deal that it made with a curator."""

    def __init__(
        self, folder: Path, deal: Deal, secrets: Mapping[str, float], curator_key: str
    ) -> None:
        self.folder, self.deal, self._curator_key = folder, deal, curator_key
        self._key = KeyPair.obtain(folder)
        keep_secrets(folder, secrets)

    @property
    def public_key(self) -> str:
        """What others know it by."""
        return self._key.public_hex

    def accept(
        self, contract: Contract, budget: PrivacyBudget, terms: JobTerms, records: int
    ) -> str:
        """Sign a contract, if it is to the letter the one that was agreed; refuse any other."""
        agreed = contract_of(
            self.deal, self.public_key, self._curator_key, budget, terms, records
        ).to_dict()
        other = [name for name, value in contract.to_dict().items() if value != agreed[name]]
        if other:
            named = ", ".join(other)
            raise NoisemarketError(f"owner {self.deal.owner} refuses: it agreed to other {named}.")
        _refuse_expired(contract)
        return self._key.sign(OWNER, contract)

    def keep(self, signed: SignedContract) -> None:
        """Keep a copy of the contract, once the curator's signature holds."""
        try:
            signed.verify(self.public_key, self._curator_key)
        except BadSignature:
            message = f"owner {self.deal.owner} got no valid signature back."
            raise NoisemarketError(message) from None
        document = {
            "contract": signed.contract.to_dict(),
            "owner_signature": signed.owner_signature,
            "curator_signature": signed.curator_signature,
        }
        write_json(self.folder / "contract.json", document)

    def keep_statement(self, statement: PrivacyStatement, paid: int | None) -> None:
        """Keep what was given up, and what it brought."""
        document: dict[str, Any] = {
            **statement.to_dict(),
            "text": statement.text(),
            "paid_micro": paid,
        }
        write_json(self.folder / "statement.json", document)


def keep_secrets(folder: Path, secrets: Mapping[str, Any]) -> None:
    """Write an owner's secrets into its folder, for its owner alone; what is there stays."""
    place = folder / PRIVATE
    if not place.exists():
        write_json(place, dict(secrets), private=True)


def _refuse_expired(contract: Contract) -> None:
    if moment("expires_at", contract.expires_at) <= datetime.now(UTC):
        remedy = "the offer has expired: begin the job anew."
        raise BadInput("expires_at", contract.expires_at, remedy)


def owner_folder(parent: Path, name: str) -> Path:
    """A folder for an owner, whatever it is called."""
    safe = quote(name, safe="")
    if len(safe) > 100:
        safe = safe[:60] + "-" + hashlib.sha256(name.encode()).hexdigest()[:24]
    return parent / f"owner-{safe}"
