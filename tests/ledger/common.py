"""A small job: keys, contracts, and every entry from its opening to its settlement."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract, Document
from noisemarket.ledger.keys import CURATOR, OWNER, KeyPair, SignedContract
from noisemarket.ledger.money import MICRO
from noisemarket.ledger.store import Ledger
from noisemarket.market.offers import Verdict

AnyDocument = TypeVar("AnyDocument", bound=Document)
NOW = "2030-01-02T00:00:00+00:00"


def key(name: str) -> KeyPair:
    """The key of this name: the same in every process, so that runs can be compared."""
    seed = hashlib.sha256(f"test key {name}".encode(errors="surrogatepass")).digest()
    return KeyPair(Ed25519PrivateKey.from_private_bytes(seed))


def contract(owner: str = "north", job: str = "job-1", **changes: Any) -> Contract:
    values: dict[str, Any] = {
        "job": job,
        "owner": owner,
        "owner_key": key(owner).public_hex,
        "curator_key": key("curator").public_hex,
        "saving": 0.1,
        "sigma": 0.5,
        "payment": 10 * MICRO,
        "protection": "sharded",
        "clip": 1.0,
        "shards": 64,
        "settings": {"steps": 2, "rate": 0.2, "channels": [16, 32]},
        "rounds": 3,
        "rho_per_round": 0.002,
        "rho_cap": 0.006,
        "epsilon": 0.51,
        "delta": 1e-5,
        "neighbours": "replace_one",
        "protects": "one record, replaced by any other",
        "false_alarm": 0.001,
        "offered_at": "2030-01-01T00:00:00+00:00",
        "expires_at": "2030-02-01T00:00:00+00:00",
        "nonce": "0",
    }
    return Contract(**{**values, **changes})


def changed(document: AnyDocument, **changes: Any) -> AnyDocument:
    """The same contract or receipt but for these fields."""
    kind = type(document)
    return kind(**{name: getattr(document, name) for name in kind.model_fields} | changes)


def sign(document: Contract) -> SignedContract:
    return SignedContract(
        document,
        key(document.owner).sign(OWNER, document),
        key("curator").sign(CURATOR, document),
    )


@dataclass(frozen=True)
class Job:
    """A job with contracts of which all rounds but the last owner's second come."""

    contracts: tuple[Contract, ...]
    budget: int = 10**9

    @staticmethod
    def of(owners: Sequence[str] = ("north", "south"), job: str = "job-1", **changes: Any) -> "Job":
        return Job(tuple(contract(owner, job, **changes) for owner in owners))

    @property
    def name(self) -> str:
        return self.contracts[0].job

    def opening(self) -> list[entries.NewEntry]:
        keys = {document.owner: document.owner_key for document in self.contracts}
        return [entries.opened(self.name, self.budget, key("curator").public_hex, keys)]

    def signing(self) -> list[entries.NewEntry]:
        offers = [entries.offered(document) for document in self.contracts]
        return [*offers, *(entries.signed(sign(document)) for document in self.contracts)]

    def rounds(self) -> list[entries.NewEntry]:
        return [
            entries.missed(document, number, "no upload")
            if document is self.contracts[-1] and number == 2
            else entries.delivered(document, number, statistic=1.5)
            for number in range(1, self.contracts[0].rounds + 1)
            for document in self.contracts
        ]

    def verdicts(self, broken: Sequence[str] = ()) -> list[Verdict]:
        return [
            Verdict(
                document,
                document.owner not in broken,
                document.rounds - (document is self.contracts[-1]),
                {"p_value": 0.25},
            )
            for document in self.contracts
        ]

    def begin(self, ledger: Ledger) -> None:
        """Everything up to the settlement."""
        for step in (self.opening(), self.signing(), self.rounds()):
            ledger.append(step)
