"""noisemarket's embedded engine with the ``market`` preset's protection, features or CNN."""

from __future__ import annotations

import numpy as np

from benchmarks.peers import linear
from benchmarks.peers.task import Rounds, Task, load, say, shares
from noisemarket.federated.aggregation import aggregate
from noisemarket.federated.engine import Job
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.partition import Partition
from noisemarket.market.training import LocalEngine
from noisemarket.privacy.noise import KeyedNoise
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of

IMAGES = 60_000


def _partition(task: Task) -> Partition:
    """Equal parts; where there are more owners than images for them, images are held again."""
    distinct = min(task.owners, IMAGES // task.each)
    parts = shares(Task(owners=distinct, each=task.each))
    indices = tuple(parts[owner % distinct] for owner in range(task.owners))
    return Partition(indices)


def main() -> None:
    """Rounds of training and aggregation; options: model, noise (secure, keyed, simulated)."""
    task = Task.given()
    name = task.options.get("model", "features")
    scenario = Scenario.from_preset("market", model=name)
    data = load(task)
    if name == "features":
        data = data.with_features()
        assert data.features is not None
        maker: ModelMaker = LinearMaker(10, data.features.dimension)
    else:
        from noisemarket.market.orders import network_of

        maker = network_of(scenario.training, classes=10, side=28)
    kind = task.options.get("noise", "secure")
    job = Job(
        data, _partition(task), maker, protection_of(scenario),
        np.full(task.owners, linear.SIGMA), seed=1,
        noise="simulated" if kind == "simulated" else "secure",
        noise_key=KeyedNoise.new_key() if kind == "keyed" else None,
    )  # fmt: skip
    rate = linear.SERVER_RATE if name == "features" else 1.0
    owners, weighing = range(task.owners), np.ones(task.owners)
    rounds = Rounds()
    with LocalEngine(job, workers=int(task.options.get("workers", "2"))) as engine:
        weights = engine.first_weights()
        rounds.start()
        for number in range(1, task.rounds + 1):
            uploads = engine.train(number, weights, owners)
            good = {owner: upload for owner, upload in uploads.items() if upload is not None}
            weights = aggregate(weights, good, weighing, rate=rate)
            rounds.done()
        say(accuracy=engine.score(weights).accuracy)


if __name__ == "__main__":
    main()
