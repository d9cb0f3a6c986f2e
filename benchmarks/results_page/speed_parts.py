"""The game, mechanisms, tables, training, ledger and Flower at size, for benchmarks/README.md."""

from __future__ import annotations

from benchmarks import bisection, federated, game, ledger, mechanisms
from benchmarks.results_page.common import stored, table

Part = str | None


def game_part() -> Part:
    found = stored("game")
    return None if found is None else game.markdown(found)


def federated_part() -> Part:
    found = stored("federated")
    return None if found is None else federated.markdown(found)


def mechanisms_part() -> Part:
    """Speed with owners drawn beforehand; all of a negotiation by bisection, where stored."""
    if (found := stored("mechanisms")) is None:
        return None
    heads = "| mechanism | owners | CPU seconds | peak memory, GB |\n|---|---|---|---|\n"
    text = heads + mechanisms.speed_table(found["rows"])
    if (whole := stored("bisection-million")) is not None:
        run = whole["run"]
        text += (
            "\n\nAll of `negotiate --mechanism bisection` for 1,000,000 owners takes "
            f"{run['cpu_seconds']:.1f} CPU seconds and {run['memory_gb']:.2f} GB."
        )
    return text


def reach_part() -> Part:
    found = stored("clock-scores")
    return None if found is None else mechanisms.reach_table(found["reach"])


def scores_part() -> Part:
    found = stored("clock-scores")
    return None if found is None else mechanisms.scores_table(dict(found))


def bisection_part() -> Part:
    found = stored("bisection")
    return None if found is None else bisection.markdown(found["reached"], bisection.SHOWN)


def tables_part() -> Part:
    if (found := stored("tables")) is None:
        return None
    return (
        f"{found['records']:,} records ({found['megabytes_of_csv']} MB of CSV) become "
        f"{found['features']} features each in {found['cpu_seconds']:.1f} CPU seconds, with "
        f"{found['peak_memory_megabytes'] / 1000:.1f} GB at most."
    )


def ledger_part() -> Part:
    found = stored("ledger")
    return None if found is None else ledger.markdown(found["SQLite"])


def flower_part() -> Part:
    if (found := stored("flower-simulation")) is None:
        return None
    each = "an owner and round"
    heads = ["owners", "rounds", "seconds", "CPU s", "GB", f"messages {each}", f"kB {each}"]
    rows = []
    for row in found["rows"]:
        train = row["kinds"]["train"]  # of all rounds that its market has
        uses = row["owners"] * train["exchanges"]
        rows.append([
            f"{row['owners']:,}", str(row["rounds"]), f"{row['seconds']:.0f}", f"{row['cpu']:.0f}",
            f"{row['memory'] / 1000:.1f}", f"{train['messages'] / uses:.0f}",
            f"{train['size'] / uses / 1000:.1f}",
        ])  # fmt: skip
    return table(heads, rows)
