"""Accuracy over noise: the measurements behind the shipped loss surfaces."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import numpy as np

from noisemarket.game.surface import surface
from results_page.common import Document, table

SURFACES = {
    "features-mnist": "linear model on features, `sharded`",
    "sharded-mnist": "CNN, `sharded`",
    "paper-mnist": "CNN, `paper`",
}
BETAS = (0.1, 1.0, 10.0)


@cache
def document_of(name: str) -> Document:
    """The file of a shipped surface."""
    return tomllib.loads(
        (files("noisemarket.scenario") / "surfaces" / f"{name}.toml").read_text("utf-8")
    )


def points_of(name: str) -> list[tuple[float, float, float]]:
    """Sigma, beta and accuracy of the trainings behind a surface in which all owners are alike."""
    measured = document_of(name)["measured"]
    points = [dict(zip(measured["columns"], one, strict=True)) for one in measured["points"]]
    return [
        (one["sigma"], one["beta"], one["accuracy"])
        for one in points
        if one.get("sellers", 1.0) == 1.0
    ]


def accuracy_of(name: str, sigma: float, beta: float) -> list[float]:
    """Accuracies at a point, one for each seed."""
    return [one[2] for one in points_of(name) if one[:2] == (sigma, beta)]


def accuracy_part() -> list[str]:
    """Accuracy over sigma at three betas, the paper's curve beside it."""
    sigmas = (0.0, 0.1, 0.2, 0.3, 0.6)
    rows = []
    for name, words in SURFACES.items():
        for beta in BETAS:
            cells = [accuracy_of(name, sigma, beta) for sigma in sigmas]
            if any(cells):
                shown = [f"{np.mean(one):.1f}" if one else "" for one in cells]
                rows.append([words, f"{beta:g}", str(max(map(len, cells))), *shown])
    printed = surface("printed")
    for beta in BETAS:
        shown = [f"{float(printed.quality(sigma, beta)):.1f}" for sigma in sigmas]
        rows.append(["the paper's printed curve", f"{beta:g}", "", *shown])
    low, high = (
        np.mean(accuracy_of(name, 0.6, 1.0)) for name in ("sharded-mnist", "features-mnist")
    )
    commands = "; ".join(f"`{document_of(name)['provenance']['command']}`" for name in SURFACES)
    return [
        "## Accuracy over noise",
        f"At full noise the linear model keeps {high:.1f} %, the CNN under the same protection "
        f"{low:.1f} %. Test accuracy on MNIST in per cent, 100 owners, 30 rounds, all owners with "
        "the same noise; small betas are uneven data.",
        "![Test accuracy over noise for each model and protection, with the paper's curve]"
        "(../images/results-accuracy.png)",
        table(["", "beta", "seeds", *(f"sigma {sigma:g}" for sigma in sigmas)], rows),
        f"Measured by {commands}.",
    ]
