"""noisemarket's embedded engine with any protection."""

from __future__ import annotations

import numpy as np

from benchmarks.peers import common
from noisemarket.federated.aggregation import aggregate
from noisemarket.federated.engine import Job
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.federated.partition import Partition, dirichlet_partition
from noisemarket.federated.protections import Paper, Protection
from noisemarket.market.training import LocalEngine


def _protection(name: str) -> Protection:
    """The paper's, or another as the ``market`` preset has it for a CNN."""
    if name == "paper":
        return Paper(common.BATCH, common.RATE, 1)
    from noisemarket.scenario import Scenario
    from noisemarket.scenario.account import protection_of

    scenario = Scenario.from_preset("market")
    privacy = scenario.privacy.model_copy(update={"protection": name})
    return protection_of(scenario.model_copy(update={"privacy": privacy}), "cnn")


def _network(name: str) -> ModelMaker:
    """The paper preset's, or as the ``market`` preset has it."""
    if name == "paper":
        return TorchMaker(CNN)
    from noisemarket.market.orders import network_of
    from noisemarket.scenario import Scenario

    return network_of(Scenario.from_preset("market").training, classes=10, side=28)


def main() -> None:
    """Rounds of training and aggregation; options: protection, network, beta, workers."""
    task = common.Task.given()
    data = common.load(task)
    rounds = common.Rounds()
    protection = _protection(task.options.get("protection", "paper"))
    if "beta" in task.options:
        rng = np.random.default_rng(0)
        sizes = rng.lognormal(0.0, 0.5, task.owners)
        partition = dirichlet_partition(
            data.train_labels, task.owners, float(task.options["beta"]), rng, data_size=sizes
        )
    else:
        partition = Partition(tuple(common.shares(task)))
    model = _network(task.options.get("network", "paper"))
    job = Job(data, partition, model, protection, np.zeros(task.owners), seed=1)
    owners, shares = range(task.owners), np.ones(task.owners)
    own = protection.settings()
    passes = float(own.get("steps", own.get("epochs", 1)))  # over an owner's data in a round
    common.say(passes=passes, setting=repr(protection))
    with LocalEngine(job, workers=int(task.options.get("workers", "2"))) as engine:
        weights = engine.first_weights()
        rounds.start()
        for number in range(1, task.rounds + 1):
            uploads = engine.train(number, weights, owners)
            good = {owner: upload for owner, upload in uploads.items() if upload is not None}
            weights = aggregate(weights, good, shares)
            rounds.done()
        common.say(accuracy=engine.score(weights).accuracy)


if __name__ == "__main__":
    main()
