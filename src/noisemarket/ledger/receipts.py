"""Receipts: what the curator signs for an owner at signing and at settlement, with the head.

A head pins everything up to it, so with a receipt an owner can prove, against the curator itself,
what the ledger held. The owner signs it, too: the curator can then prove that the owner had it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput, BadSignature
from noisemarket.files import unusable
from noisemarket.ledger.canonical import canonical
from noisemarket.ledger.contract import Contract, is_key
from noisemarket.ledger.entries import SETTLED, SIGNED, Head
from noisemarket.ledger.keys import KeyPair, sealed

STAGES = (SIGNED, SETTLED)
_BY_CURATOR, _BY_OWNER = "receipt", "receipt, countersigned"
_MOST = 10_000  # characters of a receipt


@dataclass(frozen=True)
class Receipt:
    """What a ledger holds about a contract, signed by the curator and then by the owner.

    Args:
        job: the job.
        owner: the owner's name.
        contract: the contract's id.
        stage: ``signed`` or ``settled``.
        paid: what was paid, in micro-units; None before the settlement, and for a broken contract.
        head: the ledger's head, as count:hash.
        curator_key: the curator's public key.
        owner_key: the owner's public key.
        curator_signature: empty until the curator has signed.
        owner_signature: empty until the owner has signed.
    """

    job: str
    owner: str
    contract: str
    stage: str
    paid: int | None
    head: str
    curator_key: str
    owner_key: str
    curator_signature: str = ""
    owner_signature: str = ""

    @classmethod
    def of(
        cls, curator: KeyPair, contract: Contract, stage: str, head: Head, paid: int | None = None
    ) -> Receipt:
        """A new receipt, signed by the curator."""
        keys = contract.curator_key, contract.owner_key
        new = cls(contract.job, contract.owner, contract.id, stage, paid, str(head), *keys)
        return replace(new, curator_signature=curator.seal(_BY_CURATOR, new.bytes()))

    def bytes(self) -> bytes:
        """What both sign: canonical JSON, without the signatures."""
        values = asdict(self)
        del values["curator_signature"], values["owner_signature"]
        return canonical(values).encode()

    @property
    def noted(self) -> Head:
        """The head, as count and hash."""
        return Head.parse(self.head)

    def countersigned(self, owner: KeyPair) -> Receipt:
        """With the owner's signature."""
        return replace(self, owner_signature=owner.seal(_BY_OWNER, self.bytes()))

    def check(self, curator_key: str, *, owner: bool = False) -> None:
        """Check that this curator has signed; with ``owner``, that the owner has, too.

        Raises:
            BadSignature: one of them has not.
        """
        if not self.signed_by(curator_key):
            raise BadSignature(f"the receipt of {self.owner} is not signed by the curator.")
        if owner and not sealed(_BY_OWNER, self.bytes(), self.owner_key, self.owner_signature):
            raise BadSignature(f"the receipt of {self.owner} is not signed by the owner.")

    def signed_by(self, curator_key: str) -> bool:
        """Whether this curator has signed, and is the one that is named."""
        holds = sealed(_BY_CURATOR, self.bytes(), curator_key, self.curator_signature)
        return holds and self.curator_key == curator_key

    def is_of(self, contract: Contract, stage: str) -> bool:
        """Whether this is about that contract and stage, and names its keys."""
        said = (self.job, self.owner, self.contract, self.curator_key, self.owner_key, self.stage)
        keys = contract.curator_key, contract.owner_key
        return said == (contract.job, contract.owner, contract.id, *keys, stage)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> Receipt:
        """The receipt of what ``to_dict`` gave; its signatures are not checked.

        Raises:
            BadInput: it is not a receipt.
        """
        if not isinstance(values, dict) or set(values) != {one.name for one in fields(cls)}:
            raise BadInput("receipt", "the file", "give exactly the keys of a receipt.")
        paid = values["paid"]
        texts = [value for name, value in values.items() if name != "paid"]
        sound = all(isinstance(text, str) and len(text) <= _MOST for text in texts)
        sound = sound and values["stage"] in STAGES
        sound = sound and is_key(values["curator_key"]) and is_key(values["owner_key"])
        sound = sound and (paid is None or (type(paid) is int and 0 <= paid < 2**53))
        wrong = BadInput("receipt", str(values["head"])[:80], "is not that of a receipt.")
        if not sound:
            raise wrong
        try:
            Head.parse(values["head"])
        except ValueError:
            raise wrong from None
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """The receipt of a JSON text, as ``from_dict``."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise BadInput("receipt", "the text", "give a receipt in JSON.") from None
        return cls.from_dict(values)


def load_receipt(path: str | Path) -> Receipt:
    """The receipt in a file.

    Raises:
        BadInput: the file cannot be read, or holds no receipt.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        shown = problem if isinstance(problem, OSError) else OSError("is not text")
        raise unusable("receipt", path, "read", shown) from None
    try:
        return Receipt.from_json(text)
    except BadInput:
        raise BadInput("receipt", str(path), "is not a receipt: give one of an owner.") from None
