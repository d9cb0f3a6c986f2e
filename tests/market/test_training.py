"""Training from Python: any model, any arrays, and a result that can be used."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_images import write_images
from torch import nn

import noisemarket as nm
from noisemarket.errors import BadInput
from noisemarket.federated.aggregation import Equal, FloatArray, PublicFigures, Weighting
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import MNIST_SCALING
from noisemarket.market import training
from noisemarket.market.orders import given_sigma, order
from noisemarket.market.training import SerialEngine, Training, train
from noisemarket.privacy import accountant

pytestmark = pytest.mark.training


class Net(nn.Module):
    """Frozen features and a layer on top of them."""

    def __init__(self, features: int = 6) -> None:
        super().__init__()
        self.frozen = nn.Linear(features, 8)
        self.frozen.requires_grad_(False)
        self.out = nn.Linear(8, 3)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.out(torch.relu(self.frozen(records)))
        return made


def arrays(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 6))
    return features, features[:, :3].argmax(axis=1)


def flat(train_records: int = 120) -> Dataset:
    return Dataset.of(*arrays(train_records, 1), *arrays(90, 2))


def scenario(**settings: Any) -> nm.Scenario:
    given = {"owners": 4, "rounds": 3, "noise": "simulated", "records_per_shard": 4, **settings}
    return nm.Scenario.from_preset("market", **given)


PARTS = [range(0, 60), [60, 61, 62], np.arange(63, 110)]  # of 120 records: some nobody holds
SIGMA = [0.1, 0.0, 0.3]


@pytest.fixture(scope="module")
def trained() -> Training:
    heard: list[int] = []
    result = train(
        scenario(),
        sigma=[*SIGMA[:2], 0.2, 0.3],
        data=flat(),
        model=Net,
        partition=[*PARTS, range(110, 120)],
        protection=nm.Sharded(records_per_shard=6, clip=0.5, steps=2, rate=0.5),
        workers=1,
        watch=lambda done: heard.append(done.number),
    )
    assert heard == [1, 2, 3]
    return result


def test_the_result_holds_rounds_model_and_statements(trained: Training) -> None:
    assert trained.complete
    assert [result.number for result in trained.rounds] == [1, 2, 3]
    assert trained.accuracies[-1] == trained.accuracy == trained.rounds[-1].score.accuracy
    assert trained.losses[-1] == trained.loss
    assert trained.rounds[0].delivered == (0, 1, 2, 3)
    assert [one.sigma for one in trained.statements] == [0.1, 0.0, 0.2, 0.3]
    assert trained.weights.shape == (8 * 3 + 3,)  # frozen parameters are not uploaded
    for one, shards in zip(trained.statements, (10, 1, 8, 2), strict=True):
        far = 2 * 0.5 / shards + 2.0**-24 * np.sqrt(27)
        expected = np.inf if one.sigma == 0 else far**2 / 2 / one.sigma**2
        assert one.rho_per_round == pytest.approx(expected)
    assert "Nothing is guaranteed" in trained.statements[1].text()


def test_the_model_can_be_used_and_is_the_one_that_was_tested(trained: Training) -> None:
    data = flat()
    mine = Net()
    for module in (trained.module(), trained.load_into(mine)):
        with torch.no_grad():
            out = module(torch.from_numpy(data.ready(data.test_images)))
        right = (out.argmax(1).numpy() == data.test_labels).mean()
        assert 100 * right == pytest.approx(trained.accuracy)
    assert not trained.module().training
    assert all(p.grad is None for p in trained.module().parameters())
    with pytest.raises(BadInput, match="Linear is not built as"):
        trained.load_into(nn.Linear(3, 3))


def test_a_model_to_start_from_and_going_on_from_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: workers would load torch for each of these trainings."""
    monkeypatch.setattr(training, "LocalEngine", lambda job, *more: SerialEngine(job))
    torch.manual_seed(5)
    net = Net()
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    rest: dict[str, Any] = {
        "sigma": 0.1, "data": flat(), "model": net, "workers": 1,
        "journal": tmp_path / "j", "checkpoint": tmp_path / "c.npz",
    }  # fmt: skip
    asked: list[int] = []
    first = train(scenario(), **rest, watch=lambda done: asked.append(1), stop=lambda: bool(asked))
    assert not first.complete
    assert len(first.rounds) == 1
    whole = train(scenario(), **rest)
    assert whole.complete
    assert whole.rounds[0] == first.rounds[0]
    assert [one.releases for one in whole.statements] == [3] * 4
    assert all(torch.equal(value, kept[name]) for name, value in net.state_dict().items())
    assert torch.equal(whole.module().state_dict()["frozen.weight"], kept["frozen.weight"])
    with pytest.raises(BadInput, match="another scenario"):  # the same, from other weights
        train(scenario(), **{**rest, "model": Net})
    lines = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    (tmp_path / "j").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(BadInput, match="j lacks the charges of round 3"):
        train(scenario(), **rest)
    (tmp_path / "j").unlink()
    with pytest.raises(BadInput, match="j lacks the charges of round 1"):
        train(scenario(), **rest)


def test_a_job_cut_off_in_its_first_round_is_known_again(tmp_path: Path) -> None:
    rest: dict[str, Any] = {
        "sigma": 0.1, "workers": 1,
        "journal": tmp_path / "j", "checkpoint": tmp_path / "c.npz",
    }  # fmt: skip
    looks = iter([False])  # stops in the middle of the round
    first = train(scenario(), **rest, data=flat(), stop=lambda: next(looks, True))
    assert first.rounds == ()
    with pytest.raises(BadInput, match="another scenario"):
        train(scenario(), **rest, data=Dataset.of(*arrays(120, 7), *arrays(90, 2)))


class TestFingerprint:
    def of(self, chosen: nm.Scenario, **given: Any) -> str:
        environment = chosen.environment()
        return order(chosen, environment, given_sigma(0.3, environment), **given).fingerprint

    def test_data_counts_by_what_it_is_wherever_it_lies(self, tmp_path: Path) -> None:
        small: dict[str, Any] = {"widths": (2, 2, 4)}
        folders = [tmp_path / name for name in ("one", "same", "other")]
        for folder in folders:
            folder.mkdir()
            write_images(folder, 60, 20)
        images = (folders[2] / "train-images-idx3-ubyte").read_bytes()
        (folders[2] / "train-images-idx3-ubyte").write_bytes(images[:-1] + b"\7")
        one, same, other = (
            self.of(scenario(data=str(folder), owners=2, **small)) for folder in folders
        )
        assert one == same != other

    def test_what_owners_keep_to_themselves_is_no_part_of_it(self) -> None:
        given = {"data": flat(), "model": Net}
        plain = self.of(scenario(), **given)
        assert self.of(scenario(privacy_cost=0.7), **given) == plain
        assert self.of(scenario(seed=9), **given) != plain
        assert self.of(scenario(shard_rate=0.3), **given) != plain
        assert self.of(scenario(server="plain"), **given) != plain
        assert self.of(scenario(beta=0.5), **given) != plain


def test_statements_are_under_the_owners_names(tmp_path: Path) -> None:
    names = ["alice", "bob", "carol", "dave"]
    rows = "".join(f"{name},1,100,1,0.2\n" for name in names)
    (tmp_path / "people.csv").write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
    people = scenario(file=str(tmp_path / "people.csv"), rounds=1)
    done = train(people, sigma=0.1, data=flat(), workers=1)
    assert [one.owner for one in done.statements] == names
    assert done.statements[3].text().startswith("Owner dave, protection per_record")


def test_pictures_through_the_scenarios_own_model() -> None:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (40, 16, 16), dtype=np.uint8)
    data = Dataset.of(images, np.arange(40) % 4, images, np.arange(40) % 4)
    small = scenario(model="cnn", owners=1, rounds=1, widths=(2, 2, 4), protection="paper")
    result = nm.train(small, sigma=0.0, data=data, workers=1)
    assert isinstance(result, nm.Training)
    assert result.rounds[0].owners == 1
    with torch.no_grad():
        assert result.module()(torch.from_numpy(data.ready(images))).shape == (40, 4)


class SecondOwnerOnly(Weighting):
    """Of three owners, one alone counts."""

    name = "second_owner_only"

    def weights(self, figures: PublicFigures) -> FloatArray:
        assert len(figures.records) == len(figures) == 3
        return np.array([0.0, 1.0, 0.0])


class TestWeighting:
    def test_of_ones_own_weighs_the_owners(self) -> None:
        ends = [
            train(scenario(rounds=1), sigma=sigma, data=flat(), partition=PARTS,
                  weighting=SecondOwnerOnly(), workers=1).weights
            for sigma in ([0.1, 0.2, 0.3], [0.5, 0.2, 0.1])
        ]  # fmt: skip
        assert np.array_equal(*ends), "the others' noise must not count"

    def test_by_name_comes_from_the_scenario(self) -> None:
        wanted = scenario(weighting="data_size", owners=2)
        places = wanted.environment(), np.array([0.1, 0.1])
        made = order(wanted, *places, data=flat(), model=Net)
        assert made.plan.shares.tolist() == made.job.partition.sizes.tolist()
        own = order(wanted, *places, data=flat(), model=Net, weighting=Equal())
        assert own.plan.shares.tolist() == [1.0, 1.0]
        assert own.fingerprint != made.fingerprint
        with pytest.raises(BadInput, match=r"training.weighting is heavy: choose one of: noise"):
            scenario(weighting="heavy")

    def test_of_an_owner_with_hardly_any_noise_is_capped(self) -> None:
        wanted = scenario(weighting="noise", owners=12)
        sigma = np.array([0.001, *[0.6] * 11])
        plan = order(wanted, wanted.environment(), sigma, data=flat(), model=Net).plan
        assert plan.weight_cap == 2 / 12
        assert plan.shares.max() / plan.shares.sum() == pytest.approx(2 / 12)


class TestReady:
    def test_other_bytes_are_not_scaled_by_mnists_constants(self) -> None:
        images = np.array([[0, 255], [51, 204]], np.uint8)
        data = Dataset.of(images, [0, 1], images, [0, 1])
        assert data.ready(images) == pytest.approx(np.array([[-1, 1], [-0.6, 0.6]]))
        given = Dataset.of(images, [0, 1], images, [0, 1], scaling=MNIST_SCALING)
        assert given.ready(images)[0, 0] == pytest.approx(-0.1307 / 0.3081)

    def test_floats_stay_as_they_are_unless_told(self) -> None:
        floats = np.array([[0.5, -3.0]] * 2)
        assert np.array_equal(Dataset.of(floats, [0, 1], floats, [0, 1]).ready(floats), floats)
        scaled = Dataset.of(floats, [0, 1], floats, [0, 1], scaling=(1.0, 2.0))
        assert scaled.ready(floats)[0] == pytest.approx([-0.25, -2.0])
        assert floats[0, 0] == 0.5

    @pytest.mark.parametrize(
        ("shape", "channel", "becomes"),
        [((6,), True, (6,)), ((5, 4), True, (1, 5, 4)), ((5, 4), False, (5, 4)),
         ((3, 5, 4), True, (3, 5, 4))],
    )  # fmt: skip
    def test_shapes(self, shape: tuple[int, ...], channel: bool, becomes: tuple[int, ...]) -> None:
        items = np.zeros((2, *shape))
        data = Dataset.of(items, [0, 1], items, [0, 1], channel=channel)
        assert data.ready(items).shape == (2, *becomes)
        assert data.ready(items).dtype == np.float32

    @pytest.mark.parametrize("bad", [(0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (1.0,), "ab", 3])
    def test_bad_scaling(self, bad: Any) -> None:
        items = np.zeros((2, 3))
        with pytest.raises(BadInput, match=r"^scaling"):
            Dataset.of(items, [0, 1], items, [0, 1], scaling=bad)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition": []}, "partition"),
        ({"partition": [[0, 1], []]}, "partition of owner 1"),
        ({"partition": [[0, 1], [1, 2]]}, "held twice"),
        ({"partition": [[0, 0]]}, "held twice"),
        ({"partition": [[0, 120]]}, "from 0 to 119"),
        ({"partition": [[-1]]}, "from 0 to 119"),
        ({"partition": [[0.5]]}, "whole numbers"),
        ({"partition": [[0], [1]], "sigma": [0.1]}, "one for each of the 2 owners"),
        ({"sigma": "much"}, "sigma"),
        ({"sigma": [0.1, 0.1, np.nan, 0.1]}, "sigma of owner 2"),
        ({"sigma": 0.7}, "sigma_max = 0.6"),
        ({"model": None, "scenario": scenario(model="cnn")}, "give a model of your own"),
        ({"model": 3}, "makes a torch.nn.Module"),
        ({"model": dict}, "makes a torch.nn.Module"),
        ({"model": partial(nn.BatchNorm1d, 6)}, "running statistics"),
        ({"model": lambda: Net()}, "top level of a file"),
        ({"data": flat(39)}, "suffice for 3 owners"),
        ({"workers": 0}, "workers"),
        ({"checkpoint": "c.npz"}, "name its journal"),
        ({"scenario": scenario(rho_cap=0.01)}, "rho_cap 0.01 does not allow one round"),
        ({"scenario": scenario(epsilon_cap=1)}, "epsilon_cap 1.0 does not allow one round"),
        ({"scenario": scenario(rho_cap=9, protection="paper")}, "nothing bounds"),
        ({"scenario": scenario(rho_cap=9), "sigma": 0.0}, "nothing bounds"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_starts(
    given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rest = {"sigma": 0.1, "data": flat(), "model": Net, **given}
    with pytest.raises(BadInput) as problem:
        train(rest.pop("scenario", scenario()), **rest)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)
    assert list(tmp_path.iterdir()) == []


class TestCap:
    def cap(self, **settings: Any) -> float:
        chosen = scenario(**settings)
        environment = chosen.environment()
        made = order(chosen, environment, given_sigma(0.3, environment), data=flat(), model=Net)
        (cap,) = {budget.rho_cap for budget in made.budgets}
        return cap

    def test_the_stricter_cap_holds_and_none_is_the_default(self) -> None:
        from noisemarket.privacy.zcdp import gaussian_rho_for_epsilon

        assert self.cap() == np.inf
        assert self.cap(rho_cap=2.0) == 2.0
        by_epsilon = gaussian_rho_for_epsilon(5.0, 1e-5)
        assert self.cap(epsilon_cap=5.0) == by_epsilon
        assert self.cap(epsilon_cap=5.0, rho_cap=0.9 * by_epsilon) == 0.9 * by_epsilon
        assert self.cap(epsilon_cap=5.0, rho_cap=1.1 * by_epsilon) == by_epsilon

    def test_owners_stop_at_the_cap_each_by_itself(self) -> None:
        """At sigma 0.2 a round costs a quarter of what it costs at 0.1; sigma 0 costs anything."""
        one = (2 / 30) ** 2 / 2 / 0.2**2
        result = train(
            scenario(rounds=9, rho_cap=5 * one), sigma=[0.1, 0.2, 0.0, 0.2], data=flat(), workers=1
        )  # fmt: skip
        assert [r.delivered for r in result.rounds] == [(0, 1, 3), *[(1, 3)] * 3]
        assert result.complete
        assert [s.rounds for s in result.statements] == [1, 4, 0, 4]
        assert all(s.rho_total <= 5 * one for s in result.statements)
        assert f"a cap of {5 * one:.4g}" in result.statements[0].text()
        assert result.owners_at_cap == 4

    def test_who_is_at_the_cap_is_the_accountants_word(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(accountant, "TOLERANCE", 0.2)
        cost = (2 / 30) ** 2 / 2 / 0.2**2
        given: dict[str, Any] = {"sigma": 0.2, "data": flat(), "workers": 1}
        for rounds, spent in ((1, 0), (2, 4)):
            result = train(scenario(rounds=rounds, rho_cap=1.8 * cost), **given)
            assert (len(result.rounds), result.owners_at_cap) == (rounds, spent)


@pytest.mark.slow
def test_a_thousand_owners_of_ten_records() -> None:
    result = train(scenario(owners=1000, rounds=1, beta=0.05), sigma=0.1, data=flat(10_000))
    assert result.rounds[0].owners == 1000
    assert len({one.rho_total for one in result.statements}) == 1
