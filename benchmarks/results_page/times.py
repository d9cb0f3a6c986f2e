"""How long things take, for the README: from what stored results say of themselves."""

from __future__ import annotations

from benchmarks.results_page.common import Document, stored, table


def times_table() -> str | None:
    """A line for each command that a newcomer may wait for; None before the demo was stored."""
    demo = stored("demo")
    if demo is None:
        return None
    lines = [["`noisemarket run`", "100 owners, 30 rounds, four comparisons", _took(demo)]]
    if (compared := stored("campaign")) is not None:
        what = f"{len(compared['mechanisms'])} mechanisms, three budgets, ten seeds"
        took = f"{compared['training_cpu_seconds']:.0f} CPU s"
        lines.append(["`python -m benchmarks campaign`", what, took])
    if (flower := stored("flower-simulation")) is not None:
        row = next(one for one in flower["rows"] if one["owners"] == 100)
        what = f"{row['owners']} owners, {row['rounds']} rounds"
        took = _took({**row, "cpu_seconds": row["cpu"]})
        lines.append(["`noisemarket run --engine flower`", what, took])
    if (many := stored("mechanisms")) is not None:
        row = next(one for one in many["rows"] if one["mechanism"] == "clock")
        what = f"the clock auction alone, {row['owners']:,} owners"
        lines.append(["`python -m benchmarks mechanisms`", what, f"{row['seconds']:.1f} CPU s"])
    return table(["command", "what", f"takes ({demo['machine']})"], lines)


def _took(found: Document) -> str:
    return f"{found['seconds']:.0f} s, {found['cpu_seconds']:.0f} CPU s"
