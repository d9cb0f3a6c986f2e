"""The rounds of a job on the ledger: that one begins, what came of it, and the verdicts at the end.

A round is charged in the journal, then begun on the ledger, then trained, then kept in the
checkpoint, then recorded. So a ledger that has more rounds than the checkpoint, or that has begun
one that the journal does not have, means that a file was lost: none is made twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.federated.rounds import RoundResult, State
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import BEGUN, ROUND_KINDS, SETTLED
from noisemarket.ledger.settlement import Verdict
from noisemarket.ledger.store import Ledger
from noisemarket.market.inspection import SAME_NOISE, UploadInspector
from noisemarket.privacy.accountant import Accountant, JournalledAccountant
from noisemarket.privacy.statement import OwnerId


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
    """Round by round a line for every contract: delivered, missed or refused, and at what cost.

    A round that had to be made again with other noise has cost more than once.
    """
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
        found.append(Verdict(contract.id, kept, came[owner], evidence))
    return found
