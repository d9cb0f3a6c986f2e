"""The contract of a deal, and the terms that it sets for training.

Owner and curator each compute the contract by ``contract_of``. The owner signs only one that equals
its own, field by field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Protection, Sharded
from noisemarket.privacy.accountant import PrivacyBudget
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon, gaussian_rho

if TYPE_CHECKING:
    from noisemarket.ledger.contract import Contract

WORK = (
    *("rounds", "protection", "settings", "neighbours", "delta", "simulated"),
    *("false_alarm", "weight_cap", "count_cap"),
)
"""The fields of a contract that an invitation states: the same for all owners of a job. Where
records come from tables, ``description`` is one more."""

WEIGHTS, CURRENCY = "weights", "currency"
"""Stated in an invitation beside the ``WORK``: how many weights the model has, since the cost of a
round depends on it, and what money is called, if it has a name."""

STATED = {
    *("job", "owner", "owner_key", "curator_key", "saving", "sigma", "payment"),
    *("offered_at", "expires_at", *WORK),
}
"""The fields of a contract from which the others follow."""

Plan = Mapping[str, Any]
"""What an owner needs beside its contract to train; its privacy depends on none of it: ``index``,
its number among the job's owners; ``seed``, which orders its batches and, where noise is simulated,
draws it; the settings of the ``model``; and the text of the ``description`` whose digest is in the
contract, if it has one."""


def contract_of(stated: Mapping[str, Any], budget: PrivacyBudget, records: int) -> Contract:
    """The contract that follows from what is ``STATED``, the same for both sides.

    ``settings`` are those of the protection. ``budget`` says what a round costs the owner and the
    most that it may spend in the job; ``records`` counts where the protection depends on it.
    """
    from noisemarket.ledger.contract import Contract, nonce_of  # slow to import

    if odd := (stated.keys() ^ STATED) - {"description"}:
        raise BadInput("terms", ", ".join(sorted(odd)), "give exactly STATED.")
    given, cap = stated["settings"], privacy_cap(budget, stated["rounds"])
    protection = PROTECTIONS.find(stated["protection"]).from_settings(given)
    by_default = protection.settings().keys() - given.keys()
    figures = protection.contract_settings(records)
    settings = {name: value for name, value in figures.items() if name not in by_default}
    clip, shards = settings.pop("clip", None), settings.pop("shards", None)
    return Contract(
        **{**stated, "settings": settings},
        clip=clip,
        shards=shards,
        rho_per_round=budget.rho_per_round,
        rho_cap=cap,
        epsilon=gaussian_epsilon(cap, stated["delta"]),
        protects=budget.protects,
        whole_owner=protection.whole_owner(records),
        nonce=nonce_of(stated["job"], stated["owner"]),
    )


def contracted(work: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an invitation's work that is stated in the contract."""
    return {name: value for name, value in work.items() if name not in (WEIGHTS, CURRENCY)}


def privacy_cap(budget: PrivacyBudget, rounds: int) -> float:
    """The zCDP that a contract allows in all: that of its rounds, or the job's cap if lower."""
    return min(budget.rho_cap, rounds * budget.rho_per_round)


def fits(budget: PrivacyBudget, sigma: float, rounds: int) -> bool:
    """Whether all rounds with this noise cost no more than the owner's cap."""
    cost = rounds * gaussian_rho(budget.sensitivity, sigma)
    return cost <= budget.rho_cap * (1.0 + 1e-12)


def protection_of(contract: Contract) -> Protection:
    """The protection that an owner trains under."""
    return PROTECTIONS.find(contract.protection).from_contract(contract.protection_settings)


def single_shard(contract: Contract) -> Sharded:
    """The protection of a contract for an app of one's own: the whole update is one shard."""
    protection = protection_of(contract)
    if not isinstance(protection, Sharded) or contract.shards != 1:
        remedy = "protects inside the training: for any training take sharded with one shard."
        raise BadInput("protection", protection.name, remedy)
    return protection


def budget_of(
    contract: Contract, dimension: int, records: int, neighbours: Neighbours | None = None
) -> PrivacyBudget:
    """What an owner is held to, counted in ``neighbours``, by default the contract's relation."""
    stated, protection = Neighbours.named(contract.neighbours), protection_of(contract)

    def counted(relation: Neighbours, rho_cap: float) -> PrivacyBudget:
        return protection.budget(
            contract.owner,
            contract.sigma,
            dimension=dimension,
            records=records,
            neighbours=relation,
            delta=contract.delta,
            rho_cap=rho_cap,
            simulated=contract.simulated,
        )

    budget = counted(stated, contract.rho_cap)
    return budget if neighbours in (None, stated) else in_relation(budget, counted(neighbours, 0.0))


def in_relation(budget: PrivacyBudget, other: PrivacyBudget) -> PrivacyBudget:
    """The same terms in another neighbour relation: as many releases of its own cost."""
    once, then = budget.rho_per_round, other.rho_per_round
    same = budget.rho_cap * (then / once) if 0.0 < once < math.inf else budget.rho_cap
    return replace(other, rho_cap=same)


def differing_fields(contract: Contract, expected: Contract) -> list[str]:
    """The fields in which two contracts differ, but for the last bits of numbers."""

    def same(value: Any, other: Any) -> bool:
        if isinstance(value, float) and isinstance(other, float):
            return math.isclose(value, other, rel_tol=1e-9)
        return bool(value == other)

    ours, theirs = expected.to_dict(), contract.to_dict()
    names = dict.fromkeys([*theirs, *ours])
    return [name for name in names if not same(theirs.get(name), ours.get(name))]
