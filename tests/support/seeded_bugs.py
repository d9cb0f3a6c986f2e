"""Protections with a bug each, on purpose: negative controls that an audit has to catch.

Never train with them. Each is made out of the right protection through its public interface, and
claims what the right one claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noisemarket.federated.protections import Protection, Upload, UploadTask
from noisemarket.privacy.noise import add_noise
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.study.audit import FEW, setting

_NEVER = 2.0**20  # no update is so long


@dataclass(frozen=True)
class Bug:
    """What is wrong, in words and in code, and which protections it makes a difference to."""

    meaning: str
    upload: Callable[[Protection, UploadTask], Upload]
    touches: Callable[[Protection], bool]


@dataclass(frozen=True)
class Buggy(Protection):
    """A right protection with one bug in it; what it claims is what the right one claims."""

    right: Protection
    bug: str
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.right.name)

    def __getattr__(self, name: str) -> Any:
        if name in ("right", "bug") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.right, name)  # settings such as clip, rate and shards

    def whole_owner(self, records: int) -> bool:
        return self.right.whole_owner(records)

    @property
    def noise_in_steps(self) -> bool:
        return self.right.noise_in_steps

    def parts(self, records: int) -> int:
        return self.right.parts(records)

    def upload(self, task: UploadTask) -> Upload:
        return BUGS[self.bug].upload(self.right, task)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        return self.right.sensitivity(dimension, records, neighbours)

    def reach(self, records: int) -> float:
        return self.right.reach(records)

    def protects(self, neighbours: Neighbours, records: int) -> str:
        return self.right.protects(neighbours, records)


def bugs_of(protection: Protection) -> tuple[str, ...]:
    """The bugs that make a difference to this protection."""
    return tuple(name for name, bug in BUGS.items() if bug.touches(protection))


def _changed(protection: Protection, **settings: Any) -> Protection:
    return protection.from_settings({**protection.settings(), **settings})


def _steps(right: Protection, records: int) -> int:
    """Steps of training that a wrong protection may divide its noise by."""
    if right.noise_in_steps:
        return max(1, records // right.parts(1))
    return int(setting(right, "steps", 1))


def _less_noise(right: Protection, task: UploadTask) -> Upload:
    return right.upload(replace(task, sigma=0.8 * task.sigma))


def _no_clipping(right: Protection, task: UploadTask) -> Upload:
    return _changed(right, clip=_NEVER).upload(task)


def _batch_clipping(right: Protection, task: UploadTask) -> Upload:
    """The mean is clipped, not what it is the mean of."""
    records, here = task.records, task.start.copy()
    if right.noise_in_steps:
        steps, size = _steps(right, len(records)), right.parts(1)
        order = task.rng.permutation(len(records))
        batches = [order[step * size : (step + 1) * size] for step in range(steps)]
    else:
        batches = [np.arange(len(records))]
    for some in batches:
        batch = records.take(some)
        free = replace(task, start=here, records=batch, sigma=0.0)
        move = _cut(_no_clipping(right, free), right.reach(len(batch)))
        here += add_noise(move, task.sigma / math.sqrt(len(batches)), task.noise)
    return here - task.start


def _wrong_denominator(right: Protection, task: UploadTask) -> Upload:
    """The number of records that are there, or that have a gradient, not the agreed one."""
    if right.noise_in_steps:
        return _changed(right, batch=min(right.parts(1), len(task.records))).upload(task)
    records, quiet = task.records, replace(task, sigma=0.0)
    moves = [
        right.upload(replace(quiet, records=records.take(np.array([index])))).any()
        for index in range(len(records))
    ]
    agreed, size = right.parts(len(records)), setting(right, "records_per_shard", 1)
    there = min(agreed, max(1, math.ceil(sum(moves) / size)))
    return add_noise(right.upload(quiet) * np.float32(agreed / there), task.sigma, task.noise)


def _noise_over_steps(right: Protection, task: UploadTask) -> Upload:
    """Noise once: sigma / steps. On each of T steps: sigma / T, not sigma / sqrt(T)."""
    steps = _steps(right, len(task.records))
    divisor = math.sqrt(steps) if right.noise_in_steps else steps
    return right.upload(replace(task, sigma=task.sigma / divisor))


def _bare_layer(right: Protection, task: UploadTask) -> Upload:
    """The smallest layer, the hardest to see, leaves without noise."""
    plain = right.upload(replace(task, sigma=0.0))
    noisy = right.upload(task).copy()
    layers = task.model.layers().values()
    smallest = min(layers, key=lambda here: here.stop - here.start)
    noisy[smallest] = plain[smallest]
    return noisy


def _cut(update: Upload, clip: float) -> Upload:
    length = float(np.linalg.norm(update.astype(np.float64)))
    return update * np.float32(min(1.0, clip / length)) if length > 0.0 else update


def _clips(right: Protection) -> bool:
    return "clip" in right.settings()


def _averages(right: Protection) -> bool:
    return _clips(right) and right.parts(FEW) > 1


def _has_steps(right: Protection) -> bool:
    return right.noise_in_steps or setting(right, "steps", 1) > 1


BUGS = {
    "less_noise": Bug("20 % too little noise", _less_noise, lambda right: True),
    "no_clipping": Bug("nothing is clipped", _no_clipping, _clips),
    "batch_clipping": Bug(
        "the mean is clipped, not each shard or example", _batch_clipping, _averages
    ),
    "wrong_denominator": Bug(
        "divided by the shards or records that are there, not by the agreed number",
        _wrong_denominator,
        _averages,
    ),
    "noise_over_steps": Bug("noise divided by the number of steps", _noise_over_steps, _has_steps),
    "bare_layer": Bug("one layer leaves without noise", _bare_layer, lambda right: True),
}
"""Every seeded bug by name."""
