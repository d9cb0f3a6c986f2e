"""Runs and mechanisms side by side: accuracy over money, owners' surplus, privacy sold."""

from __future__ import annotations

from typing import Any

from noisemarket.errors import NoisemarketError
from noisemarket.game.environment import Environment
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.tally import tally
from noisemarket.show.dashboard.run_data import contract_rows, environment_of, levels_of
from noisemarket.show.dashboard.run_store import COMPARISON, SUMMARY, RunStore
from noisemarket.show.style import name_of

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
    """A row for each mechanism, and for each budget where it was trained: means over the seeds."""
    compared = store.document(run, COMPARISON)
    trained = isinstance(compared, dict)
    found = compared.get("means") if isinstance(compared, dict) else compared
    known = [
        one for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict) and isinstance(one.get("mechanism"), str)
    ]  # fmt: skip
    if trained:
        return [_of_trained(run, one) for one in known]
    game = _no_trade(store, run)
    return [_of_game(run, one, game) for one in known]


def _of_game(run: str, one: Row, game: tuple[Environment, float] | None) -> Row:
    row = _row(run, one["mechanism"]) | {
        "accuracy": one.get("model_quality"),
        "paid": one.get("total_payment"),
        "privacy_sold": one.get("mean_saving"),
    }
    if game is not None:
        payoff, share, owners = one.get("mean_owner_payoff"), one.get("signed_share"), len(game[0])
        row["surplus"] = (payoff - game[1]) * owners if isinstance(payoff, int | float) else None
        row["sellers"] = round(share * owners) if isinstance(share, int | float) else None
    return row


def _of_trained(run: str, one: Row) -> Row:
    row, budget = _row(run, one["mechanism"]), one.get("budget")
    limit = "" if budget is None else f", at most {budget:g}"
    return row | {
        "name": f"{row['name']}{limit}",
        "measured": True,
        "accuracy": one.get("accuracy"),
        "paid": one.get("paid"),
        "surplus": one.get("owners_surplus"),
        "sellers": one.get("sellers"),
    }


def _of_run(store: RunStore, overview: Row) -> Row:
    run, epsilon = overview["name"], store.table(overview["name"], SUMMARY).get("epsilon")
    measured = overview["accuracy"] is not None
    row = _row(run, str(overview["mechanism"])) | {
        "measured": measured,
        "accuracy": overview["accuracy" if measured else "quality"],
        "no_trade_accuracy": overview["no_trade_accuracy"],
        "paid": overview["paid"],
        "epsilon": epsilon if isinstance(epsilon, dict) else None,
    }
    game = _no_trade(store, run)
    contracts = None if game is None else levels_of(game[0], contract_rows(store, run))
    if game is None or contracts is None:
        return row
    environment, nothing = game
    worth = tally(environment, contracts)
    return row | {
        "surplus": (worth.mean_owner_payoff - nothing) * len(environment),
        "privacy_sold": worth.mean_saving,
        "sellers": int(contracts.signed.sum()),
        "paid": worth.total_payment if row["paid"] is None else row["paid"],
    }


def _row(run: str, mechanism: str) -> Row:
    unknown = ("accuracy", "no_trade_accuracy", "paid", "surplus", "privacy_sold", "sellers",
               "epsilon")  # fmt: skip
    named = {"run": run, "mechanism": mechanism, "name": name_of(mechanism), "measured": False}
    return dict.fromkeys(unknown) | named


def _no_trade(store: RunStore, run: str) -> tuple[Environment, float] | None:
    """The game of a run, and an owner's mean payoff without a trade."""
    try:
        scenario, environment = environment_of(store, run)
        none = find_mechanism("uniform").run(environment, run_options(scenario)).contracts
    except NoisemarketError:
        return None
    return environment, tally(environment, none).mean_owner_payoff
