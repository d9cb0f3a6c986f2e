"""Everything about one owner of a run: contract, words, rounds, ledger entries, policy."""

from __future__ import annotations

import math
import time
import zipfile
from typing import Any

import numpy as np

from noisemarket.dashboard.run_data import contract_rows, environment_of
from noisemarket.dashboard.run_ledger import is_elsewhere, ledger_of
from noisemarket.dashboard.run_store import SUMMARY, RunStore, UnknownRun
from noisemarket.errors import BadInput
from noisemarket.ledger import queries
from noisemarket.ledger.ledger_errors import LedgerBroken
from noisemarket.ledger.money import MICRO
from noisemarket.ledger.verification import verify
from noisemarket.plain import finite
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.report.ledger_report import contract_statement, owner_words, statement_sentences

POLICIES = "policies.npz"
CHECKED_SECONDS = 30.0
"""How long the finding about a ledger on a server is kept for all who ask."""

ELSEWHERE = (
    "The ledger of this run is on a server. Start the dashboard with --ledger URL to read it here."
)


class LedgerReader:
    """Reads ledgers of runs. A ledger file that has not changed is not verified again.

    Args:
        store: the runs.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def verification(self, run: str) -> dict[str, Any]:
        """Whether the ledger of a run is sound; the head that its summary noted is checked, too.

        Raises:
            UnknownRun: it has none.
        """
        where = ledger_of(self._store, run)
        if where is None and is_elsewhere(self._store, run):
            raise UnknownRun(ELSEWHERE)
        if where is None:
            raise UnknownRun("This run has no ledger: nothing was signed.")
        summary = self._store.document(run, SUMMARY)
        noted = summary.get("ledger_head") if isinstance(summary, dict) else None
        stamp = where.place, where.stamp or time.monotonic() // CHECKED_SECONDS, str(noted)

        def check() -> dict[str, Any]:
            with where.reading() as ledger:
                return _verify(ledger, noted)

        found: dict[str, Any] = self._store.answers.get(("verified", run), stamp, check)
        return found

    def owner(self, run: str, owner: str) -> dict[str, Any]:
        """All that is known of an owner in a run.

        Raises:
            UnknownRun: the run has no such owner.
        """
        rows = [row for row in contract_rows(self._store, run) if row["owner"] == owner]
        if not rows:
            raise UnknownRun("This run has no such owner.")
        found: dict[str, Any] = {"owner": owner, "row": rows[-1], "contract": None, "entries": []}
        found["policy"] = policy(self._store, run, owner)
        where = ledger_of(self._store, run)
        if where is None:
            return found
        with where.reading() as ledger:
            offered = queries.documents(ledger, where.job or None)
            ids = [one.id for one in offered if one.owner == owner]
            if not ids:
                return found
            statement = contract_statement(queries.account(ledger, ids[-1]))
            rounds = statement["each_round"]
            found["entries"] = [
                {
                    "entry": entry.seq,
                    "kind": entry.kind,
                    "round": entry.content().get("round"),
                    "recorded_at": entry.recorded_at,
                    "hash": entry.hash,
                }
                for entry in ledger.entries(contract=ids[-1])
            ]
        spent = np.cumsum([math.inf if one["rho"] is None else one["rho"] for one in rounds])
        found["contract"] = statement | {"payment": statement["payment_micro"] / MICRO}
        found["trace"] = {
            "round": [one["round"] for one in rounds],
            "outcome": [one["outcome"] for one in rounds],
            "epsilon": [finite(gaussian_epsilon(rho, statement["delta"])) for rho in spent],
        }
        found["words"] = owner_words(statement)
        found["statement"] = statement_sentences(statement)
        return found


def _verify(ledger: Any, noted: object) -> dict[str, Any]:
    try:
        found = verify(ledger, noted if isinstance(noted, str) else None)
    except LedgerBroken as problem:
        return {"sound": False, "entry": problem.seq, "problem": str(problem)}
    except BadInput as problem:
        return {"sound": False, "entry": None, "problem": str(problem)}
    return {
        "sound": True,
        "entries": found.entries,
        "head": str(found.head),
        "noted_head": noted,
        "contracts": found.contracts,
        "contracts_paid": found.contracts_paid,
        "contracts_broken": found.contracts_broken,
        "settled": found.jobs_settled == found.jobs,
    }


def policy(store: RunStore, run: str, owner: str) -> dict[str, Any] | None:
    """Both sides' final policies of a pair, of a game that was learned; None if none is kept."""
    path = store.file(run, POLICIES)
    if path is None:
        return None
    try:
        _, environment = environment_of(store, run)
        index = list(map(str, environment.population.names)).index(owner)
        with np.load(path, allow_pickle=False) as kept:
            place = int(np.flatnonzero(kept["owners"] == index)[0])
            tables = kept["owner"][place], kept["curator"][place]
    except (BadInput, OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile):
        return None
    savings = np.round(environment.levels.savings, 4).tolist()
    payments = np.round(environment.levels.payments, 4).tolist()
    sides = {
        "owner": (
            "payment that was last quoted",
            payments,
            "saving that the owner offers",
            savings,
        ),
        "curator": ("saving that is offered", savings, "payment that the curator quotes", payments),
    }
    return {
        side: {
            "state": state,
            "states": states,
            "action": action,
            "actions": actions,
            "chances": np.round(table.astype(float), 3).tolist(),
        }
        for (side, (state, states, action, actions)), table in zip(
            sides.items(), tables, strict=True
        )
    }
