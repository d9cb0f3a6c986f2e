"""What happens in a market, as it happens: one stream that everything else reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisemarket.federated.rounds import RoundResult


@dataclass(frozen=True)
class Event:
    """Something that happened in a job. What was recorded is in the ledger before it is told."""


@dataclass(frozen=True)
class Opened(Event):
    """The job is on the ledger. ``resumed`` says that it had been begun before."""

    job: str
    owners: int
    rounds: int
    budget: int | None
    resumed: bool


@dataclass(frozen=True)
class Negotiated(Event):
    """Every pair has played. ``agreed`` deals are within the budget, ``over_budget`` are not."""

    owners: int
    agreed: int
    over_budget: int
    total: int
    seconds: float


@dataclass(frozen=True)
class Signed(Event):
    """A contract carries both signatures. Amounts are in micro-units, epsilon is at its delta."""

    owner: str
    contract: str
    saving: float
    sigma: float
    payment: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class LeftOut(Event):
    """An owner was away, declined or gave unusable answers before it signed: it takes no part."""

    owner: str
    reason: str


@dataclass(frozen=True)
class RoundTrained(Event):
    """A round is over, delivered uploads are recorded. ``result`` counts rounds from 1."""

    result: RoundResult
    rounds: int


@dataclass(frozen=True)
class Accused(Event):
    """An upload was not what the contract says: refused, and the contract will not be paid."""

    owner: str
    round: int
    reason: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Verified(Event):
    """The curator's finding about a whole contract."""

    owner: str
    contract: str
    kept: bool
    delivered: int
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Paid(Event):
    """A contract was kept and is paid, for the last and only time."""

    owner: str
    contract: str
    amount: int


@dataclass(frozen=True)
class Broken(Event):
    """A contract was broken and is not paid."""

    owner: str
    contract: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Settled(Event):
    """The job is closed. ``head`` pins the ledger as it now is: note it elsewhere."""

    job: str
    total: int
    paid: int
    broken: int
    head: str
