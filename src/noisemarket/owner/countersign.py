"""What an owner does with a receipt: it checks, signs and keeps it, or shows a later one."""

from __future__ import annotations

from noisemarket.ledger.contract import Contract
from noisemarket.ledger.receipts import Receipt
from noisemarket.owner.folder import Declined, OwnerFolder


def countersigned(folder: OwnerFolder, receipt: Receipt, contract: Contract, stage: str) -> Receipt:
    """The receipt with the owner's signature, kept.

    Args:
        folder: the owner's.
        receipt: what the curator gives.
        contract: what it must be about.
        stage: the stage that it must be of.

    Returns:
        The receipt; or, if the owner has one of a later or another state of the ledger, that one:
        the curator's ledger was put back.

    Raises:
        Declined: it is about something else, or the curator has not signed it.
    """
    if not receipt.is_of(contract, stage):
        raise Declined("the receipt is not of this contract")
    if not receipt.signed_by(contract.curator_key):
        raise Declined("the curator's signature does not hold")
    new = receipt.noted
    for held in folder.receipts(contract.job):
        if not held.signed_by(contract.curator_key):
            continue  # somebody else wrote that file
        if held.noted.count > new.count or (held.noted.count == new.count and held.noted != new):
            return held
    signed = receipt.countersigned(folder.key)
    folder.keep_receipt(signed)
    return signed
