"""What the clock buys for a small sum, beside what DyPP buys for a large one."""

from __future__ import annotations

from results_page.common import made_by, not_measured, stored, table


def gain_part() -> list[str]:
    """One sum against another: the clock down to two floors, DyPP by default and at its best."""
    head = "### A third of the money"
    found = stored("gain-per-money")
    if found is None:
        return [head, not_measured("python benchmarks/gain_per_money.py")]
    rows = {row["name"]: row for row in found["rows"]}
    lower = next(row for name, row in rows.items() if name.startswith("clock") and "floor" in name)
    by_default, best, alike = (row for name, row in rows.items() if name.startswith("DyPP"))
    ratios = [lower["gain"] / one["gain"] for one in (by_default, best, alike)]
    words = (
        f"The clock whose sellers keep noise 0.05 brings {lower['gain']:.2f} points for "
        f"{lower['paid']:.0f}: {ratios[0]:.1f} times what DyPP by default brings for "
        f"{by_default['paid']:.0f}. DyPP at its best brings more: the clock brings "
        f"{ratios[2]:.1f} times as much if its owners keep noise 0.05 too, and {ratios[1]:.1f} "
        f"times if they may sell all of it. Same owners, data and noise, features, "
        f"{lower['seeds']} seeds."
    )
    lines = [
        [
            row["name"],
            f"{row['paid']:.0f}",
            f"{row['sellers']:.1f}",
            f"{row['accuracy']:.2f}",
            f"{row['gain']:+.2f} ± {row['gain_half_width']:.2f}" if row["gain"] else "",
        ]
        for row in found["rows"]
    ]
    heads = ["", "paid", "sellers", "accuracy, %", "over no trade"]
    return [head, words, table(heads, lines), made_by(found)]
