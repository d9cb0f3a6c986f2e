"""What each owner's uploads do to the test loss: it bounds their harm, and is never for pay.

It follows from what was released and from the curator's own test records, so it costs no privacy.
To first order, an upload lowers the test loss by minus the step that it moves the model times the
slope of the loss at the round's global model. The noise in that has a known spread: sigma times the
step's share times the slope's length. While an owner's uploads so far would raise the test loss by
more than ``SURE`` standard errors, they count for nothing: beyond what noise does, nobody can raise
it by more. Honest owners do not come near, so that their model stays what it is, bit by bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.aggregation import capped
from noisemarket.federated.engine import Weights, single_precision
from noisemarket.federated.models.model import Model, Records
from noisemarket.federated.protections import Upload
from noisemarket.market.inspection import restore_arrays
from noisemarket.market.orders import Order

TESTED = 1000
"""Test records that the slope is taken on, at most; evenly out of all."""
SURE = 5.0
"""Standard errors by which an owner's uploads may raise the test loss before they do not count."""
LEAST_NOISE = 0.1
"""Of the clip: with less noise an owner's error is as with this much. Without it, an honest owner
with unusual records and hardly any noise would not count."""


class Contributions:
    """Adds up, round by round, how far each owner's uploads lower the test loss.

    ``arrays`` is what a checkpoint keeps of it: for each owner the sum, and its variance if sigma
    were 1.
    """

    def __init__(self, order: Order, kept: Mapping[str, NDArray[Any]]) -> None:
        self._job, self._plan = order.job, order.plan
        self.arrays = restore_arrays(kept, {"lowered": ((2, len(order.job)), np.float64)})
        reach = map(order.job.protection.reach, order.job.partition.sizes.tolist())
        bounds = np.array([LEAST_NOISE * one for one in reach])
        self._bounded = np.isfinite(bounds)
        self._noise = np.maximum(order.job.sigma, np.where(self._bounded, bounds, 0.0))

    def figures(self, owner: int) -> tuple[float, float]:
        """By how much an owner's uploads lowered the test loss, and the standard error of that.

        Four digits, which are the same on every machine.
        """
        lowered, error = self.arrays["lowered"][0], self._errors()
        return float(f"{lowered[owner]:.4g}"), float(f"{error[owner]:.4g}")

    def _errors(self) -> NDArray[np.float64]:
        errors: NDArray[np.float64] = self._noise * np.sqrt(self.arrays["lowered"][1])
        return errors

    def bound(
        self,
        number: int,
        weights: Weights,
        uploads: dict[int, Upload],
        refused: Collection[int] = (),
    ) -> None:
        """Add this round's uploads that are not refused, and put zeros in the place of those that
        do too much harm. Where nothing bounds an update, as under ``paper``, nothing does."""
        counted = [owner for owner in sorted(uploads) if owner not in refused]
        self._add(number, weights, uploads, counted)
        harmful = self._bounded & (self.arrays["lowered"][0] < -SURE * self._errors())
        uploads |= {owner: np.zeros_like(uploads[owner]) for owner in counted if harmful[owner]}

    def _add(
        self, number: int, weights: Weights, uploads: Mapping[int, Upload], owners: list[int]
    ) -> None:
        parts = capped(self._plan.shares[owners], self._plan.weight_cap)
        if not parts.sum() > 0.0:
            return
        with self._model.one_thread():
            slope = self._slope(number, weights)
            length = float(np.linalg.norm(slope))
            if not np.isfinite(length):
                return  # the model has diverged
            travel = self._plan.rate / (1.0 - self._plan.momentum) / parts.sum()
            steps = dict(zip(owners, (travel * parts).tolist(), strict=True))
            lowered, variance = self.arrays["lowered"]
            for owner, step in steps.items():
                lowered[owner] -= step * float(np.dot(slope, uploads[owner]))
                variance[owner] += (step * length) ** 2

    def _slope(self, number: int, weights: Weights) -> Weights:
        start = single_precision(weights)
        moved = start.copy()
        self._model.reseed(np.random.SeedSequence(self._job.seed, spawn_key=(number,)))
        self._model.descend(moved, self._records, 1.0)
        slope: Weights = start.astype(np.float64) - moved
        return slope

    @cached_property
    def _model(self) -> Model:
        return self._job.model(self._job.seed)

    @cached_property
    def _records(self) -> Records:
        data = self._job.data
        some = slice(None, None, -(-len(data.test_labels) // TESTED))
        return self._model.records(data.test_inputs[some], data.test_labels[some].copy())
