"""A season: accuracy, money, privacy left and owners run dry, job by job."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from noisemarket.formats import csv_text
from noisemarket.ledger.money import MICRO, UNITS
from noisemarket.market.run_folder import RunFolder
from noisemarket.show.account_report import ACCOUNTS, write_accounts
from noisemarket.show.style import figure, label, save, shown, table_of

_DRY = "privacy"  # in the reason why an owner is left out
COLUMNS = (
    *("job", "accuracy", "owners", "sellers", "dry", "paid", "rho", "epsilon"),
    *("left_median", "left_least", "problem"),
)


def note_accounts(folder: RunFolder, root: Path) -> list[str]:
    """Keep what the owners have left after a job, as it was then; gives what to know of it."""
    if (folder.path / ACCOUNTS).exists():
        return []
    _, *said = write_accounts(folder, root)
    return said


def row(name: str, summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a job came to, and how its owners stand after it."""
    left_out = summary["left_out"]
    return {
        "job": name,
        "accuracy": summary["deployed_accuracy"],
        "owners": summary["contracts"],
        "sellers": summary["trades"],
        "dry": sum(_DRY in why for why in left_out.values()),
        "paid": summary["total_paid_micro"] / MICRO,
        **_standing(folder / ACCOUNTS),
        "problem": "",
    }


def nothing(name: str, owners: int, problem: str) -> dict[str, Any]:
    """A job in which nobody took part: the season ends there."""
    empty = dict.fromkeys(COLUMNS)
    return empty | {"job": name, "owners": 0, "sellers": 0, "dry": owners, "paid": 0.0,
                    "problem": problem}  # fmt: skip


def _standing(file: Path) -> dict[str, float | None]:
    """Of all owners after a job: the median cost so far, and what part of the budget is left."""
    owners = json.loads(file.read_text(encoding="utf-8"))["owners"].values()
    parts = [
        max(0.0, one["accounts"][-1]["left"] / one["rho_budget"])
        for one in owners
        if one["rho_budget"] and one["accounts"]
    ]

    def median(name: str) -> float | None:
        known = [one[name] for one in owners if one[name] is not None]
        return statistics.median(known) if known else None

    return {
        "rho": median("rho"),
        "epsilon": median("epsilon"),
        "left_median": statistics.median(parts) if parts else None,
        "left_least": min(parts, default=None),
    }


def season_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The jobs, one a row."""
    return csv_text(COLUMNS, ([one[name] for name in COLUMNS] for one in rows))


def season_table(rows: Sequence[Mapping[str, Any]], currency: str = UNITS) -> Table:
    """The jobs on the screen."""
    heads = ("accuracy", "owners", "sellers", "run dry", f"paid, {currency}", "epsilon so far",
             "budget left", "least left")  # fmt: skip
    table = table_of("Season", "job", *heads)
    for one in rows:
        table.add_row(
            one["job"], shown(one["accuracy"], "{:.1f} %"), str(one["owners"]),
            str(one["sellers"]), str(one["dry"]), f"{one['paid']:.2f}",
            shown(one["epsilon"], "{:.3g}"), shown(one["left_median"], "{:.0%}"),
            shown(one["left_least"], "{:.0%}"),
        )  # fmt: skip
    return table


def draw_season(
    folder: Path, rows: Sequence[Mapping[str, Any]], currency: str = UNITS
) -> list[Path]:
    """Four panels over the jobs: accuracy, money, privacy left, who sells and who is dry."""
    canvas, axes = figure(2, rows=2, size=(5.6, 3.2))
    jobs, names = range(1, len(rows) + 1), [one["job"] for one in rows]

    def line(axis: Any, name: str, **look: Any) -> None:
        values = [float("nan") if one[name] is None else one[name] for one in rows]
        axis.plot(jobs, values, marker="o", markersize=4, **look)

    line(axes[0, 0], "accuracy", color="#0064cb")
    label(axes[0, 0], "Accuracy of the model", "", "per cent")
    axes[0, 1].bar(jobs, [one["paid"] for one in rows], color="#1f825f")
    label(axes[0, 1], "Money paid to owners", "", currency)
    line(axes[1, 0], "left_median", color="#672699", label="median owner")
    line(axes[1, 0], "left_least", color="#b74900", label="least", linestyle="--")
    axes[1, 0].set_ylim(0.0, 1.02)
    axes[1, 0].legend(frameon=False)
    label(axes[1, 0], "Privacy budget left", "job", "part of the budget")
    axes[1, 1].bar(jobs, [one["sellers"] for one in rows], color="#1f825f", label="sell")
    line(axes[1, 1], "dry", color="#b74900", label="run dry")
    axes[1, 1].legend(frameon=False)
    label(axes[1, 1], "Owners", "job", "owners")
    for axis in axes[:, 1]:
        axis.set_ylim(0.0, max(axis.get_ylim()[1], 1.0))
    for axis in axes.flat:
        axis.set_xticks(jobs, names, rotation=45 if max(map(len, names)) > 3 else 0, fontsize=8)
    return save(canvas, folder, "season")
