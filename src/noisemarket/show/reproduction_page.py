"""The reproduction as a page, figures and numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from noisemarket.files import write_atomic
from noisemarket.formats import csv_text
from noisemarket.game.levels import FloatArray
from noisemarket.market.run_folder import RunFolder
from noisemarket.show.style import colour_of, figure, label, name_of, save
from noisemarket.study.reproduce import (
    LEARNERS,
    PRESETS,
    Adaptation,
    ClaimVerdict,
    Trials,
    interval,
    judge,
    judge_adaptation,
)

FIGURES = {
    "saving": ("convergence-saving", "mean noise saving", "Noise saving of the owners"),
    "payment": ("convergence-payment", "mean payment", "Payment of the curator"),
}

_PAGE = Path(__file__).with_name("reproduction.md")


def write_reproduction(
    folder: RunFolder,
    page: Path,
    trials: Sequence[Trials],
    adaptations: Sequence[Adaptation],
    command: str,
) -> list[ClaimVerdict]:
    """Figures (PNG and SVG), their numbers (CSV) and the page of claims."""
    by_preset = {preset: {t.learner: t for t in trials if t.preset == preset} for preset in PRESETS}
    verdicts = [verdict for preset in PRESETS for verdict in judge(by_preset[preset])]
    verdicts += judge_adaptation(adaptations)
    for series, (stem, _, _) in FIGURES.items():
        _draw(folder, by_preset, series)
        folder.write_text(f"{stem}.csv", _numbers(trials, series))
    folder.write_json("claims.json", [vars(verdict) for verdict in verdicts])
    first = trials[0]
    relative = Path(os.path.relpath(folder.path, page.parent)).as_posix()
    figures = [
        f"![{title} over the iterations]({relative}/{stem}.png)\n"
        for stem, _, title in FIGURES.values()
    ]
    text = _PAGE.read_text(encoding="utf-8").format(
        command=command,
        owners=first.owners,
        iterations=int(first.iteration[-1]),
        seeds=len(first.saving),
        figures="\n".join(figures),
        claims=_claims(verdicts),
    )
    write_atomic(page, text)
    return verdicts


def _claims(verdicts: Sequence[ClaimVerdict]) -> str:
    lines = ["## Claim by claim", "", "| claim | preset | seen? | numbers |", "|---|---|---|---|"]
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        said = [verdict for verdict in verdicts if verdict.claim == claim]
        lines += [
            f"| {claim if v is said[0] else ''} | `{v.preset}` | **{v.seen}** | {v.numbers} |"
            for v in said
        ]
    return "\n".join([*lines, ""])


def band(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean over seeds and the ends of its confidence interval, block by block."""
    mean, half = np.array([interval(block) for block in values.T]).T
    return mean, mean - half, mean + half


def _draw(folder: RunFolder, by_preset: Mapping[str, Mapping[str, Trials]], series: str) -> None:
    stem, y, title = FIGURES[series]
    canvas, axes = figure(len(PRESETS))
    for axis, preset in zip(axes[0], PRESETS, strict=True):
        for learner in LEARNERS:
            trials = by_preset[preset][learner]
            mean, low, high = band(getattr(trials, series))
            colour = colour_of(learner)
            axis.fill_between(trials.iteration, low, high, color=colour, alpha=0.2, linewidth=0)
            axis.plot(trials.iteration, mean, color=colour, label=name_of(learner))
        label(axis, f"{title}, {preset}", "iteration", y)
        axis.set_xlim(0, trials.iteration[-1])
        axis.set_ylim(bottom=-0.03 * axis.get_ylim()[1])
    axes[0][0].legend(frameon=False, fontsize=9)
    save(canvas, folder.path, stem)


def _numbers(trials: Sequence[Trials], series: str) -> str:
    rows = []
    for one in trials:
        mean, low, high = band(getattr(one, series))
        columns = (one.iteration, mean, low, high)
        rows += [
            (one.preset, one.learner, *row)
            for row in zip(*(c.tolist() for c in columns), strict=True)
        ]
    return csv_text(("preset", "learner", "iteration", "mean", "low", "high"), rows)
