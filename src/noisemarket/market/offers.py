"""The curator as a party to contracts: draw up, sign, record, and give receipts.

``Curator`` does it for a market's job. For an app of one's own, whose owners train under
``flower.client_mod``, there are ``draft_clipped`` and ``record_contracts``: the curator sends the
draft to the owner, the owner signs it (``OwnerAgent.accept_without_game``) and sends its signature
back, and the curator records it, where ``flower.strategy`` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.federated.protections import Clipped
from noisemarket.files import JsonLines, read_json_lines
from noisemarket.ledger import entries
from noisemarket.ledger.contract import PRO_RATA, Contract, moment
from noisemarket.ledger.entries import Head
from noisemarket.ledger.keys import CURATOR, KeyPair, SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.owner.terms import contract_of
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of


class Curator:
    """The curator as a party to contracts. Of owners it knows name and public key."""

    def __init__(self, folder: Path) -> None:
        self._key = KeyPair.obtain(folder)

    @property
    def public_key(self) -> str:
        """What others know it by."""
        return self._key.public_hex

    def ledger(self, where: str, note: Path) -> Ledger:
        """A ledger that this curator seals, and whose head it notes in a file."""
        return open_ledger(where, curator=self._key, note=note)

    def countersign(self, contract: Contract, owner_signature: str) -> SignedContract:
        """Sign what the owner has signed."""
        refuse_expired(contract)
        signature = self._key.sign(CURATOR, contract)
        signed = SignedContract(contract, owner_signature, signature)
        signed.verify(contract.owner_key, self.public_key)
        return signed

    def receipt(self, contract: Contract, stage: str, head: Head, paid: int | None) -> Receipt:
        """A signed receipt for the owner of a contract."""
        return Receipt.of(self._key, contract, stage, head, paid)


def work_of(scenario: Scenario) -> dict[str, Any]:
    """What the contracts of a scenario's job say beyond the trade (``terms.WORK``)."""
    protection, market, privacy = protection_of(scenario), scenario.market, scenario.privacy
    return {
        "rounds": scenario.training.rounds,
        "protection": protection.name,
        "settings": protection.settings(),
        "neighbours": privacy.neighbours,
        "delta": privacy.delta,
        "simulated": privacy.noise == "simulated",
        "missed_rounds": market.missed_rounds,
        "minimum_share": market.minimum_share,
        "false_alarm": market.false_alarm,
    }


def refuse_expired(contract: Contract) -> None:
    """Refuse a contract that nobody may sign any more."""
    if moment("expires_at", contract.expires_at) <= datetime.now(UTC):
        raise BadInput("expires_at", contract.expires_at, "has passed: start a new job.")


def record(ledger: Ledger, signed: Iterable[SignedContract]) -> None:
    """Put contracts on the ledger, each as offered and as signed. Nothing is recorded twice."""
    lines = []
    for one in signed:
        lines += [entries.offered(one.contract), entries.signed(one)]
    ledger.append(lines)


def draft_clipped(
    job: str,
    owner: str,
    owner_key: str,
    curator_key: str,
    *,
    saving: float,
    sigma: float,
    payment: int,
    clip: float,
    parameters: int,
    rounds: int,
    delta: float = 1e-5,
    neighbours: str = "replace_one",
    missed_rounds: str = PRO_RATA,
    minimum_share: float = 0.5,
    false_alarm: float = 1e-3,
    valid_hours: float = 24.0,
    simulated: bool = False,
) -> Contract:
    """A draft for an owner whose app trains a model of its own, protected by ``clipped``.

    The owner leaves ``saving`` of its noise out, keeps ``sigma``, and is paid for the whole job, in
    micro-units. ``parameters`` counts the trained numbers of the model, ``false_alarm`` is the
    chance that any honest owner of the job is found in breach, and ``simulated`` noise comes from a
    seed: it is not private. Below a ``minimum_share`` of the rounds nothing is paid.
    """
    now = datetime.now(UTC)
    offered, expires = (
        when.isoformat(timespec="milliseconds")
        for when in (now, now + timedelta(hours=valid_hours))
    )
    stated = {
        "job": job,
        "owner": owner,
        "owner_key": owner_key,
        "curator_key": curator_key,
        "saving": saving,
        "sigma": sigma,
        "payment": payment,
        "protection": Clipped.name,
        "settings": {"clip": clip},
        "rounds": rounds,
        "neighbours": neighbours,
        "delta": delta,
        "simulated": simulated,
        "missed_rounds": missed_rounds,
        "minimum_share": minimum_share,
        "false_alarm": false_alarm,
        "offered_at": offered,
        "expires_at": expires,
    }
    budget = Clipped(clip).budget(
        owner,
        sigma,
        dimension=parameters,
        records=1,
        neighbours=Neighbours.named(neighbours),
        delta=delta,
        simulated=simulated,
    )
    return contract_of(stated, budget, records=1)


def record_contracts(
    ledger: Ledger, curator: KeyPair, budget: int, accepted: Sequence[tuple[Contract, str]]
) -> None:
    """Countersign a job's contracts, each with its owner's signature, and put them on the ledger.

    ``budget`` is the most that the job may cost, in micro-units. Nothing is recorded twice.
    """
    if not accepted:
        raise BadInput("accepted", 0, "give at least one contract.")
    keys = {contract.owner: contract.owner_key for contract, _ in accepted}
    if len(keys) < len(accepted):
        raise BadInput("accepted", len(accepted), "give one contract for each owner.")
    ledger.append([entries.opened(accepted[0][0].job, budget, curator.public_hex, keys)])
    signed = (SignedContract(one, mark, curator.sign(CURATOR, one)) for one, mark in accepted)
    record(ledger, signed)


RECEIPTS = "receipts.jsonl"
"""The receipts with both signatures, a line each; of two of one contract and stage the last counts.
A line that a killed process left unfinished is cut off before the next one is added."""


class ReceiptBook:
    """The receipts of a job; those with both signatures are kept in the folder."""

    def __init__(self, curator: Curator, ledger: Ledger, folder: Path) -> None:
        self._curator, self._ledger, self._path = curator, ledger, folder / RECEIPTS

    def issue(
        self, contracts: Mapping[int, Contract], stage: str, paid: Mapping[int, int] | None = None
    ) -> dict[int, Receipt]:
        """A receipt for each of these contracts, of what the ledger holds now."""
        head, amounts = self._ledger.head(), paid or {}
        return {
            index: self._curator.receipt(contract, stage, head, amounts.get(index))
            for index, contract in contracts.items()
        }

    def check(self, receipts: Iterable[Receipt]) -> None:
        """Hold the ledger against receipts that owners have, and against those kept here."""
        self._hold([*self.kept(), *receipts])

    def kept(self) -> list[Receipt]:
        """The receipts with both signatures."""
        if not self._path.exists():
            return []
        remedy = "restore the file, or remove the line."
        return read_json_lines(self._path, "receipts", Receipt.from_dict, remedy)

    def _hold(self, receipts: Iterable[Receipt]) -> None:
        seen = set()
        for receipt in receipts:
            if receipt.head not in seen and receipt.signed_by(self._curator.public_key):
                seen.add(receipt.head)
                noted_by = f"the receipt of owner {receipt.owner}"
                self._ledger.check_holds(receipt.noted, noted_by)

    def keep(self, issued: Mapping[int, Receipt], returned: Mapping[int, Receipt]) -> None:
        """Keep what the owners have signed; a receipt of another head must be of this ledger.

        It is on disk when this returns.
        """
        self._hold(one for index, one in returned.items() if one.head != issued[index].head)
        with JsonLines(self._path, "receipts", "another market") as file:
            file.append(*(one.to_dict() for one in returned.values()))
