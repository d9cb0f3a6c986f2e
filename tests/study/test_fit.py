"""The fit finds what is there, and says when the form does not fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.game.levels import SURFACES, LossSurface, evenness
from noisemarket.study.calibrate import BETAS, SIGMAS, Point
from noisemarket.study.fit import fit_surface

pytestmark = pytest.mark.slow

PRINTED = SURFACES["printed"]
OTHER = LossSurface(gamma=(0.4, 0.03, 0.2, 12.0, 0.3), zeta=(25.0, 99.0))
EVEN = LossSurface(gamma=(0.4, 0.9, 0.2, 12.0, 0.3), zeta=(25.0, 99.0), labels=10)


def point(sigma: float, beta: float, accuracy: float) -> Point:
    return Point(
        sigma, beta, 1, accuracy=accuracy, effective_noise=sigma, effective_share=1.0, seconds=1.0
    )


def assert_same(found: LossSurface, truth: LossSurface) -> None:
    """The same shape; and the same quality, whatever unit its loss is in."""
    np.testing.assert_allclose(found.gamma[1:4], truth.gamma[1:4], rtol=1e-4)
    for beta in BETAS:
        quality = found.quality(np.array(SIGMAS), beta)
        np.testing.assert_allclose(quality, truth.quality(np.array(SIGMAS), beta), rtol=1e-6)


def measured(
    surface: LossSurface,
    scatter: float,
    seed: int,
    betas: Sequence[float] = BETAS,
    sigmas: Sequence[float] = SIGMAS,
) -> list[Point]:
    """Points on a surface, with scatter in accuracy."""
    rng = np.random.default_rng(seed)
    return [
        point(sigma, beta, float(surface.quality(sigma, beta)) + scatter * rng.normal())
        for beta in betas
        for sigma in sigmas
    ]


@pytest.mark.parametrize("surface", [PRINTED, OTHER], ids=["printed", "other"])
def test_points_without_scatter_give_the_constants_back(surface: LossSurface) -> None:
    fit = fit_surface(measured(surface, 0.0, 1))
    assert_same(fit.surface, surface)
    assert fit.rms_accuracy < 1e-6
    assert fit.remarks == ()


@pytest.mark.parametrize("labels", [2, 10])
@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
def test_evenness_is_the_chance_that_two_labels_differ(beta: float, labels: int) -> None:
    shares = np.random.default_rng(1).dirichlet([beta] * labels, 100_000)
    assert float(evenness(beta, labels)) == pytest.approx(1 - (shares**2).sum(1).mean(), abs=3e-3)
    assert float(evenness(beta)) == beta


@pytest.mark.slow
def test_beta_counts_the_way_that_fits_better() -> None:
    fit = fit_surface(measured(EVEN, 0.0, 1), labels=10)
    assert fit.surface.labels == 10
    assert_same(fit.surface, EVEN)
    (said,) = fit.remarks
    off = fit_surface(measured(EVEN, 0.0, 1)).rms_accuracy
    assert f"with the paper's exp(-gamma_2 beta) the fit is {off:.2f} points off" in said
    assert off > 0.5
    assert fit_surface(measured(OTHER, 0.0, 1), labels=10).surface.labels == 0
    for few in ((1.0,), (0.1, 1.0)):
        assert fit_surface(measured(EVEN, 0.0, 1, betas=few), labels=10).surface.labels == 0


def test_a_form_that_does_not_fit_is_said() -> None:
    points = [point(s, b, 90.0 - (40.0 if s >= 0.3 else 0) + 20 * (b > 5))
              for s in SIGMAS for b in BETAS]  # fmt: skip
    fit = fit_surface(points)
    assert fit.rms_accuracy > 2
    assert any("fits poorly" in remark for remark in fit.remarks)
    residuals = [abs(p.accuracy - float(fit.surface.quality(p.sigma, p.beta))) for p in points]
    assert fit.worst_accuracy == pytest.approx(max(residuals))


def test_one_beta_says_nothing_about_beta() -> None:
    fit = fit_surface(measured(PRINTED, 0.1, 1, betas=(1.0,)))
    assert fit.surface.gamma[1] == 0.0
    assert any("does not depend on beta" in remark for remark in fit.remarks)
    quality = fit.surface.quality(np.array(SIGMAS), 1.0)
    np.testing.assert_allclose(quality, PRINTED.quality(np.array(SIGMAS), 1.0), atol=0.4)


def test_accuracy_that_does_not_fall_gives_a_flat_surface() -> None:
    fit = fit_surface([point(s, b, 50.0 + 10 * s) for s in SIGMAS for b in BETAS])
    quality = fit.surface.quality(np.array(SIGMAS), 1.0)
    np.testing.assert_allclose(quality, quality[0])
    assert any("did not fall" in remark for remark in fit.remarks)


def test_too_few_sigmas_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 4 different values of sigma"):
        fit_surface(measured(PRINTED, 0.1, 1, sigmas=(0.0, 0.3, 0.6)))


def test_mixed_contracts_give_the_spread_back() -> None:
    """Fewer owners, and owners that differ more, count as more noise."""
    truth = LossSurface((0.4, 0.9, 0.2, 6.0, 0.3), (25.0, 99.0), labels=10, spread=(0.02, 0.4))
    points = [
        Point(0.1, beta, 1, 0.5, accuracy=float(truth.quality(noise, beta, share)),
              effective_noise=noise, effective_share=share, seconds=1.0)
        for beta in BETAS
        for noise in (0.1, 0.2, 0.4)
        for share in (0.1, 0.4)
    ]  # fmt: skip
    fit = fit_surface([*measured(truth, 0.0, 1), *points], labels=10)
    assert fit.surface.spread == pytest.approx(truth.spread, rel=0.02)
    assert fit.rms_accuracy < 0.01
    without = fit_surface(measured(truth, 0.0, 1), labels=10)
    assert without.surface.spread == (0.0, 0.0)
