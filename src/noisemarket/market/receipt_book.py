"""The curator's side of receipts: it issues them, and keeps what the owners have signed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from noisemarket.files import JsonLines, read_json_lines
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.receipts import Receipt
from noisemarket.ledger.store import Ledger
from noisemarket.market.offers import Curator

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
        """Hold the ledger against receipts that owners have, and against those kept here.

        Raises:
            LedgerLost: the ledger lacks what this curator has signed.
            BadInput: the receipts that are kept cannot be read.
        """
        self._hold([*self.kept(), *receipts])

    def kept(self) -> list[Receipt]:
        """The receipts with both signatures.

        Raises:
            BadInput: a line cannot be read.
        """
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

        Raises:
            LedgerLost: an owner has a receipt of more than the ledger holds.
            NoisemarketError: it cannot be written.
        """
        self._hold(one for index, one in returned.items() if one.head != issued[index].head)
        with JsonLines(self._path, "receipts", "another market") as file:
            file.append(*(one.to_dict() for one in returned.values()))
