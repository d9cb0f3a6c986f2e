"""The data owners of a job and what is private to each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.distributions import Distribution
from noisemarket.game.levels import FloatArray, KeyArray

FIELDS = ("privacy_cost", "data_size", "beta", "markup", "floor")
"""What an owner has, and the columns of a population file."""

OPTIONAL = ("floor",)
"""What may be left out, and is then 0."""

_LOWEST = {"privacy_cost": (0.0, True), "data_size": (1.0, True), "beta": (0.0, False),
           "markup": (0.0, True), "floor": (0.0, True)}  # fmt: skip

_HIGHEST = {"data_size": 1e12}
_HIGHEST_ELSE = 1e30


@dataclass(frozen=True)
class DataOwner:
    """One owner: privacy cost, markup and floor are its secrets, beta and data size describe its
    data. The floor is the least noise that it keeps, whatever it is paid."""

    name: str
    privacy_cost: float = field(repr=False)
    data_size: float
    beta: float
    markup: float = field(repr=False)
    floor: float = field(default=0.0, repr=False)


@dataclass(frozen=True)
class Population:
    """All owners of a job, one array per field.

    ``key`` names each owner's random numbers and follows it, so that order does not matter.
    """

    names: Sequence[str] | range
    key: KeyArray
    privacy_cost: FloatArray
    data_size: FloatArray
    beta: FloatArray
    markup: FloatArray
    floor: FloatArray

    def __len__(self) -> int:
        return len(self.key)

    def __iter__(self) -> Iterator[DataOwner]:
        for i in range(len(self)):
            values = {name: float(getattr(self, name)[i]) for name in FIELDS}
            yield DataOwner(name=str(self.names[i]), **values)

    @classmethod
    def of(cls, names: Sequence[str] | range, columns: Mapping[str, FloatArray]) -> Population:
        """A population from columns, each value checked."""
        nothing = dict.fromkeys(OPTIONAL, np.zeros(len(names)))
        given = nothing | dict(columns)
        arrays = {name: np.ascontiguousarray(given[name], dtype=float) for name in FIELDS}
        for name, values in arrays.items():
            for at, remedy in bad_values(name, values):
                raise BadInput(f"{name} of owner {names[at]}", float(values[at]), f"{remedy}.")
        return cls(names=names, key=_keys(names), **arrays)

    @classmethod
    def draw(
        cls, owners: int, distributions: Mapping[str, Distribution], seed: np.random.SeedSequence
    ) -> Population:
        """Draw every field of every owner, each field from a generator of its own."""
        columns = {}
        for name, child in zip(FIELDS, seed.spawn(len(FIELDS)), strict=True):
            if name in OPTIONAL and name not in distributions:
                continue
            uniform = np.random.default_rng(child).random(owners)
            columns[name] = distributions[name].quantile(uniform)
        columns["data_size"] = np.maximum(np.round(columns["data_size"]), 1.0)
        return cls.of(range(owners), columns)


def bad_values(name: str, values: FloatArray) -> Iterator[tuple[int, str]]:
    """The places of values that a field cannot have, each with a remedy."""
    (low, inclusive), high = _LOWEST[name], _HIGHEST.get(name, _HIGHEST_ELSE)
    bad = ~(values <= high) | ((values < low) if inclusive else (values <= low))
    least = "of at least" if inclusive else "above"
    for at in np.flatnonzero(bad).tolist():
        yield at, f"give a finite number {least} {low:g} and at most {high:g}"


def _keys(names: Sequence[str] | range) -> KeyArray:
    if isinstance(names, range):
        return np.arange(names.start, names.stop, dtype=np.uint64)
    return np.fromiter((_key(name) for name in names), dtype=np.uint64, count=len(names))


def _key(name: str) -> int:
    if len(name) < 19 and name.isascii() and name.isdigit() and str(int(name)) == name:
        return int(name)
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") | (1 << 63)
