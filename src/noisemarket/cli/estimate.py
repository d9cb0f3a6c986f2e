"""How long trainings will take, said before they start."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from noisemarket.machine import available_cores

if TYPE_CHECKING:
    from noisemarket.scenario import Scenario

RECORD = {
    ("features", "per_record"): 0.5, ("features", "paper"): 0.8,
    ("features", "dp_sgd"): 3.5, ("features", "sharded"): 16.0,
    ("cnn", "paper"): 50.0, ("cnn", "dp_sgd"): 190.0,
    ("cnn", "sharded"): 140.0,
}  # fmt: skip
"""CPU microseconds that a record takes in one pass, by model and protection: measured on MNIST with
the default sizes, on a busy core of an AMD EPYC."""

TEST = {"features": 0.05, "cnn": 0.5}
"""CPU seconds that a round takes besides, for the test of the model."""

INTERACTION = 0.33e-6
"""CPU seconds of an interaction between an owner and the curator that learn."""

LONG = 30.0
"""Seconds from which a user is told."""


def announce(scenario: Scenario, trainings: int, workers: int | None) -> None:
    """Say on standard error how long so many trainings of a scenario will take, if it is long."""
    if not trainings:
        return
    owners, training = scenario.population.owners, scenario.training
    times = f"{trainings:,} trainings of " if trainings > 1 else ""
    model = "the CNN" if training.model == "cnn" else "a linear model"
    words = f"{times}{owners:,} owners x {training.rounds:,} rounds of {model}"
    _tell(trainings * training_seconds(scenario), workers, words)


def announce_games(games: int, owners: int, interactions: int, workers: int | None) -> None:
    """The same for negotiations by learning."""
    words = f"{games:,} games of {owners:,} owners x {interactions:,} interactions"
    _tell(games * owners * interactions * INTERACTION, workers, words)


def _tell(cpu_seconds: float, workers: int | None, words: str) -> None:
    seconds = cpu_seconds / min(workers or 10**6, available_cores())
    if seconds >= LONG:
        print(f"About {_in_words(seconds)}: {words}.", file=sys.stderr, flush=True)


def training_seconds(scenario: Scenario) -> float:
    """CPU seconds of one training; 0 for a protection of one's own, of which nothing is known."""
    from noisemarket.federated.data_files import load_data
    from noisemarket.scenario.account import protection_of

    training = scenario.training
    each = RECORD.get((training.model, protection_of(scenario).name))
    if each is None:
        return 0.0
    records = len(load_data(training.data or None).train_labels)
    if not records:  # owners on their own hosts keep them
        records = int(scenario.environment(secrets=False).population.data_size.sum())
    wide = training.widths[0] * training.widths[1] / 128 if training.model == "cnn" else 1.0
    passes = records * each * 1e-6
    return training.rounds * wide * (passes + TEST[training.model])


def _in_words(seconds: float) -> str:
    for unit, size in (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return "a second"
