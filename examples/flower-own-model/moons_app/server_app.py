"""The curator's side: an ordinary Flower ServerApp with Flower's own strategy."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from moons_app import task
from noisemarket.flower.host_files import curator_path

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run config says."""
    config = context.run_config
    folder = curator_path("folder", str(config["folder"]))
    train(grid, folder, str(config["job"]), int(config["rounds"]))


def train(grid: Grid, folder: Path, job: str, rounds: int) -> None:
    """Train for the contracted rounds, and keep the model.

    Every message names the job, so that an owner knows under which contract it trains. The owners'
    mod sets ``num-examples`` to 1: they count alike.
    """
    strategy = FedAvg(fraction_evaluate=0.0)  # nothing would account for what owners evaluate
    result = strategy.start(
        grid,
        ArrayRecord(task.perceptron().state_dict()),
        rounds,
        train_config=ConfigRecord({"job": job}),
        evaluate_fn=evaluate,
    )
    torch.save(result.arrays.to_torch_state_dict(), folder / "curator" / "model.pt")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """How good the global model is, on the curator's own points."""
    model = task.perceptron()
    model.load_state_dict(arrays.to_torch_state_dict())
    accuracy = task.accuracy(model)
    print(f"Round {server_round}: {100 * accuracy:.1f} % right.")
    return MetricRecord({"accuracy": accuracy})
