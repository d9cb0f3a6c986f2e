"""Seals: with every batch of entries the curator signs the whole chain up to there.

A seal is an entry of its own, the last of its transaction. Its signature covers its number, job and
time and the hash before it, and with that every entry so far. So whoever changes an entry and makes
all hashes fit again needs the curator's key; one signature serves any number of entries, and
verification stays as fast as hashing.
"""

from __future__ import annotations

from noisemarket.ledger.canonical import canonical
from noisemarket.ledger.entries import SEALED, Entry, Head, entry_hash
from noisemarket.ledger.keys import KeyPair, sealed

LEDGER_SEAL = "ledger"
"""What the signature of a seal is for; no other document can have the same bytes."""


def seal_entry(curator: KeyPair, head: Head, job: str, at: str) -> Entry:
    """The entry with which a job's curator seals the chain that ends in this head."""
    seq = head.count + 1
    signature = curator.seal(LEDGER_SEAL, _document(seq, job, at, head.hash))
    chained = (seq, job, SEALED, None, None, canonical({"signature": signature}), at, head.hash)
    return Entry(*chained, entry_hash(*chained))


def seal_holds(entry: Entry, signature: str, curator_key: str) -> bool:
    """Whether this is the signature of this public key under all up to this entry."""
    document = _document(entry.seq, entry.job, entry.recorded_at, entry.previous)
    return sealed(LEDGER_SEAL, document, curator_key, signature)


def _document(seq: int, job: str, at: str, previous: str) -> bytes:
    return canonical([seq, job, at, previous]).encode()
