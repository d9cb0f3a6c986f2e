"""The curator's side: an ordinary Flower ServerApp with the strategy of contracts."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from moons_app import task
from noisemarket.flower.host_files import curator_path
from noisemarket.flower.strategy import ContractedFedAvg
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.store import open_ledger

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train under the contracts on the ledger, check what comes, and pay."""
    config = context.run_config
    folder = curator_path("folder", str(config["folder"]))
    curator, note = KeyPair.load(folder / "curator"), folder / "curator" / "head.json"
    with open_ledger(folder / "ledger.sqlite", create=False, curator=curator, note=note) as ledger:
        strategy = ContractedFedAvg(
            ledger, str(config["job"]), folder / "curator", wait=float(config["wait"])
        )
        first = ArrayRecord(task.perceptron().state_dict())
        result = strategy.start(grid, first, evaluate_fn=evaluate)
        assert strategy.settlement is not None
        print(f"Paid {strategy.settlement.total / 1e6:.2f}. Ledger head: {ledger.head()}")
    torch.save(result.arrays.to_torch_state_dict(), folder / "curator" / "model.pt")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """How good the global model is, on the curator's own points."""
    model = task.perceptron()
    model.load_state_dict(arrays.to_torch_state_dict())
    accuracy = task.accuracy(model)
    print(f"Round {server_round}: {100 * accuracy:.1f} % right.")
    return MetricRecord({"accuracy": accuracy})
