"""What is measured in which order, and the file that keeps it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisemarket.cli.calibrate import _numbers as numbers
from noisemarket.errors import BadInput
from noisemarket.study.calibrate import Grid, Point, Points, Setting, spread

ALIKE = "of these settings"


def point(sigma: float = 0.1, seed: int = 1, loss: float | None = 0.25) -> Point:
    return Point(sigma, 1.0, seed, 91.5, loss, 91.0, None, 30, 2, 12.5, (50.0, 91.5))


class TestGrid:
    def test_every_point_once_the_first_seed_first(self) -> None:
        grid = Grid((0.0, 0.1, 0.6), (0.1, 1.0, 10.0), 2)
        settings = list(grid.settings(7))
        assert len(settings) == len(set(settings)) == len(grid) == 18
        assert [one.seed for one in settings] == [7] * 9 + [8] * 9
        assert settings[9:] == [Setting(one.sigma, one.beta, 8) for one in settings[:9]]

    def test_an_early_stop_leaves_the_curve_at_beta_1(self) -> None:
        grid = Grid((0.6, 0.0, 0.3, 0.1), (10.0, 0.1, 1.0, 3.0), 1)
        settings = list(grid.settings(1))
        assert [one.beta for one in settings[:4]] == [1.0] * 4
        assert [one.sigma for one in settings[:4]] == [0.0, 0.6, 0.3, 0.1]
        assert [one.beta for one in settings[4::4]] == [10.0, 0.1, 3.0]

    @given(st.lists(st.floats(-5, 5), min_size=1, max_size=9, unique=True))
    def test_spread_is_an_order_of_all(self, values: list[float]) -> None:
        assert sorted(spread(values, 0.0)) == list(range(len(values)))

    @pytest.mark.parametrize(
        ("sigmas", "betas", "seeds", "said"),
        [
            ((), (1.0,), 1, "sigmas"),
            ((-0.1,), (1.0,), 1, "sigmas is -0.1"),
            ((math.nan,), (1.0,), 1, "sigmas is nan"),
            ((math.inf,), (1.0,), 1, "sigmas"),
            ((0.1, 0.2, 0.1), (1.0,), 1, "give each once"),
            ((0.1,), (0.0,), 1, "betas is 0.0"),
            ((0.1,), (1e9,), 1, "betas"),
            ((0.1,), (1.0,), 0, "seeds is 0"),
        ],
    )
    def test_bad_grids(
        self, sigmas: tuple[float, ...], betas: tuple[float, ...], seeds: int, said: str
    ) -> None:
        with pytest.raises(BadInput, match=said):
            Grid(sigmas, betas, seeds)

    @pytest.mark.parametrize("text", ["", "a", "0.1,", "0.1;0.2"])
    def test_numbers_that_are_none(self, text: str) -> None:
        with pytest.raises(BadInput, match="--sigmas"):
            numbers("--sigmas", text)

    def test_numbers(self) -> None:
        assert numbers("--sigmas", "0, 0.1,-0") == (0.0, 0.1, 0.0)
        assert str(numbers("--sigmas", "-0")[0]) == "0.0"


class TestPoints:
    def test_points_are_found_again(self, tmp_path: Path) -> None:
        path = tmp_path / "points.jsonl"
        with Points(path, ALIKE) as points:
            points.add(point(0.1))
            points.add(point(0.2, loss=None))
            stored = [json.loads(line) for line in path.read_text().splitlines()]
            assert [(one["sigma"], one["loss"]) for one in stored] == [(0.1, 0.25), (0.2, None)]
        with Points(path, ALIKE) as points:
            assert tuple(points.results.values()) == (point(0.1), point(0.2, loss=None))
            assert Setting(0.1, 1.0, 1) in points
            assert Setting(0.1, 1.0, 2) not in points
            assert len(points.results) == 2

    def test_half_a_line_is_dropped_and_written_over(self, tmp_path: Path) -> None:
        path = tmp_path / "points.jsonl"
        with Points(path, ALIKE) as points:
            points.add(point(0.1))
            points.add(point(0.2))
        whole = path.read_bytes()
        first = whole.index(b"\n") + 1
        for cut in (first, first + 1, len(whole) - 10, len(whole) - 2):
            path.write_bytes(whole[:cut])
            with Points(path, ALIKE) as points:
                assert tuple(points.results.values()) == (point(0.1),)
                points.add(point(0.2))
            assert path.read_bytes() == whole

    @pytest.mark.parametrize("line", ["nonsense", "{}", "[1]", '{"accuracy_per_round": []}'])
    def test_a_damaged_line_is_named(self, line: str, tmp_path: Path) -> None:
        path = tmp_path / "points.jsonl"
        with Points(path, ALIKE) as points:
            points.add(point(0.1))
        path.write_text(path.read_text() + line + "\n")
        before = path.read_bytes()
        with pytest.raises(BadInput, match="damaged in line 2"):
            Points(path, ALIKE)
        assert path.read_bytes() == before

    def test_points_of_other_settings_do_not_mix(self, tmp_path: Path) -> None:
        path = tmp_path / "points.jsonl"
        with Points(path, ALIKE) as points:
            points.add(point(0.1))
        before = path.read_bytes()
        with pytest.raises(BadInput, match="holds a point of other settings or data"):
            Points(path, "of others")
        assert path.read_bytes() == before

    def test_one_process_at_a_time(self, tmp_path: Path) -> None:
        path = tmp_path / "points.jsonl"
        with Points(path, ALIKE), pytest.raises(BadInput, match="in use by another"):
            Points(path, ALIKE)
        with Points(path, ALIKE):
            pass
