"""What can go wrong with contracts and the ledger.

NoisemarketError
`-- LedgerError          the ledger cannot be reached, read or written
    |-- BadSignature     a contract or receipt is not signed by the right key
    |-- LedgerLost       the ledger lacks what was noted elsewhere: it was lost or put back
    |-- LedgerConflict   an entry contradicts what the ledger holds already
    |   `-- OverBudget   a contract or payment would pass the job's budget
    `-- LedgerBroken     verification failed: names the first bad entry
BadInput
`-- NoLedger             there is no ledger where one was named
"""

from __future__ import annotations

from noisemarket.errors import BadInput, NoisemarketError


class LedgerError(NoisemarketError):
    """The ledger cannot be reached, read or written."""


class BadSignature(LedgerError):
    """A contract or a receipt is not signed by the right key."""


class LedgerLost(LedgerError):
    """The ledger lacks a head that was noted elsewhere: it was lost, or put back."""


class NoLedger(BadInput):
    """There is no ledger where one was named. The value has no password in it."""


class LedgerConflict(LedgerError):
    """An entry contradicts what the ledger holds already; nothing was written."""


class OverBudget(LedgerConflict):
    """A contract or a payment would pass the job's budget; nothing was written."""


class LedgerBroken(LedgerError):
    """Verification failed. ``seq`` is the first bad entry; None where no single one is to blame."""

    def __init__(self, seq: int | None, reason: str) -> None:
        self.seq = seq
        self.reason = reason
        subject = "the ledger" if seq is None else f"entry {seq}"
        super().__init__(f"verification failed: {subject} {reason}")
