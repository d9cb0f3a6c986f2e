"""A round begins: said on the ledger when it is charged, before anything of it is released.

A round is charged in the journal, then begun on the ledger, then trained, then kept in the
checkpoint, then recorded. So a ledger that has more rounds than the checkpoint, or that has begun
one that the journal does not have, means that a file was lost: none is made twice. And the digest
of the directions along which uploads will be judged is on the ledger, and with the owners, before
there is an upload to choose them by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Weights
from noisemarket.federated.reference import Directions, directions_digest
from noisemarket.federated.rounds import State
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import BEGUN, ROUND_KINDS, SETTLED
from noisemarket.ledger.store import Ledger
from noisemarket.owner.own_standing import directions_in, keep_directions
from noisemarket.privacy.journal import JournalledAccountant

Rows = NDArray[np.float32]


def begun_rounds(ledger: Ledger, job: str) -> dict[int, dict[str, Any]]:
    """What the ledger says of every round that was begun, by its number."""
    said = (entry.content() for entry in ledger.entries(job, kinds=[BEGUN]))
    return {int(one["round"]): one for one in said}


class RoundBeginning:
    """Begins the rounds of a job on the ledger, and fixes the directions of each in a folder.

    ``tell`` is given a round's number and the digest of its directions, empty if there are none.
    """

    def __init__(
        self,
        ledger: Ledger,
        job: str,
        directions: Directions | None,
        folder: Path,
        tell: Callable[[int, str], None],
    ) -> None:
        self._ledger, self._job, self._folder, self._tell = ledger, job, folder, tell
        self._known = begun_rounds(ledger, job)
        self.directions = None if directions is None else FixedDirections(directions)

    def begin(self, number: int, weights: Weights, owners: Collection[int]) -> None:
        """Say that a round begins. One that was cut off begins once, with the same directions.

        Raises:
            BadInput: the directions of a round that was cut off cannot be had again.
        """
        reference = None if self.directions is None else self._fixed(number, weights)
        if number in self._known:
            if self._known[number]["reference"] != reference:
                remedy = f"lacks the directions that round {number} began with: put it back."
                raise BadInput("reference", str(self._folder), remedy)
        else:
            new = entries.begun(self._job, number, len(owners), reference)
            self._known[number] = self._ledger.append([new])[0].content()
        self._tell(number, reference or "")

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
        outcomes = ledger.entries(job, contract=first.id, kinds=ROUND_KINDS)
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

    def kept(self) -> Iterator[tuple[int, Rows]]:
        """The directions of all rounds that were begun."""
        for number in sorted(self._known):
            if self.directions is not None and (rows := self._of(number)) is not None:
                yield number, rows

    def _fixed(self, number: int, weights: Weights) -> str:
        """The digest of a round's directions, which are kept."""
        assert self.directions is not None
        if number in self._known and (rows := self._of(number)) is not None:
            self.directions.fix(weights, rows)  # made on another machine, they may differ in a bit
        else:
            rows = self.directions.fix(weights)
            keep_directions(self._folder, number, rows)
        return directions_digest(rows)

    def _of(self, number: int) -> Rows | None:
        return directions_in(self._folder, number)


class FixedDirections:
    """Directions that are computed once in a round, and are then the same for all who ask."""

    def __init__(self, directions: Directions) -> None:
        self._directions = directions
        self._at: bytes | None = None
        self._rows = np.zeros((0, 0), np.float32)

    def __len__(self) -> int:
        return len(self._directions)

    def fix(self, weights: Weights, rows: Rows | None = None) -> Rows:
        """The directions from this global model: those that are given, or computed now."""
        self._rows = self._directions.at(weights) if rows is None else rows
        self._at = weights.tobytes()
        return self._rows

    def at(self, weights: Weights) -> Rows:
        """The directions from this global model."""
        return self._rows if weights.tobytes() == self._at else self.fix(weights)
