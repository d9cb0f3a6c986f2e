"""Settings of single mechanisms: each at its best, and nothing else of a comparison changes."""

from __future__ import annotations

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.scenario import Scenario, dump_scenario
from noisemarket.scenario.load import build
from noisemarket.scenario.toml_text import parse_toml
from noisemarket.study.comparison.decisions import as_compared, decisions
from noisemarket.study.comparison.growth import timings


def given(**settings: object) -> Scenario:
    own = [{"mechanism": "bisection", "settings": settings}]
    return Scenario.from_preset("market", owners=6, compared=own)


def test_only_the_named_mechanism_has_them() -> None:
    scenario = given(surface="printed", iterations=50)
    own = as_compared(scenario, "bisection")
    assert (own.surface_name(), own.learning.iterations) == ("printed", 50)
    assert as_compared(scenario, "clock") is scenario


def test_a_scenario_with_them_is_read_as_it_was_written() -> None:
    scenario = given(floor=0.05, learning_rate=0.4)
    assert build("market", parse_toml(dump_scenario(scenario)), {}) == scenario


@pytest.mark.parametrize(
    ("key", "value"), [("owners", 5), ("rounds", 3), ("payment_max", 20.0), ("seed", 2)]
)
def test_what_would_be_another_comparison_is_refused(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"compared.settings.{key}"):
        as_compared(given(floor=0.05, **{key: value}), "bisection")


def test_a_key_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown key"):
        as_compared(given(learning_speed=1), "bisection")


def test_decisions_are_those_of_the_own_settings() -> None:
    plain = Scenario.from_preset("market", owners=6, surface="printed")
    (alone,) = decisions(plain, ("equilibrium",), (None,), (3,))
    own = [{"mechanism": "equilibrium", "settings": {"surface": "printed"}}]
    scenario = Scenario.from_preset("market", owners=6, compared=own)
    other, same = decisions(scenario, ("clock", "equilibrium"), (None,), (3,))
    assert same.sellers > 0
    np.testing.assert_array_equal(same.sigma, alone.sigma)
    np.testing.assert_array_equal(same.costs, other.costs)


def test_timing_leaves_changes_of_named_owners_out() -> None:
    last = str(Scenario.from_preset("market", owners=6).environment().population.names[-1])
    change = [{"at": 3, "names": [last], "scale": {"privacy_cost": 2.0}}]
    scenario = Scenario.from_preset("market", owners=6, changes=change)
    assert len(scenario.environment().phases) == 2
    (found,) = timings(scenario, ("clock",), owners=(3,))
    assert (found.mechanism, found.owners) == ("clock", 3)
