"""The golden scenarios by name: each gives the records that are compared with its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.golden import recording

ALONE = ("clock", "per_record", "dypp", "bisection", "auction", "paper")
FLOWER, MESSAGES = "flower", "flower-messages"
CASES = (*ALONE, FLOWER)

Records = dict[str, dict[str, Any]]


def records(case: str, folder: Path) -> Records:
    """Run a case in an empty folder; gives a record for each of its golden files."""
    if case in ALONE:
        return {case: recording.run(case, folder)}
    from tests.golden import over_flower

    outcome, messages = over_flower.run("clock", folder)
    return {FLOWER: outcome, MESSAGES: messages}
