"""All of it on this machine: agree on contracts, and train under them in Flower's simulation.

python local.py --owners 4 --rounds 8
"""

import argparse
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from moons_app import client_app, server_app, task

from noisemarket.flower.client_mod import parameters
from noisemarket.flower.simulation import NodeConfig, simulate
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.store import open_ledger
from noisemarket.market.offers import draft_clipped, record_contracts
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import OwnerFolder
from noisemarket.privacy.accountant import read_journal

JOB, CLIP, FULL_NOISE = "moons", 1.0, 0.05


def deals(owners: int) -> dict[str, dict[str, Any]]:
    """How much of its noise each owner sells, for how many micro-units: every second owner more.

    Made up here; ``noisemarket negotiate`` finds such deals.
    """
    savings = [0.04 if number % 2 else 0.03 for number in range(owners)]
    return {
        f"owner-{number}": {
            "saving": saving,
            "sigma": FULL_NOISE - saving,
            "payment": round(100e6 * saving),
        }
        for number, saving in enumerate(savings)
    }


def agree(
    folder: Path, made: dict[str, dict[str, Any]], rounds: int, **more: bool
) -> dict[str, NodeConfig]:
    """Give every owner a folder, have both sides sign, put the contracts on the ledger; gives the
    node config of each owner.

    Between real hosts, what goes from one to the other is the owner's public key, the contract, and
    the owner's signature. What an owner does for itself has a comment here.
    """
    curator = KeyPair.obtain(folder / "curator")
    size = parameters(ArrayRecord(task.perceptron().state_dict()))
    accepted, configs = [], dict[str, NodeConfig]()
    for number, (name, deal) in enumerate(made.items()):
        owner = OwnerFolder(name, folder / "owners" / name)
        agent = OwnerAgent(owner)  # the owner's: signs for it
        owner.keep_records(*task.moons(200, seed=number))  # the owner's: its records
        keys = agent.public_key, curator.public_hex
        contract = draft_clipped(
            JOB, name, *keys, **deal, clip=CLIP, parameters=size, rounds=rounds, **more
        )
        most = contract.rho_cap  # the owner's: how much privacy it sells at most
        signature = agent.accept_without_game(contract, size, most, index=number)
        accepted.append((contract, signature))
        configs[owner.name] = {"owner": owner.name, "owner-folder": str(owner.path.resolve())}
    with open_ledger(folder / "ledger.sqlite", curator=curator) as ledger:
        record_contracts(ledger, curator, sum(deal["payment"] for deal in made.values()), accepted)
    return configs


def main() -> None:
    """Set up, run, and say where the results are."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--owners", type=int, default=4)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--folder", type=Path, default=Path("runs/flower-own-model"))
    given = options.parse_args()

    folder = given.folder.resolve()
    if folder.exists():
        options.error(f"{given.folder} exists already: name another with --folder.")
    folder.mkdir(parents=True)
    nodes = agree(folder, deals(given.owners), given.rounds)
    simulate(
        list(nodes.values()),
        lambda grid: server_app.train(grid, folder, JOB, given.rounds),
        app=client_app.app,
    )
    for name, config in nodes.items():
        journal = read_journal(OwnerFolder.of(config).journal(JOB))
        print(f"{name}: epsilon {journal.statement(name).epsilon:,.0f} by its own journal")
    print(f"Read the contracts: noisemarket ledger ls {folder}")


if __name__ == "__main__":
    main()
