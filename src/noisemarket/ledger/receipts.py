"""Receipts: the curator's signature, for an owner, under what the ledger held at a head.

With one an owner can prove it against the curator; the owner's own signature proves receipt. Of
every upload there is a receipt as well (``UploadReceipt``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from noisemarket.errors import BadInput, BadSignature
from noisemarket.files import digest, read_text
from noisemarket.ledger.contract import Amount, Contract, Document, PublicKey, canonical
from noisemarket.ledger.entries import Head
from noisemarket.ledger.keys import KeyPair, seal_is_valid

_BY_CURATOR, _BY_OWNER, _UPLOAD = "receipt", "receipt, countersigned", "receipt of an upload"
_SIGNATURES = {"curator_signature", "owner_signature"}
Text = Annotated[str, Field(max_length=10_000)]


def _head(text: str) -> str:
    Head.parse(text)
    return text


class Receipt(Document):
    """What a ledger holds about a contract, signed by the curator and then by the owner."""

    job: Text
    owner: Text
    contract: Text
    """The contract's id."""
    stage: Literal["signed", "settled"]
    paid: Amount | None
    """None before the settlement, and for a broken contract."""
    head: Annotated[str, AfterValidator(_head)]
    """The ledger's head, as count:hash."""
    curator_key: PublicKey
    owner_key: PublicKey
    curator_signature: Text = ""
    """Empty until the curator has signed."""
    owner_signature: Text = ""
    """Empty until the owner has signed."""

    @classmethod
    def of(
        cls, curator: KeyPair, contract: Contract, stage: str, head: Head, paid: int | None = None
    ) -> Receipt:
        stated: dict[str, Any] = {
            "job": contract.job,
            "owner": contract.owner,
            "contract": contract.id,
            "stage": stage,
            "paid": paid,
            "head": str(head),
            "curator_key": contract.curator_key,
            "owner_key": contract.owner_key,
        }
        new = cls(**stated)
        return new.model_copy(update={"curator_signature": curator.seal(_BY_CURATOR, new.bytes())})

    def bytes(self) -> bytes:
        """What both sign: canonical JSON, without the signatures."""
        return canonical(self.model_dump(exclude=_SIGNATURES)).encode()

    @property
    def noted(self) -> Head:
        return Head.parse(self.head)

    def countersigned(self, owner: KeyPair) -> Receipt:
        return self.model_copy(update={"owner_signature": owner.seal(_BY_OWNER, self.bytes())})

    def check(self, curator_key: str, *, owner: bool = False) -> None:
        """Check that this curator has signed; with ``owner``, that the owner has, too."""
        if not self.signed_by(curator_key):
            raise BadSignature(f"the receipt of {self.owner} is not signed by the curator.")
        if owner and not seal_is_valid(
            _BY_OWNER, self.bytes(), self.owner_key, self.owner_signature
        ):
            raise BadSignature(f"the receipt of {self.owner} is not signed by the owner.")

    def signed_by(self, curator_key: str) -> bool:
        """Whether this curator has signed, and is the one that is named."""
        holds = seal_is_valid(_BY_CURATOR, self.bytes(), curator_key, self.curator_signature)
        return holds and self.curator_key == curator_key

    def is_of(self, contract: Contract, stage: str) -> bool:
        """Whether this is about that contract and stage, and names its keys."""
        said = (self.job, self.owner, self.contract, self.curator_key, self.owner_key, self.stage)
        keys = contract.curator_key, contract.owner_key
        return said == (contract.job, contract.owner, contract.id, *keys, stage)


class UploadReceipt(Document):
    """Which upload of an owner came last, in the curator's word before a round or the settlement.

    An owner that sent a later one knows then that the curator denies it.
    """

    contract: Text
    before: Annotated[int, Field(ge=1)]
    """The round that begins; at the settlement, one more than the contract has."""
    round: Annotated[int, Field(ge=0)]
    """The round of the upload; 0 if none has come."""
    digest: Text
    """The upload's ``upload_digest``; empty if none has come."""
    signature: Text = ""
    """The curator's."""

    @classmethod
    def of(
        cls, curator: KeyPair, contract: str, before: int, number: int, digest: str
    ) -> UploadReceipt:
        new = cls(contract=contract, before=before, round=number, digest=digest)
        return new.model_copy(update={"signature": curator.seal(_UPLOAD, new.bytes())})

    def bytes(self) -> bytes:
        """What the curator signs."""
        return canonical(self.model_dump(exclude={"signature"})).encode()

    def is_of(self, contract: Contract, before: int) -> bool:
        """Whether the curator of this contract has signed it before this round."""
        named = (self.contract, self.before) == (contract.id, before)
        return named and seal_is_valid(_UPLOAD, self.bytes(), contract.curator_key, self.signature)


def upload_digest(upload: NDArray[Any]) -> str:
    """What tells an upload from every other."""
    form = f"{upload.dtype.str} {upload.shape}".encode()
    return digest(form, np.ascontiguousarray(upload).tobytes()).hex()


def load_receipt(path: str | Path) -> Receipt:
    """The receipt in a file."""
    text = read_text("receipt", path)
    try:
        return Receipt.from_dict(json.loads(text))
    except (ValueError, RecursionError, BadInput):
        raise BadInput("receipt", str(path), "is not a receipt: give one of an owner.") from None
