"""An owner that has agreed to a contract without a market: terms kept, cost reserved."""

from __future__ import annotations

import math

from noisemarket.ledger.contract import Contract
from noisemarket.owner.folder import OwnerFolder
from noisemarket.owner.terms import Plan
from noisemarket.privacy.accountant import Charge, PrivacyBudget


def agree(folder: OwnerFolder, contract: Contract, plan: Plan) -> None:
    """What signing leaves in the owner's folder."""
    folder.agree(contract, plan)
    about = contract.owner, contract.protection, contract.sigma, 1.0
    terms = PrivacyBudget(*about, rho_cap=contract.rho_cap, simulated=contract.simulated)
    folder.wallet().reserve(contract.job, terms, contract.expires_at, math.inf)
    folder.wallet().hold(contract.job)


def charges(folder: OwnerFolder, job: str) -> list[Charge]:
    """What the owner has released in a job, by its wallet."""
    return [
        Charge(folder.name, line["round"], line["rho"] or math.inf, line["release"])
        for line in folder.wallet().history()
        if (line["job"], line["did"]) == (job, "spend")
    ]
