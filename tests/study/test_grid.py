"""What is measured in which order."""

from __future__ import annotations

import math

import pytest

from noisemarket.cli.calibrate import _numbers as numbers
from noisemarket.errors import BadInput
from noisemarket.study.calibrate import Grid, Setting


class TestGrid:
    def test_every_point_once_the_first_seed_first(self) -> None:
        grid = Grid((0.0, 0.1, 0.6), (0.1, 1.0, 10.0), 2)
        settings = list(grid.settings(7))
        assert len(settings) == len(set(settings)) == len(grid) == 18
        assert [one.seed for one in settings] == [7] * 9 + [8] * 9
        assert settings[9:] == [Setting(one.sigma, one.beta, 8) for one in settings[:9]]

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
