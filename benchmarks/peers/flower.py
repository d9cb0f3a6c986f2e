"""Flower's simulation: two Ray actors of one processor and one thread each, strategy FedAvg.

The client is the quickstart's: a DataLoader and an optim.SGD. Data are loaded once per actor.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader

from benchmarks.peers import common
from noisemarket.federated.models.cnn import CNN

TASK = common.Task.given()


def _client(owners: int, each: int) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = CNN()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        own = common.owned(owners, each)[int(context.node_config["partition-id"])]
        optimizer = torch.optim.SGD(model.parameters(), lr=common.RATE)
        loss = torch.nn.CrossEntropyLoss()
        for seen, right in DataLoader(own, batch_size=common.BATCH, shuffle=True):
            optimizer.zero_grad()
            loss(model(seen), right).backward()
            optimizer.step()
        content = RecordDict(
            {
                "arrays": ArrayRecord(model.state_dict()),
                "metrics": MetricRecord({"num-examples": len(own)}),
            }
        )
        return Message(content=content, reply_to=message)

    return app


class TimedFedAvg(FedAvg):
    """FedAvg that says when a round has ended."""

    rounds: common.Rounds
    model: ArrayRecord | None = None

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As FedAvg, then the time."""
        answers = list(replies)
        lost = sum(answer.has_error() for answer in answers)
        made = super().aggregate_train(server_round, answers)
        self.rounds.done()
        if lost or len(answers) != TASK.owners:
            raise RuntimeError(f"{lost} of {len(answers)} clients failed")
        self.model = made[0]
        return made


def main() -> None:
    """Run the simulation; the first round's time includes the actors' start."""
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        strategy = TimedFedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=TASK.owners,
            min_available_nodes=TASK.owners,
        )
        strategy.rounds = common.Rounds()
        start = ArrayRecord(common.first_model().state_dict())
        strategy.start(grid, initial_arrays=start, num_rounds=TASK.rounds)
        model = CNN()
        assert strategy.model is not None
        model.load_state_dict(strategy.model.to_torch_state_dict())
        common.say(accuracy=common.accuracy(model, common.load(TASK)))

    run_simulation(
        server_app=server,
        client_app=_client(TASK.owners, TASK.each),
        num_supernodes=TASK.owners,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main()
