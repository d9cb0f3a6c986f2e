"""What the model comes to under each noise: trained once, however many mechanisms come to it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.federated.data import Dataset
from noisemarket.federated.rounds import RoundResult
from noisemarket.files import digest, write_atomic
from noisemarket.game.levels import FloatArray
from noisemarket.market.baselines import with_noise
from noisemarket.market.orders import Order, order
from noisemarket.market.serial_engine import SerialEngine
from noisemarket.market.summary import deployed
from noisemarket.market.training import carry_out
from noisemarket.privacy.accountant import Accountant
from noisemarket.scenario import Scenario

Key = tuple[int, str]
"""A training: the seed of data and noise, and a digest of all owners' noise."""


@dataclass(frozen=True, eq=False)
class NoiseOfAll:
    """All owners' noise under one seed, to be trained."""

    seed: int
    sigma: FloatArray

    @property
    def key(self) -> Key:
        """What tells it from any other."""
        return self.seed, digest(np.ascontiguousarray(self.sigma).tobytes()).hex()[:24]


@dataclass(frozen=True)
class Trained:
    """What a training came to: the deployed accuracy after each round, in per cent.

    ``seconds`` are by the clock, ``cpu_seconds`` those of its processor: a comparison that was
    resumed can still say what it took in all.
    """

    seed: int
    noise: str
    accuracies: list[float]
    seconds: float
    cpu_seconds: float = 0.0

    @property
    def key(self) -> Key:
        """What was trained."""
        return self.seed, self.noise


class Orders:
    """The same job for each seed, without trade: data and owners are the seed's."""

    def __init__(self, scenario: Scenario, data: Dataset) -> None:
        self._scenario, self._data = scenario, data
        self._last: tuple[Scenario, Order] | None = None

    def under(self, seed: int, sigma: FloatArray) -> Order:
        """The job of a seed under this noise, which is simulated."""
        if self._last is None or self._last[0].seed != seed:
            seeded = self._scenario.model_copy(update={"seed": seed})
            people = seeded.environment()
            nothing = np.full(len(people), seeded.game.sigma_max)
            self._last = seeded, order(seeded, people, nothing, data=self._data)
        seeded, made = self._last
        return with_noise(made, seeded, sigma)


class TrainingWork:
    """Trains one job on one core; it can be sent to another process."""

    def __init__(self, scenario: Scenario, data: Dataset) -> None:
        self._orders = Orders(scenario, data)

    def __call__(self, task: NoiseOfAll, tell: Callable[[RoundResult], object]) -> Trained:
        used = time.process_time()
        made = self._orders.under(task.seed, task.sigma)
        done = carry_out(made, Accountant(made.budgets), engine=SerialEngine, watch=tell)
        ends = [deployed(result) or 0.0 for result in done.rounds]
        seconds = sum(result.seconds for result in done.rounds)
        return Trained(*task.key, ends, seconds, time.process_time() - used)


def line_of(trained: Trained) -> str:
    """A training as a line of a file that grows while a comparison goes on."""
    return json.dumps(asdict(trained)) + "\n"


def read_trained(path: Path) -> dict[Key, Trained]:
    """What an earlier run has trained; a last line that was cut off is cut off for good.

    Raises:
        BadInput: a line cannot be read.
    """
    if not path.exists():
        return {}
    out: dict[Key, Trained] = {}
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            one = Trained(**json.loads(line))
        except (ValueError, TypeError):
            remedy = "remove that line: what it held is trained again."
            raise BadInput(f"line {number}", str(path), remedy) from None
        out[one.key] = one
    if whole != text:  # the next line that is added must not be glued to half of one
        write_atomic(path, whole)
    return out
