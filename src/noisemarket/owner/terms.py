"""What an owner and a curator agree on, and the one contract that follows from it.

Both sides draw the contract up by ``contract_of``, each from what it knows. So an owner signs what
it would have written itself, field by field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Protection
from noisemarket.formats import finite, infinite
from noisemarket.ledger.contract import Contract, nonce_of
from noisemarket.privacy.statement import PrivacyBudget
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon


@dataclass(frozen=True)
class Deal:
    """One owner's trade: how much of its noise it sells, how much it keeps, and what it is paid for
    the whole job, in micro-units. Without a trade it keeps all its noise and is paid nothing."""

    owner: str
    saving: float
    sigma: float
    payment: int


@dataclass(frozen=True)
class JobTerms:
    """What is the same in all contracts of a job: all of it public.

    ``settings`` are those of the protection. The times say from when to when it may be signed.
    """

    job: str
    rounds: int
    protection: str
    settings: Mapping[str, Any]
    neighbours: str
    delta: float
    simulated: bool
    missed_rounds: str
    minimum_share: float
    false_alarm: float
    offered_at: str
    expires_at: str

    def public(self) -> dict[str, Any]:
        """What a curator says of them in an invitation, before there is a contract."""
        apart = ("job", "offered_at", "expires_at")
        return {name: value for name, value in asdict(self).items() if name not in apart}


@dataclass(frozen=True)
class Assignment:
    """What an owner needs beside its contract to train. Its privacy depends on none of it.

    ``index`` is its number among the job's owners, from 0. ``seed`` orders its batches; where noise
    is simulated, noise comes from it as well. From ``model`` its app builds the model.
    """

    index: int = 0
    seed: int = 0
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnerTerms:
    """An owner's terms in a job: its noise, its protection, and the privacy that it may spend.

    Without a number of ``rounds`` only the cap ends them. ``noise`` is ``secure``, or
    ``simulated``: drawn from ``seed``, not private.
    """

    job: str
    owner: str
    index: int
    sigma: float
    protection: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    neighbours: str = "replace_one"
    delta: float = 1e-5
    rho_cap: float = math.inf
    noise: str = "secure"
    seed: int = 0
    rounds: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.sigma < math.inf:
            raise BadInput("sigma", self.sigma, "give a number that is not negative.")
        if self.noise not in ("secure", "simulated"):
            raise BadInput("noise", self.noise, "give secure or simulated.")

    @classmethod
    def of(cls, contract: Contract, assignment: Assignment) -> OwnerTerms:
        """What a contract has the owner do."""
        return cls(
            job=contract.job,
            owner=contract.owner,
            index=assignment.index,
            sigma=contract.sigma,
            protection=contract.protection,
            settings=settings_of(contract),
            model=assignment.model,
            neighbours=contract.neighbours,
            delta=contract.delta,
            rho_cap=contract.rho_cap,
            noise="simulated" if contract.simulated else "secure",
            seed=assignment.seed,
            rounds=contract.rounds,
        )

    def build_protection(self) -> Protection:
        """The protection that the owner trains under."""
        return PROTECTIONS.find(self.protection).from_settings(self.settings)

    def budget(self, dimension: int, records: int) -> PrivacyBudget:
        """What the accountant holds the owner to, with so many parameters and records."""
        return self.build_protection().budget(
            self.owner,
            self.sigma,
            dimension=dimension,
            records=records,
            neighbours=Neighbours.named(self.neighbours),
            delta=self.delta,
            rho_cap=self.rho_cap,
            simulated=self.noise == "simulated",
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; a cap that is infinite is null."""
        return asdict(self) | {"rho_cap": finite(self.rho_cap)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> OwnerTerms:
        """From what ``to_dict`` gave."""
        return cls(**{**values, "rho_cap": infinite(values["rho_cap"])})


def privacy_cap(budget: PrivacyBudget, rounds: int) -> float:
    """The zCDP that a contract allows in all: that of its rounds, or the job's cap if lower."""
    return min(budget.rho_cap, rounds * budget.rho_per_round)


def contract_of(
    deal: Deal,
    owner_key: str,
    curator_key: str,
    budget: PrivacyBudget,
    terms: JobTerms,
    records: int = 0,
) -> Contract:
    """The contract that follows from a deal and the terms of a job, the same for both sides.

    ``budget`` says what a round costs the owner and the most that it may spend in the job.
    ``records`` counts where the protection's steps depend on it.
    """
    cap = privacy_cap(budget, terms.rounds)
    protection = PROTECTIONS.find(terms.protection).from_settings(terms.settings)
    by_default = protection.settings().keys() - terms.settings.keys()
    stated = protection.contract_settings(records)
    settings = {name: value for name, value in stated.items() if name not in by_default}
    clip, shards = settings.pop("clip", None), settings.pop("shards", None)
    return Contract(
        **{**vars(terms), **vars(deal), "settings": settings},
        owner_key=owner_key,
        curator_key=curator_key,
        clip=clip,
        shards=shards,
        rho_per_round=budget.rho_per_round,
        rho_cap=cap,
        epsilon=gaussian_epsilon(cap, terms.delta),
        protects=budget.protects,
        whole_owner=protection.whole_owner,
        nonce=nonce_of(terms.job, deal.owner),
    )


def terms_of(contract: Contract) -> JobTerms:
    """The terms of the job that a contract is of."""
    stated = {term.name: getattr(contract, term.name) for term in fields(JobTerms)}
    return JobTerms(**{**stated, "settings": settings_of(contract)})


def differing_fields(contract: Contract, expected: Contract) -> list[str]:
    """The fields in which two contracts differ. Numbers may differ in their last bits, which two
    machines may round differently."""

    def same(value: Any, other: Any) -> bool:
        if isinstance(value, float) and isinstance(other, float):
            return math.isclose(value, other, rel_tol=1e-9)
        return bool(value == other)

    ours, theirs = expected.to_dict(), contract.to_dict()
    return [name for name, value in theirs.items() if not same(value, ours[name])]


def settings_of(contract: Contract) -> dict[str, Any]:
    """The settings of a contract's protection."""
    return PROTECTIONS.find(contract.protection).settings_in(contract.protection_settings)
