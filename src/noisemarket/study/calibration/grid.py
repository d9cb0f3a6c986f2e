"""What to measure, and in which order: an early stop leaves a grid that can be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from noisemarket.errors import BadInput

SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
BETAS = (0.1, 1.0, 10.0)
MIXED = (
    (0.01, 0.05), (0.02, 0.1), (0.05, 0.05), (0.05, 0.2), (0.1, 0.1), (0.2, 0.05), (0.2, 0.2),
    (0.5, 0.1), (0.5, 0.3),
)  # fmt: skip
"""Mixed contracts: the share of the owners that sells, and the noise that each of them keeps."""
MOST_BETA = 1e6
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Setting:
    """One point to be measured: owners add noise ``sigma``, to data of degree ``beta``.

    All of them do, or a share of them, ``sellers``; the others then add sigma_max.
    """

    sigma: float
    beta: float
    seed: int
    sellers: float = 1.0

    @property
    def name(self) -> str:
        """A name for files."""
        mixed = "" if self.sellers == 1.0 else f"-sellers-{self.sellers!r}"
        return f"sigma-{self.sigma!r}-beta-{self.beta!r}-seed-{self.seed}{mixed}"


@dataclass(frozen=True)
class Grid:
    """All pairs of ``sigmas`` and ``betas``, each measured with ``seeds`` seeds.

    So are all pairs of ``mixed`` contracts (share of sellers, their sigma) and ``betas``.
    """

    sigmas: tuple[float, ...] = SIGMAS
    betas: tuple[float, ...] = BETAS
    seeds: int = 1
    mixed: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        _check("--sigmas", self.sigmas, lambda value: value >= 0, "numbers of at least 0")
        wanted = f"numbers above 0, up to {MOST_BETA:g}"
        _check("--betas", self.betas, lambda value: 0 < value <= MOST_BETA, wanted)
        for share, sigma in self.mixed:
            _check("mixed", (share,), lambda value: 0 < value < 1, "shares between 0 and 1")
            _check("mixed", (sigma,), lambda value: value >= 0, "sigmas of at least 0")
        if len(set(self.mixed)) < len(self.mixed):
            raise BadInput("mixed", pairs_text(self.mixed), "give each once.")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise BadInput("seeds", self.seeds, f"give a number from 1 to {MOST_SEEDS}.")

    def __len__(self) -> int:
        return (len(self.sigmas) + len(self.mixed)) * len(self.betas) * self.seeds

    def settings(self, first_seed: int) -> Iterator[Setting]:
        """Every point, in the order of measuring.

        The whole plane with the first seed, then with the next. In a plane the beta closest to 1
        comes first, and then always the one farthest from all before; so do the sigmas, from the
        smallest; mixed contracts follow.
        """
        betas = spread([math.log(beta) for beta in self.betas], 0.0)
        sigmas = spread(self.sigmas, 0.0)
        for repeat in range(self.seeds):
            for j in betas:
                for i in sigmas:
                    yield Setting(self.sigmas[i], self.betas[j], first_seed + repeat)
                for share, sigma in self.mixed:
                    yield Setting(sigma, self.betas[j], first_seed + repeat, share)


def spread(values: Sequence[float], near: float) -> list[int]:
    """Indices of the values: first the closest to ``near``, then each farthest from the rest."""
    left = list(range(len(values)))
    order = [min(left, key=lambda i: (abs(values[i] - near), i))]
    left.remove(order[0])
    while left:
        apart = {i: min(abs(values[i] - values[j]) for j in order) for i in left}
        order.append(max(left, key=lambda i: (apart[i], -i)))
        left.remove(order[-1])
    return order


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers out of an option, with commas between them."""
    try:
        return tuple(float(part) + 0.0 for part in text.split(","))
    except ValueError:
        raise BadInput(option, text, "give numbers with commas between them.") from None


def pairs(option: str, text: str) -> tuple[tuple[float, float], ...]:
    """Pairs out of an option, as in ``0.1:0.05,0.5:0.2``; ``none`` for none at all."""
    if text == "none":
        return ()
    try:
        return tuple((float(share), float(sigma)) for share, sigma in
                     (part.split(":") for part in text.split(",")))  # fmt: skip
    except ValueError:
        remedy = "give pairs share:sigma with commas between them, or none."
        raise BadInput(option, text, remedy) from None


def pairs_text(values: Sequence[tuple[float, float]]) -> str:
    """Pairs as ``pairs`` reads them."""
    return ",".join(f"{share:.12g}:{sigma:.12g}" for share, sigma in values) or "none"


def _check(
    option: str, values: tuple[float, ...], fits: Callable[[float], bool], wanted: str
) -> None:
    if not values:
        raise BadInput(option, "", f"give {wanted}.")
    for value in values:
        if not (math.isfinite(value) and fits(value)):
            raise BadInput(option, value, f"give {wanted}.")
    if len(set(values)) < len(values):
        raise BadInput(option, ",".join(f"{value:g}" for value in values), "give each once.")
