"""The data of a run for a page: its game, the course of play, its contracts, and comparisons."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

from noisemarket.errors import BadInput
from noisemarket.formats import csv_text, finite, text_of
from noisemarket.game.environment import Environment
from noisemarket.game.value import worth
from noisemarket.ledger import queries
from noisemarket.ledger.money import MICRO
from noisemarket.market.baselines import MARKET
from noisemarket.market.market_folder import TRACE
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.clock import ClockAuction
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.show.dashboard.live import thinned
from noisemarket.show.dashboard.run_store import (
    COMPARISON,
    CONTRACTS,
    PARTIAL,
    SCENARIO,
    SUMMARY,
    RunLedger,
    RunStore,
    ledger_of,
)
from noisemarket.show.dashboard.whatif import clock_course
from noisemarket.show.style import name_of

MOST_OWNERS = 20_000
"""Owners up to which exact answers are computed for a page."""

MOST_POINTS = 600
SERVER_SECONDS = 2.0
"""Lifetime in the cache of the rows of a ledger on a server."""

Column = Literal["owner", "saving", "sigma", "payment", "epsilon", "weight", "state", "paid"]
COLUMNS: tuple[Column, ...] = get_args(Column)
"""The columns of the table of contracts, in their order."""

Row = dict[str, Any]


def scenario_of(store: RunStore, run: str) -> Scenario:
    """The scenario that a run was given."""
    path = store.file(run, SCENARIO)
    if path is None:
        raise BadInput("scenario", SCENARIO, "is not in this run folder.")
    scenario = load_scenario(path)
    surface = scenario.game.surface
    named = [scenario.population.file, surface if surface.endswith(".toml") else ""]
    for file in filter(None, named):
        if Path(file).resolve().parent != store.path(run):
            raise BadInput("scenario", Path(file).name, "is not in this run folder.")
    return scenario


def environment_of(store: RunStore, run: str) -> tuple[Scenario, Environment]:
    """The game of a run, with its owners."""
    scenario = scenario_of(store, run)
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
    options = run_options(scenario)
    found: dict[str, Any] = {"trace": None, "clock": None, "equilibrium": None}
    if scenario.mechanism not in MECHANISMS or not find_mechanism(scenario.mechanism).joint:
        exact = find_mechanism("equilibrium").run(environment, options)
        figures = worth(environment, exact.contracts)
        found["equilibrium"] = {"saving": figures.mean_saving, "payment": figures.mean_payment}
        found["trace"] = _trace(store.file(run, TRACE) or store.file(run, f"curator/{TRACE}"))
    if scenario.mechanism == "clock":
        found["clock"] = clock_course(ClockAuction.of(environment, options.demand), environment)
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
    """One row per owner: from the ledger while and after a market runs, else from the contracts."""
    ledger = ledger_of(store, run)
    files = store.stamp(run, CONTRACTS, PARTIAL)
    own = None if ledger is None else ledger.stamp or time.monotonic() // SERVER_SECONDS
    stamp = None if ledger is None else ledger.location, own, files

    def read() -> list[Row]:
        if ledger is not None and (rows := _from_ledger(ledger)):
            return rows
        path = store.file(run, CONTRACTS) or store.file(run, PARTIAL)
        return _from_csv(path) if path else []

    rows: list[Row] = store.answers.get(("contracts", run), stamp, read)
    return rows


_STATES: dict[object, str] = {True: "kept", "true": "kept", False: "broken", "false": "broken"}


def _from_ledger(where: RunLedger) -> list[Row]:
    try:
        with where.reading() as ledger:
            return [_ledger_row(one) for one in queries.contracts(ledger, where.job or None)]
    except BadInput:  # not yet there
        return []


def _ledger_row(one: queries.Standing) -> Row:
    contract = one.contract
    return {
        "owner": contract.owner,
        "saving": contract.saving,
        "sigma": contract.sigma,
        "payment": contract.payment / MICRO,
        "epsilon": finite(contract.epsilon),
        "weight": one.weight,
        "state": _STATES.get(one.kept, one.state),
        "paid": None if one.paid is None else one.paid / MICRO,
    }


def _from_csv(path: Path) -> list[Row]:
    try:
        return [_csv_row(row) for row in _read_csv(path)]
    except (OSError, ValueError, KeyError):
        raise BadInput("contracts", path.name, "cannot be read.") from None


def _csv_row(row: dict[str, str]) -> Row:
    signed = {"true": "signed", "false": "no trade"}.get(row.get("signed") or "", "")
    return {
        "owner": text_of(row["owner"]),
        **{name: _number(row.get(name)) for name in COLUMNS if name not in ("owner", "state")},
        "state": _STATES.get(row.get("kept"), signed),
    }


def _number(text: str | None) -> float | None:
    return finite(float(text)) if text else None


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


def comparison(store: RunStore, runs: list[str]) -> list[Row]:
    """A row for each run, and for each mechanism of a run that compared several."""
    rows: list[Row] = []
    for run in runs:
        overview = store.overview(run)
        if overview["kind"] == "compare":
            rows += _compared_rows(store, run)
        else:
            rows.append(_run_row(store, overview))
    return rows


def _compared_rows(store: RunStore, run: str) -> list[Row]:
    """A row for each mechanism, and for each budget where it was trained: means over the seeds."""
    compared = store.document(run, COMPARISON)
    trained = isinstance(compared, dict)
    found = compared.get("means") if isinstance(compared, dict) else compared
    known = [
        one for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict) and isinstance(one.get("mechanism"), str)
    ]  # fmt: skip
    return [_compared_row(run, one, trained) for one in known]


def _compared_row(run: str, one: Row, trained: bool) -> Row:
    row, budget = _empty_row(run, one["mechanism"]), one.get("budget")
    limit = "" if budget is None else f", at most {budget:g}"
    return row | {
        "name": f"{row['name']}{limit}",
        "measured": trained,
        "accuracy": one.get("accuracy" if trained else "model_quality"),
        "paid": one.get("paid" if trained else "total_payment"),
        "surplus": one.get("owners_surplus"),
        "sellers": one.get("sellers"),
        "privacy_sold": one.get("mean_saving"),
    }


def _run_row(store: RunStore, overview: Row) -> Row:
    """A run, or a negotiation alone, by its summary and its contracts."""
    run, contracts = overview["name"], contract_rows(store, overview["name"])
    summary = store.table(run, SUMMARY)
    sold = [row["saving"] or 0.0 for row in contracts]
    measured, epsilon = overview["accuracy"] is not None, summary.get("epsilon")
    return _empty_row(run, str(overview["mechanism"])) | {
        "measured": measured,
        "accuracy": overview["accuracy" if measured else "quality"],
        "no_trade_accuracy": overview["no_trade_accuracy"],
        "paid": overview["paid"],
        "surplus": _surplus(summary),
        "privacy_sold": sum(sold) / len(sold) if sold else None,
        "sellers": sum(saving > 0 for saving in sold) if sold else None,
        "epsilon": epsilon if isinstance(epsilon, dict) else None,
    }


def _surplus(summary: Row) -> float | None:
    """Gain of all owners over no trade; of a market only where it was compared with no trade."""
    rows = summary.get("alternatives")
    found = [one for one in rows if one.get("name") == MARKET] if isinstance(rows, list) else []
    value = (found[0] if found else summary).get("owners_surplus")
    return value if isinstance(value, float) else None


def _empty_row(run: str, mechanism: str) -> Row:
    unknown = ("accuracy", "no_trade_accuracy", "paid", "surplus", "privacy_sold", "sellers",
               "epsilon")  # fmt: skip
    named = {"run": run, "mechanism": mechanism, "name": name_of(mechanism), "measured": False}
    return dict.fromkeys(unknown) | named
