"""The curator as a party to contracts: draw up, sign, record, give receipts, and settle once.

For an app of one's own, whose owners train under
``flower.client_mod``, there are ``draft_clipped`` and ``record_contracts``: the curator sends the
draft to the owner, the owner signs it (``OwnerAgent.accept_without_game``) and sends its signature
back, and the curator records it, where the app of the curator finds it.

A round is charged in the journal, then begun on the ledger, then trained, then kept in the
checkpoint, then recorded. So a ledger that has more rounds than the checkpoint, or that has begun
one that the journal does not have, means that a file was lost: none is made twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.federated.aggregation import COUNT_CAP
from noisemarket.federated.columns import Description
from noisemarket.federated.protections import Sharded
from noisemarket.federated.rounds import RoundResult, State
from noisemarket.files import JsonLines, read_json_lines
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract, moment
from noisemarket.ledger.entries import (
    BEGUN,
    ROUND_KINDS,
    SETTLED,
    Head,
    NewEntry,
    broken,
    paid,
    settled,
    verified,
)
from noisemarket.ledger.keys import CURATOR, KeyPair, SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.ledger.store import Ledger
from noisemarket.market.inspection import SAME_NOISE, UploadInspector
from noisemarket.market.orders import weight_cap_of
from noisemarket.owner.terms import contract_of
from noisemarket.privacy.accountant import Accountant, JournalledAccountant, OwnerId
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of


def countersign(key: KeyPair, contract: Contract, owner_signature: str) -> SignedContract:
    """Sign, as the curator of this key, what the owner has signed."""
    refuse_expired(contract)
    signed = SignedContract(contract, owner_signature, key.sign(CURATOR, contract))
    signed.verify(contract.owner_key, key.public_hex)
    return signed


def work_of(
    scenario: Scenario, owners: int, description: Description | None = None
) -> dict[str, Any]:
    """What the contracts of a scenario's job say beyond the trade (``terms.WORK``)."""
    protection, market, privacy = protection_of(scenario), scenario.market, scenario.privacy
    return {
        "rounds": scenario.training.rounds,
        "protection": protection.name,
        "settings": protection.settings(),
        "neighbours": privacy.neighbours,
        "delta": privacy.delta,
        "simulated": privacy.noise == "simulated",
        "false_alarm": market.false_alarm,
        "weight_cap": weight_cap_of(scenario.training, owners),
        "count_cap": COUNT_CAP,
        **({"description": description.sha256} if description else {}),
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
    false_alarm: float = 1e-3,
    valid_hours: float = 24.0,
    simulated: bool = False,
) -> Contract:
    """A draft for an owner whose app trains a model of its own, protected as a single shard.

    The owner leaves ``saving`` of its noise out, keeps ``sigma``, and is paid for the whole job, in
    micro-units. ``parameters`` counts the trained numbers of the model, ``false_alarm`` is the
    chance that any honest owner of the job is found in breach, and ``simulated`` noise comes from a
    seed: it is not private. Every delivered round is paid: one that was cut off costs the owner a
    second release, and so its last round.
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
        "protection": Sharded.name,
        "settings": {"clip": clip},
        "rounds": rounds,
        "neighbours": neighbours,
        "delta": delta,
        "simulated": simulated,
        "false_alarm": false_alarm,
        "weight_cap": None,
        "count_cap": None,
        "offered_at": offered,
        "expires_at": expires,
    }
    budget = Sharded(clip=clip).budget(
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
    """Countersign a job's contracts, each with its owner's signature, and record them once.
    ``budget`` is the most that the job may cost, in micro-units."""
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

    def __init__(self, curator: KeyPair, ledger: Ledger, folder: Path) -> None:
        self._curator, self._ledger, self._path = curator, ledger, folder / RECEIPTS

    def issue(
        self, contracts: Mapping[int, Contract], stage: str, paid: Mapping[int, int] | None = None
    ) -> dict[int, Receipt]:
        """A receipt for each of these contracts, of what the ledger holds now."""
        head, amounts = self._ledger.head(), paid or {}
        return {
            index: Receipt.of(self._curator, contract, stage, head, amounts.get(index))
            for index, contract in contracts.items()
        }

    def check(self, noted: Iterable[tuple[Head, str]]) -> None:
        """Hold the ledger against heads that owners were shown, and the receipts kept here."""
        if self._path.exists():
            remedy = "restore the file, or remove the line."
            self._hold(read_json_lines(self._path, "receipts", Receipt.from_dict, remedy))
        for head, noted_by in dict(noted).items():
            self._ledger.check_holds(head, noted_by)

    def _hold(self, receipts: Iterable[Receipt]) -> None:
        seen = set()
        for receipt in receipts:
            if receipt.head not in seen and receipt.signed_by(self._curator.public_hex):
                seen.add(receipt.head)
                noted_by = f"the receipt of owner {receipt.owner}"
                self._ledger.check_holds(receipt.noted, noted_by)

    def keep(self, issued: Mapping[int, Receipt], returned: Mapping[int, Receipt]) -> None:
        """Keep on disk what owners have signed; another head must be of this ledger."""
        self._hold(one for index, one in returned.items() if one.head != issued[index].head)
        with JsonLines(self._path, "receipts", "another market") as file:
            file.append(*(one.to_dict() for one in returned.values()))


class RoundBeginning:
    """Begins the rounds of a job on the ledger; one that was cut off begins once."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self._ledger, self._job = ledger, job
        begun = (entry.content() for entry in ledger.entries(job, kinds=[BEGUN]))
        self._known = {int(one["round"]): one for one in begun}

    def begin(self, number: int, owners: Collection[int]) -> None:
        """Say that a round begins, which was charged to these owners."""
        if number not in self._known:
            new = entries.begun(self._job, number, len(owners))
            self._known[number] = self._ledger.append([new])[0].content()

    def check_spent(
        self,
        contracts: Mapping[int, Contract],
        state: State,
        accountant: JournalledAccountant,
        checkpoint: Path,
    ) -> None:
        """Refuse to train rounds that are on the ledger, unless all of their charges are known.

        With all charges known, a round is made again bit by bit, or not at all. After the
        settlement nothing is: the key of the noise is gone. ``state`` is what the checkpoint says.
        """
        job, journal, ledger = self._job, str(accountant.path), self._ledger
        first = next(iter(contracts.values()))  # every round has an entry for every contract
        outcomes = ledger.entries(job, contracts=[first.id], kinds=ROUND_KINDS)
        recorded = max((entry.content()["round"] for entry in outcomes), default=0)
        charged = {(charge.owner, charge.round) for charge in accountant.charges}
        if recorded > state.rounds_done:
            if any(True for _ in ledger.entries(job, kinds=[SETTLED])):
                remedy = (
                    f"lacks round {recorded} of a job that is settled: put it back; nothing is "
                    "released twice."
                )
                raise BadInput("checkpoint", str(checkpoint), remedy)
            owners = {contract.id: index for index, contract in contracts.items()}
            for entry in ledger.entries(job, kinds=ROUND_KINDS):
                said, owner = entry.content(), owners.get(str(entry.contract))
                spent = said["rho"] != 0.0 and owner is not None
                if spent and (owner, said["round"]) not in charged:
                    number = said["round"]
                    remedy = f"lacks a charge of round {number}, which the ledger has: put it back."
                    raise BadInput("journal", journal, remedy)
        charges = Counter(number for _, number in charged)
        for number, said in self._known.items():
            if number > state.rounds_done and charges[number] < said["owners"]:
                remedy = (  # uploads may have left
                    f"lacks charges of round {number}, which the ledger says was begun: put it "
                    "back; nothing is released twice."
                )
                raise BadInput("journal", journal, remedy)


Refusals = Iterable[tuple[int, str]]
"""Owners whose uploads did not count in a round, and why."""


def round_entries(
    contracts: Mapping[int, Contract], accountant: Accountant, results: Sequence[RoundResult]
) -> Iterator[list[entries.NewEntry]]:
    """Per round a line for every contract: delivered, missed or refused, and its total cost."""
    charged: dict[tuple[OwnerId, int], list[float]] = {}
    for charge in accountant.charges:
        charged.setdefault((charge.owner, charge.round), []).append(charge.rho)
    for result in results:
        number, came, why = result.number, set(result.delivered), dict(result.refused)
        lines = []
        for owner, contract in contracts.items():
            rho = math.fsum(charged.get((owner, number), ()))
            if owner in came:
                lines.append(entries.delivered(contract, number, rho))
            elif why.get(owner) == "missing":
                lines.append(entries.missed(contract, number, "no upload came", rho))
            elif owner in why:
                lines.append(entries.refused(contract, number, why[owner], rho))
            else:
                lines.append(entries.missed(contract, number, "took no part", rho))
        yield lines


def verdicts(
    contracts: Mapping[int, Contract],
    rounds: Iterable[tuple[Collection[int], Refusals]],
    watch: UploadInspector,
) -> list[Verdict]:
    """The verdict on each contract, from the owners that delivered or were refused per round."""
    came, spoilt = (dict.fromkeys(contracts, 0) for _ in range(2))
    for delivered, refused in rounds:
        for owner in delivered:
            came[owner] += 1
        for owner, reason in refused:
            spoilt[owner] += reason not in ("missing", SAME_NOISE)
    found = []
    for owner, contract in contracts.items():
        kept, evidence = owner not in watch.accused, watch.evidence(owner)
        if kept and 2 * spoilt[owner] > contract.rounds:
            kept, evidence = False, {"reason": f"malformed uploads in {spoilt[owner]} rounds"}
        found.append(Verdict(contract, kept, came[owner], evidence))
    return found


@dataclass(frozen=True)
class Verdict:
    """The curator's finding about one signed contract, with its evidence."""

    contract: Contract
    kept: bool
    delivered: int
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def payment(self) -> int:
        """What is due, in micro-units."""
        return self.contract.owed(self.delivered) if self.kept else 0


def settle(
    ledger: Ledger, job: str, verdicts: Sequence[Verdict], *, batch: int | None = None
) -> None:
    """Verify, then pay or break, every signed contract of the job; then close the job.

    Idempotent, also in several processes at once; other verdicts raise ``LedgerConflict``, and so
    does a contract without one. ``batch`` is the number of contracts in a transaction, by default
    all.
    """
    size = batch or max(1, len(verdicts))
    steps = [verdicts[first : first + size] for first in range(0, max(1, len(verdicts)), size)]
    kept, total = sum(one.kept for one in verdicts), sum(one.payment for one in verdicts)
    for step in steps:
        lines: list[NewEntry] = []
        for one in step:
            lines.append(verified(one.contract, one.kept, one.delivered, one.evidence))
            if one.kept:
                lines.append(paid(one.contract, one.delivered))
            else:
                lines.append(broken(one.contract, one.evidence))
        if step is steps[-1]:
            lines.append(settled(job, total, kept, len(verdicts) - kept))
        ledger.append(lines)
