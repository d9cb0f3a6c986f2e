"""Contracts and traces, readable: one object per owner, and tables of text."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields

import numpy as np

from noisemarket.formats import csv_text, quoted
from noisemarket.game.environment import Environment
from noisemarket.game.levels import IntArray
from noisemarket.game.protocol import Contracts
from noisemarket.pricing.mechanism import Trace


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

    Example:
        >>> import noisemarket as nm
        >>> small = nm.Scenario.from_preset("market", owners=2)
        >>> [one.sigma for one in nm.negotiate(small, mechanism="uniform").contracts]
        [0.6, 0.6]
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
    environment: Environment, contracts: Contracts, owners: slice | IntArray
) -> Iterator[AgreedContract]:
    """One contract per owner.

    ``owners`` are the owners' indices, or the slice of them that ``contracts`` is about.
    """
    return itertools.starmap(AgreedContract, _rows(environment, contracts, owners))


def contracts_csv(environment: Environment, contracts: Contracts, owners: slice | IntArray) -> str:
    """The same as CSV, with a header."""
    signs = ("false", "true")
    lines = [  # by itself: there may be millions
        f"{quoted(name)},{cost!r},{beta!r},{saving!r},{sigma!r},{payment!r},{signs[signed]}\n"
        for name, cost, beta, saving, sigma, payment, signed in _rows(
            environment, contracts, owners
        )
    ]
    return "".join([",".join(CONTRACT_COLUMNS) + "\n", *lines])


def _rows(
    environment: Environment, contracts: Contracts, owners: slice | IntArray
) -> Iterator[tuple[str, float, float, float, float, float, bool]]:
    """The values of ``AgreedContract``, owner by owner."""
    levels, now = environment.levels, environment.phases[-1]
    own: slice | IntArray = owners
    if isinstance(owners, slice):
        own, owners = slice(None), np.arange(owners.start, owners.stop)
    saving, payment = contracts.saving[own], contracts.payment[own]
    names = environment.population.names
    return zip(
        (str(names[index]) for index in owners.tolist()),
        now.privacy_cost[owners].tolist(),
        now.beta[owners].tolist(),
        np.round(levels.savings, 12)[saving].tolist(),
        np.round(levels.sigma_max - levels.savings, 12)[saving].tolist(),
        np.round(levels.payments, 12)[payment].tolist(),
        contracts.signed[own].tolist(),
        strict=True,
    )


OWNERS_COLUMNS = ("owner_reward",)
"""What of a trace only the owners know."""


def trace_csv(trace: Trace, without: Collection[str] = ()) -> str:
    """A trace as CSV, one row per block of iterations, without some of its columns."""
    names = [name for name in Trace.__dataclass_fields__ if name not in without]
    columns = [getattr(trace, name).tolist() for name in names]
    return csv_text(names, zip(*columns, strict=True))
