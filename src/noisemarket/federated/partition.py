"""An exact Dirichlet partition of the training images that always ends.

Independent draws of label proportions from Dir(beta) cannot all be kept when every image is to be
held exactly once. So:

1. Sizes are fixed first, by largest remainder, none below the minimum.
2. Each owner draws its target q_n from a Dirichlet distribution with parameters beta_n Y f_y, for
   Y classes of frequencies f_y: for even classes Dir(beta_n) of the paper.
3. All targets are tilted by one price vector v until the wishes for each class add up:
   p_ny ~ q_ny exp(v_y S_n / beta_n). So owner n of size S_n takes the part of the correction that
   conditioning independent draws on their sum would give it, in the limit of large beta.
4. Counts are rounded owner by owner in random order; what a class loses or wins by it is carried to
   the next owner. Odd images move at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MINIMUM = 10
"""The fewest images an owner gets unless told otherwise."""

_LIMITS = 1e-6, 1e6  # beta beyond these is one class, or IID, in all but name
_NEWTON_STEPS = 100
_CLOSE = 0.5  # images, over all classes: what rounding settles anyway


@dataclass(frozen=True, eq=False)
class Partition:
    """The training images of each owner, in rising order: every image with exactly one owner."""

    indices: tuple[IntArray, ...]

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def sizes(self) -> IntArray:
        return np.array([len(own) for own in self.indices], dtype=np.int64)


def dirichlet_partition(
    labels: ArrayLike,
    owners: int,
    beta: ArrayLike,
    rng: np.random.Generator,
    *,
    data_size: ArrayLike | None = None,
    minimum: int = MINIMUM,
) -> Partition:
    """Deal all images to the owners, label proportions as close to Dir(beta) as exactness allows.

    ``beta`` is one positive number or one for each owner. ``data_size`` gives each owner's share of
    the images (any positive numbers; equal if left out).
    """
    known: IntArray = np.asarray(labels, np.int64)
    if owners * minimum > len(known):
        most = len(known) // minimum
        remedy = f"{len(known):,} records suffice for {most:,} owners of at least {minimum:,} each."
        raise BadInput("owners", owners, remedy)
    betas = np.clip(np.broadcast_to(np.asarray(beta, float), owners), *_LIMITS)
    wishes = np.broadcast_to(np.asarray(1.0 if data_size is None else data_size, float), owners)
    sizes = owner_sizes(len(known), wishes, minimum)

    present, totals = np.unique(known, return_counts=True)
    shares = _tilted(log_targets(totals, betas, rng), sizes, totals, sizes / betas)
    counts = _rounded(sizes[:, None] * shares, sizes, totals, rng)

    shuffled = rng.permutation(len(known))
    by_class = shuffled[np.argsort(known[shuffled], kind="stable")]
    holder = np.empty(len(known), dtype=np.int64)
    holder[by_class] = np.repeat(np.tile(np.arange(owners), len(present)), counts.T.ravel())
    dealt = np.argsort(holder, kind="stable").astype(np.int64, copy=False)
    dealt.setflags(write=False)
    return Partition(tuple(np.split(dealt, np.cumsum(sizes)[:-1])))


def own_partition(holders: ArrayLike, order: Sequence[int]) -> Partition:
    """Each owner's own records: ``holders`` numbers the owner of every record.

    ``order`` lists these numbers as the owners shall stand; each must have a record.
    """
    numbers: IntArray = np.asarray(holders, np.int64)
    sizes = np.bincount(numbers, minlength=len(order))
    by_holder = np.split(np.argsort(numbers, kind="stable"), np.cumsum(sizes)[:-1])
    return Partition(tuple(by_holder[number].astype(np.int64, copy=False) for number in order))


def absent_partition(data_size: ArrayLike) -> Partition:
    """The sizes of owners whose records are elsewhere, with numbers for their records."""
    sizes = np.asarray(data_size, np.int64)
    numbers = np.arange(int(sizes.sum()))
    return Partition(tuple(np.split(numbers, np.cumsum(sizes)[:-1])))


def owner_sizes(images: int, shares: FloatArray, minimum: int) -> IntArray:
    """Whole numbers in proportion to the shares, none below the minimum, that sum to all images."""
    order = np.argsort(shares, kind="stable")
    rising = shares[order] / shares.max()
    after = np.cumsum(rising[::-1])[::-1]
    quota = (images - minimum * np.arange(len(rising))) * rising / after
    raised = int(np.argmax(quota >= minimum))
    rest = images - minimum * raised
    wish = rest * rising[raised:] / after[raised]
    given = np.floor(wish).astype(np.int64)
    given[np.argsort(given - wish, kind="stable")[: rest - given.sum()]] += 1
    sizes = np.full(len(shares), minimum, dtype=np.int64)
    sizes[order[raised:]] = given
    return sizes


def log_targets(totals: IntArray, betas: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Logarithms of the owners' targets q_n up to a constant each; small betas do not underflow.

    Gamma(a) is Gamma(a + 1) U^(1/a) in law, and the power can be taken as a logarithm.
    """
    alpha = betas[:, None] * len(totals) * (totals / totals.sum())
    uniform = 1.0 - rng.random(alpha.shape)
    logs: FloatArray = np.log(rng.standard_gamma(alpha + 1.0)) + np.log(uniform) / alpha
    return logs


def _tilted(logs: FloatArray, sizes: IntArray, totals: IntArray, reach: FloatArray) -> FloatArray:
    """Shares in proportion to exp(logs + reach v), v such that they add up to the class totals.

    v minimises sum_n S_n / reach_n log sum_y exp(logs_ny + reach_n v_y) - sum_y T_y v_y, which is
    convex and whose gradient is the gap: Newton's method, damped where a step would not descend.
    """
    reach = reach / reach.mean()
    classes = len(totals)

    def at(price: FloatArray) -> tuple[FloatArray, float]:
        tilted = logs + reach[:, None] * price
        peak = tilted.max(axis=1, keepdims=True)
        odds = np.exp(tilted - peak)
        sums = odds.sum(axis=1, keepdims=True)
        height = (peak + np.log(sums))[:, 0]
        return odds / sums, float(np.sum(sizes / reach * height) - totals @ price)

    price, damping = np.zeros(classes), 1e-3
    shares, value = at(price)
    for _ in range(_NEWTON_STEPS):
        gap = sizes @ shares - totals
        weighted = (sizes * reach)[:, None] * shares
        curvature = np.diag(weighted.sum(axis=0)) - weighted.T @ shares
        scale = np.trace(curvature) / classes
        if np.abs(gap).sum() < _CLOSE or scale < 1e-200:
            break
        # Adding one number to all prices changes nothing: 1 / classes keeps the matrix regular.
        regular = curvature / scale + damping * np.eye(classes) + 1.0 / classes
        trial = price - np.linalg.solve(regular, gap / scale)
        tried, reached = at(trial)
        if reached <= value:
            price, shares, value = trial, tried, reached
            damping = max(damping / 10.0, 1e-12)
        else:
            damping *= 10.0
    return shares


def _rounded(
    ideal: FloatArray, sizes: IntArray, totals: IntArray, rng: np.random.Generator
) -> IntArray:
    """Whole counts with exactly these row and column sums, nearly all within one of the ideal."""
    counts = np.floor(ideal).astype(np.int64)
    part = ideal - counts
    missing = sizes - counts.sum(axis=1)
    carry = np.zeros(len(totals))
    for owner in rng.permutation(len(sizes)):
        # A class of which the owner should hold next to nothing is no place for an odd image.
        score = np.where(ideal[owner] < 0.5 / len(totals), -np.inf, part[owner] + carry)
        chosen = np.argsort(-score, kind="stable")[: missing[owner]]
        counts[owner, chosen] += 1
        carry += part[owner]
        carry[chosen] -= 1.0
    _settle(counts, ideal, totals)
    return counts


def _settle(counts: IntArray, ideal: FloatArray, totals: IntArray) -> None:
    """Exchange images within owners, in place, until every class adds up to its total.

    Each pass settles a class. Few images are taken one by one from owners above their ideal; many
    are taken in piles, so that owners of few classes stay so.
    """
    surplus = counts.sum(axis=0) - totals
    while surplus.any():
        source, drain = int(surplus.argmax()), int(surplus.argmin())
        moved = int(min(surplus[source], -surplus[drain]))
        holds = counts[:, source]
        each = 1 if moved <= np.count_nonzero(holds) else moved
        excess = counts - ideal
        order = np.argsort(excess[:, drain] - excess[:, source], kind="stable")
        sums = np.minimum(np.cumsum(np.minimum(holds[order], each)), moved)
        taken = np.diff(sums, prepend=0)
        counts[order, source] -= taken
        counts[order, drain] += taken
        surplus[source] -= moved
        surplus[drain] += moved
