"""A small comparison, figure by figure against what follows from contracts and trainings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.market.common import write_images

from noisemarket.errors import BadInput
from noisemarket.market.negotiation import negotiate
from noisemarket.market.training import train
from noisemarket.scenario import Scenario
from noisemarket.study.compare import Plan, compared
from noisemarket.study.results import Row, means, paired_differences, same_contracts
from noisemarket.study.trainings import TrainingFile, TrainingResult, TrainingWork

pytestmark = pytest.mark.training

PLAN = Plan(("clock", "greedy", "equilibrium"), (20.0, None), (1, 2))


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    images = write_images(tmp_path_factory.mktemp("mnist"))
    return Scenario.from_preset(
        "market", owners=4, data_size=30, rounds=2, surface="printed",
        data=str(images), iterations=50,
    )  # fmt: skip


class HereFile(TrainingFile):
    """Trains in this process."""

    trained_now = asked = 0

    def train(self, scenario: Scenario, tasks: object, **options: object) -> None:  # type: ignore[override]
        work = TrainingWork(scenario)
        self.asked = len(tasks)  # type: ignore[arg-type]
        for task in tasks:  # type: ignore[attr-defined]
            if task.key not in self.results:
                self.add(work(task, lambda note: None))
                self.trained_now += 1


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trainings") / "t.jsonl"


@pytest.fixture(scope="module")
def rows(scenario: Scenario, path: Path) -> list[Row]:
    with HereFile(path) as file:
        found = compared(scenario, PLAN, file, workers=1)
        assert file.trained_now == file.asked == len(file.results) < len(found), "each noise once"
        return found


def test_every_case_has_a_row_and_no_trade_is_among_them(rows: list[Row]) -> None:
    cases = [(row.mechanism, row.budget, row.seed) for row in rows]
    names = ("uniform", *PLAN.mechanisms)
    wanted = {(name, budget, seed) for name in names for budget in (20.0, None) for seed in (1, 2)}
    assert len(cases) == len(wanted)
    assert set(cases) == wanted


def test_another_call_trains_nothing(scenario: Scenario, rows: list[Row], path: Path) -> None:
    with HereFile(path) as file:
        again = compared(scenario, PLAN, file, workers=1)
        assert file.trained_now == 0
    assert [row.accuracy for row in again] == [row.accuracy for row in rows]


def test_a_row_is_what_negotiation_and_training_come_to(
    scenario: Scenario, rows: list[Row]
) -> None:  # fmt: skip
    """The same owners, contracts and model as by the functions that users call."""
    (row,) = (
        one for one in rows if (one.mechanism, one.budget, one.seed) == ("equilibrium", None, 2)
    )
    own = scenario.model_copy(update={"seed": 2})
    agreed = negotiate(own, mechanism="equilibrium", threads=1)
    nothing = negotiate(own, mechanism="uniform", threads=1)
    assert row.paid == pytest.approx(agreed.learned.total_payment)
    assert row.sellers == sum(one.saving > 0 for one in agreed.contracts) > 0
    surplus = 4 * (agreed.learned.mean_owner_payoff - nothing.learned.mean_owner_payoff)
    assert row.owners_surplus == pytest.approx(surplus)
    privacy = own.privacy.model_copy(update={"noise": "simulated"})
    simulated = own.model_copy(update={"privacy": privacy})
    trained = train(simulated, sigma=[one.sigma for one in agreed.contracts], workers=1)
    last = trained.rounds[-1]
    assert row.accuracy == (last.averaged or last.score).accuracy
    base = train(simulated, sigma=0.6, workers=1)
    before = (base.rounds[-1].averaged or base.rounds[-1].score).accuracy
    value = 4 * 0.6 * 0.2 * (row.accuracy - before) - 0.4 * 0.13 * row.paid
    assert row.trained_value == pytest.approx(value)
    assert row.social_welfare == pytest.approx(value / (0.4 * 0.13) + row.owners_surplus / 0.08)
    sold = sum(one.epsilon for one in trained.statements)
    assert row.epsilon_sold == pytest.approx(sold - sum(one.epsilon for one in base.statements))


def test_a_budget_is_kept_and_nobody_is_worse_off(rows: list[Row]) -> None:
    for row in rows:
        assert row.budget is None or row.paid <= row.budget
        assert row.worse_off == 0
        assert (row.paid == 0) == (row.sellers == 0)
        if row.mechanism == "uniform":
            assert row.trained_value == row.owners_surplus == row.epsilon_sold == 0


def test_means_are_over_the_seeds(rows: list[Row]) -> None:
    for mean in means(rows):
        some = [
            row
            for row in rows
            if (row.mechanism, row.budget) == (mean["mechanism"], mean["budget"])
        ]  # fmt: skip
        assert mean["seeds"] == 2
        assert mean["accuracy"] == pytest.approx(np.mean([row.accuracy for row in some]))


def test_what_bought_the_same_in_every_seed_is_found(rows: list[Row]) -> None:
    """Greedy buys nothing, as no trade does."""
    same = same_contracts(rows)
    assert {(budget, "greedy", "uniform") for budget in (20.0, None)} <= set(same)
    assert not [pair for pair in same if pair[0] is None and "equilibrium" in pair[1:]]
    tested = {(one.budget, *sorted((one.first, one.second))) for one in paired_differences(rows)}
    assert not tested & set(same)
    assert len(tested) + len(same) == 2 * 6


def test_a_torn_line_is_trained_again(tmp_path: Path) -> None:
    one = TrainingResult(1, "aa", [50.0, 60.5], 0.3, 1.0, 0.1, 0.1)
    two = TrainingResult(2, "bb", [51.0], 0.3, 1.0, 0.2, 0.2)
    path = tmp_path / "t.jsonl"
    with TrainingFile(path) as file:
        assert file.results == {}
        file.add(one)
        file.add(two)
    path.write_text(path.read_text()[:-9])
    with TrainingFile(path) as file:
        assert file.results == {one.key: one}
        file.add(two)  # a line of its own
    with TrainingFile(path) as file:
        assert file.results == {one.key: one, two.key: two}
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(BadInput, match="line 1"):
        TrainingFile(path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TrainingFile(path), pytest.raises(BadInput, match="in use by another"):
        TrainingFile(path)
    with TrainingFile(path):
        pass
