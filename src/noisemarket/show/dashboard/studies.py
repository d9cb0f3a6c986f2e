"""What a season or a reproduction came to, for a page: a table, and curves."""

from __future__ import annotations

import csv
import io
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.show.dashboard.run_store import CLAIMS, JOB_OF, SEASON, RunStore, UnknownRun
from noisemarket.show.reproduction_page import FIGURES
from noisemarket.show.style import name_of

Study = dict[str, Any]


def study(store: RunStore, run: str) -> Study:
    """The jobs of a season, or the claims of a reproduction and the curves behind them."""
    kind = store.overview(run)["kind"]
    if kind == "season":
        return {"jobs": _jobs(store, run)}
    if kind == "reproduction":
        claims = store.document(run, CLAIMS)
        return {"claims": claims if isinstance(claims, list) else [], "curves": _curves(store, run)}
    raise UnknownRun("This run is neither a season nor a reproduction.")


def _jobs(store: RunStore, run: str) -> list[Study]:
    """Each job of a season as its report has it, and the name of its run."""
    rows = store.document(run, SEASON)
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [row | {"run": f"{run}{JOB_OF}{i:02d}"} for i, row in enumerate(known, start=1)]


def _curves(store: RunStore, run: str) -> list[Study]:
    """Means over the seeds with their confidence bands: a chart for each figure and scenario."""
    charts: dict[tuple[str, str], Study] = {}
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
