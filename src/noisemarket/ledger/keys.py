"""Ed25519: keys that stay in their owner's folder, and the two signatures under a contract."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from noisemarket.errors import BadInput, BadSignature
from noisemarket.files import (
    open_atomic,
    private_folder,
    read_private,
    refuse_open,
    remove_unfinished,
    unusable,
)
from noisemarket.ledger.contract import Contract

KEY_FILE = "signing-key.pem"
PRIVATE = "private.json"
"""What else a party keeps secret, beside its key."""

OWNER = "owner"
CURATOR = "curator"
_ANEW = "make a new key"
_DOMAIN = b"noisemarket contract v1\0"


class KeyPair:
    """One party's signing key. It is never printed, pickled or written outside its folder."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_hex = private.public_key().public_bytes_raw().hex()

    @classmethod
    def create(cls, folder: str | Path, known: KeyPair | None = None) -> KeyPair:
        """Create a key in a folder that only its owner may enter: a new one, or one ``known``."""
        path = Path(folder) / KEY_FILE
        private = Ed25519PrivateKey.generate() if known is None else known._private
        text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            private_folder(path.parent)
            refuse_open(path.parent, "key", _ANEW)
        except OSError as problem:
            raise unusable("key", path, "written", problem) from None
        try:
            with open_atomic(path, private=True, replace=False) as file:
                file.write(text)
        except FileExistsError:
            raise BadInput("key", str(path), "exists already: load it.") from None
        return cls(private)

    @classmethod
    def load(cls, folder: str | Path) -> KeyPair:
        path = Path(folder) / KEY_FILE
        text = read_private(path, "key", _ANEW)
        with contextlib.suppress(OSError):  # of a process that was killed right after it wrote it
            remove_unfinished(path)
        try:
            private = load_pem_private_key(text, password=None)
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise BadInput("key", str(path), "is not an Ed25519 key.")
        return cls(private)

    @classmethod
    def obtain(cls, folder: str | Path, lasting: str | Path | None = None) -> KeyPair:
        """The key in a folder; if there is none yet, that in the folder ``lasting``, or a new
        one."""
        path = Path(folder) / KEY_FILE
        if not path.exists():
            try:
                return cls.create(folder, None if lasting is None else cls.obtain(lasting))
            except BadInput:
                if not path.exists():
                    raise  # else another process made it just now
        return cls.load(folder)

    def sign(self, role: str, contract: Contract) -> str:
        """Sign a contract as ``OWNER`` or ``CURATOR``; gives the signature in hexadecimal."""
        key = {OWNER: contract.owner_key, CURATOR: contract.curator_key}.get(role)
        if key is None:
            raise BadInput("role", role, f"choose one of: {OWNER}, {CURATOR}.")
        if key != self.public_hex:
            raise BadSignature(f"this key is not the {role}'s of contract {contract.id[:12]}.")
        return self._private.sign(_message(role, contract)).hex()

    def seal(self, purpose: str, document: bytes) -> str:
        """This party's signature, in hexadecimal, under a document that is not a contract."""
        return self._private.sign(_seal_message(purpose, document)).hex()

    def __repr__(self) -> str:
        return f"KeyPair({self.public_hex})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a private key does not leave its owner's process")


@dataclass(frozen=True)
class SignedContract:
    """A contract with both signatures."""

    contract: Contract
    owner_signature: str
    curator_signature: str

    def verify(self, expected_owner_key: str, expected_curator_key: str) -> None:
        """Raise ``BadSignature`` unless exactly these two keys, known from elsewhere, signed it."""
        contract = self.contract
        for role, expected, named, signature in (
            (OWNER, expected_owner_key, contract.owner_key, self.owner_signature),
            (CURATOR, expected_curator_key, contract.curator_key, self.curator_signature),
        ):
            if named != expected:
                raise BadSignature(
                    f"contract {contract.id[:12]} names another key as the {role}'s: {named[:16]}."
                )
            if not holds(role, contract, signature):
                raise BadSignature(f"contract {contract.id[:12]} is not signed by its {role}.")


def holds(role: str, contract: Contract, signature: str) -> bool:
    """Whether this is the signature of the contract by the key that it names for this role."""
    key = contract.owner_key if role == OWNER else contract.curator_key
    return _holds(key, _message(role, contract), signature)


def seal_is_valid(purpose: str, document: bytes, key: str, seal: str) -> bool:
    """Whether this is the seal of the document, for this purpose, by this public key."""
    return _holds(key, _seal_message(purpose, document), seal)


def _holds(key: str, message: bytes, signature: str) -> bool:
    try:
        if signature != signature.lower() or len(signature) != 128:
            return False
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError, TypeError, AttributeError):
        return False
    return True


def _message(role: str, contract: Contract) -> bytes:
    """What is signed: no other kind of document, role or version can have the same bytes."""
    return _DOMAIN + role.encode() + b"\0" + contract.bytes()


def _seal_message(purpose: str, document: bytes) -> bytes:
    return b"noisemarket seal v1\0" + purpose.encode() + b"\0" + document
