"""``nm.compare``: mechanisms of one's own among names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import write_images

import noisemarket as nm
from noisemarket.errors import BadInput, Interrupted
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import FloatArray
from noisemarket.pricing.mechanism import Direct, RunOptions
from noisemarket.scenario import Scenario
from noisemarket.study import compare as module
from noisemarket.study.trainings import TrainingFile, TrainingWork


class Gifts(Direct):
    """Everybody gives up some levels of noise for nothing."""

    def __init__(self, levels: int = 3) -> None:
        self.levels = levels

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return Contracts.same(len(environment), self.levels, 0)


class Lowest(nm.Rule):
    """Plays level 0."""

    def act(self, state: int, uniform: float) -> int:
        return 0

    def learn(self, state: int, action: int, reward: float, next_state: int, t: int) -> None:
        pass

    def policy(self) -> FloatArray:
        return np.eye(self.values.shape[1])[np.zeros(len(self.values), int)]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    images = write_images(tmp_path_factory.mktemp("mnist"))
    return Scenario.from_preset(
        "market", owners=4, data_size=30, rounds=2, surface="printed", data=str(images),
        iterations=50, protection="sharded", records_per_shard=8,
    )  # fmt: skip


class TestDecisions:
    @pytest.mark.compiled
    def test_ones_own_stand_among_names(self, scenario: Scenario) -> None:
        parts = module.parts_of(["equilibrium", Gifts(), Lowest])
        plan = module.plan_of(scenario, parts, [3, 8], [None, 10.0])
        made = [*module.decisions(scenario, plan, parts=parts)]
        cases = [(one.mechanism, one.seed, one.budget) for one in made]
        names = ("equilibrium", "Gifts", "Lowest")
        assert cases == [(n, s, b) for s in (3, 8) for n in names for b in (None, 10.0)]
        for one in made:
            assert one.budget is None or one.paid <= one.budget
            if one.mechanism == "Gifts":
                assert (one.sellers, one.paid, one.worse_off) == (4, 0.0, 4)
                assert one.sigma.tolist() == pytest.approx([0.45] * 4)
                assert one.predicted_value > 0
            if one.mechanism == "Lowest":
                assert (one.sellers, one.paid, one.predicted_value) == (0, 0, 0)
                assert one.owners_surplus == 0

    def test_a_decision_is_what_negotiate_comes_to(self, scenario: Scenario) -> None:
        plan = module.Plan(("equilibrium",), (None,), (5,))
        (one,) = module.decisions(scenario, plan)
        seeded = scenario.model_copy(update={"seed": 5})
        expected = nm.negotiate(seeded, mechanism="equilibrium").learned
        assert one.paid == pytest.approx(expected.total_payment)
        assert one.predicted_value == pytest.approx(expected.predicted_value)
        assert one.owners_surplus == pytest.approx(expected.owners_surplus)

    def test_defaults_are_those_of_the_command(self, scenario: Scenario) -> None:
        market = scenario.market.model_copy(update={"budget": 12.0})
        limited = scenario.model_copy(update={"market": market, "seed": 4})
        for given, budgets in ((scenario, (30.0, 100.0, 300.0)), (limited, (12.0,))):
            plan = module.plan_of(given, module.parts_of(["uniform"]))
            assert plan.seeds == tuple(range(given.seed, given.seed + 10))
            assert plan.budgets == budgets

    @pytest.mark.compiled
    def test_stopping_it_is_an_interruption(self, scenario: Scenario) -> None:
        plan = module.Plan(("dypp",), (None,), (1,))
        with pytest.raises(Interrupted):
            next(module.decisions(scenario, plan, stop=lambda: True))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mechanisms": []}, "mechanisms is"),
        ({"mechanisms": "clock"}, "mechanisms is clock: give a list"),
        ({"mechanisms": [Gifts]}, "an instance of Mechanism"),
        ({"mechanisms": ["nothing"]}, "mechanism is nothing"),
        ({"mechanisms": ["clock", "clock"]}, "clock is there twice"),
        ({"mechanisms": [Gifts(1), Gifts(2)]}, "Gifts is there twice"),
        ({"budgets": []}, "budgets"),
        ({"budgets": [10, 10.0]}, "each budget once"),
        ({"budgets": [-1]}, "budgets is -1"),
        ({"budgets": [float("nan")]}, "budgets is nan"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": [1, 1]}, "each once"),
        ({"seeds": [-1]}, "seeds"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_bad_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        nm.compare(**{"mechanisms": ["uniform"], **given})


@pytest.mark.training
class TestTrained:
    @pytest.fixture
    def trained(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        """All tasks that are trained, in this process."""
        done: list[object] = []

        def train(
            self: TrainingFile, scenario: Scenario, tasks: Any, *, watch: Any, **_: object
        ) -> None:
            work = TrainingWork(scenario)
            for task in tasks:
                if task.key not in self.results:
                    self.add(work(task, lambda note: None))
                    done.append(task.key)
            watch(len(tasks), len(tasks))

        monkeypatch.setattr(module.TrainingFile, "train", train)
        return done

    def test_ones_own_is_trained_and_kept(
        self, scenario: Scenario, trained: list[object], tmp_path: Path
    ) -> None:
        told: list[tuple[int, int]] = []

        def compared(*mechanisms: Any) -> dict[tuple[str, int], nm.Row]:
            rows = nm.compare(
                scenario, mechanisms=mechanisms, seeds=2, budgets=[None], folder=tmp_path / "kept",
                watch=lambda *done: told.append(done),
            )  # fmt: skip
            return {(row.mechanism, row.seed): row for row in rows}

        rows = compared("equilibrium", Gifts(12))
        assert set(rows) == {(n, s) for n in ("uniform", "equilibrium", "Gifts") for s in (1, 2)}
        for seed in (1, 2):
            gifts, nothing = rows["Gifts", seed], rows["uniform", seed]
            assert gifts.paid == nothing.paid == 0.0
            assert gifts.epsilon_sold is None, "without noise there is no bound"
            assert gifts.accuracy_per_round != nothing.accuracy_per_round
        assert told == [(len(trained), len(trained))]
        before = len(trained)
        again = compared("equilibrium", Gifts(12), Lowest)
        assert len(trained) == before, "Lowest buys nothing, and the others were trained"
        assert again["Gifts", 2].accuracy == rows["Gifts", 2].accuracy
        assert again["Lowest", 2].accuracy == rows["uniform", 2].accuracy

    def test_a_folder_is_one_scenario_s(
        self, scenario: Scenario, trained: list[object], tmp_path: Path
    ) -> None:
        nm.compare(scenario, mechanisms=["uniform"], seeds=1, budgets=[None], folder=tmp_path)
        training = scenario.training.model_copy(update={"rounds": 1})
        other = scenario.model_copy(update={"training": training})
        with pytest.raises(BadInput, match="trainings of another scenario"):
            nm.compare(other, mechanisms=["uniform"], seeds=1, budgets=[None], folder=tmp_path)
        assert len(trained) == 1
