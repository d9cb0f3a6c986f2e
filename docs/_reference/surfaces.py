"""Loss surfaces that the package carries: what their files say about them."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from _reference import code, table

INTRO = """\
`game.surface` takes `printed` (the paper's constants), `auto`, one of these names, or the path of a
[surface file](output.md#surface-files). Each was [measured by `noisemarket
calibrate`](../explanation/training.md#calibration-from-noise-to-accuracy). Do not
compare single constants with the paper's: where one is far off, the others make up for it."""

SIGMAS = (0.0, 0.3, 0.6)
HEAD = ("name", "model, protection", "betas", "seeds", "accuracy at sigma 0, 0.3, 0.6, beta 1",
        "fit off by, points: rms (worst)")  # fmt: skip
Surface = dict[str, Any]


def surfaces() -> list[str]:
    """A row for each surface."""
    folder = files("noisemarket.scenario") / "surfaces"
    paths = sorted(
        (one for one in folder.iterdir() if one.name.endswith(".toml")), key=lambda one: one.name
    )
    rows = []
    for path in paths:
        one = tomllib.loads(path.read_text("utf-8"))
        made, points, fit = one["provenance"], _points(one), one["fit"]
        trained = f"{made['training'].get('model', 'cnn')}, {made['privacy']['protection']}"
        betas = sorted({point["beta"] for point in points})
        rows.append(
            (
                code(path.name.removesuffix(".toml")),
                trained,
                ", ".join(f"{beta:g}" for beta in betas),
                str(len({point["seed"] for point in points})),
                _accuracies(points),
                f"{fit['rms_accuracy']:.2f} ({fit['worst_accuracy']:.2f})",
            )
        )
    return ["## Loss surfaces", INTRO, table(HEAD, rows)]


def _points(surface: Surface) -> list[dict[str, float]]:
    measured = surface["measured"]
    return [dict(zip(measured["columns"], point, strict=True)) for point in measured["points"]]


def _accuracies(points: list[dict[str, float]]) -> str:
    shown = []
    for sigma in SIGMAS:
        seen = [
            point["accuracy"]
            for point in points
            if (point["sigma"], point["beta"], point.get("sellers", 1.0)) == (sigma, 1.0, 1.0)
        ]
        shown += [f"{sum(seen) / len(seen):.1f}"] if seen else []
    return ", ".join(shown) + " %"
