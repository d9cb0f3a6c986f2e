"""Reading a ledger that exists, named as a user names it: run folder, file or URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.ledger.ledger_errors import LedgerError
from noisemarket.ledger.sql_backend import LEDGER_FILE
from noisemarket.ledger.store import Ledger, open_ledger


@contextmanager
def reading(where: str) -> Iterator[Ledger]:
    """An existing ledger; damage is reported in one sentence.

    Args:
        where: a run folder, a ledger file, or a URL.

    Raises:
        BadInput: there is no ledger.
        LedgerError: what is asked of it cannot be read.
    """
    if "://" not in where:
        folder = Path(where)
        if url := _elsewhere(folder / "market.json"):
            where = url
        elif folder.is_dir() and not (folder / LEDGER_FILE).is_file():
            raise BadInput("ledger", where, f"this folder has no {LEDGER_FILE}.")
        elif not folder.is_dir() and not folder.is_file():
            remedy = "does not exist: name a run folder, a ledger file or a URL."
            raise BadInput("ledger", where, remedy)
    with open_ledger(where, create=False) as ledger:
        try:
            yield ledger
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            damaged = f"ledger {ledger.name} is damaged: see noisemarket ledger verify."
            raise LedgerError(damaged) from None


def _elsewhere(manifest: Path) -> str:
    """The URL of a run's ledger, from its manifest; empty if it is in the run folder."""
    if not manifest.is_file():
        return ""
    try:
        return str(json.loads(manifest.read_text(encoding="utf-8"))["ledger"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise BadInput("ledger", str(manifest), "cannot be read: name the ledger itself.") from None
