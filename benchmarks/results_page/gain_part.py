"""What the clock buys for a small sum, beside what DyPP buys for a large one."""

from __future__ import annotations

import numpy as np

from benchmarks.results_page.common import Document, made_by, not_measured, stored, table
from noisemarket.study.results import paired_p


def gain_part() -> list[str]:
    """One sum against another: the clock down to two floors, DyPP by default and at its best."""
    head = "### A third of the money"
    found = stored("gain-per-money")
    if found is None:
        return [head, not_measured("python -m benchmarks studies gain-per-money")]
    clock, lower, by_default, best, alike = (
        row for row in found["rows"] if row["name"].startswith(("clock", "DyPP"))
    )
    floor = f"{found['floor']:g}"
    words = (
        f"The clock whose sellers keep noise {floor} brings {lower['gain']:.2f} points for "
        f"{lower['paid']:.0f}: {lower['gain'] / by_default['gain']:.1f} times what DyPP by default "
        f"brings for {by_default['paid']:.0f}. DyPP at its best brings more: the clock is then "
        f"{_ahead(lower, alike)} if DyPP's owners keep noise {floor} too, and "
        f"{_ahead(lower, best)} if they may sell all of it. The default clock, whose "
        f"sellers keep 0.1, is, for {clock['paid']:.0f}, {_ahead(clock, by_default)} against DyPP "
        f"by default and {_ahead(clock, best)} against DyPP at its best. p is of a paired "
        f"t-test, not corrected. Same owners, data and noise, features, {lower['seeds']} seeds."
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


def _ahead(one: Document, other: Document) -> str:
    """How far one is before another, and by which chance."""
    points = np.subtract(one["accuracies"], other["accuracies"])
    place = "ahead" if points.mean() > 0 else "behind"
    p = paired_p(points)
    chance = "" if p is None else f" (p {p:.3f})"
    return f"{abs(points.mean()):.2f} points {place}{chance}"
