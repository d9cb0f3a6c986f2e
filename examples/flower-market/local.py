"""The whole market on this machine: deal MNIST to owners, start Flower, run the app, stop it all.

    python local.py --owners 3 --rounds 3

A simulation: one machine deals the data and the owners' secrets. Flower's processes, certificates,
keys and messages are the real ones. ``noisemarket flower up`` does the same with an app of its own.
"""

import argparse
import sys
from pathlib import Path

from prepare import make_job

from noisemarket.errors import NoisemarketError
from noisemarket.flower.deploy.deployment import Deployment

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Set up, run, and say where the results are."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--owners", type=int, default=3)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path, default=Path("runs/flower-market"))
    given = options.parse_args()

    folder = given.folder.resolve()
    if folder.exists():
        options.error(f"{given.folder} exists already: name another with --folder.")
    nodes = make_job(folder, given.owners, given.rounds)
    config = {"scenario": "scenario.toml", "folder": "."}
    with Deployment(nodes, curator=folder) as deployment:
        print(f"{len(deployment.online())} SuperNodes at {deployment.address}")
        end = deployment.run(HERE, config, show=print)
    if not end.completed:
        raise NoisemarketError(f"Run {end.run_id} ended early: {end.status}.")
    print(f"Read the ledger: noisemarket ledger ls {folder}")


if __name__ == "__main__":
    try:
        main()
    except NoisemarketError as problem:
        sys.exit(str(problem))
