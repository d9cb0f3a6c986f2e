"""Heads that are kept outside of a ledger, and a ledger held against them.

A ledger that is lost, or put back to an older state, looks like one that never came so far. Whoever
goes on with it does everything again, paying included. So the curator notes the head in a file of
its own after every transaction, and a ledger that lacks a noted head is refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.files import write_json
from noisemarket.ledger.backend import LedgerBackend
from noisemarket.ledger.entries import Head
from noisemarket.ledger.ledger_errors import LedgerLost


def check_holds(backend: LedgerBackend, head: Head, noted_by: str) -> None:
    """Refuse a ledger that does not hold the entry that a head names.

    Args:
        backend: where the ledger is kept.
        head: what was noted.
        noted_by: who or what noted it, for the error.

    Raises:
        LedgerLost: it does not.
    """
    if head.count == 0:
        return
    found = next(iter(backend.entries(after=head.count - 1, until=head.count)), None)
    if found is None or found.hash != head.hash:
        raise lost(backend.name, head, noted_by)


def lost(ledger: str, head: Head, noted_by: str) -> LedgerLost:
    """What to say about a ledger that lacks a noted head."""
    return LedgerLost(
        f"ledger {ledger} lacks entry {head.count}, which {noted_by} noted: it was lost or put "
        "back, and going on would pay again; put a backup that holds this entry in its place, and "
        "run again."
    )


class HeadNote:
    """The head of a ledger in a file of the curator's.

    Args:
        path: the file. It appears with the first head that is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Head | None:
        """What was noted last; None if nothing was yet.

        Raises:
            BadInput: the file cannot be read.
        """
        try:
            said = str(json.loads(self.path.read_text(encoding="utf-8"))["head"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            said = ""
        if not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", said):
            remedy = 'cannot be read: put it back, or write {"head": "COUNT:HASH"} by hand.'
            raise BadInput("noted head", str(self.path), remedy)
        count, _, digest = said.partition(":")
        return Head(int(count), digest)

    def keep(self, head: Head, ledger: str) -> None:
        """Note a head; it is on disk when this returns."""
        write_json(self.path, {"ledger": ledger, "head": str(head)})
