"""The data of a run for a page: game, contracts, one owner, ledger, comparisons, studies."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from noisemarket.errors import BadInput, LedgerBroken
from noisemarket.formats import csv_text, finite, infinite, text_of
from noisemarket.game.environment import Environment
from noisemarket.game.value import worth
from noisemarket.ledger import queries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.money import MICRO
from noisemarket.ledger.verification import verify
from noisemarket.market.negotiation import run_options
from noisemarket.market.outcome import LEFT_OUT, OUTCOME, PAID, Outcome, OwnerOutcome
from noisemarket.market.run_folder import TRACE
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.clock import ClockAuction
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.show.account_report import ACCOUNTS
from noisemarket.show.dashboard.live import thinned
from noisemarket.show.dashboard.run_store import (
    CLAIMS,
    COMPARISON,
    CONTRACTS,
    JOB_OF,
    SCENARIO,
    SEASON,
    SUMMARY,
    RunLedger,
    RunStore,
    UnknownRun,
    is_elsewhere,
    ledger_of,
)
from noisemarket.show.dashboard.whatif import clock_course
from noisemarket.show.ledger_report import (
    contract_in_full,
    contract_statement,
    contract_terms,
    statement_sentences,
)
from noisemarket.show.reproduction_page import FIGURES
from noisemarket.show.style import name_of

MOST_OWNERS = 20_000
"""Owners up to which exact answers are computed for a page."""

MOST_POINTS = 600
SERVER_SECONDS, CHECKED_SECONDS = 2.0, 30.0
"""Lifetime in the cache of the rows of a ledger on a server, and of its verification."""

ELSEWHERE = (
    "The ledger of this run is not in this folder. If it is on a server, start the dashboard with "
    "--ledger URL to read it here."
)

Column = Literal["owner", "saving", "sigma", "payment", "epsilon", "weight", "state", "paid"]
COLUMNS: tuple[Column, ...] = get_args(Column)
"""The columns of the table of contracts, in their order."""

Row = dict[str, Any]


def environment_of(store: RunStore, run: str) -> tuple[Scenario, Environment]:
    """The game of a run, with its owners."""
    path = store.file(run, SCENARIO)
    if path is None:
        raise BadInput("scenario", SCENARIO, "is not in this run folder.")
    scenario = load_scenario(path)
    surface = scenario.game.surface
    named = [scenario.population.file, surface if surface.endswith(".toml") else ""]
    for file in filter(None, named):
        if Path(file).resolve().parent != store.path(run):
            raise BadInput("scenario", Path(file).name, "is not in this run folder.")
    if scenario.population.owners > MOST_OWNERS:
        remedy = f"exact answers are computed here for up to {MOST_OWNERS:,} owners."
        raise BadInput("population.owners", scenario.population.owners, remedy)
    return scenario, scenario.environment()


def curves(store: RunStore, run: str) -> dict[str, Any]:
    """How the negotiation went: the trace of the game with the exact equilibrium, or the clock."""
    stamp = store.stamp(run, SCENARIO, TRACE, f"curator/{TRACE}")
    found: dict[str, Any] = store.answers.get(("curves", run), stamp, lambda: _curves(store, run))
    return found


def _curves(store: RunStore, run: str) -> dict[str, Any]:
    scenario, environment = environment_of(store, run)
    options, privacy = run_options(scenario), scenario.privacy
    capped = privacy.rho_cap or privacy.epsilon_cap  # what is left depends on the owners' records
    found: dict[str, Any] = {"trace": None, "clock": None, "equilibrium": None}
    if scenario.mechanism not in MECHANISMS or not find_mechanism(scenario.mechanism).joint:
        if not capped:
            exact = find_mechanism("equilibrium").run(environment, options)
            figures = worth(environment, exact.contracts)
            found["equilibrium"] = {"saving": figures.mean_saving, "payment": figures.mean_payment}
        found["trace"] = _trace(store.file(run, TRACE) or store.file(run, f"curator/{TRACE}"))
    if scenario.mechanism == "clock" and not capped:
        found["clock"] = clock_course(ClockAuction(environment, options.demand), environment)
    return found


def _trace(path: Path | None) -> dict[str, list[float]] | None:
    if path is None:
        return None
    try:
        rows = thinned(_read_csv(path), MOST_POINTS)
        names = ("iteration", "saving", "payment")
        return {name: [float(row[name]) for row in rows] for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_csv(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))]


def contract_rows(store: RunStore, run: str) -> list[Row]:
    """One row per owner: from the outcome of a settled market, from the ledger while it runs; of a
    negotiation alone from its contracts."""
    ledger = ledger_of(store, run)
    files = store.stamp(run, OUTCOME, CONTRACTS)
    own = None if ledger is None else ledger.stamp or time.monotonic() // SERVER_SECONDS
    stamp = None if ledger is None else ledger.location, own, files

    def read() -> list[Row]:
        if settled := store.file(run, OUTCOME):
            return [_outcome_row(one) for one in Outcome.load(settled.parent).owners]
        if ledger is not None and (rows := _from_ledger(ledger)):
            return rows
        path = store.file(run, CONTRACTS)
        return _from_csv(path) if path else []

    rows: list[Row] = store.answers.get(("contracts", run), stamp, read)
    return rows


_STATES: dict[object, str] = {True: "kept", "true": "kept", False: "broken", "false": "broken"}


def _row(terms: OwnerOutcome | Contract, payment: int, *others: object) -> Row:
    """The values of ``COLUMNS``; the others are weight, state and money paid."""
    agreed = terms.owner, terms.saving, terms.sigma, payment / MICRO, finite(terms.epsilon)
    return dict(zip(COLUMNS, (*agreed, *others), strict=True))


def _outcome_row(one: OwnerOutcome) -> Row:
    paid = None if one.state == LEFT_OUT else (one.paid_micro or 0) / MICRO
    state = "kept" if one.state == PAID else one.state
    lowered = {"lowered": [one.loss_lowered, one.loss_lowered_error]}  # of the owner's page alone
    return _row(one, one.payment_micro, one.weight, state, paid) | lowered


def _from_ledger(where: RunLedger) -> list[Row]:
    try:
        with where.reading() as ledger:
            return [_ledger_row(one) for one in queries.contracts(ledger, where.job or None)]
    except BadInput:  # not yet there
        return []


def _ledger_row(one: queries.Standing) -> Row:
    paid = None if one.paid is None else one.paid / MICRO
    state = _STATES.get(one.kept, one.state)
    return _row(one.contract, one.contract.payment, one.weight, state, paid)


def _from_csv(path: Path) -> list[Row]:
    signed = {"true": "agreed", "false": "no trade"}
    numbers = [name for name in COLUMNS if name not in ("owner", "state")]
    try:
        return [
            {
                "owner": text_of(row["owner"]),
                **{name: finite(float(row[name])) if row.get(name) else None for name in numbers},
                "state": _STATES.get(row.get("kept"), signed.get(row.get("signed", ""), "")),
            }
            for row in _read_csv(path)
        ]
    except (OSError, ValueError, KeyError):
        raise BadInput("contracts", path.name, "cannot be read.") from None


def selected(
    rows: Iterable[Row], *, sort: Column = "owner", descending: bool = False, search: str = "",
    state: str = "", sold: bool = False,
) -> list[Row]:  # fmt: skip
    """Rows that match, in order; numbers by size, names as people count, what is missing last."""
    wanted = search.strip().casefold()
    found = [
        row for row in rows
        if wanted in str(row["owner"]).casefold()
        and (not state or row["state"] == state)
        and (not sold or (row["saving"] or 0) > 0)
    ]  # fmt: skip
    found.sort(key=lambda row: _natural(str(row["owner"])))
    if sort == "owner":
        return found[::-1] if descending else found
    known = [row for row in found if row[sort] is not None]
    known.sort(key=lambda row: row[sort], reverse=descending)
    return known + [row for row in found if row[sort] is None]


def _natural(name: str) -> tuple[int, float, str]:
    return (0, float(name), name) if name.isascii() and name.isdigit() else (1, 0.0, name)


def rows_csv(rows: Iterable[Row]) -> str:
    """Rows of the table as CSV."""
    return csv_text(COLUMNS, ([row[name] for name in COLUMNS] for row in rows))


_VALUES = ("predicted_value", "trained_value")
JOBS = ("model", "data", "owners", "rounds", "seed", "currency")
"""What two runs must have in common for their accuracies and payments to compare."""


def differences(rows: Iterable[Row]) -> list[str]:
    """What rows of a comparison differ in, beside the mechanism."""
    return [name for name in JOBS if len({row[name] for row in rows}) > 1]


def comparison(store: RunStore, runs: list[str]) -> list[Row]:
    """A row for each run, and for each mechanism of a run that compared several."""
    rows: list[Row] = []
    for run in runs:
        overview = store.overview(run)
        job = {name: overview[name] for name in JOBS}
        several = overview["kind"] == "compare"
        found = _compared_rows(store, run) if several else [_run_row(store, overview)]
        rows += [row | job for row in found]
    return rows


def _compared_rows(store: RunStore, run: str) -> list[Row]:
    """A row for each mechanism, and for each budget where it was trained: means over the seeds."""
    compared = store.document(run, COMPARISON)
    trained = isinstance(compared, dict)
    found = compared.get("means") if isinstance(compared, dict) else compared
    rows = []
    for one in found if isinstance(found, list) else []:
        if not isinstance(one, dict) or not isinstance(one.get("mechanism"), str):
            continue
        row, budget = _empty_row(run, one["mechanism"]), one.get("budget")
        limit = "" if budget is None else f", at most {budget:g}"
        rows.append(
            row
            | {
                "name": f"{row['name']}{limit}",
                "measured": trained,
                "agreed": not trained,
                "seeds": one.get("seeds") if trained else None,
                "accuracy": one.get("accuracy" if trained else "model_quality"),
                "paid": one.get("paid" if trained else "total_payment"),
                **{name: one.get(name) for name in _VALUES},
                "surplus": one.get("owners_surplus"),
                "sellers": one.get("sellers"),
                "privacy_sold": one.get("mean_saving"),
            }
        )
    return rows


def _run_row(store: RunStore, overview: Row) -> Row:
    """A run, or a negotiation alone, by its summary and its contracts."""
    run, contracts = overview["name"], contract_rows(store, overview["name"])
    summary = store.table(run, SUMMARY)
    sold = [row["saving"] or 0.0 for row in contracts]
    measured, epsilon = overview["accuracy"] is not None, summary.get("epsilon")
    return _empty_row(run, str(overview["mechanism"])) | {
        "measured": measured,
        "draws": overview["draws"] if measured else None,
        "after_rounds": overview["after_rounds"],
        "agreed": overview["kind"] == "negotiate",
        "accuracy": overview["accuracy" if measured else "quality"],
        "no_trade_accuracy": overview["no_trade_accuracy"],
        "paid": overview["paid"],
        **{name: summary.get(name) for name in _VALUES},
        "surplus": summary.get("owners_surplus"),
        "privacy_sold": sum(sold) / len(sold) if sold else None,
        "sellers": sum(saving > 0 for saving in sold) if sold else None,
        "epsilon": epsilon if isinstance(epsilon, dict) else None,
    }


def _empty_row(run: str, mechanism: str) -> Row:
    unknown = ("accuracy", "draws", "seeds", "after_rounds", "no_trade_accuracy", "paid", *_VALUES,
               "surplus", "privacy_sold", "sellers", "epsilon")  # fmt: skip
    named = {"run": run, "mechanism": mechanism, "name": name_of(mechanism)}
    return dict.fromkeys(unknown) | named | {"measured": False, "agreed": True}


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
    found["currency"] = store.overview(run)["currency"]
    found["account"] = (store.table(run, ACCOUNTS).get("owners") or {}).get(owner)
    where = ledger_of(store, run)
    if where is None:
        alone = "No: this was a negotiation alone. Nothing was signed, and nothing is owed."
        return found | {"unrecorded": ELSEWHERE if is_elsewhere(store, run) else alone}
    with where.reading() as ledger:
        offered = queries.documents(ledger, where.job or None)
        ids = [one.id for one in offered if one.owner == owner]
        if not ids:
            return found
        account = queries.account(ledger, ids[-1])
        statement = contract_statement(account)
        found["terms"] = contract_terms(contract_in_full(account))
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
        "statement": statement_sentences(statement),
    }


def study(store: RunStore, run: str) -> Row:
    """The jobs of a season, or the claims of a reproduction and the curves behind them."""
    kind = store.overview(run)["kind"]
    if kind == "season":
        return {"jobs": _jobs(store, run)}
    if kind == "reproduction":
        claims = store.document(run, CLAIMS)
        return {
            "claims": claims if isinstance(claims, list) else [],
            "curves": _study_curves(store, run),
        }
    raise UnknownRun("This run is neither a season nor a reproduction.")


def _jobs(store: RunStore, run: str) -> list[Row]:
    """Each job of a season as its report has it, and the name of its run."""
    rows = store.document(run, SEASON)
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [row | {"run": f"{run}{JOB_OF}{i:02d}"} for i, row in enumerate(known, start=1)]


def _study_curves(store: RunStore, run: str) -> list[Row]:
    """Means over the seeds with their confidence bands: a chart for each figure and scenario."""
    charts: dict[tuple[str, str], Row] = {}
    for stem, y, title in FIGURES.values():
        path = store.file(run, f"{stem}.csv")
        try:
            text = path.read_text(encoding="utf-8") if path else ""
            for row in csv.DictReader(io.StringIO(text)):
                at, learner = (stem, row["scenario"]), row["learner"]
                empty = {"title": f"{title}, {at[1]}", "y": y, "curves": {}}
                curves = charts.setdefault(at, empty)["curves"]
                curve = curves.setdefault(learner, {"label": name_of(learner)})
                for name in ("iteration", "mean", "low", "high"):
                    curve.setdefault(name, []).append(float(row[name]))
        except (OSError, ValueError, KeyError, TypeError):
            raise BadInput("reproduction", f"{stem}.csv", "cannot be read.") from None
    return [{**chart, "curves": [*chart["curves"].values()]} for chart in charts.values()]
