"""Accuracy over noise: the measurements behind the shipped loss surfaces."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from benchmarks.results_page.common import Document, made_by, not_measured, stored, table

SURFACES = {
    "features-mnist": "linear model on features, `per_record`",
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
    """Accuracy over sigma, as a figure."""
    return [
        "## Accuracy over noise",
        "The same with other models and uneven data (small betas), by `noisemarket calibrate`; the "
        "file of each [surface](../reference/scenario.md#loss-surfaces) has all points.",
        "![Test accuracy over noise for each model and protection, with the paper's curve]"
        "(../images/results-accuracy.png)",
    ]


def epsilon_part() -> list[str]:
    """Accuracy of the default job by the epsilon of its owners."""
    head = "## Accuracy over epsilon"
    found = stored("per-record")
    if found is None:
        return [head, not_measured("python -m benchmarks studies per-record")]
    rows = [one for one in found["rows"] if one["beta"] == 1.0]
    heads = [f"{one['epsilon']:g}" if one["epsilon"] else "no noise" for one in rows]
    sigmas = [f"{one['sigma']:.3f}" for one in rows]
    ends = [f"{one['accuracy']:.1f} ± {one['half_width']:.1f}" for one in rows]
    (uneven,) = (one for one in found["rows"] if one["beta"] != 1.0)
    return [
        head,
        f"The default job (MNIST, 100 owners of 600 records, 30 rounds, delta 1e-5), all owners "
        f"with the same noise: test accuracy in per cent, {found['seeds']} seeds. With uneven data "
        f"(beta {uneven['beta']:g}) and epsilon {uneven['epsilon']:g} it is "
        f"{uneven['accuracy']:.1f} %.",
        table(["epsilon", *heads], [["sigma", *sigmas], ["accuracy", *ends]]),
        made_by(found),
    ]
