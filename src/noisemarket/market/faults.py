"""Owners that do not keep to their contracts, for studies and tests of what the market makes of it.

A fault happens on the owner's side, between its protection and the wire, where the curator cannot
look: so the engine that trains is wrapped, and nothing else in the market knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from noisemarket.federated.engine import Engine, Score, Weights
from noisemarket.federated.protections import Upload

Kind = Literal["noise", "zeros", "nan", "huge", "short", "absent"]


@dataclass(frozen=True)
class Fault:
    """What an owner does wrong, from round ``first`` to ``last`` (counted from 1).

    ``noise`` adds further noise so that the whole has ``factor`` times the contracted scale; the
    others send zeros, not-a-number, 1e30, half a vector, or nothing at all.
    """

    owner: int
    kind: Kind
    factor: float = 1.1
    first: int = 1
    last: int = 10**9


class FaultyEngine(Engine):
    """An engine some of whose owners misbehave."""

    def __init__(
        self, engine: Engine, faults: Sequence[Fault], sigma: Mapping[int, float], seed: int
    ) -> None:
        self._engine, self._faults, self._sigma, self._seed = engine, tuple(faults), sigma, seed

    @property
    def dimension(self) -> int:
        return self._engine.dimension

    def first_weights(self) -> Weights:
        return self._engine.first_weights()

    def score(self, weights: Weights) -> Score:
        return self._engine.score(weights)

    def close(self) -> None:
        self._engine.close()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        uploads = self._engine.train(round_number, weights, owners)
        for fault in self._faults:
            if fault.owner in uploads and fault.first <= round_number <= fault.last:
                uploads[fault.owner] = self._spoilt(fault, uploads[fault.owner], round_number)
        return uploads

    def _spoilt(self, fault: Fault, upload: Upload | None, round_number: int) -> Upload | None:
        if upload is None or fault.kind == "absent":
            return None
        if fault.kind == "short":
            return upload[: len(upload) // 2]
        if fault.kind == "noise":
            rng = np.random.default_rng([self._seed, fault.owner, round_number - 1])
            more = self._sigma[fault.owner] * np.sqrt(max(fault.factor**2 - 1.0, 0.0))
            noise = rng.normal(0.0, more, upload.shape)
            if fault.factor < 1.0:  # with less noise than contracted: as far as scaling goes
                return (upload * fault.factor).astype(np.float32)
            return (upload + noise).astype(np.float32)
        value = {"zeros": 0.0, "nan": np.nan, "huge": 1e30}[fault.kind]
        return np.full_like(upload, value)
