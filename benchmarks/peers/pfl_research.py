"""pfl-research: FederatedAveraging on its simulated backend, two processes of one thread each.

Started twice by the driver with PFL_WORKER_ADDRESSES and PFL_WORKER_RANK, as its guide says. A
user's data is a tensor dataset, which it cuts into batches without a DataLoader. It evaluates every
user in its first iteration, and only there.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers import common
from noisemarket.federated.models.cnn import CNN


class Network(CNN):
    """The network with the two methods that pfl asks for."""

    def loss(self, images: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        self.train(not eval)
        return torch.nn.functional.cross_entropy(self(images), labels)

    def metrics(self, images: torch.Tensor, labels: torch.Tensor, eval: bool = True) -> dict:
        """Nothing: rounds are not evaluated here."""
        return {}


class Timer(TrainingProcessCallback):
    """Says when a round has ended."""

    def __init__(self, speaks: bool) -> None:
        self._rounds, self._speaks = common.Rounds(), speaks

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Rounds count from here."""
        self._rounds.start()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """A round is done."""
        if self._speaks:
            self._rounds.done()
        return False, Metrics()


def main() -> None:
    """Train; only the first process reports."""
    task = common.Task.given()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    data = common.load(task)
    images, labels = common.tensors(data)
    users = {
        str(owner): PyTorchTensorDataset((images[part], labels[part]), user_id=str(owner))
        for owner, part in enumerate(common.shares(task))
    }
    np.random.seed(1)  # noqa: NPY002 (pfl draws its cohorts from NumPy's global state)
    torch.manual_seed(1)
    network = Network()
    network.load_state_dict(common.first_model().state_dict())
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    sampler = get_user_sampler("minimize_reuse", list(users))
    owned = FederatedDataset(users.__getitem__, sampler)
    first = os.environ.get("PFL_WORKER_RANK", "0") == "0"
    trained = FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=task.rounds,
            evaluation_frequency=task.rounds + 1,
            train_cohort_size=task.owners,
            val_cohort_size=0,
        ),
        SimulatedBackend(owned, owned),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=common.RATE, local_batch_size=common.BATCH
        ),
        callbacks=[Timer(first)],
    )
    if first:
        common.say(accuracy=common.accuracy(trained.pytorch_model, data))


if __name__ == "__main__":
    main()
