"""The curator's side of receipts: it issues them, and keeps what the owners have signed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.files import GrowingFile, unusable
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
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise unusable("receipts", self._path, "read", problem) from None
        found = []
        for number, line in enumerate(content[: _whole(content)].splitlines(), start=1):
            try:
                found.append(Receipt.from_json(line.decode()))
            except (BadInput, UnicodeDecodeError):
                remedy = f"line {number} is not a receipt: put the file back, or remove the line."
                raise BadInput("receipts", str(self._path), remedy) from None
        return found

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
        lines = "".join(json.dumps(one.to_dict()) + "\n" for one in returned.values())
        with GrowingFile(self._path, "receipts", "another market") as file:
            content = file.read()
            if (whole := _whole(content)) < len(content):
                file.cut(whole)
            file.append(lines.encode())


def _whole(content: bytes) -> int:
    """How many bytes are whole lines."""
    return content.rfind(b"\n") + 1
