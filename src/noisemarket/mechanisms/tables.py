"""Contracts and traces, readable: one object per owner, and tables of text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from noisemarket.csv_text import csv_text
from noisemarket.game.environment import Environment
from noisemarket.mechanisms.mechanism import Contracts, Trace


@dataclass(frozen=True)
class AgreedContract:
    """What is agreed with one owner, and the preferences in force at the end.

    Attributes:
        owner: the owner's name.
        privacy_cost: what a unit of noise is worth to the owner, its secret.
        beta: non-IID degree of the owner's data.
        saving: noise that the owner leaves out.
        sigma: noise that the owner still adds.
        payment: what the curator pays.
        signed: whether the owner agreed to a trade (``no_dp`` imposes a saving without it).
    """

    owner: str
    privacy_cost: float
    beta: float
    saving: float
    sigma: float
    payment: float
    signed: bool


CONTRACT_COLUMNS = tuple(field.name for field in fields(AgreedContract))


def agreed_contracts(
    environment: Environment, contracts: Contracts, owners: slice | Iterable[int]
) -> Iterator[AgreedContract]:
    """One contract per owner.

    ``owners`` are the owners' indices, or the slice of them that ``contracts`` is about.
    """
    levels, now = environment.levels, environment.phases[-1]
    savings, sigmas, payments = (
        np.round(values, 12).tolist()
        for values in (levels.savings, levels.sigma_max - levels.savings, levels.payments)
    )
    first = 0
    if isinstance(owners, slice):
        first, owners = owners.start, range(owners.start, owners.stop)
    for index in owners:
        saving, payment = contracts.saving[index - first], contracts.payment[index - first]
        yield AgreedContract(
            owner=str(environment.population.names[index]),
            privacy_cost=float(now.privacy_cost[index]),
            beta=float(now.beta[index]),
            saving=savings[saving],
            sigma=sigmas[saving],
            payment=payments[payment],
            signed=bool(contracts.signed[index - first]),
        )


def contracts_csv(contracts: Iterable[AgreedContract]) -> str:
    """Contracts as CSV, one row per owner, with a header."""
    rows = (vars(one) | {"signed": "true" if one.signed else "false"} for one in contracts)
    return csv_text(CONTRACT_COLUMNS, (row.values() for row in rows))


OWNERS_COLUMNS = ("owner_reward",)
"""What of a trace only the owners know."""


def trace_csv(trace: Trace, without: Collection[str] = ()) -> str:
    """A trace as CSV, one row per block of iterations, without some of its columns."""
    names = [name for name in Trace.__dataclass_fields__ if name not in without]
    columns = [getattr(trace, name).tolist() for name in names]
    return csv_text(names, zip(*columns, strict=True))
