"""An accountant whose charges survive a crash: a file of lines that only grows.

The first line holds the job and the budgets, every further one the charges of one call, written and
forced to disk before the call returns. An unfinished line was therefore never acted upon, and does
not count; a complete one counts, even if the job was killed before the release.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from noisemarket.errors import BadInput
from noisemarket.files import Closing, JsonLines, read_json_lines
from noisemarket.privacy.accountant import Accountant, Charge
from noisemarket.privacy.statement import PrivacyBudget

_REMEDY = "it is not a privacy journal, or has to be restored from a backup."


class _Header(NamedTuple):
    job: str
    made_by: str
    budgets: tuple[PrivacyBudget, ...]


class JournalledAccountant(Closing, Accountant):
    """An accountant that keeps its charges in a file, and reads them from there after a crash.

    One process at a time may use a journal, and a forked child may not charge. A new journal starts
    with ``budgets``; an existing one must have the same job and exactly these budgets. Without
    budgets the journal must exist. ``made_by`` names versions and the kind of machine.

    Example:
        ::

            with JournalledAccountant("privacy.journal", [budget]) as accountant:
                accountant.charge("anna", round=1)
            print(read_journal("privacy.journal").statement("anna").text())
    """

    def __init__(
        self,
        path: str | Path,
        budgets: Iterable[PrivacyBudget] | None = None,
        job: str = "",
        made_by: str = "",
    ) -> None:
        self.path = Path(path)
        self.job, self.made_by = job, made_by
        """As the journal says, if it exists already."""
        new = budgets is not None
        self._file = JsonLines(self.path, "journal", "another job", create=new)
        try:
            self._resume(None if budgets is None else tuple(budgets))
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def _resume(self, budgets: tuple[PrivacyBudget, ...] | None) -> None:
        lines = self._file.read(_parse, _REMEDY)
        if not lines:  # new, or killed before the first line was whole
            said = [budget.to_dict() for budget in budgets or ()]
            header = {"job": self.job, "made_by": self.made_by, "budgets": said}
            if budgets is None or not json.dumps(header).encode().startswith(self._file.unfinished):
                raise BadInput("journal", str(self.path), "is not a privacy journal.")
            self._file.append(header)
            super().__init__(budgets)
            return
        (job, self.made_by, held), charges = _content(lines, self.path)
        if budgets is not None and job != self.job:
            raise BadInput("journal", str(self.path), "is of another job: give this job's own.")
        self.job = job
        if budgets is not None and budgets != held:
            remedy = "has other budgets: they are fixed before the job."
            raise BadInput("journal", str(self.path), remedy)
        super().__init__(held)
        self._enter(charges)

    def _store(self, charges: tuple[Charge, ...]) -> None:
        self._file.append([charge.to_row() for charge in charges])


def read_journal(path: str | Path) -> Accountant:
    """The account in a journal, which is neither locked nor changed."""
    lines = read_json_lines(Path(path), "journal", _parse, _REMEDY)
    header, charges = _content(lines, Path(path))
    accountant = Accountant(header.budgets)
    accountant._enter(charges)
    return accountant


def _parse(line: Any) -> _Header | list[Charge]:
    if isinstance(line, dict):
        budgets = tuple(PrivacyBudget.from_dict(one) for one in line["budgets"])
        return _Header(str(line.get("job", "")), str(line.get("made_by", "")), budgets)
    return [Charge.from_row(row) for row in line]


def _content(lines: list[_Header | list[Charge]], path: Path) -> tuple[_Header, list[Charge]]:
    header, *rest = lines or [[]]
    charges = [line for line in rest if not isinstance(line, _Header)]
    if not isinstance(header, _Header) or len(charges) < len(rest):
        raise BadInput("journal", str(path), "is not a privacy journal.")
    return header, [charge for line in charges for charge in line]
