"""A small market on a few images of MNIST, and an engine that trains it in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests import tiny_images
from tests.support.cheats import cheating

from noisemarket.ledger.queries import account, contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.market.events import Event
from noisemarket.market.job import run_market
from noisemarket.market.orders import PreparedMarket
from noisemarket.market.outcome import MarketOutcome, MarketRun
from noisemarket.market.training import SerialEngine
from noisemarket.privacy.accountant import read_journal
from noisemarket.scenario import Scenario

OWNERS, ROUNDS = 4, 3


def write_images(folder: Path, train: int = 120, test: int = 40) -> Path:
    """The first images of MNIST, as idx files."""
    return tiny_images.write_images(folder, train, test)


def settings(images: Path, **more: Any) -> dict[str, Any]:
    """What makes the market small. The equilibrium needs no play, and has everybody trade."""
    return {
        "mechanism": "equilibrium",
        "owners": OWNERS,
        "rounds": ROUNDS,
        "widths": (4, 8, 8),
        "surface": "printed",  # on the measured one these few owners hardly trade
        "noise": "simulated",
        "data": str(images),
        **more,
    }


def scenario(images: Path, **more: Any) -> Scenario:
    return Scenario.from_preset("market", **settings(images, **more))


def words(images: Path, **more: Any) -> list[str]:
    """What ``noisemarket`` is told to run a small market, but for the folder."""
    given = settings(images, **{"owners": 3, "rounds": 2, **more})
    given["widths"] = list(given["widths"])
    pairs = [f"{name}={json.dumps(value)}" for name, value in given.items()]
    return ["run", "--no-baselines", *(word for pair in pairs for word in ("--set", pair))]


def here(market: Scenario | PreparedMarket, folder: Path, **more: Any) -> MarketRun:
    """``run_market``, trained in this process, where some owners may cheat (``faults``)."""
    engine: Any = SerialEngine
    if faults := more.pop("faults", None):
        made = market if isinstance(market, Scenario) else market.scenario
        engine = cheating(faults, [str(name) for name in made.environment().population.names])
    return run_market(market, folder, **{"engine": engine, **_given(more)})


def _given(more: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in more.items() if value is not None}


def events(made: Scenario, folder: Path, **more: Any) -> MarketRun:
    """The market in this process."""
    return here(made, folder, **more)


def played(made: Scenario, folder: Path, **more: Any) -> tuple[list[Event], MarketOutcome]:
    run = events(made, folder, **more)
    return list(run), run.outcome


def job_name(folder: Path) -> str:
    return str(json.loads((folder / "market.json").read_text())["job"])


def state(folder: Path) -> dict[str, Any]:
    """All that a job came to, but for names, keys and times that no two jobs have in common."""
    job = json.loads((folder / "market.json").read_text())
    with open_ledger(job["ledger"] or folder, create=False) as ledger:
        kinds = [entry.kind for entry in ledger.entries(job["job"])]
        owners = {}
        for standing in contracts(ledger, job["job"]):
            whole, agreed = account(ledger, standing.contract.id), standing.contract
            terms = (agreed.saving, agreed.sigma, agreed.payment, agreed.rho_cap, agreed.rounds)
            found = (standing.state, standing.kept, standing.paid, whole.rounds, whole.evidence)
            owners[agreed.owner] = (terms, found)
    with np.load(folder / "curator" / "model.npz") as model:
        bits = model["weights"].tobytes(), model["averaged"].tobytes()
    journal = read_journal(folder / "owners" / "privacy.journal")
    statements = {
        path.parent.name: json.loads(path.read_text()) | {"ledger_head": None, "job": None}
        for path in folder.glob("owners/*/statement.json")
    }
    lines = (folder / "curator" / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    return {
        "kinds": kinds,
        "owners": owners,
        "model": bits,
        "charges": [(charge.owner, charge.round, charge.rho) for charge in journal.charges],
        "statements": statements,
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in metrics],
    }
