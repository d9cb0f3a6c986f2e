"""The curator's side: a whole market with the owners' SuperNodes, or training alone.

With ``contracts`` in the run config nothing is negotiated: the job is trained under these.
"""

from pathlib import Path

import torch  # noqa: F401 - first and here, so that nothing imports it from two threads at once
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from noisemarket.errors import NoisemarketError
from noisemarket.flower.job import market_over_flower
from noisemarket.flower.server import train_over_flower
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import load_scenario
from noisemarket.training import order, read_contracts

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Negotiate, sign, train, verify and pay; what happens is printed and kept in ``folder``."""
    config = context.run_config
    if config["contracts"]:
        train_only(grid, context)
    else:
        market_over_flower(grid, config)


def train_only(grid: Grid, context: Context) -> None:
    """Train the job that the run config names, under contracts that are given."""
    config = context.run_config
    scenario = load_scenario(Path(str(config["scenario"])))
    environment = scenario.environment(secrets=False)
    job = order(scenario, environment, read_contracts(str(config["contracts"]), environment))
    folder = RunFolder(Path(str(config["folder"])))
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder:
        outcome = train_over_flower(
            grid,
            job,
            [str(name) for name in environment.population.names],
            folder,
            timeout=float(config["timeout"]),
            grace=float(config["grace"]),
            wait=float(config["wait"]),
            insecure=bool(config["insecure"]),
            at_once=int(config["at-once"]),
        )
    if not outcome.complete:
        raise NoisemarketError("The job is not complete: run it again on the same folder.")
