"""The data owners of a job, what is private to each, and the distributions that it is drawn from.

Distributions draw by quantile: a larger population begins with the owners of a smaller one.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray, KeyArray


class Distribution(ABC):
    """Anything with a quantile function; the fields in ``above_0`` must be."""

    above_0: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.above_0:
            if getattr(self, name) <= 0:
                raise BadInput(name, getattr(self, name), "give a number above 0.")
        low, high = getattr(self, "low", 0.0), getattr(self, "high", np.inf)
        if low > high:
            raise BadInput("low", low, f"the lower end must not be above the upper end {high!r}.")

    @abstractmethod
    def quantile(self, u: ArrayLike) -> FloatArray:
        """The value below which a share ``u`` of all draws lies."""


@dataclass(frozen=True)
class Constant(Distribution):
    """The same value for all owners."""

    value: float

    def quantile(self, u: ArrayLike) -> FloatArray:
        return np.full(np.shape(u), float(self.value))


@dataclass(frozen=True)
class UniformDistribution(Distribution):
    """Evenly between ``low`` and ``high``."""

    low: float
    high: float

    def quantile(self, u: ArrayLike) -> FloatArray:
        return np.asarray(self.low + (self.high - self.low) * np.asarray(u, dtype=float))


@dataclass(frozen=True)
class LogUniform(UniformDistribution):
    """Evenly in the logarithm between ``low`` and ``high``: natural for beta over decades."""

    above_0 = ("low",)

    def quantile(self, u: ArrayLike) -> FloatArray:
        return np.asarray(self.low * (self.high / self.low) ** np.asarray(u, dtype=float))


@dataclass(frozen=True)
class Normal(Distribution):
    """A normal distribution cut off at ``low`` and ``high`` (by default only at 0)."""

    mean: float
    sd: float
    low: float = 0.0
    high: float = np.inf
    above_0 = ("sd",)

    def quantile(self, u: ArrayLike) -> FloatArray:
        from scipy.special import ndtr, ndtri  # slow to import, and owners never need it

        below, above = ndtr((np.array([self.low, self.high]) - self.mean) / self.sd)
        inner = ndtri(below + (above - below) * np.asarray(u, dtype=float))
        return np.asarray(np.clip(self.mean + self.sd * inner, self.low, self.high))


@dataclass(frozen=True)
class LogNormal(Distribution):
    """A log-normal distribution: ``median`` and the standard deviation ``sd`` of the logarithm."""

    median: float
    sd: float
    above_0 = ("median", "sd")

    def quantile(self, u: ArrayLike) -> FloatArray:
        from scipy.special import ndtri  # slow to import, and owners never need it

        inner = np.clip(np.asarray(u, dtype=float), 1e-12, 1 - 1e-12)
        return np.asarray(self.median * np.exp(self.sd * ndtri(inner)))


@dataclass(frozen=True)
class Choice(Distribution):
    """One of some values, with given weights (equal by default): a population of types."""

    values: tuple[float, ...]
    weights: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInput("values", self.values, "give at least one value.")
        if self.weights and (len(self.weights) != len(self.values) or min(self.weights) < 0):
            raise BadInput("weights", self.weights, "give one weight per value, each at least 0.")
        if self.weights and sum(self.weights) <= 0:
            raise BadInput("weights", self.weights, "at least one weight must be above 0.")

    def quantile(self, u: ArrayLike) -> FloatArray:
        values = np.asarray(self.values, dtype=float)
        weights = np.asarray(self.weights or [1.0] * len(values), dtype=float)
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order]) / weights.sum()
        picked = np.searchsorted(reached, np.asarray(u, dtype=float), side="right")
        return np.asarray(values[order][np.minimum(picked, len(values) - 1)])


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "constant": Constant,
    "uniform": UniformDistribution,
    "log_uniform": LogUniform,
    "normal": Normal,
    "lognormal": LogNormal,
    "choice": Choice,
}
"""The distributions by the name that a scenario uses."""


def make_distribution(where: str, given: float | Mapping[str, object]) -> Distribution:
    """A distribution from a number (constant) or a table like
    ``{distribution = "uniform", low = 0.5, high = 4.0}``."""
    if not isinstance(given, Mapping):
        return Constant(float(given))
    settings = dict(given)
    name = str(settings.pop("distribution", None))
    if name not in DISTRIBUTIONS:
        remedy = f"choose one of: {', '.join(DISTRIBUTIONS)}."
        raise BadInput(f"{where}.distribution", given.get("distribution"), remedy)
    for key, value in settings.items():
        numbers = tuple(value) if isinstance(value, list | tuple) else None
        if (numbers is None) == (name == "choice"):
            wanted = "a list of numbers" if name == "choice" else "one number"
            raise BadInput(f"{where}.{key}", value, f"give {wanted}.")
        if not all(map(_finite, [value] if numbers is None else numbers)):
            raise BadInput(f"{where}.{key}", value, "give a finite number.")
        settings[key] = value if numbers is None else numbers
    try:
        return DISTRIBUTIONS[name](**settings)
    except TypeError:
        wanted = ", ".join(getattr(DISTRIBUTIONS[name], "__dataclass_fields__", {}))
        raise BadInput(where, dict(given), f'distribution "{name}" takes: {wanted}.') from None
    except BadInput as bad:
        raise BadInput(f"{where}.{bad.field}", bad.value, bad.remedy) from None


def _finite(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return bool(np.isfinite(number))


FIELDS = ("privacy_cost", "data_size", "beta", "markup", "floor")
"""What an owner has, and the columns of a population file."""

OPTIONAL = ("floor",)
"""What may be left out, and is then 0."""

_LOWEST = {"privacy_cost": (0.0, True), "data_size": (1.0, True), "beta": (0.0, False),
           "markup": (0.0, True), "floor": (0.0, True)}  # fmt: skip

_HIGHEST = {"data_size": 1e12}
_HIGHEST_ELSE = 1e30


@dataclass(frozen=True)
class Population:
    """All owners of a job, one array per field.

    Privacy cost, markup and floor are an owner's secrets; beta and data size describe its data. The
    floor is the least noise that it keeps, whatever it is paid. ``key`` names its random numbers
    and follows it, so that order does not matter.
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
