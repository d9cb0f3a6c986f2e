"""The reproduction as a page, figures and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from noisemarket.formats import csv_text
from noisemarket.game.levels import FloatArray
from noisemarket.market.run_folder import RunFolder
from noisemarket.show.style import colour_of, figure, label, name_of, save
from noisemarket.study.reproduce import (
    LEARNERS,
    VERDICTS,
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

PAGE = "reproduction.md"
_PRESETS = {
    "title": "Reproduction of the paper's convergence experiments",
    "ours": "; ours, since the paper does not say: learning rate 0.1,\ncosts uniform on [0.5, 4], "
    "beta 1 and markup 0.2 for all",
    "about": """\
The paper's game is played twice on its printed loss surface: as printed (`paper`), and as its
workflow means it (`market`, without `learning.reopen`); docs/explanation/paper.md says where
the two differ, and why.""",
    "reading": """\
**`paper`.** With the printed sign the equilibrium is full saving for no money. Greedy play is there
from its first move: nobody can be faster, and, against the paper's claim, nobody can be better for
the model. The curator's payoffs are always positive, so first Q-values of 0 make any payment that
was tried look better than the others.

**`market`.** A deal must pay for both sides, so random proposals and quotes mostly fail, and
savings and payments both start near zero. Greedy play never sees that an unpaid proposal is never
signed: it trades nothing.

""",
}
_OWN = {
    "title": "The paper's claims on a scenario: {}",
    "ours": "",
    "about": """\
The game is that of `scenario.toml` beside the figures: its owners, payoffs, loss surface and
settings of learning. Its mechanism, its budget and its changes of preferences are left out.""",
    "reading": "",
}
"""What a page on the presets says, and one on a scenario of one's own."""


def write_reproduction(
    folder: RunFolder,
    trials: Sequence[Trials],
    adaptations: Sequence[Adaptation],
    command: str,
) -> list[ClaimVerdict]:
    """Figures (PNG and SVG), their numbers (CSV) and the page of claims.

    One scenario is a user's own, two are the presets.
    """
    games = dict.fromkeys(one.scenario for one in trials)
    by_game = {game: {t.learner: t for t in trials if t.scenario == game} for game in games}
    verdicts = [verdict for some in by_game.values() for verdict in judge(some)]
    verdicts += judge_adaptation(adaptations)
    for series, (stem, _, _) in FIGURES.items():
        _draw(folder, by_game, series)
        folder.write_text(f"{stem}.csv", _numbers(trials, series))
    folder.write_json("claims.json", [vars(verdict) for verdict in verdicts])
    first = trials[0]
    figures = [
        f"![{title} over the iterations]({stem}.png)\n" for stem, _, title in FIGURES.values()
    ]
    words = _PRESETS if len(by_game) > 1 else _OWN
    text = (
        Path(__file__)
        .with_name(PAGE)
        .read_text(encoding="utf-8")
        .format(
            **{**words, "title": words["title"].format(first.scenario)},
            command=command,
            owners=first.owners,
            iterations=int(first.iteration[-1]),
            seeds=len(first.saving),
            figures="\n".join(figures),
            claims=_claims(verdicts),
        )
    )
    folder.write_text(PAGE, text)
    return verdicts


def _claims(verdicts: Sequence[ClaimVerdict]) -> str:
    lines = ["## Claim by claim", "", "| claim | scenario | seen? | numbers |", "|---|---|---|---|"]
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        said = [verdict for verdict in verdicts if verdict.claim == claim]
        lines += [
            f"| {claim if v is said[0] else ''} | `{v.scenario}` | **{v.seen}** | {v.numbers} |"
            for v in said
        ]
    return "\n".join([*lines, "", f"{VERDICTS}.", ""])


def band(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean over seeds and the ends of its confidence interval, block by block."""
    mean, half = np.array([interval(block) for block in values.T]).T
    return mean, mean - half, mean + half


def _draw(folder: RunFolder, by_game: Mapping[str, Mapping[str, Trials]], series: str) -> None:
    stem, y, title = FIGURES[series]
    canvas, axes = figure(len(by_game))
    for axis, (game, some) in zip(axes[0], by_game.items(), strict=True):
        for learner in LEARNERS:
            trials = some[learner]
            mean, low, high = band(getattr(trials, series))
            colour = colour_of(learner)
            axis.fill_between(trials.iteration, low, high, color=colour, alpha=0.2, linewidth=0)
            axis.plot(trials.iteration, mean, color=colour, label=name_of(learner))
        label(axis, f"{title}, {game}", "iteration", y)
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
            (one.scenario, one.learner, *row)
            for row in zip(*(c.tolist() for c in columns), strict=True)
        ]
    return csv_text(("scenario", "learner", "iteration", "mean", "low", "high"), rows)
