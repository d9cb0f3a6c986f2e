"""The figure of a comparison: no bar makes all others invisible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noisemarket.market.negotiation import negotiate
from noisemarket.scenario import Scenario
from noisemarket.show import comparison_report
from noisemarket.show.comparison_report import game_rows

NAMES = ("uniform", "equilibrium", "first_best", "no_dp")


def test_one_long_bar_is_cut_off_and_says_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise the curator gains many times what any trade brings."""
    made = Scenario.from_preset("market", owners=8, model="cnn")
    results = {
        name: negotiate(made.model_copy(update={"mechanism": name}), threads=1) for name in NAMES
    }
    rows = game_rows(results)
    drawn: list[Any] = []
    monkeypatch.setattr(comparison_report, "save", lambda canvas, *_: drawn.append(canvas) or [])
    comparison_report.draw_game(tmp_path, rows)
    (canvas,) = drawn
    panels = {axis.get_title(loc="left"): axis for axis in canvas.axes}
    gains = {str(row["mechanism"]): float(str(row["curator_gain"])) for row in rows}
    assert gains["no_dp"] > 3 * gains["first_best"] > 0  # else there is nothing to be seen here
    axis = panels["curator's gain"]
    assert axis.get_xlim()[1] == pytest.approx(1.25 * gains["first_best"])
    assert [text.get_text().strip() for text in axis.texts] == [f"{gains['no_dp']:.3g}"]
    quality = panels["quality of the model, %"]
    assert not quality.texts  # of the same size: shown whole
    assert quality.get_xlim()[1] >= max(float(str(row["model_quality"])) for row in rows)
