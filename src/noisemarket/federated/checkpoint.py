"""Where training stands after a round, and the same on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Score, Weights
from noisemarket.files import load_arrays, save_arrays
from noisemarket.formats import finite

_KEPT = "kept-"


@dataclass(frozen=True)
class RoundResult:
    """What a round came to. ``averaged`` scores the average of the global models, where kept.

    ``delivered`` are the owners whose uploads moved the model, ``owners`` says how many they are.
    """

    number: int
    score: Score
    averaged: Score | None
    seconds: float
    owners: int
    refused: tuple[tuple[int, str], ...]
    delivered: tuple[int, ...] = ()

    @property
    def charged(self) -> tuple[int, ...]:
        """All owners that the round was charged to."""
        return tuple(sorted({*self.delivered, *(owner for owner, _ in self.refused)}))

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with null for a loss that is not finite."""
        values = asdict(self)
        for score in (values["score"], values["averaged"]):
            if score is not None:
                score["loss"] = finite(score["loss"])
        return values


@dataclass
class State:
    """Where training stands: the global model, the average of the models, and the rounds so far.

    ``job`` names the job in the market. ``inspector`` is what the inspection of uploads goes on
    from: plain values for JSON; ``kept`` are the arrays that it keeps of uploads. ``velocity`` is
    what momentum carries from round to round: a single zero where there is none.
    """

    weights: Weights
    averaged: Weights
    results: list[RoundResult] = field(default_factory=list)
    job: str = ""
    inspector: dict[str, Any] = field(default_factory=dict)
    velocity: Weights = field(default_factory=lambda: np.zeros(1))
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def rounds_done(self) -> int:
        return len(self.results)

    @classmethod
    def first(cls, weights: Weights, job: str = "") -> State:
        return cls(weights.copy(), weights.copy(), job=job)


class Checkpoint:
    """The state after each round on disk, whole or not at all, for one job and no other."""

    def __init__(self, path: Path, fingerprint: str, *, private: bool = False) -> None:
        self.path, self.fingerprint, self._private = path, fingerprint, private

    def save(self, state: State) -> None:
        """Write the state; a crash leaves the one before."""
        kept: dict[str, Any] = {_KEPT + name: array for name, array in state.kept.items()}
        save_arrays(
            self.path,
            private=self._private,
            fingerprint=self.fingerprint,
            round_number=state.rounds_done,
            weights=state.weights,
            averaged=state.averaged,
            velocity=state.velocity,
            results=json.dumps([result.to_dict() for result in state.results]),
            extra=json.dumps({"job": state.job, **state.inspector}),
            **kept,
        )

    def load(self, like: State | None = None) -> State | None:
        """The last state, None if there is none yet; it must have the shape of ``like``.

        Raises:
            BadInput: it is of another job, or is not what ``save`` wrote.
        """
        if not self.path.exists():
            return None
        try:
            saved = load_arrays(self.path)
            if str(saved["fingerprint"]) != self.fingerprint:
                raise BadInput("checkpoint", str(self.path), "belongs to another scenario.")
            results = [read_result(line) for line in json.loads(str(saved["results"]))]
            inspector = dict(json.loads(str(saved["extra"])))
            job = str(inspector.pop("job", ""))
            models, velocity = (saved["weights"], saved["averaged"]), saved["velocity"]
            shape = saved["weights"].shape if like is None else like.weights.shape
            for array, shapes in (*((one, [shape]) for one in models), (velocity, [shape, (1,)])):
                if array.dtype.kind != "f" or array.shape not in shapes:
                    raise ValueError("its weights are not those of this model")
                if not np.isfinite(array).all():
                    raise ValueError("its weights are not finite")
            kept = {
                name.removeprefix(_KEPT): array
                for name, array in saved.items()
                if name.startswith(_KEPT)
            }
            return State(*models, results, job, inspector, velocity, kept)
        except RecursionError:
            raise BadInput("checkpoint", str(self.path), "cannot be read (too deep).") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
            raise BadInput("checkpoint", str(self.path), f"cannot be read ({problem}).") from None


def read_result(line: Mapping[str, Any]) -> RoundResult:
    """A round's result from what ``to_dict`` made of it."""
    averaged = None if line["averaged"] is None else _score(line["averaged"])
    refused = tuple((int(owner), str(why)) for owner, why in line["refused"])
    delivered = tuple(map(int, line["delivered"]))
    fields = {"averaged": averaged, "refused": refused, "delivered": delivered}
    return RoundResult(**{**line, "score": _score(line["score"]), **fields})


def _score(values: Mapping[str, Any]) -> Score:
    return Score(values["accuracy"], math.inf if values["loss"] is None else values["loss"])
