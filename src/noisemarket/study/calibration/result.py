"""What a calibration came to: the fit beside the paper's printed one, as figures and as a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.surface import SURFACES
from noisemarket.scenario import Scenario
from noisemarket.scenario.auto import tuned
from noisemarket.scenario.surface_file import surface_text
from noisemarket.study.calibration.fit import Fit, by_loss, fit_surface, rms
from noisemarket.study.calibration.points import Point

PRINTED = SURFACES["printed"]


@dataclass(frozen=True)
class CurvePoint:
    """One noise on the curve at one beta: means over seeds; ``fitted`` is None without a fit."""

    sigma: float
    accuracy: float
    fitted: float | None
    printed: float


@dataclass(frozen=True)
class Calibration:
    """The points, the fit and the curves of a calibration, complete or not.

    ``curve`` is accuracy over sigma at ``curve_beta``, the measured beta closest to 1, and
    ``rms_to_printed`` its distance to the paper's fitted curve, in points of accuracy.
    """

    name: str
    command: str
    wanted: int
    missing: int
    points: tuple[Point, ...]
    fit: Fit | None
    paper_way: Fit | None
    remarks: tuple[str, ...]
    curve_beta: float | None
    curve: tuple[CurvePoint, ...]
    rms_to_printed: float | None
    rms_to_printed_all: float | None

    def summary(self, scenario: Scenario) -> dict[str, Any]:
        """As plain values for JSON."""
        fit, paper = self.fit, self.paper_way
        return {
            "name": self.name,
            "complete": not self.missing,
            "points": len(self.points),
            "points_wanted": self.wanted,
            "protection": scenario.privacy.protection,
            "owners": scenario.population.owners,
            "rounds": scenario.training.rounds,
            "averaged": _averaged(scenario),
            "gamma": fit and list(fit.surface.gamma),
            "zeta": fit and list(fit.surface.zeta),
            "labels": fit and fit.surface.labels,
            "spread": fit and list(fit.surface.spread),
            "spread_errors": fit and list(fit.spread_errors),
            "gamma_errors": fit and list(fit.gamma_errors),
            "zeta_errors": fit and list(fit.zeta_errors),
            "rms_accuracy": fit and fit.rms_accuracy,
            "worst_accuracy": fit and fit.worst_accuracy,
            "rms_loss": fit and fit.rms_loss,
            "by_loss": paper
            and {
                "gamma": list(paper.surface.gamma),
                "zeta": list(paper.surface.zeta),
                "rms_accuracy": paper.rms_accuracy,
                "rms_loss": paper.rms_loss,
            },
            "curve_beta": self.curve_beta,
            "curve": [asdict(one) for one in self.curve],
            "rms_to_printed": self.rms_to_printed,
            "rms_to_printed_all": self.rms_to_printed_all,
            "seconds": sum(point.seconds for point in self.points),
            "remarks": list(self.remarks),
        }


def calibrated(
    name: str, command: str, wanted: int, missing: int, points: Sequence[Point], labels: int
) -> Calibration:
    """Fit what has been measured, as far as it allows; ``labels`` is how many the data has."""
    fit = paper = None
    remarks: tuple[str, ...] = ()
    try:
        fit, paper = fit_surface(points, labels=labels), by_loss(points)
        remarks = fit.remarks
    except BadInput as problem:
        remarks = (f"No fit: {problem.remedy}",)
    if missing:
        remarks += (f"{missing} of {wanted} points have not been measured yet.",)
    beta = min({p.beta for p in points}, key=lambda b: (abs(math.log(b)), b), default=None)
    curve = _curve(points, beta, fit) if beta is not None else ()
    off = np.array([one.accuracy - one.printed for one in curve])
    off_all = np.array(
        [p.accuracy - float(PRINTED.quality(p.effective_noise, p.beta)) for p in points]
    )
    return Calibration(
        name=name,
        command=command,
        wanted=wanted,
        missing=missing,
        points=tuple(points),
        fit=fit,
        paper_way=paper,
        remarks=remarks,
        curve_beta=beta,
        curve=curve,
        rms_to_printed=rms(off) if len(off) else None,
        rms_to_printed_all=rms(off_all) if len(off_all) else None,
    )


def _curve(points: Sequence[Point], beta: float, fit: Fit | None) -> tuple[CurvePoint, ...]:
    own = [point for point in points if point.beta == beta and point.sellers == 1.0]
    return tuple(
        CurvePoint(
            sigma=sigma,
            accuracy=float(np.mean([point.accuracy for point in own if point.sigma == sigma])),
            fitted=None if fit is None else float(fit.surface.quality(sigma, beta)),
            printed=float(PRINTED.quality(sigma, beta)),
        )
        for sigma in sorted({point.sigma for point in own})
    )


def surface_file(result: Calibration, scenario: Scenario) -> str | None:
    """The text of the surface file, with all it takes to judge and to repeat it."""
    from noisemarket import __version__

    fit = result.fit
    if fit is None:
        return None
    settings = scenario.model_dump(mode="json")
    data = settings["training"].pop("data")
    more: dict[str, Any] = {
        "errors": {"gamma": _known(fit.gamma_errors), "zeta": _known(fit.zeta_errors)}
        | ({"spread": list(fit.spread_errors)} if fit.spread_errors else {}),
        "fit": {
            "rms_accuracy": fit.rms_accuracy,
            "worst_accuracy": fit.worst_accuracy,
            "rms_loss": math.nan if fit.rms_loss is None else fit.rms_loss,
            "rms_to_printed": result.rms_to_printed,
            "curve_beta": result.curve_beta,
            "remarks": list(result.remarks),
        },
        "provenance": {
            "name": result.name,
            "command": result.command,
            "noisemarket": __version__,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "data": Path(data).name if data else "MNIST",
            "noise": "simulated: one party held all the data",
            "owners": scenario.population.owners,
            "model": "average of the global models" if _averaged(scenario) else "last global model",
            "seconds": round(sum(point.seconds for point in result.points), 1),
            "training": settings["training"],
            "privacy": settings["privacy"],
        },
        "measured": {
            "columns": [
                *("sigma", "sellers", "effective_noise", "effective_share", "beta", "seed"),
                *("accuracy", "loss"),
            ],
            "points": [
                [
                    *(p.sigma, p.sellers, p.effective_noise, p.share, p.beta, p.seed),
                    *(p.accuracy, math.nan if p.loss is None else p.loss),
                ]
                for p in sorted(result.points, key=lambda p: (p.beta, -p.sellers, p.sigma, p.seed))
            ],
        },
    }
    return surface_text(fit.surface, more)


def _averaged(scenario: Scenario) -> bool:
    """Whether what was measured is the average of the global models."""
    training = scenario.training
    return float(tuned("averaging", training.averaging, training.model)) > 0.0


def _known(errors: tuple[float | None, ...]) -> list[float]:
    return [math.nan if error is None else error for error in errors]
