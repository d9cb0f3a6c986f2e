"""Loss surfaces that the package carries: what their files say about them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

from _reference import code, table
from noisemarket.study.fit import poorly_determined

INTRO = """\
`game.surface` takes `printed` (the paper's constants), one of these names, or the path of a
[surface file](files.md#surface-files). Each was measured by [`noisemarket
calibrate`](commands.md#noisemarket-calibrate); figures after ± are standard errors."""

READING = """\
- *poor*: the standard error is more than half of the constant. The constant says nothing by
  itself; the others make up for it. Do not compare it with the paper's.
- *at the edge*: the search stopped at a bound it was given. For gamma_3 at its lowest, accuracy
  has not begun to level off within the measured sigmas: beyond them, the surface is a guess.
- *not measured*: one beta cannot show what beta does, so gamma_2 is 0 and all betas have the
  same quality.
- With one seed, the scatter between trainings is seen only as scatter about the curve.

[Calibration](../explanation/training.md#calibration-from-noise-to-accuracy) says how they are
fitted."""

SIGMAS = (0.0, 0.3, 0.6)
CONSTANTS = [("gamma", n) for n in range(5)] + [("zeta", n) for n in range(2)]
Surface = dict[str, Any]


def surfaces() -> list[str]:
    """A column for each surface."""
    folder = files("noisemarket.scenario") / "surfaces"
    paths = sorted(
        (one for one in folder.iterdir() if one.name.endswith(".toml")), key=lambda one: one.name
    )
    known = {one.name.removesuffix(".toml"): tomllib.loads(one.read_text("utf-8")) for one in paths}
    betas = sorted({point["beta"] for one in known.values() for point in _points(one)})
    rows: dict[str, Callable[[Surface], str]] = {
        "model": _model,
        "protection": lambda one: code(one["provenance"]["privacy"]["protection"]),
        "betas measured": _betas,
        "mixed contracts: sellers and their sigma": _mixed,
        "seeds": lambda one: str(len({point["seed"] for point in _points(one)})),
        "training, minutes": lambda one: f"{one['provenance']['seconds'] / 60:.0f}",
        **{
            f"accuracy at sigma 0, 0.3, 0.6, beta {b:g}": partial(_accuracies, beta=b)
            for b in betas
        },
        "beta counts": _counting,
        "fit off by, rms (worst), points": lambda one: (
            f"{one['fit']['rms_accuracy']:.2f} ({one['fit']['worst_accuracy']:.2f})"
        ),
        **{f"{kind}_{n + 1}": partial(_constant, kind=kind, index=n) for kind, n in CONSTANTS},
        **{f"spread_{n + 1}": partial(_spread, at=n) for n in range(2)},
    }
    head = ["", *map(code, known)]
    body = [[name, *(shown(one) for one in known.values())] for name, shown in rows.items()]
    return ["## Loss surfaces", INTRO, table(head, body), READING]


def _points(surface: Surface) -> list[dict[str, float]]:
    measured = surface["measured"]
    return [dict(zip(measured["columns"], point, strict=True)) for point in measured["points"]]


def _mixed(surface: Surface) -> str:
    pairs = {
        (point["sellers"], point["sigma"])
        for point in _points(surface)
        if point.get("sellers", 1.0) < 1.0
    }
    shown = (f"{100 * share:g} % at {sigma:g}" for share, sigma in sorted(pairs))
    return ", ".join(shown) or "none"


def _spread(surface: Surface, at: int) -> str:
    if "spread" not in surface:
        return "0, not measured"
    return f"{surface['spread'][at]:.3g} ± {surface['errors']['spread'][at]:.2g}"


def _model(surface: Surface) -> str:
    training = surface["provenance"]["training"]
    return code(training.get("model", "cnn"))


def _betas(surface: Surface) -> str:
    return ", ".join(f"{beta:g}" for beta in sorted({point["beta"] for point in _points(surface)}))


def _counting(surface: Surface) -> str:
    if "labels" in surface:
        return "by how even labels are"
    return "as it is" if "," in _betas(surface) else "–"


def _accuracies(surface: Surface, beta: float) -> str:
    shown = []
    for sigma in SIGMAS:
        seen = [
            point["accuracy"]
            for point in _points(surface)
            if (point["sigma"], point["beta"], point.get("sellers", 1.0)) == (sigma, beta, 1.0)
        ]
        shown += [f"{sum(seen) / len(seen):.1f}"] if seen else []
    return ", ".join(shown) + " %" if shown else "–"


def _constant(surface: Surface, kind: str, index: int) -> str:
    value, error = surface[kind][index], surface["errors"][kind][index]
    if math.isnan(error):
        return f"{value:.3g}, not measured"
    edge = any(f"{kind}_{index + 1} stands at the edge" in one for one in surface["fit"]["remarks"])
    notes = ["at the edge"] * edge + ["poor"] * poorly_determined(value, error)
    return f"{value:.3g} ± {error:.2g}" + (f" ({', '.join(notes)})" if notes else "")
