"""The curator's side of receipts: it issues them, and keeps what the owners have signed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from noisemarket.ledger.contract import Contract
from noisemarket.ledger.notes import check_holds
from noisemarket.ledger.receipts import Receipt
from noisemarket.ledger.store import Ledger
from noisemarket.market.offers import Curator
from noisemarket.runfolder import RunFolder

RECEIPTS = "receipts.jsonl"
"""The receipts with both signatures, a line each; of two of one contract and stage the last counts.
"""


class ReceiptBook:
    """The receipts of a job.

    Args:
        curator: who signs them.
        ledger: what they are about.
        folder: where those with both signatures are kept.
    """

    def __init__(self, curator: Curator, ledger: Ledger, folder: Path) -> None:
        self._curator, self._ledger, self._folder = curator, ledger, RunFolder(folder)

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
        """Hold the ledger against receipts that owners have.

        Raises:
            LedgerLost: the ledger lacks what this curator has signed.
        """
        seen = set()
        for receipt in receipts:
            if receipt.head not in seen and receipt.signed_by(self._curator.public_key):
                seen.add(receipt.head)
                noted_by = f"the receipt of owner {receipt.owner}"
                check_holds(self._ledger.backend, receipt.noted, noted_by)

    def keep(self, issued: Mapping[int, Receipt], returned: Mapping[int, Receipt]) -> None:
        """Keep what the owners have signed; a receipt of another head must be of this ledger.

        Raises:
            LedgerLost: an owner has a receipt of more than the ledger holds.
        """
        self.check(one for index, one in returned.items() if one.head != issued[index].head)
        lines = "".join(json.dumps(one.to_dict()) + "\n" for one in returned.values())
        self._folder.append(RECEIPTS, lines)
