"""An accountant whose charges survive a crash: a file of lines that only grows.

The first line holds the job and the budgets, every further one the charges of one call, written and
forced to disk before the call returns. A line cut short was therefore never acted upon, and is
dropped; a complete one counts, even if the job was killed before the release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import Closing, GrowingFile, unusable
from noisemarket.privacy.accountant import Accountant, Charge
from noisemarket.privacy.statement import PrivacyBudget


class JournalledAccountant(Closing, Accountant):
    """An accountant that keeps its charges in a file, and reads them from there after a crash.

    One process at a time may use a journal, and a forked child may not charge.

    Args:
        path: the journal.
        budgets: of the job's owners. A new journal starts with them; an existing one must have
            exactly these, as caps cannot change during a job. Without, the journal must exist.
        job: the job that is charged for. An existing journal must be of the same one.
        made_by: what makes the releases: versions and the kind of machine. A new journal keeps it.

    Raises:
        BadInput: the file is missing, in use, damaged, not a journal, of another job, or has other
            budgets.
        NoisemarketError: it cannot be written.

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
        """Of an existing journal, what it says."""
        self._process = os.getpid()
        new = budgets is not None
        self._file = GrowingFile(self.path, "journal", "another job", create=new)
        self._sound = False
        try:
            self._resume(None if budgets is None else tuple(budgets))
        except BaseException:
            self._file.close()
            raise
        self._sound = True

    def close(self) -> None:
        self._file.close()

    def _resume(self, budgets: tuple[PrivacyBudget, ...] | None) -> None:
        content = self._file.read()
        if b"\n" not in content:  # new, or killed before the first line was whole
            said = [budget.to_dict() for budget in budgets or ()]
            header = _line({"job": self.job, "made_by": self.made_by, "budgets": said})
            if budgets is None or not header.startswith(content):
                raise BadInput("journal", str(self.path), "is not a privacy journal.")
            self._file.cut(0)
            self._file.append(header)
            super().__init__(budgets)
            return
        (job, self.made_by), held, charges, whole = _parse(content, self.path)
        if budgets is not None and job != self.job:
            raise BadInput("journal", str(self.path), "is of another job: give this job's own.")
        self.job = job
        if budgets is not None and budgets != held:
            remedy = "has other budgets: they are fixed before the job."
            raise BadInput("journal", str(self.path), remedy)
        super().__init__(held)
        self._enter(charges)
        self._file.cut(whole)
        self._file.append(b"" if content[:whole].endswith(b"\n") else b"\n")

    def _keep(self, charges: tuple[Charge, ...]) -> None:
        if not self._sound or os.getpid() != self._process:
            raise NoisemarketError(f"{self.path}: open the journal again before charging more.")
        try:
            self._file.append(_line([charge.to_row() for charge in charges]))
        except BaseException:
            self._sound = False  # the file may end in half a line
            raise


def read_journal(path: str | Path) -> Accountant:
    """The account in a journal, which is neither locked nor changed.

    Raises:
        BadInput: the file cannot be read, is damaged, or is not a journal.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise unusable("journal", path, "used", problem) from None
    _, held, charges, _ = _parse(content, Path(path))
    accountant = Accountant(held)
    accountant._enter(charges)
    return accountant


def _parse(
    content: bytes, path: Path
) -> tuple[tuple[str, str], tuple[PrivacyBudget, ...], list[Charge], int]:
    """Job and what made it (empty if it does not say), budgets, charges, bytes in whole lines."""
    first, *lines = content.splitlines(keepends=True) or [b""]
    try:
        header = json.loads(first)
        budgets = tuple(PrivacyBudget.from_dict(one) for one in header["budgets"])
        about = str(header.get("job", "")), str(header.get("made_by", ""))
    except (ValueError, TypeError, KeyError):
        raise BadInput("journal", str(path), "is not a privacy journal.") from None
    charges: list[Charge] = []
    whole = len(first)
    for number, line in enumerate(lines, start=2):
        try:
            charges += [Charge.from_row(row) for row in json.loads(line)]
        except (ValueError, TypeError):
            if line.endswith(b"\n"):
                remedy = f"is damaged in line {number}: what was spent is unknown."
                raise BadInput("journal", str(path), remedy) from None
            break  # cut short by a crash: the charge was not acted upon
        whole += len(line)
    return about, budgets, charges, whole


def _line(document: object) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"
