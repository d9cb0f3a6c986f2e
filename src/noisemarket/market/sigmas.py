"""Each owner's contracted noise: one for all, one for each, or out of a file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.errors import BadInput
from noisemarket.federated.partition import one_or_each
from noisemarket.formats import text_of
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray


def one_sigma(value: float, owners: int, sigma_max: float) -> FloatArray:
    """The same noise for all owners."""
    return _checked(np.full(owners, float(value)), ["all owners"] * owners, sigma_max)


def given_sigma(sigma: ArrayLike, environment: Environment) -> FloatArray:
    """One noise scale for all owners, or one for each, checked."""
    highest, values = environment.levels.sigma_max, one_or_each("sigma", sigma, len(environment))
    if values.ndim == 0:
        return one_sigma(float(values), len(environment), highest)
    names = [f"owner {name}" for name in environment.population.names]
    return _checked(values.copy(), names, highest)


def read_contracts(file: str, environment: Environment) -> FloatArray:
    """Each owner's noise out of a contracts file: columns owner and sigma, any others ignored."""
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, ValueError, csv.Error) as problem:
        reason = getattr(problem, "strerror", None) or "not a CSV file"
        raise BadInput("contracts", file, f"cannot be read ({reason}).") from None
    if not rows or not {"owner", "sigma"} <= set(rows[0]):
        raise BadInput("contracts", file, "give a CSV with columns owner and sigma.")
    names = [str(name) for name in environment.population.names]
    index = {name: i for i, name in enumerate(names)}
    sigma = np.full(len(names), np.nan)
    for row in rows:
        owner = row["owner"] or ""
        owner = owner if owner in index else text_of(owner)
        if owner not in index:
            raise BadInput("contracts", owner, "is not an owner of this scenario: drop its row.")
        if not np.isnan(sigma[index[owner]]):
            raise BadInput("contracts", owner, "has two rows: keep one.")
        try:
            sigma[index[owner]] = float(row["sigma"])
        except (TypeError, ValueError):
            raise BadInput(f"sigma of owner {owner}", row["sigma"], "give a number.") from None
    without = np.flatnonzero(np.isnan(sigma))
    if len(without):
        raise BadInput("contracts", file, f"has no usable sigma for owner {names[without[0]]}.")
    return _checked(sigma, names, environment.levels.sigma_max)


def _checked(sigma: FloatArray, names: list[str], sigma_max: float) -> FloatArray:
    bad = ~((sigma >= 0) & (sigma <= sigma_max * (1 + 1e-9)))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        remedy = f"give a number from 0 to sigma_max = {sigma_max:g}."
        raise BadInput(f"sigma of {names[first]}", float(sigma[first]), remedy)
    return sigma
