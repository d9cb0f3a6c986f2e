"""Rounds that the ledger has, held against the checkpoint and the journal: none is made twice.

A round is charged in the journal, then begun on the ledger, then trained, then kept in the
checkpoint, then recorded. So a ledger that has more rounds than the checkpoint, or that has begun
one that the journal does not have, means that a file was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.federated.rounds import State
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import ROUND_KINDS, SETTLED
from noisemarket.ledger.store import Ledger
from noisemarket.market.begun_rounds import begun_rounds
from noisemarket.privacy.accountant import Accountant


def check_spent(
    ledger: Ledger,
    job: str,
    contracts: Mapping[int, Contract],
    state: State,
    accountant: Accountant,
    checkpoint: Path,
) -> None:
    """Refuse to train rounds that are on the ledger, unless all of their charges are known.

    With all charges known, a round is made again bit by bit, or not at all. After the settlement
    nothing is: the key of the noise is gone.

    Args:
        ledger: the ledger.
        job: the job.
        contracts: its contracts, by the owners' indices.
        state: where training stands by the checkpoint.
        accountant: what the journal says was charged.
        checkpoint: where the checkpoint should be, for the error.

    Raises:
        BadInput: a round would be released that the ledger has already.
    """
    one = next(iter(contracts.values()))  # every round has an entry for every contract
    rounds = (
        entry.content()["round"]
        for entry in ledger.entries(job, contract=one.id, kinds=ROUND_KINDS)
    )
    if (recorded := max(rounds, default=0)) <= state.rounds_done:
        _check_begun(ledger, job, state, accountant)
        return
    if any(True for _ in ledger.entries(job, kinds=[SETTLED])):
        remedy = f"lacks round {recorded} of a job that is settled: put it back; nothing is "
        remedy += "released twice."
        raise BadInput("checkpoint", str(checkpoint), remedy)
    owners = {contract.id: index for index, contract in contracts.items()}
    held = {(charge.owner, charge.round) for charge in accountant.charges}
    for entry in ledger.entries(job, kinds=ROUND_KINDS):
        said = entry.content()
        spent = said["rho"] != 0.0 and str(entry.contract) in owners
        if spent and (owners[str(entry.contract)], said["round"]) not in held:
            where = str(getattr(accountant, "path", "none"))
            remedy = f"lacks a charge of round {said['round']}, which the ledger has: put it back."
            raise BadInput("journal", where, remedy)
    _check_begun(ledger, job, state, accountant)


def _check_begun(ledger: Ledger, job: str, state: State, accountant: Accountant) -> None:
    """Refuse a journal without the charges of a round that was begun: uploads may have left."""
    begun = begun_rounds(ledger, job)
    for number in (one for one in begun if one > state.rounds_done):
        charged = {charge.owner for charge in accountant.charges if charge.round == number}
        if len(charged) < begun[number]["owners"]:
            where = str(getattr(accountant, "path", "none"))
            remedy = f"lacks charges of round {number}, which the ledger says was begun: put it "
            raise BadInput("journal", where, remedy + "back; nothing is released twice.")
