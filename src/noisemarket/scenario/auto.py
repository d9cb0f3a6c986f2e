"""What ``auto`` stands for in a scenario: settings that suit its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from noisemarket.federated.aggregation import LINEAR_AVERAGING, NETWORK_AVERAGING

AUTO = "auto"

ModelKind = Literal["features", "cnn"]


@dataclass(frozen=True)
class Tuning:
    """Settings that suit a model.

    Args:
        local_rate: step size of an owner's SGD.
        shard_steps: steps of a shard.
        shard_rate: their size. Features take one long step, which the clip then cuts to length.
        averaging: weight of the past in an average of the global models.
    """

    local_rate: float
    shard_steps: int
    shard_rate: float
    averaging: float


TUNINGS: dict[ModelKind, Tuning] = {
    "features": Tuning(0.5, 1, 60.0, LINEAR_AVERAGING),
    "cnn": Tuning(0.05, 2, 0.4, NETWORK_AVERAGING),
}


def tuned(name: str, value: Any, kind: ModelKind) -> Any:
    """A setting's value, or what ``auto`` stands for."""
    return getattr(TUNINGS[kind], name, value) if value == AUTO else value
