"""Everything about one owner of a run: contract, words, rounds, ledger entries, policy."""

from __future__ import annotations

import time
import zipfile
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, LedgerBroken
from noisemarket.formats import finite, infinite
from noisemarket.ledger import queries
from noisemarket.ledger.verification import verify
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.show.dashboard.run_data import contract_rows, environment_of
from noisemarket.show.dashboard.run_store import (
    SUMMARY,
    RunLedger,
    RunStore,
    UnknownRun,
    is_elsewhere,
    ledger_of,
)
from noisemarket.show.ledger_report import contract_statement, owner_words, statement_sentences

POLICIES = "policies.npz"
CHECKED_SECONDS = 30.0
"""Lifetime in the cache of the verification of a ledger on a server."""

ELSEWHERE = (
    "The ledger of this run is on a server. Start the dashboard with --ledger URL to read it here."
)


def verification(store: RunStore, run: str) -> dict[str, Any]:
    """Whether the ledger of a run is sound; the head that its summary noted is checked, too.

    A ledger file that has not changed is not verified again.
    """
    where = ledger_of(store, run)
    if where is None:
        elsewhere = is_elsewhere(store, run)
        raise UnknownRun(ELSEWHERE if elsewhere else "This run has no ledger: nothing was signed.")
    noted = store.table(run, SUMMARY).get("ledger_head")
    stamp = where.location, where.stamp or time.monotonic() // CHECKED_SECONDS, str(noted)
    found: dict[str, Any] = store.answers.get(
        ("verified", run), stamp, lambda: _verified(where, noted)
    )
    return found


def _verified(where: RunLedger, noted: object) -> dict[str, Any]:
    with where.reading() as ledger:
        try:
            found = verify(ledger, noted if isinstance(noted, str) else None)
        except (LedgerBroken, BadInput) as problem:
            entry = getattr(problem, "seq", None)
            return {"sound": False, "entry": entry, "problem": str(problem)}
    return {
        "sound": True,
        "entries": found.entries,
        "head": str(found.head),
        "noted_head": noted,
    }


def all_of_owner(store: RunStore, run: str, owner: str) -> dict[str, Any]:
    """All that is known of an owner in a run."""
    rows = [row for row in contract_rows(store, run) if row["owner"] == owner]
    if not rows:
        raise UnknownRun("This run has no such owner.")
    found: dict[str, Any] = {"owner": owner, "row": rows[-1], "contract": None, "entries": []}
    found["policy"] = policy(store, run, owner)
    where = ledger_of(store, run)
    if where is None:
        return found
    with where.reading() as ledger:
        offered = queries.documents(ledger, where.job or None)
        ids = [one.id for one in offered if one.owner == owner]
        if not ids:
            return found
        statement = contract_statement(queries.account(ledger, ids[-1]))
        found["entries"] = [
            {
                "entry": entry.seq,
                "kind": entry.kind,
                "round": entry.content().get("round"),
                "recorded_at": entry.recorded_at,
                "hash": entry.hash,
            }
            for entry in ledger.entries(contracts=[ids[-1]])
        ]
    rounds = statement["each_round"]
    spent = np.cumsum([infinite(one["rho"]) for one in rounds])
    return found | {
        "contract": statement,
        "trace": {
            "round": [one["round"] for one in rounds],
            "epsilon": [finite(gaussian_epsilon(rho, statement["delta"])) for rho in spent],
        },
        "words": owner_words(statement),
        "statement": statement_sentences(statement),
    }


def policy(store: RunStore, run: str, owner: str) -> dict[str, Any] | None:
    """Both sides' final policies of a pair, of a game that was learned; None if there are none."""
    path = store.file(run, POLICIES)
    if path is None:
        return None
    try:
        _, environment = environment_of(store, run)
        index = list(map(str, environment.population.names)).index(owner)
        with np.load(path, allow_pickle=False) as saved:
            row = int(np.flatnonzero(saved["owners"] == index)[0])
            tables = saved["owner"][row], saved["curator"][row]
    except (BadInput, OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile):
        return None
    savings = np.round(environment.levels.savings, 4).tolist()
    payments = np.round(environment.levels.payments, 4).tolist()
    owner_side = {"state": "payment that was last quoted", "states": payments,
                  "action": "saving that the owner proposes", "actions": savings}  # fmt: skip
    curator_side = {"state": "saving that was proposed", "states": savings,
                    "action": "payment that the curator quotes", "actions": payments}  # fmt: skip
    chances = [np.round(table.astype(float), 3).tolist() for table in tables]
    return {
        "owner": owner_side | {"chances": chances[0]},
        "curator": curator_side | {"chances": chances[1]},
    }
