"""The linear model in Flower's simulation: two Ray actors, FedAvg, a client in plain NumPy.

Features are computed once per actor. FedAvg takes the mean of models, so a client sends the model
moved by ``SERVER_RATE`` times its update.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import linear
from benchmarks.peers.task import Rounds, Task, say

DIMENSION = 200


def client(owners: int, each: int) -> ClientApp:
    """The client of all owners."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        features, labels = linear.owned(owners, each)[int(context.node_config["partition-id"])]
        update = linear.update(weights, features, labels, np.random.default_rng())
        moved = weights + np.float32(linear.SERVER_RATE) * update
        content = RecordDict(
            {
                "arrays": ArrayRecord([moved]),
                "metrics": MetricRecord({"num-examples": len(labels)}),
            }
        )
        return Message(content=content, reply_to=message)

    return app


class TimedFedAvg(FedAvg):
    """FedAvg that says when a round has ended."""

    owners: int
    rounds: Rounds
    model: ArrayRecord | None = None

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As FedAvg, then the time."""
        answers = list(replies)
        lost = sum(answer.has_error() for answer in answers)
        made = super().aggregate_train(server_round, answers)
        self.rounds.done()
        if lost or len(answers) != self.owners:
            raise RuntimeError(f"{lost} of {len(answers)} clients failed")
        self.model = made[0]
        return made


def main() -> None:
    """Run the simulation; the first round's time includes the actors' start."""
    task, server = Task.given(), ServerApp()

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        strategy = TimedFedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=task.owners,
            min_available_nodes=task.owners,
        )
        strategy.owners, strategy.rounds = task.owners, Rounds()
        start = ArrayRecord([np.zeros((10, DIMENSION), np.float32)])
        strategy.start(grid, initial_arrays=start, num_rounds=task.rounds)
        assert strategy.model is not None
        (weights,) = strategy.model.to_numpy_ndarrays()
        say(accuracy=linear.accuracy(weights, task))

    run_simulation(
        server_app=server,
        client_app=client(task.owners, task.each),
        num_supernodes=task.owners,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main()
