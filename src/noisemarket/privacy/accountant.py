"""Privacy accounting: the zCDP that each owner has given up, added over rounds, under a cap.

A contract fixes a budget, an account adds up charges, a statement says what was spent.

The order is: ask ``may_start``, ``charge``, and only then release. So no release goes uncounted. A
resumed job that releases new bits is charged again, unless it releases the very same ones and says
so by the same release id. The cap is a filter, compared with what has been charged.

A journal holds an account on disk: its first line the job and the budgets, every further one the
charges of one call, forced to disk before the call returns. An unfinished line was never acted
upon, and does not count; a complete one counts, even if the job was killed before the release.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from noisemarket.errors import BadInput
from noisemarket.files import Closing, JsonLines, read_json_lines
from noisemarket.formats import finite, infinite, plain
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon, gaussian_rho, zcdp_epsilon

OwnerId = int | str


@dataclass(frozen=True)
class PrivacyBudget:
    """The privacy terms that an owner's contract fixes before the job.

    ``sensitivity`` includes the rounding of the noise grid; it is infinite where the protection
    bounds nothing. ``rho_cap`` is what all releases may cost together.
    """

    owner: OwnerId
    protection: str
    sigma: float
    sensitivity: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    protects: str = "one record"
    delta: float = 1e-5
    rho_cap: float = math.inf
    simulated: bool = False

    def __post_init__(self) -> None:
        if not self.rho_cap >= 0.0:
            raise BadInput("rho_cap", self.rho_cap, "give a number that is not negative.")
        gaussian_epsilon(self.rho_per_round, self.delta)  # refuses values out of range

    @cached_property
    def rho_per_round(self) -> float:
        """What one release costs; infinite where nothing is guaranteed."""
        return gaussian_rho(self.sensitivity, self.sigma)

    @property
    def noise_multiplier(self) -> float:
        """Sigma / sensitivity, often called z."""
        return self.sigma / self.sensitivity if self.sensitivity else math.inf

    def to_dict(self) -> dict[str, Any]:
        return plain(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyBudget:
        numbers = {name: infinite(values[name]) for name in ("sigma", "sensitivity", "rho_cap")}
        neighbours = Neighbours.named(values["neighbours"])
        return cls(**{**values, **numbers, "neighbours": neighbours})


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy that one owner has spent so far, as text and as JSON.

    ``releases`` exceeds ``rounds`` when a round was run again. ``epsilon`` is exact,
    ``epsilon_general`` the tight bound for any zCDP mechanism. ``protects`` is None where nothing
    is bounded.
    """

    owner: OwnerId
    protection: str
    sigma: float
    noise_multiplier: float
    rho_per_round: float
    rounds: int
    releases: int
    rho_total: float
    rho_cap: float
    delta: float
    epsilon: float
    epsilon_general: float
    neighbours: Neighbours
    protects: str | None
    guaranteed: bool
    simulated: bool

    @classmethod
    def of(
        cls, budget: PrivacyBudget, total: float, rounds: int, releases: int
    ) -> PrivacyStatement:
        """That so many releases have cost ``total`` under these terms."""
        bounded = math.isfinite(total + budget.rho_per_round)
        return cls(
            owner=budget.owner,
            protection=budget.protection,
            sigma=budget.sigma,
            noise_multiplier=budget.noise_multiplier,
            rho_per_round=budget.rho_per_round,
            rounds=rounds,
            releases=releases,
            rho_total=total,
            rho_cap=budget.rho_cap,
            delta=budget.delta,
            epsilon=gaussian_epsilon(total, budget.delta),
            epsilon_general=zcdp_epsilon(total, budget.delta),
            neighbours=budget.neighbours,
            protects=budget.protects if bounded else None,
            guaranteed=bounded and not budget.simulated,
            simulated=budget.simulated,
        )

    def to_dict(self) -> dict[str, Any]:
        return plain(asdict(self))

    def text(self) -> str:
        released = f"{_counted(self.releases, 'upload')} in {_counted(self.rounds, 'round')}"
        first = f"Owner {self.owner}, protection {self.protection}, noise sigma {self.sigma:g}, "
        return " ".join([f"{first}{released}.", *privacy_sentences(self.to_dict())])


def privacy_sentences(stated: Mapping[str, Any]) -> list[str]:
    """The plain values of a statement, by an account or on a contract, in words."""
    times = stated.get("noise_multiplier")
    if stated["protects"] is None or stated["rho_per_round"] is None or stated["rho_total"] is None:
        why = "what was released has too little noise"
        if stated["sigma"] == 0.0:
            why = "no noise is added"
        elif not times:
            why = "no bound on what a record changes"
        out = [f"Nothing is guaranteed: {why}."]
    else:
        cap = "no cap" if stated["rho_cap"] is None else f"a cap of {stated['rho_cap']:.4g}"
        noise = f"The noise is {times:.4g} times the sensitivity: rho" if times else "Privacy: rho"
        out = [
            f"Hidden: {stated['protects']} (neighbours: {stated['neighbours']}).",
            f"{noise} {stated['rho_per_round']:.4g} a round, {stated['rho_total']:.4g} so far, "
            f"with {cap}.",
            f"That is epsilon {stated['epsilon']:.4g} at delta {stated['delta']:g}, exactly; at "
            f"most {stated['epsilon_general']:.4g} by the bound for any zCDP mechanism.",
        ]
    if stated["simulated"]:
        out.append(
            "NOT PRIVATE: noise from a fixed seed. Figures are those of secure noise of this size; "
            "anyone with the seed can remove this noise."
        )
    return out


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


TOLERANCE = 1e-12
"""Relative: thirty times rho/30 may come out a rounding error above rho."""
_REMEDY = "it is not a privacy journal, or has to be restored from a backup."


class BudgetSpent(BadInput):
    """A release would take an owner over the cap that was fixed before the job."""


@dataclass(frozen=True)
class Charge:
    """One release in a round; ``release_id`` is equal for the same bits released again."""

    owner: OwnerId
    round: int
    rho: float
    release_id: str

    def __post_init__(self) -> None:
        if self.round < 1:
            raise BadInput("round", self.round, "count rounds from 1.")
        if not self.rho >= 0.0:
            raise BadInput("rho", self.rho, "give a number that is not negative.")

    def to_row(self) -> list[Any]:
        return [self.owner, self.round, finite(self.rho), self.release_id]

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Charge:
        owner, number, rho, release_id = row
        return cls(owner, int(number), infinite(rho), str(release_id))


class Accountant:
    """Adds up zCDP per owner, and refuses what would pass an owner's cap.

    Every owner has one budget; methods raise ``BadInput`` for an owner without one.

    Example:
        >>> budget = PrivacyBudget("anna", "sharded", sigma=0.3, sensitivity=0.03, rho_cap=0.01)
        >>> accountant = Accountant([budget])
        >>> accountant.charge("anna", round=1)
        True
        >>> accountant.may_start("anna")
        True
    """

    def __init__(self, budgets: Iterable[PrivacyBudget]) -> None:
        self._budgets: dict[OwnerId, PrivacyBudget] = {}
        for budget in budgets:
            if budget.owner in self._budgets:
                raise BadInput("owner", budget.owner, "has two budgets: give each owner one.")
            self._budgets[budget.owner] = budget
        self._charged: dict[OwnerId, dict[tuple[int, str], float]] = {o: {} for o in self._budgets}

    @property
    def budgets(self) -> tuple[PrivacyBudget, ...]:
        return tuple(self._budgets.values())

    @property
    def charges(self) -> tuple[Charge, ...]:
        return tuple(
            Charge(owner, number, rho, release_id)
            for owner, costs in self._charged.items()
            for (number, release_id), rho in costs.items()
        )

    def spent(self, owner: OwnerId) -> float:
        """The rho charged to an owner so far; rounded once, so the order does not matter."""
        return math.fsum(self._costs(owner).values())

    def may_start(self, owner: OwnerId, rho: float | None = None) -> bool:
        """Whether one more release (by default of the contract's cost) stays within the cap."""
        cost = self._budget(owner).rho_per_round if rho is None else rho
        return self._fits(owner, [Charge(owner, 1, cost, "").rho])

    def charged(self, owner: OwnerId, round: int, release_id: str) -> bool:
        """Whether this very release has been paid for, so that its bits may go out again."""
        return (round, release_id) in self._costs(owner)

    def charge(
        self, owner: OwnerId, round: int, rho: float | None = None, release_id: str | None = None
    ) -> bool:
        """Charge one release, before it goes out, and say whether it was new.

        The same ``release_id`` for this owner and round costs nothing more; without one it is new.
        """
        return bool(self.charge_all([self._charge(owner, round, rho, release_id)]))

    def charge_all(self, charges: Iterable[Charge]) -> tuple[Charge, ...]:
        """Charge the releases of a round together, all or none; give those that were new."""
        new: dict[tuple[OwnerId, int, str], Charge] = {}
        for charge in charges:
            known = self._costs(charge.owner).get((charge.round, charge.release_id))
            if known is None:
                name = (charge.owner, charge.round, charge.release_id)
                known = new.setdefault(name, charge).rho
            if known != charge.rho:
                raise BadInput("release_id", charge.release_id, "was charged at another rho.")
        by_owner: dict[OwnerId, list[Charge]] = {}
        for charge in new.values():
            by_owner.setdefault(charge.owner, []).append(charge)
        for owner, its_charges in by_owner.items():
            costs = [charge.rho for charge in its_charges]
            if not self._fits(owner, costs):
                more = math.fsum(costs)
                remedy = (
                    f"owner {owner} has spent {self.spent(owner):.6g} and cannot pay {more:.6g} "
                    "more; end the job here or go on without this owner."
                )
                raise BudgetSpent("rho_cap", self._budget(owner).rho_cap, remedy)
        added = tuple(new.values())
        if added:
            self._store(added)
            self._enter(added)
        return added

    def statement(self, owner: OwnerId) -> PrivacyStatement:
        entries = self._costs(owner)
        rounds = len({number for number, _ in entries})
        return PrivacyStatement.of(self._budget(owner), self.spent(owner), rounds, len(entries))

    def _store(self, charges: tuple[Charge, ...]) -> None:
        """Store the charges. Once this returns they count and the releases may go out."""

    def _enter(self, charges: Iterable[Charge]) -> None:
        for charge in charges:
            self._costs(charge.owner)[charge.round, charge.release_id] = charge.rho

    def _charge(
        self, owner: OwnerId, number: int, rho: float | None, release_id: str | None
    ) -> Charge:
        cost = self._budget(owner).rho_per_round if rho is None else rho
        return Charge(owner, number, cost, release_id or secrets.token_hex(16))

    def _fits(self, owner: OwnerId, more: Iterable[float]) -> bool:
        cap = self._budget(owner).rho_cap
        if math.isinf(cap):
            return True
        costs = *self._costs(owner).values(), *more
        return math.fsum(costs) <= cap * (1.0 + TOLERANCE)

    def _budget(self, owner: OwnerId) -> PrivacyBudget:
        if owner not in self._budgets:
            raise BadInput("owner", owner, "has no privacy budget in this job.")
        return self._budgets[owner]

    def _costs(self, owner: OwnerId) -> dict[tuple[int, str], float]:
        return self._charged[self._budget(owner).owner]


class _Header(NamedTuple):
    job: str
    made_by: str
    budgets: tuple[PrivacyBudget, ...]


class JournalledAccountant(Closing, Accountant):
    """An accountant that keeps its charges in a file, and reads them from there after a crash.

    One process at a time may use a journal, and a forked child may not charge. A new journal starts
    with ``budgets``; an existing one must have the same job and exactly these budgets. ``made_by``
    names versions and the kind of machine.

    Example:
        ::

            with JournalledAccountant("privacy.journal", [budget]) as accountant:
                accountant.charge("anna", round=1)
            print(read_journal("privacy.journal").statement("anna").text())
    """

    def __init__(
        self,
        path: str | Path,
        budgets: Iterable[PrivacyBudget],
        job: str = "",
        made_by: str = "",
    ) -> None:
        self.path = Path(path)
        self.job, self.made_by = job, made_by
        """As the journal says, if it exists already."""
        self._file = JsonLines(self.path, "journal", "another job")
        try:
            self._resume(tuple(budgets))
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def _resume(self, budgets: tuple[PrivacyBudget, ...]) -> None:
        lines = self._file.read(_parse, _REMEDY)
        if not lines:  # new, or killed before the first line was whole
            said = [budget.to_dict() for budget in budgets]
            header = {"job": self.job, "made_by": self.made_by, "budgets": said}
            if not json.dumps(header).encode().startswith(self._file.unfinished):
                raise BadInput("journal", str(self.path), "is not a privacy journal.")
            self._file.append(header)
            super().__init__(budgets)
            return
        (job, self.made_by, held), charges = _content(lines, self.path)
        if job != self.job:
            raise BadInput("journal", str(self.path), "is of another job: give this job's own.")
        if budgets != held:
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
