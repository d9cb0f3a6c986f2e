"""Runs and mechanisms side by side: accuracy over money, owners' surplus, privacy sold."""

from __future__ import annotations

from typing import Any

from noisemarket.dashboard.run_data import contract_rows, environment_of, levels_of
from noisemarket.dashboard.run_store import COMPARISON, SUMMARY, RunStore
from noisemarket.errors import NoisemarketError
from noisemarket.mechanisms import find_mechanism
from noisemarket.mechanisms.tally import tally
from noisemarket.negotiation import run_options
from noisemarket.report.style import colour_of, name_of

Row = dict[str, Any]


def side_by_side(store: RunStore, runs: list[str]) -> list[Row]:
    """A row for each run, and for each mechanism of a run that compared several.

    Args:
        store: the runs.
        runs: their names.

    Raises:
        UnknownRun: there is none of that name.
    """
    rows: list[Row] = []
    for run in runs:
        overview = store.overview(run)
        if overview["kind"] == "compare":
            rows += _of_comparison(store, run)
        else:
            rows.append(_of_run(store, overview))
    return rows


def _of_comparison(store: RunStore, run: str) -> list[Row]:
    compared = store.document(run, COMPARISON)
    if isinstance(compared, dict) and isinstance(compared.get("means"), list):
        return _of_trained(run, compared)
    if isinstance(compared, dict):
        compared = compared.get("mechanisms")
    if not isinstance(compared, list):
        return []
    _, owners, nothing = _no_trade(store, run)
    rows = []
    for one in compared:
        if not isinstance(one, dict) or not isinstance(one.get("mechanism"), str):
            continue
        payoff, saving = one.get("mean_owner_payoff"), one.get("mean_saving")
        surplus = None
        if nothing is not None and owners and isinstance(payoff, int | float):
            surplus = (payoff - nothing) * owners
        rows.append(
            _row(run, str(one["mechanism"]))
            | {
                "measured": False,
                "owners": owners,
                "accuracy": one.get("model_quality"),
                "paid": one.get("total_payment"),
                "surplus": surplus,
                "privacy_sold": saving,
                "sellers": _times(one.get("signed_share"), owners),
                "value": one.get("joint_gain"),
            }
        )
    return rows


def _of_trained(run: str, compared: Row) -> list[Row]:
    """A row for each mechanism and budget that was trained: means over the seeds."""
    rows = []
    for one in compared["means"]:
        if not isinstance(one, dict) or not isinstance(one.get("mechanism"), str):
            continue
        row, budget = _row(run, one["mechanism"]), one.get("budget")
        limit = "" if budget is None else f", at most {budget:g}"
        rows.append(
            row
            | {
                "name": f"{row['name']}{limit}",
                "measured": True,
                "owners": compared.get("owners"),
                "accuracy": one.get("accuracy"),
                "paid": one.get("paid"),
                "surplus": one.get("owners_surplus"),
                "sellers": one.get("sellers"),
                "value": one.get("curator_value"),
            }
        )
    return rows


def _of_run(store: RunStore, overview: Row) -> Row:
    run = overview["name"]
    summary = store.document(run, SUMMARY)
    summary = summary if isinstance(summary, dict) else {}
    measured = overview["accuracy"] is not None
    row = _row(run, str(overview["mechanism"])) | {
        "measured": measured,
        "owners": overview["owners"],
        "accuracy": overview["accuracy"] if measured else overview["quality"],
        "no_trade_accuracy": overview["no_trade_accuracy"],
        "no_noise_accuracy": overview["no_noise_accuracy"],
        "paid": overview["paid"],
        "epsilon": summary.get("epsilon") if isinstance(summary.get("epsilon"), dict) else None,
        "state": overview["state"],
    }
    environment, owners, nothing = _no_trade(store, run)
    rows = contract_rows(store, run)
    contracts = None if environment is None else levels_of(environment, rows)
    if environment is None or contracts is None or nothing is None:
        return row
    worth = tally(environment, contracts)
    return row | {
        "surplus": (worth.mean_owner_payoff - nothing) * (owners or 0),
        "privacy_sold": worth.mean_saving,
        "sellers": int(contracts.signed.sum()),
        "paid": worth.total_payment if row["paid"] is None else row["paid"],
        "value": worth.joint_gain,
        "predicted": worth.model_quality,
    }


def _row(run: str, mechanism: str) -> Row:
    names = ("accuracy", "no_trade_accuracy", "no_noise_accuracy", "paid", "surplus", "value",
             "privacy_sold", "sellers", "epsilon", "predicted", "owners", "state")  # fmt: skip
    return dict.fromkeys(names) | {
        "run": run,
        "mechanism": mechanism,
        "name": name_of(mechanism),
        "colour": colour_of(mechanism),
    }


def _no_trade(store: RunStore, run: str) -> tuple[Any, int | None, float | None]:
    """The game of a run, how many owners it has, and an owner's mean payoff without a trade."""
    try:
        scenario, environment = environment_of(store, run)
        none = find_mechanism("uniform").run(environment, run_options(scenario)).contracts
    except NoisemarketError:
        return None, None, None
    return environment, len(environment), tally(environment, none).mean_owner_payoff


def _times(share: object, owners: int | None) -> int | None:
    return round(share * owners) if isinstance(share, int | float) and owners else None
