"""What a job over Flower came to: its ledger, its model, and what its owners were charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.agreed import charges

from noisemarket.ledger.queries import account, contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.owner.folder import OwnerFolder, owner_folder


def deals(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What was signed, but for what no two jobs have in common."""
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        return {
            one.contract.owner: (
                *(one.contract.saving, one.contract.sigma, one.contract.payment),
                *(one.contract.rho_cap, one.contract.epsilon, one.state, one.paid),
            )
            for one in contracts(ledger)
        }


def weights(folder: Path) -> np.ndarray:
    with np.load(folder / "curator" / "model.npz") as model:
        return np.array(model["weights"])


def job_of(folder: Path) -> str:
    return str(json.loads((folder / "market.json").read_text())["job"])


def own(folder: Path, name: str) -> OwnerFolder:
    return OwnerFolder(name, owner_folder(folder / "owners", name))


def charged(folder: Path, name: str) -> list[int]:
    return [charge.round for charge in charges(own(folder, name), job_of(folder))]


def told(folder: Path) -> dict[str, Any]:
    """All that a ledger says, but for names and times."""
    out = {}
    with open_ledger(folder / "ledger.sqlite", create=False) as ledger:
        verify(ledger)
        for one in contracts(ledger):
            terms = one.contract.sigma, one.contract.payment, one.contract.rho_cap
            rounds = account(ledger, one.contract.id).rounds
            out[one.contract.owner] = terms, one.state, one.paid, rounds
    return out


def same_model(folder: Path, other: Path) -> bool:
    with (
        np.load(folder / "curator" / "model.npz") as model,
        np.load(other / "curator" / "model.npz") as expected,
    ):
        assert np.abs(expected["weights"]).max() > 1e-4  # something was learned
        return np.allclose(model["weights"], expected["weights"], rtol=0, atol=1e-6)
