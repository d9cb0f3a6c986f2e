"""An owner's wallet: what one set of records has cost over all jobs, within its budget.

zCDP adds up over jobs, also where each was chosen after the last. So a bound on the sum is a bound
on what all of them tell, whatever the curators do. A job's cost is **reserved** before the owner
signs, **spent** round by round before a release goes out, and what is left of it is **freed** at
settlement, or when nobody has come back to it for long. Reserved and spent together never pass the
budget, those of the owner's earlier sets of records included: a record may be in several.

The file only grows. A line is one operation with the whole account after it, the digest of the line
before and its own: an operation reads the last line, checks it, and adds one, whatever came before.
Beside it is a note of the last line (``.head``): a copy from earlier is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.files import JsonLines, exclusive, last_line, parse_json_lines, unusable
from noisemarket.formats import finite, infinite
from noisemarket.privacy.accountant import TOLERANCE, BudgetSpent, PrivacyBudget

FORMAT = 1
HELD = timedelta(days=30)
"""How long a signed job keeps its reservation without a round, and an unsigned one at most."""
AHEAD = timedelta(days=1)
"""How far a curator's clock may be ahead."""
MOST_OPEN = 100
"""Jobs with a reservation at once."""

RESERVE, HOLD, SPEND, FREE = "reserve", "hold", "spend", "free"


@dataclass(frozen=True)
class Reservation:
    """A job's part of the account. ``terms.rho_cap`` is reserved, ``until`` a time in UTC;
    ``release`` is the last one that was charged."""

    terms: PrivacyBudget
    until: str
    spent: float = 0.0
    rounds: int = 0
    last_round: int = 0
    releases: int = 0
    release: str = ""

    @property
    def taken(self) -> float:
        """What the job keeps from others."""
        return max(self.terms.rho_cap, self.spent)

    def to_row(self) -> list[Any]:
        numbers = [self.rounds, self.last_round, self.releases]
        return [self.terms.to_dict(), self.until, finite(self.spent), *numbers, self.release]

    @classmethod
    def from_row(cls, row: list[Any]) -> Reservation:
        terms, until, spent, *rest = row
        return cls(PrivacyBudget.from_dict(terms), str(until), infinite(spent), *rest)


@dataclass(frozen=True)
class Balance:
    """A wallet after so many operations. ``closed`` is what jobs that are over have cost."""

    number: int = 0
    head: str = ""
    jobs: int = 0
    closed: float = 0.0
    open: Mapping[str, Reservation] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Balance:
        """What a line of a wallet says."""
        rows = {name: Reservation.from_row(row) for name, row in line["open"].items()}
        closed = infinite(line["closed"])
        return cls(line["number"], line["digest"], line["jobs"], closed, rows)

    @property
    def spent(self) -> float:
        """The rho of all releases so far."""
        return math.fsum([self.closed, *(one.spent for one in self.open.values())])

    @property
    def reserved(self) -> float:
        """The rho that open jobs may still spend."""
        if any(math.isinf(one.taken) for one in self.open.values()):
            return math.inf
        return math.fsum(one.taken - one.spent for one in self.open.values())

    def left(self, budget: float, job: str = "") -> float:
        """What a job may reserve of a budget; its own reservation, if it has one, is part of it."""
        if math.isinf(budget):
            return math.inf
        others = (one.taken for name, one in self.open.items() if name != job)
        return max(0.0, budget - math.fsum([self.closed, *others]))

    def at(self, time: datetime) -> Balance:
        """Without the reservations that have lapsed by then."""
        account = self
        for name, one in self.open.items():
            if datetime.fromisoformat(one.until) <= time:
                account = account.without(name)
        return account

    def without(self, job: str) -> Balance:
        """With a job closed: what it has spent stays."""
        rest = dict(self.open)
        closed = self.closed + rest.pop(job).spent
        return replace(self, closed=closed, open=rest)

    def having(self, job: str, one: Reservation) -> Balance:
        return replace(self, open={**self.open, job: one})


@dataclass(frozen=True)
class Wallet:
    """The wallet of an owner for one set of records; any number of processes may use its file."""

    folder: Path
    owner: str
    records: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def path(self) -> Path:
        return self.folder / f"wallet-{self.records[:16]}.jsonl"

    def account(self) -> Balance:
        """What the wallet holds now. Nothing is locked or changed."""
        note, content = self._note(), b""  # the note first: the file may grow
        if self.path.exists():
            try:
                with self.path.open("rb") as file:
                    content = last_line(file)[1]
            except OSError as problem:
                raise unusable("wallet", self.path, "read", problem) from None
        lines = parse_json_lines(content, self.path, "wallet", dict)
        return self._account(lines, note).at(self.clock())

    def left(self, budget: float, job: str = "") -> float:
        """What a job may reserve of the owner's budget for all of its records."""
        return self.account().left(self._for_these(budget), job)

    def _for_these(self, budget: float) -> float:
        """What a budget leaves for these records, beside what the owner's others have taken."""
        others = self.folder.glob("wallet-*.jsonl") if math.isfinite(budget) else ()
        for line in (last_of(path) for path in others if path != self.path):
            if line is not None:
                other = replace(self, records=str(line.get("records"))).account()
                budget -= other.spent + other.reserved
        return max(0.0, budget)  # never minus infinity, which would be no limit

    def reserve(self, job: str, terms: PrivacyBudget, until: str, budget: float) -> None:
        """Set ``terms.rho_cap`` aside for a job, once; ``BudgetSpent`` if the ``budget`` is too
        small."""

        def change(now: Balance) -> Balance | None:
            if (known := now.open.get(job)) is not None:
                if known.terms != terms:
                    raise BadInput("job", job, "has a reservation on other terms.")
                return None
            left = now.left(self._for_these(budget))
            if terms.rho_cap > left * (1.0 + TOLERANCE):
                remedy = f"the job needs {terms.rho_cap:.6g}, and {left:.6g} is left for it."
                raise BudgetSpent("budget", budget, remedy)
            if len(now.open) >= MOST_OPEN:
                remedy = f"{MOST_OPEN} jobs have a reservation: settle some, or wait."
                raise BudgetSpent("jobs", len(now.open), remedy)
            one = Reservation(terms, min(until, self._lapse(), key=datetime.fromisoformat))
            return replace(now.having(job, one), jobs=now.jobs + 1)

        with exclusive(self.folder / "wallets", "wallet", "another job", wait=True):
            self._write(RESERVE, job, change, rho=terms.rho_cap)

    def hold(self, job: str) -> None:
        """Keep the reservation of a job that both sides have signed."""
        self._write(HOLD, job, lambda now: now.having(job, self._held(now, job)))

    def spend(self, job: str, number: int, release: str, rho: float) -> None:
        """Charge a release in a round, before it goes out; the last one again costs nothing."""

        def change(now: Balance) -> Balance | None:
            one = self._held(now, job)
            if one.release == release:
                return None
            spent = one.spent + rho
            if spent > one.terms.rho_cap * (1.0 + TOLERANCE):
                remedy = f"{one.spent:.6g} of it is spent, and a release costs {rho:.6g}."
                raise BudgetSpent("reservation", one.terms.rho_cap, remedy)
            one = replace(
                one,
                spent=spent,
                rounds=one.rounds + (number > one.last_round),
                last_round=max(number, one.last_round),
                releases=one.releases + 1,
                release=release,
            )
            return now.having(job, one)

        self._write(SPEND, job, change, round=number, release=release, rho=rho)

    def free(self, job: str) -> None:
        """Give back what is left of a job's reservation, if it still has one."""
        self._write(FREE, job, lambda now: now.without(job) if job in now.open else None)

    def history(self) -> Iterator[dict[str, Any]]:
        """Every line, one at a time, each checked against the one before."""
        previous, line = "", dict[str, Any]()
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                found = parse_json_lines(text, self.path, "wallet", dict)
                if not found:  # unfinished
                    break
                line = found[0]
                self._account([line], None, f"line {number}")
                if (line["number"], line["previous"]) != (number, previous):
                    raise self._wrong(f"has lost or changed line {number}: restore it.")
                previous = line["digest"]
                yield line

    def _held(self, now: Balance, job: str) -> Reservation:
        if job not in now.open:
            raise BudgetSpent("job", job, "has no reservation, or it has lapsed or was settled.")
        return replace(now.open[job], until=self._lapse())

    def _lapse(self) -> str:
        """When a reservation lapses that is made or kept now."""
        return (self.clock() + HELD).isoformat(timespec="milliseconds")

    def _write(
        self, did: str, job: str, change: Callable[[Balance], Balance | None], **more: Any
    ) -> None:
        """Add an operation, if it changes something. It is on disk when this returns."""
        if not self.path.exists():
            self.path.touch(mode=0o600)
        with JsonLines(self.path, "wallet", "another job", last=True, wait=True) as file:
            if file.unfinished and not b'{"wallet": '.startswith(file.unfinished[:11]):
                raise self._wrong("is not a wallet: restore it from a backup.")
            before = self._account(file.read(dict), self._note())
            time = self.clock()
            after = change(before.at(time))
            if after is None:
                return
            line = {
                "wallet": FORMAT,
                "owner": self.owner,
                "records": self.records,
                "number": before.number + 1,
                "at": time.isoformat(timespec="milliseconds"),
                "did": did,
                "job": job,
                **{name: finite(x) if name == "rho" else x for name, x in more.items()},
                "jobs": after.jobs,
                "closed": finite(after.closed),
                "open": {name: one.to_row() for name, one in after.open.items()},
                "previous": before.head,
            }
            line["digest"] = _digest(line)
            file.append(line)
            self._head.touch(mode=0o600)
            with self._head.open("r+b", buffering=0) as note:  # one write, as long as the last
                note.write(f"{line['number']:020d} {line['digest']}\n".encode())

    @property
    def _head(self) -> Path:
        return self.path.with_suffix(".head")

    def _note(self) -> tuple[int, str]:
        """Number and digest of the last line, as noted; a power cut may take the latest notes."""
        try:
            number, digest = self._head.read_text(encoding="ascii").split() or (0, "")
            return int(number), digest
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError):
            raise BadInput("wallet", str(self._head), "cannot be read: restore it.") from None

    def _account(
        self,
        lines: list[dict[str, Any]],
        note: tuple[int, str] | None,
        place: str = "its last line",
    ) -> Balance:
        """What the last of these lines says, if it is this owner's and not older than the note."""
        account = Balance()
        if lines:
            line = lines[-1]
            if line.get("wallet") != FORMAT:
                raise self._wrong(
                    "is no wallet of this version of noisemarket: use the one that wrote it."
                )
            if (line.get("owner"), line.get("records")) != (self.owner, self.records):
                raise self._wrong("is of another owner or of other records: restore its own.")
            content = {name: value for name, value in line.items() if name != "digest"}
            try:
                if line["digest"] != _digest(content):
                    raise ValueError
                account = Balance.of(line)
            except (BadInput, ValueError, TypeError, LookupError, AttributeError):
                raise self._wrong(f"is damaged in {place}: restore it.") from None
        if note is not None:
            number, digest = note
            if account.number < number or (account.number == number and account.head != digest):
                raise self._wrong(
                    f"has {account.number} entries and {number} were noted: it was put back to an "
                    "earlier state. Restore the latest."
                )
        return account

    def _wrong(self, remedy: str) -> BadInput:
        return BadInput("wallet", str(self.path), remedy)


def last_of(file: Path) -> dict[str, Any] | None:
    """The last line of a wallet, unchecked; None if it has none yet."""
    with file.open("rb") as opened:
        lines = parse_json_lines(last_line(opened)[1], file, "wallet", dict)
    return lines[-1] if lines else None


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
