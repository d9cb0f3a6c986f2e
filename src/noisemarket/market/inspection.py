"""The curator's watch over uploads: is the contracted noise in them, is it noise, and new?

``Contributions`` bounds the harm of each owner's uploads to the test loss, and is never for pay. It
follows from what was released and from the curator's own test records, so it costs no privacy. To
first order, an upload lowers the test loss by minus the step that it moves the model times the
slope of the loss at the round's global model. The noise in that has a known spread: sigma times the
step's share times the slope's length. While an owner's uploads so far would raise the test loss by
more than ``SURE`` standard errors, they count for nothing: beyond what noise does, nobody can raise
it by more. Honest owners do not come near, so that their model stays what it is, bit by bit.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from noisemarket.errors import BadInput
from noisemarket.federated.aggregation import capped
from noisemarket.federated.engine import Weights, single_precision
from noisemarket.federated.models.model import Model, Records
from noisemarket.federated.protections import PROTECTIONS, Protection, Upload
from noisemarket.formats import plain
from noisemarket.ledger.contract import Contract
from noisemarket.market.orders import Order
from noisemarket.privacy.noise_check import (
    CURVES,
    Evidence,
    Sketch,
    UploadFinding,
    agreeing,
    alarm_rate,
    alike,
    blocks_of,
    check_blocks,
    check_curves,
    check_pool,
    check_steps,
    curve_sums,
)

SHARES = {
    "length": 0.4,
    "blocks": 0.1,
    "distribution": 0.1,
    "earlier uploads": 0.1,
    "other owners": 0.1,
    "sum of rounds": 0.1,
}
"""The part of a job's false alarm rate that each of its tests may use."""

KEPT_ROUNDS = 100
"""Against how many of an owner's last uploads a new one is compared."""

MOST_KEPT = 2**27
"""Numbers that are kept of the sums of all owners' uploads; in larger jobs there are none."""

MOST_EXACT = 2048
"""Up to so many owners all uploads are compared as they are, beyond in fewer dimensions."""

SAME_NOISE = "shares its noise with another owner's upload"
"""Which took it from the other cannot be told: neither upload counts, and nobody is accused."""

Shapes = Mapping[str, tuple[tuple[int, ...], type[np.generic]]]
"""The shape and the type of each array, by name."""

REMEDY = "put the checkpoint back as it was written, or start anew."


def restore_arrays(kept: Mapping[str, NDArray[Any]], shapes: Shapes) -> dict[str, NDArray[Any]]:
    """The arrays of these shapes that a checkpoint has; zeros if it has none of them.

    A watch that began at zero again would forget what it has seen, and a replay of an old upload
    would be found later or not at all.

    Example:
        >>> restore_arrays({}, {"seen": ((2,), np.int64)})
        {'seen': array([0, 0])}
    """
    if not kept.keys() & shapes.keys():
        return {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}
    for name, (shape, kind) in shapes.items():
        array = kept.get(name)
        if array is None:
            raise BadInput("checkpoint", name, f"is missing: {REMEDY}")
        if (array.shape, array.dtype) != (shape, np.dtype(kind)):
            wanted = f"{np.dtype(kind)} of shape {shape}"
            raise BadInput("checkpoint", name, f"is not {wanted}: {REMEDY}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadInput("checkpoint", name, f"has numbers that are not finite: {REMEDY}")
    return {name: kept[name] for name in shapes}


@dataclass
class _Seen:
    """What is kept between rounds, but for arrays; by owner: the evidence so far, findings against
    it, and how many uploads were tested."""

    sketch_seed: int
    pools: dict[int, Evidence] = field(default_factory=dict)
    accused: dict[int, dict[str, Any]] = field(default_factory=dict)
    tested: dict[int, int] = field(default_factory=dict)


_SEEN = TypeAdapter(_Seen)


class UploadInspector:
    """Judges every upload, alone and with the owner's rounds before, and beside all others.

    It works on what the curator has: contracts and uploads. What it finds goes to ``report``.
    ``state`` is plain JSON and ``arrays`` are what is kept of the uploads, bounded however many
    rounds there are, so that a job that was killed goes on watching where it stood. ``dimension``
    is the size of an upload. Without a ``protection``, it is the one that each contract names.

    Beyond an upload's length, owners whose noise is added once at the end are tested, and the
    uploads of all are compared.
    """

    def __init__(
        self,
        contracts: Mapping[int, Contract],
        false_alarm: float,
        rounds: int,
        dimension: int,
        report: Callable[[int, int, str, dict[str, Any]], None] = lambda *finding: None,
        state: dict[str, Any] | None = None,
        protection: Protection | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self._contracts, self._rounds, self._report = contracts, rounds, report
        self._protections = {
            owner: protection
            or PROTECTIONS.find(contract.protection).from_contract(contract.protection_settings)
            for owner, contract in contracts.items()
        }
        self._owners = sorted(contracts)
        self._rows = {owner: row for row, owner in enumerate(self._owners)}
        self._rate = alarm_rate(SHARES["length"] * false_alarm, max(1, len(self._owners)), rounds)
        self._rates = {name: share * false_alarm for name, share in SHARES.items()}
        self._sigma = np.array([contracts[owner].sigma for owner in self._owners], np.float64)
        reach = [  # the greatest length of an upload without its noise, by its contract
            self._protections[owner].stated_reach(contracts[owner].protection_settings)
            for owner in self._owners
        ]
        with np.errstate(divide="ignore"):
            lengths = np.array(reach, np.float64) / self._sigma
        self._bounds = np.where(self._sigma > 0.0, lengths, np.inf)
        steps = [self._protections[owner].noise_in_steps for owner in self._owners]
        self._in_steps = np.array(steps, bool)
        try:
            new = {"sketch_seed": secrets.randbits(63)}
            self._seen = _SEEN.validate_python(state or new)
        except ValueError:
            raise BadInput("checkpoint", "inspection", f"cannot be read: {REMEDY}") from None
        if state and not arrays:
            raise BadInput("checkpoint", "kept arrays", f"are missing: {REMEDY}")
        self._sketch = Sketch(dimension, self._seen.sketch_seed)
        owners, kept = len(self._owners), min(rounds, KEPT_ROUNDS)
        shapes: Shapes = {
            "seen": ((owners,), np.int64),
            "curves": ((owners, CURVES), np.float64),
            "bits": ((owners, kept, self._sketch.bits // 8), np.uint8),
            "filled": ((owners, kept), np.bool_),
        }
        if owners * dimension <= MOST_KEPT:
            shapes = {**shapes, "sums": ((owners, dimension), np.float32)}
        self.arrays = restore_arrays(arrays or {}, shapes)

    @property
    def accused(self) -> Mapping[int, dict[str, Any]]:
        """Owners found in breach, with the round, the reason and the evidence."""
        return self._seen.accused

    def state(self) -> dict[str, Any]:
        """All that is to be kept between rounds, but for ``arrays``."""
        state: dict[str, Any] = _SEEN.dump_python(self._seen, mode="json")
        return state

    def present(self) -> list[int]:
        """The owners whose contract was not found broken."""
        return [owner for owner in self._contracts if owner not in self._seen.accused]

    def inspect(self, round_number: int, uploads: Mapping[int, Upload]) -> dict[int, str]:
        """The owners to refuse in this round, with reasons. All uploads have passed the screen."""
        refused: dict[int, str] = {}
        longest = self._longest(uploads)
        for owner, upload in sorted(uploads.items()):
            self._seen.tested[owner] = self._seen.tested.get(owner, 0) + 1
            found = self._judge(owner, upload, longest[self._protections[owner].name])
            if found is not None:
                refused[owner] = self._accuse(round_number, owner, *found)
        left = (self._rows[owner] for owner in sorted(uploads) if owner not in refused)
        rows = np.array([row for row in left if self._sigma[row] > 0.0], dtype=np.int64)
        if not rows.size:
            return refused
        scaled = np.empty((len(rows), uploads[self._owners[rows[0]]].size), np.float32)
        accused: dict[int, UploadFinding] = {}
        for at, row in enumerate(rows.tolist()):
            np.divide(uploads[self._owners[row]], np.float32(self._sigma[row]), out=scaled[at])
            if not self._in_steps[row] and (alone := self._alone(row, scaled[at])) is not None:
                accused[row] = alone
        accused = self._repeated(round_number, rows, scaled) | accused
        for row, finding in sorted(accused.items()):
            owner = self._owners[row]
            refused[owner] = self._accuse(round_number, owner, finding.reason, _told(finding))
        for row, finding in self._alike(rows, scaled).items():
            refused.setdefault(self._owners[row], finding.reason)
        return refused

    def evidence(self, owner: int) -> dict[str, Any]:
        """What the finding about an owner's whole contract rests on."""
        if owner in self._seen.accused:
            return dict(self._seen.accused[owner])
        if owner not in self._seen.tested:
            return {"checked": False}
        seen: dict[str, Any] = {"checked": True, "rounds_checked": self._seen.tested[owner]}
        if (pool := self._seen.pools.get(owner)) is None:
            return seen
        return seen | plain({"noise_ratio": pool.noise_ratio, "z_score": pool.z_score})

    def _accuse(self, round_number: int, owner: int, reason: str, evidence: dict[str, Any]) -> str:
        finding = {"round": round_number, "reason": reason, "evidence": evidence}
        self._seen.accused[owner] = finding
        self._report(owner, round_number, reason, evidence)
        return reason

    def _longest(self, uploads: Mapping[int, Upload]) -> dict[str, float]:
        """How long an update may be under each protection, judged by all uploads of the round."""
        groups: dict[str, dict[int, Upload]] = {}
        for owner, upload in uploads.items():
            groups.setdefault(self._protections[owner].name, {})[owner] = upload
        sigma = {owner: contract.sigma for owner, contract in self._contracts.items()}
        return {
            name: self._protections[next(iter(group))].usual_length(group, sigma)
            for name, group in groups.items()
        }

    def _judge(
        self, owner: int, upload: Upload, longest: float
    ) -> tuple[str, dict[str, Any]] | None:
        contract, protection = self._contracts[owner], self._protections[owner]
        stated = contract.protection_settings
        seen = protection.check_upload(upload, contract.sigma, self._rate, stated, longest)
        if seen.verdict != "as contracted":
            return protection.explain(seen), _shown(seen)
        if seen.method in ("clip", "reach"):
            return None
        before = self._seen.pools.get(owner)
        pool = check_pool([seen] if before is None else [before, seen], self._rate)
        self._seen.pools[owner] = pool
        if pool.verdict != "as contracted":
            return f"{protection.explain(pool)} over the rounds so far", _shown(pool)
        return None

    def _alone(self, row: int, values: NDArray[np.float32]) -> UploadFinding | None:
        """Tests of one owner's uploads: blocks, distribution, and the sum of its rounds."""
        kept, bound, size = self.arrays, float(self._bounds[row]), values.size
        precise = values.astype(np.float64)
        own = curve_sums(precise)
        kept["seen"][row] += 1
        kept["curves"][row] += own
        seen, tests = int(kept["seen"][row]), len(self._sigma) * self._rounds
        rate = self._rates["blocks"] / (2.0 * tests * max(1, blocks_of(size).size))
        if (found := check_blocks(precise, bound, rate)) is not None:
            return found
        rate = self._rates["distribution"] / (4.0 * tests * CURVES)
        for sums, number in ((own, 1), (kept["curves"][row], seen)):
            if (found := check_curves(sums, size, bound, number, rate)) is not None:
                return found
        if "sums" not in kept:
            return None
        kept["sums"][row] += values
        if seen < 2 or math.isinf(bound):
            return None
        whole = kept["sums"][row] / math.sqrt(seen)
        rate = self._rates["sum of rounds"] / (2.0 * tests)
        one = check_steps(whole, 1.0, math.sqrt(seen) * bound, rate)
        if one.verdict == "as contracted":
            return None
        reason = (
            "one direction over all rounds, beyond the clip"
            if one.verdict == "too much noise"
            else "rounds that take each other back"
        )
        return UploadFinding("sum of rounds", reason, one.statistic, one.lowest, one.highest, seen)

    def _repeated(
        self, round_number: int, rows: NDArray[np.int64], scaled: NDArray[np.float32]
    ) -> dict[int, UploadFinding]:
        """Find owners that repeat an earlier upload or its opposite; then keep the new uploads."""
        sketch, kept = self._sketch, self.arrays
        if not sketch.bits:
            return {}
        depth = kept["bits"].shape[1]
        tests = 2.0 * len(self._sigma) * self._rounds * depth
        rate, found = self._rates["earlier uploads"] / tests, {}
        new = sketch.of(scaled)
        for at, row in enumerate(rows.tolist()):
            before = np.flatnonzero(kept["filled"][row])
            if self._in_steps[row] or not before.size:
                continue
            most = sketch.most_agreeing(float(self._bounds[row]), rate)
            agree = agreeing(new[at], kept["bits"][row, before])
            for count, what in (
                (int(agree.max()), "repeats an earlier upload of its own"),
                (int(agree.min()), "is the opposite of an earlier upload of its own"),
            ):
                if not sketch.bits - most <= count <= most:
                    limits = sketch.bits - most, most
                    found[row] = UploadFinding("earlier uploads", what, float(count), *limits)
        slot = (round_number - 1) % depth
        kept["filled"][:, slot] = False
        kept["filled"][rows, slot] = True
        kept["bits"][rows, slot] = new
        return found

    def _alike(
        self, rows: NDArray[np.int64], scaled: NDArray[np.float32]
    ) -> dict[int, UploadFinding]:
        """Whose upload has its noise in common with another owner's."""
        owners = len(self._sigma)
        if owners < 2:
            return {}
        rate = self._rates["other owners"] / (float(owners) * (owners - 1) * self._rounds)
        steps = bool(self._in_steps[rows].any())
        if len(rows) > MOST_EXACT and self._sketch.bits:
            scaled = self._sketch.projected(scaled)  # far less work, and a little less power
        found: dict[int, UploadFinding] = {}
        for pair in alike(scaled, self._bounds[rows], rate, in_steps=steps):
            for at in (pair.first, pair.second):
                limits = -pair.limit, pair.limit
                seen = UploadFinding("other owners", SAME_NOISE, pair.product, *limits)
                found.setdefault(int(rows[at]), seen)
        return found


def _shown(evidence: Evidence) -> dict[str, Any]:
    return plain({**asdict(evidence), "noise_ratio": evidence.noise_ratio})


def _told(finding: UploadFinding) -> dict[str, Any]:
    """A finding as evidence: numbers of six digits, the same on every machine."""
    values = asdict(finding) | {"verdict": finding.reason}
    del values["reason"]
    for name in ("statistic", "lowest", "highest"):
        if math.isfinite(values[name]):
            values[name] = float(f"{values[name]:.6g}")
    return plain(values)


TESTED = 1000
"""Test records that the slope is taken on, at most; evenly out of all."""
SURE = 5.0
"""Standard errors by which an owner's uploads may raise the test loss before they do not count."""
LEAST_NOISE = 0.1
"""Of the clip: with less noise an owner's error is as with this much. Without it, an honest owner
with unusual records and hardly any noise would not count."""


class Contributions:
    """Adds up, round by round, how far each owner's uploads lower the test loss: the sum, and its
    variance if sigma were 1."""

    def __init__(self, order: Order, kept: Mapping[str, NDArray[Any]]) -> None:
        self._job, self._plan = order.job, order.plan
        self.arrays = restore_arrays(kept, {"lowered": ((2, len(order.job)), np.float64)})
        reach = map(order.job.protection.reach, order.job.partition.sizes.tolist())
        bounds = np.array([LEAST_NOISE * one for one in reach])
        self._bounded = np.isfinite(bounds)
        self._noise = np.maximum(order.job.sigma, np.where(self._bounded, bounds, 0.0))

    def figures(self, owner: int) -> tuple[float, float]:
        """By how much uploads lowered the test loss, and the standard error; four digits."""
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
