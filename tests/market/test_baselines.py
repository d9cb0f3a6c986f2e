"""Whose records a model without noise may be trained on, and who may read it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.market.common import here, played, scenario, words

from noisemarket.cli import main
from noisemarket.market import job as market_job
from noisemarket.market.baselines import NO_DP, BaselineWork, Draw, alternatives, harmless
from noisemarket.market.negotiation import negotiate
from noisemarket.market.orders import order
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training


def test_only_public_data_and_simulated_noise_are_compared_unasked(images: Path) -> None:
    assert harmless(Scenario.from_preset("market"))  # the bundled data
    assert harmless(scenario(images, noise="simulated"))
    assert not harmless(scenario(images, noise="secure"))


def test_own_data_under_real_noise_is_not_trained_without_it(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(market_job, "run_market", here)
    given = [word for word in words(images, noise="secure") if word != "--no-baselines"]
    folder = tmp_path / "run"
    for more in (["--out", str(folder)], None):
        with pytest.raises(SystemExit) as ended:
            main([*given, *more] if more else ["run", "--resume", str(folder)])
        assert not ended.value.code
        assert "Pass --baselines to train them" in " ".join(capsys.readouterr().out.split())
        assert not (folder / "baselines").exists()
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["no_dp_accuracy"] is None


def test_what_is_trained_without_noise_is_for_the_user_alone(images: Path, tmp_path: Path) -> None:
    made = scenario(images, owners=2, rounds=1, widths=(2, 2, 8))
    sigma = np.zeros(2)
    ordered = order(made, made.environment(), np.full(2, 0.1))
    work = BaselineWork(made, ordered, tmp_path / "baselines", serial=False, workers=1)
    work(Draw(NO_DP, sigma, 1), lambda result: None)
    paths = [tmp_path / "baselines", *(tmp_path / "baselines").iterdir()]
    assert {path.suffix for path in paths} >= {".npz", ".journal"}
    assert [path.name for path in paths if path.stat().st_mode & 0o077] == []


DYPP = {"mechanism": "dypp", "rounds": 1, "iterations": 50, "window": 10,
        "privacy_cost": 0.2}  # fmt: skip


def test_the_clock_stands_beside_dypp_as_the_scenario_would_run_it(
    images: Path, tmp_path: Path
) -> None:
    made = scenario(images, model="features", **DYPP)
    _, outcome = played(made, tmp_path)
    others = alternatives(outcome, 1)
    names = [one.name for one in others]
    assert names == ["uniform_dp", "market", "clock", "best_portfolio", "no_dp"]
    clock = negotiate(made, mechanism="clock")
    np.testing.assert_allclose(others[2].sigma, [one.sigma for one in clock.contracts])
    assert others[2].paid == pytest.approx(clock.learned.total_payment) != 0
    assert others[2].predicted_value == pytest.approx(clock.learned.predicted_value)


def test_an_auction_that_cannot_be_held_is_left_out(images: Path, tmp_path: Path) -> None:
    made = scenario(images, model="features", **DYPP, **{"market.floor": 0.7})
    _, outcome = played(made, tmp_path)
    assert "clock" not in [one.name for one in alternatives(outcome, 1)]
