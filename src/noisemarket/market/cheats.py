"""What an owner may send instead of what it agreed to: one function for each way to cheat."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.federated.protections import Upload


@dataclass(frozen=True)
class CheatsView:
    """What a cheating owner has at hand in a round.

    Args:
        own: what it would send if it were honest.
        sigma: its contracted noise.
        factor: how much of its fault it does, where that can be chosen.
        rng: its own randomness of this round.
        shared: randomness that all owners with the same fault share, the same in every round.
        first: the first upload that it made.
        other: another owner's upload of this round, scaled to this owner's noise.
        moved: what the global model did since the last round.
        reach: the greatest length of an update.
        classes: how many classes there are.
        update: trains without noise; with a number, on labels that are moved by so many classes.
    """

    own: Upload
    sigma: float
    factor: float
    rng: np.random.Generator
    shared: np.random.Generator
    first: Upload
    other: Upload
    moved: NDArray[np.float64]
    reach: float
    classes: int
    update: Callable[..., Upload]

    def noise(self) -> NDArray[np.float64]:
        """Fresh noise of the contracted scale."""
        return self.rng.normal(0.0, self.sigma, self.own.size)

    def stretched(self, direction: NDArray[Any], length: float | None = None) -> NDArray[Any]:
        """A direction at this length; by default at that of the contracted noise."""
        norm = float(np.linalg.norm(direction.astype(np.float64)))
        wanted = self.sigma * math.sqrt(self.own.size) if length is None else length
        return np.asarray(direction * (wanted / norm if norm > 0.0 else 0.0))

    def step(self) -> float:
        """How long a push may be that stays within the clip."""
        return self.reach if math.isfinite(self.reach) else self.sigma


def _noise(view: CheatsView) -> NDArray[Any]:
    """Noise of ``factor`` times the scale; below 1, as far as scaling goes."""
    if view.factor < 1.0:
        return view.own * view.factor
    more = view.sigma * math.sqrt(view.factor**2 - 1.0)
    return view.own + view.rng.normal(0.0, more, view.own.shape)


def _shared_noise(view: CheatsView) -> NDArray[Any]:
    return view.shared.normal(0.0, view.sigma, view.own.size)


def _scramble(view: CheatsView) -> NDArray[Any]:
    return np.asarray(view.first * view.rng.choice([-1.0, 1.0], view.own.size))


def _two_point(view: CheatsView) -> NDArray[Any]:
    return view.update() + view.sigma * view.rng.choice([-1.0, 1.0], view.own.size)


def _half_noise(view: CheatsView) -> NDArray[Any]:
    half = view.rng.permutation(view.own.size) < view.own.size // 2
    return view.update() + math.sqrt(2.0) * view.noise() * half


def _bias_push(view: CheatsView) -> NDArray[Any]:
    """One class at the cost of all: half of what is sent is the push, half noise."""
    push = np.zeros((view.classes, -(-view.own.size // view.classes)))
    push[0] = np.abs(view.shared.normal(size=push.shape[1]))
    pushed = view.stretched(push.reshape(-1)[: view.own.size])
    return np.asarray((pushed + view.noise()) * math.sqrt(0.5))


CHEATS: dict[str, Callable[[CheatsView], Upload]] = {}
"""What each kind of fault sends."""

_SENT: dict[str, Callable[[CheatsView], NDArray[Any]]] = {
    "noise": _noise,
    "zeros": lambda view: np.zeros_like(view.own),
    "nan": lambda view: np.full_like(view.own, np.nan),
    "huge": lambda view: np.full_like(view.own, 1e30),
    "short": lambda view: view.own[: view.own.size // 2],
    "replay": lambda view: view.first,
    "copy": lambda view: view.other,
    "opposite": lambda view: -view.other,
    "blend": lambda view: (view.own + view.other) * math.sqrt(0.5),
    "shared_noise": _shared_noise,
    "constant": lambda view: np.full_like(view.own, view.sigma),
    "two_point": _two_point,
    "half_noise": _half_noise,
    "boosted": lambda view: view.stretched(view.update()),
    "boosted_flip": lambda view: -view.stretched(view.update()),
    "bias_push": _bias_push,
    "free_rider": lambda view: view.noise(),
    "scramble": _scramble,
    "flip": lambda view: -view.own,
    "wrong_labels": lambda view: view.update(1) + view.noise(),
    "echo": lambda view: view.stretched(view.moved, view.step()) + view.noise(),
}


def _sending(make: Callable[[CheatsView], NDArray[Any]]) -> Callable[[CheatsView], Upload]:
    def send(view: CheatsView) -> Upload:
        return np.asarray(make(view)).astype(np.float32)

    return send


CHEATS.update({name: _sending(make) for name, make in _SENT.items()})
