"""Whole rounds of ``noisemarket.train``: account, training, mean, and two models tested."""

from __future__ import annotations

import noisemarket as nm
from benchmarks.peers import linear
from benchmarks.peers.task import Task, load, say
from noisemarket.federated.rounds import RoundResult


def _tell(done: RoundResult) -> None:
    say(round=done.number, seconds=done.seconds)


def main() -> None:
    """Train by the public interface; option: model."""
    task = Task.given()
    scenario = nm.Scenario.from_preset(
        "market", owners=task.owners, rounds=task.rounds, model=task.options["model"]
    )
    trained = nm.train(scenario, sigma=linear.SIGMA, data=load(task), workers=2, watch=_tell)
    say(accuracy=trained.accuracy)


if __name__ == "__main__":
    main()
