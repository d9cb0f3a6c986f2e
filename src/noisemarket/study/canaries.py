"""Pairs of neighbours that are as far apart as the claim allows, for the real code to upload.

A canary goes through ``Protection.upload`` like any record. It needs no hook in the protection: the
auditor may choose the model, the weights it starts from and all records, because the claim holds
for any of them. Two models serve:

- a probe, whose gradient for a record *is* the record (or its opposite, by its label), so the worst
  case is met exactly;
- the model that is really trained, from weights at which a record's two labels pull in opposite
  directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.models.linear import LinearModel, LinearRecords
from noisemarket.federated.models.model import Flat, Labels, Model, Records
from noisemarket.federated.protections import Protection, UploadTask
from noisemarket.privacy.noise import NoiseSource, SimulatedNoise

if TYPE_CHECKING:
    from torch import nn

BATCHES = 4
"""Steps of DP-SGD in the partial canary: with a single step, wrong noise per step cannot show."""
FEW = 8
"""Records of the owner with the real network, at most."""
MOST = 4096
"""Largest number of shards, or of records in a shard or batch, that is audited."""
SHARDS = 4
"""Full shards of an owner of the usual size, where their number follows from its records."""
LAYERS, WIDTH = 4, 512

_AMPLIFIER = 2  # the label of a record with a mark above 0


@dataclass(frozen=True)
class Pair:
    """Two neighbours: the same owner with the canary planted as ``-`` and as ``+``.

    ``order_seed`` fixes the order of batches, which must not matter to the claim. ``one_step`` says
    that the noise does not feed back into training, so that what is left of an upload when its
    noise-free self is taken off is noise alone.
    """

    canary: str
    model: Model
    start: Flat
    minus: Records
    plus: Records
    order_seed: int = 0
    one_step: bool = True

    def task(self, side: Records, sigma: float, noise: NoiseSource, order_seed: int) -> UploadTask:
        """What a protection is to upload for one of the two neighbours."""
        seed = np.random.SeedSequence(order_seed)
        return UploadTask(self.model, self.start, side, sigma, noise, seed)

    def plain(self, protection: Protection, order_seed: int | None = None) -> NDArray[np.float64]:
        """Both uploads without noise, (2, dimension): what the attack has to tell apart."""
        seed = self.order_seed if order_seed is None else order_seed
        silent, sides = SimulatedNoise(0), (self.minus, self.plus)
        plain = [
            protection.upload(self.task(side, 0.0, silent, seed)).astype(np.float64)
            for side in sides
        ]
        return np.stack(plain)


class LinearProbe(LinearModel):
    """The probe as a linear model of one row, with the products, shards and clipping of any other.

    A record holds a mark and a vector x; the score is <w, x>. From w = 0 the gradient is -x for
    label 0 and +x for label 1. A record with a mark above 0 is an amplifier: its score is
    |<w, x>| - mark, its label 0, so it drives w away from where <w, x> = 0, to whichever side w is
    on. It makes the final upload show on which side an earlier step ended, for an observer of all
    steps, against whom DP-SGD claims to protect, would have seen it.
    """

    def __init__(self) -> None:
        super().__init__(classes=1, dimension=LAYERS * WIDTH)

    def layers(self) -> dict[str, slice]:
        return {f"part {part}": slice(part * WIDTH, (part + 1) * WIDTH) for part in range(LAYERS)}

    def records(self, inputs: NDArray[np.float32], labels: Labels) -> LinearRecords:
        return super().records(inputs[:, 1:], np.where(inputs[:, 0] > 0.0, _AMPLIFIER, labels))

    def _residuals(self, scores: Flat, labels: Labels) -> Flat:
        along = scores[..., 0, :]
        sign = np.where(labels == 0, np.float32(-2.0), np.float32(2.0))
        slope = sign / (1.0 + np.exp(-sign * along))
        wrong: Flat = np.where(labels == _AMPLIFIER, -2.0 * np.sign(along), slope)
        return wrong.astype(np.float32)[..., None, :]


def probe_for(model: Model) -> Model:
    """The probe that goes through the same code as this model."""
    if isinstance(model, LinearModel):
        return LinearProbe()
    from noisemarket.federated.models.torch_model import TorchModel

    return TorchModel(_torch_probe())


def _torch_probe() -> nn.Module:
    """``LinearProbe`` as a module with its weights in several parameters, like a network's."""
    import torch
    from torch import nn

    class TorchProbe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ParameterList([nn.Parameter(torch.zeros(WIDTH)) for _ in range(LAYERS)])

        def forward(self, records: torch.Tensor) -> torch.Tensor:
            """Scores of two classes for a batch (batch, 1 + dimension)."""
            mark, vectors = records[:, 0], records[:, 1:]
            along = vectors @ torch.cat(list(self.parts))
            score = torch.where(mark > 0.0, along.abs() - mark, along)
            return torch.stack((score, -score), dim=1)

    return TorchProbe()


def setting(protection: Protection, name: str | None, default: float) -> float:
    """A setting of a protection by name, or the default."""
    return float(getattr(protection, name, default)) if name else default


def fixed_parts(protection: Protection) -> int:
    """Clipped parts that an update is the mean of, however few records an owner has."""
    return protection.parts(1)


def few(protection: Protection) -> int:
    """Records of the owner with the real model: no second one in the canary's shard."""
    if setting(protection, "records_per_shard", 1) > 1:
        return 1
    fixed = fixed_parts(protection)
    return min(FEW, fixed) if fixed > 1 else FEW


def whole(protection: Protection, probe: Model, seed: int) -> Pair:
    """The canary is all there is: nothing else is in its shard or batch, nor in the owner."""
    direction, _ = _directions(seed, 1)
    x = direction * _loud(protection, 1)
    side = [_records(probe, [x], [0.0], [label]) for label in (1, 0)]
    return _probe_pair("whole", probe, side[0], side[1])


def partial(protection: Protection, probe: Model, seed: int) -> Pair:
    """The canary is one record among others in its shard or batch, in an owner with many records.

    Those in its shard pull across, the rest are blank: that must not matter either. Under DP-SGD
    there are several batches, some of the records amplify, and of several orders of the batches
    the one that puts the canary first is taken.
    """
    count, quiet = _owner(protection)
    direction, others = _directions(seed, count - 1)
    vectors = [direction * _loud(protection, 3), *(quiet * other for other in others)]
    if not protection.noise_in_steps:
        for index in range(count):
            vectors[index] *= np.float32(index % protection.parts(count) == 0)
    marks, labels = [0.0] * count, [i % 2 for i in range(count)]
    amplified = protection.noise_in_steps
    if amplified:
        clip = setting(protection, "clip", 1.0)
        mark = 1e4 * (1.0 + protection.reach(fixed_parts(protection)) * clip)
        for index in range(1, count):
            if index % 4:
                vectors[index] = direction * np.float32(clip)
                marks[index], labels[index] = mark, 0
    minus, plus = (_records(probe, vectors, marks, [label, *labels[1:]]) for label in (1, 0))
    pair = _probe_pair("partial", probe, minus, plus)
    if not amplified:
        return pair
    distance = {s: _distance(pair.plain(protection, s)) for s in range(seed, seed + 24)}
    return replace(pair, order_seed=max(distance, key=lambda s: distance[s]), one_step=False)


def silent(protection: Protection, probe: Model) -> Pair:
    """An owner of records without gradient: its upload is the noise alone, over several steps."""
    count, _ = _owner(protection)
    nothing = [np.zeros(LAYERS * WIDTH, np.float32)] * count
    records = _records(probe, nothing, [0.0] * count, [0] * count)
    return _probe_pair("silent", probe, records, records)


def network(
    protection: Protection,
    model: Model,
    shape: tuple[int, ...],
    classes: int,
    enough: float,
    seed: int,
) -> Pair:
    """The model that is trained, and an owner of a few records, one of which is the canary.

    It starts where for the canary two labels are as likely and the others impossible: then the two
    labels' gradients are opposite in every layer. The canary's input is made larger until the
    uploads are ``enough`` apart; the other inputs stay as they are.
    """
    count = few(protection)
    inputs = np.random.default_rng(seed).random((count, *shape), np.float32)
    first = model.first_weights()
    target = np.full(classes, -50.0, np.float32)
    target[:2] = 0.0
    best: tuple[float, Pair] | None = None
    for power in range(12):
        bright = np.concatenate((inputs[:1] * np.float32(2.0**power), inputs[1:]))
        start = model.aim(first, bright[:1], target)
        labels = [i % 2 for i in range(1, count)]
        minus, plus = (model.records(bright, np.array([label, *labels])) for label in (1, 0))
        pair = Pair("network", model, start, minus, plus, seed)
        try:
            apart = _distance(pair.plain(protection))
        except BadInput:  # so bright that the update is no longer one; earlier ones are kept
            break
        if best is None or apart > best[0]:
            best = apart, pair
        if apart >= 0.97 * enough:
            break
    if best is None or best[0] == 0.0:
        raise BadInput("model", type(model).__name__, "no record moves it: nothing to find.")
    return best[1]


def _owner(protection: Protection) -> tuple[int, float]:
    """How many records an owner of the usual size has, and how long its gradients are."""
    clip = setting(protection, "clip", math.inf)
    if math.isinf(clip):
        return 128, 1.0
    if protection.noise_in_steps:
        return BATCHES * fixed_parts(protection), 2.0 * clip
    size = int(setting(protection, "records_per_shard", 0))
    count = SHARDS * size + 1 if size else 2 * fixed_parts(protection) + 1
    return count, clip / setting(protection, "rate", 1.0)


def _loud(protection: Protection, among: int) -> float:
    """A length that drowns the other records of a shard or batch and is sure to be clipped."""
    clip = setting(protection, "clip", math.inf)
    if math.isinf(clip):
        return 1e4
    if protection.noise_in_steps:
        return 100.0 * clip * fixed_parts(protection)
    return 1000.0 * among * clip / setting(protection, "rate", 1.0)


def _directions(seed: int, others: int) -> tuple[Flat, Flat]:
    """A random unit vector, and others across it."""
    drawn = np.random.default_rng(seed).standard_normal((1 + others, LAYERS * WIDTH))
    direction, rest = drawn[0] / np.linalg.norm(drawn[0]), drawn[1:]
    rest = rest - np.outer(rest @ direction, direction)
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    return direction.astype(np.float32), rest.astype(np.float32)


def _records(probe: Model, vectors: list[Flat], marks: list[float], labels: list[int]) -> Records:
    inputs = np.column_stack((np.array(marks, np.float32), np.stack(vectors)))
    return probe.records(inputs, np.array(labels))


def _probe_pair(canary: str, probe: Model, minus: Records, plus: Records) -> Pair:
    return Pair(canary, probe, np.zeros(len(probe), np.float32), minus, plus)


def _distance(plain: NDArray[np.float64]) -> float:
    with np.errstate(invalid="ignore"):
        apart = float(np.linalg.norm(plain[1] - plain[0]))
    return apart if np.isfinite(apart) else 0.0
