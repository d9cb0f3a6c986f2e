"""A round begins: said on the ledger when it is charged, before anything of it is released.

A round is charged in the journal, then begun on the ledger, then trained, then kept in the
checkpoint, then recorded. So a ledger that has more rounds than the checkpoint, or that has begun
one that the journal does not have, means that a file was lost: none is made twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.federated.rounds import State
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import BEGUN, ROUND_KINDS, SETTLED
from noisemarket.ledger.store import Ledger
from noisemarket.privacy.accountant import JournalledAccountant


def begun_rounds(ledger: Ledger, job: str) -> dict[int, dict[str, Any]]:
    """What the ledger says of every round that was begun, by its number."""
    said = (entry.content() for entry in ledger.entries(job, kinds=[BEGUN]))
    return {int(one["round"]): one for one in said}


class RoundBeginning:
    """Begins the rounds of a job on the ledger; one that was cut off begins once."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self._ledger, self._job = ledger, job
        self._known = begun_rounds(ledger, job)

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

        Raises:
            BadInput: a round would be released that the ledger has already.
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
