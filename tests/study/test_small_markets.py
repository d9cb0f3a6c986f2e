"""The benchmark of small markets: points over no trade, population by population."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.small_markets import measured, summary
from tests.market.common import write_images

from noisemarket.market.training import train
from noisemarket.scenario import Scenario


@pytest.mark.process
def test_points_are_those_of_training_under_the_contracts(tmp_path: Path) -> None:
    images = write_images(tmp_path)
    scenario = Scenario.from_preset(
        "market", owners=3, data_size=30, rounds=2, surface="printed", data=str(images),
        iterations=50,
    )  # fmt: skip
    names, kept = ("equilibrium", "greedy"), tmp_path / "kept"
    rows = measured(scenario, names, (1, 2), 1, kept, workers=1)
    assert [(row["seed"], row["mechanism"]) for row in rows] == [
        (seed, name) for seed in (1, 2) for name in names
    ]
    privacy = scenario.privacy.model_copy(update={"noise": "simulated"})
    alone = train(scenario.model_copy(update={"privacy": privacy}), sigma=0.6, workers=1)
    last = alone.rounds[-1]
    assert rows[0]["no_trade"] == (last.averaged or last.score).accuracy
    drawn = measured(scenario, names, (1,), 2, kept, workers=1)
    for row, before in zip(drawn, rows, strict=False):
        assert len(row["points_of_draws"]) == 2
        assert row["points_of_draws"][0] == before["points"], "resumed from what was kept"
        assert row["points"] == pytest.approx(sum(row["points_of_draws"]) / 2)
        assert row["points"] == pytest.approx(row["accuracy"] - row["no_trade"])
        if row["mechanism"] == "greedy":  # it buys nothing
            assert (row["sellers"], row["paid"], row["points"]) == (0, 0.0, 0.0)
        else:
            assert row["sellers"] > 0 < row["paid"]


def test_a_population_below_no_trade_is_counted() -> None:
    points = {"dypp": (1.0, -0.5, 2.0), "clock": (0.0, 3.0, 1.0)}
    rows = [{"mechanism": name, "points": one} for name, some in points.items() for one in some]
    found = summary(rows)
    assert [(found[name]["worst_points"], found[name]["below_no_trade"]) for name in points] == [
        (-0.5, 1), (0.0, 0),
    ]  # fmt: skip
