"""A module over one flat vector: what torch itself would compute, and clipped sums of gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from noisemarket.errors import BadInput
from noisemarket.federated.models import torch_model
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.torch_model import TorchModel, TorchRecords

pytestmark = pytest.mark.training

COUNT = 6


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """As in a worker; threads only slow so small a model down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small() -> CNN:
    torch.manual_seed(3)
    return CNN((2, 3), 8)


def batch(count: int = 7, seed: int = 0) -> TorchRecords:
    made = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 28, 28, generator=made)
    return TorchRecords(images, torch.randint(0, 10, (count,), generator=made))


def squares(seed: int = 0) -> TorchRecords:
    images = torch.randn(COUNT, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return TorchRecords(images, torch.arange(COUNT) % 5)


def test_the_default_model_has_the_size_it_says() -> None:
    assert len(TorchModel(CNN())) == 80_202


@pytest.mark.parametrize("module", [small, lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10))])
def test_going_flat_changes_no_weight_and_no_answer(module: Callable[[], nn.Module]) -> None:
    plain = module()
    flat = TorchModel(copy.deepcopy(plain))
    images = batch().inputs
    assert torch.allclose(flat.module(images), plain(images), atol=1e-6)
    state = flat.state(flat.first_weights())
    for name, theirs in plain.named_parameters():
        assert torch.equal(state[name], theirs), name


def test_every_weight_has_its_place_in_the_vector() -> None:
    flat = TorchModel(small())
    assert sum(here.stop - here.start for here in flat.layers().values()) == len(flat)
    for name, here in flat.layers().items():
        weights = np.zeros(len(flat), np.float32)
        weights[here] = 7.0
        for other, values in flat.state(weights).items():
            assert (values == (7.0 if other == name else 0.0)).all()


def test_descend_is_a_step_of_sgd() -> None:
    plain = small()
    flat = TorchModel(copy.deepcopy(plain))
    steps = torch.optim.SGD(plain.parameters(), lr=0.3)
    weights = flat.first_weights()
    for seed in range(3):
        records = batch(seed=seed)
        flat.descend(weights, records, 0.3)
        steps.zero_grad()
        functional.cross_entropy(plain(records.inputs), records.labels).backward()
        steps.step()
    state = flat.state(weights)
    for name, theirs in plain.named_parameters():
        assert torch.allclose(state[name], theirs, atol=1e-6)


def test_score_counts_and_leaves_the_model_in_training() -> None:
    flat, records = TorchModel(small()), batch(20)
    inputs, labels = records.inputs.numpy(), records.labels.numpy()
    right, loss = flat.score(flat.first_weights(), inputs, labels)
    with torch.no_grad():
        out = flat.module(records.inputs)
    assert right == int((out.argmax(1) == records.labels).sum())
    expected = float(functional.cross_entropy(out, records.labels)) * 20
    assert loss == pytest.approx(expected, rel=1e-5)
    assert flat.module.training


def test_frozen_parameters_stay_out() -> None:
    module = small()
    module.first.weight.requires_grad_(False)
    flat = TorchModel(module)
    assert len(flat) == sum(p.numel() for p in module.parameters()) - module.first.weight.numel()
    assert "first.weight" not in flat.layers()


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), "GroupNorm"),
        (nn.ReLU, "parameters"),
        (lambda: CNN(side=12), "at least"),
    ],
)
def test_what_cannot_be_trained_is_refused(module: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        TorchModel(module())


def test_the_narrowest_image() -> None:
    assert CNN(side=16)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    with pytest.raises(BadInput, match="at least 16"):
        CNN(side=15)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(seen.flatten(1)).relu())  # type: ignore[no-any-return]


class Own(nn.Module):
    """A model that is a function of its images."""

    def __init__(self, way: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.layer = way, nn.Linear(64, 5)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.layer(self.way(seen))  # type: ignore[no-any-return]


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5))
    module[0].weight.requires_grad_(False)
    module[3].bias.requires_grad_(False)
    return module


def with_unused() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    module[1].register_parameter("spare", nn.Parameter(torch.ones(3)))
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5)),
    "rows": lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Flatten(), nn.Linear(32, 5)),
    "pools": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(4, 3, 2, bias=False), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(12, 5),
    ),
    "frozen": frozen,
    "unused": with_unused,
    "normalised": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, 5)
    ),
    "grouped": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 5)
    ),
    "tied": Tied,
    "in place": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(108, 5)
    ),
    "mean over examples": lambda: Own(lambda x: (x - x.mean(0)).flatten(1)),
    "examples turned round": lambda: Own(lambda x: x.flatten(1).flip(0)),
}  # fmt: skip


def looped(flat: TorchModel, records: TorchRecords, clip: float) -> np.ndarray:
    """Each example's gradient from a step of its own, clipped and added in double precision."""
    start, total = flat.first_weights(), np.zeros(len(flat))
    for i in range(len(records)):
        moved = start.copy()
        flat.descend(moved, records.take(np.array([i])), 1.0)
        gradient = start.astype(np.float64) - moved
        total += gradient * min(1.0, clip / max(float(np.linalg.norm(gradient)), 1e-300))
    return total


def check_against_loop(module: nn.Module, records: TorchRecords, clip: float) -> None:
    flat = TorchModel(module)
    expected, start = looped(flat, records, clip), flat.first_weights()
    summed = flat.clipped_gradient(start, records, clip)
    near = 2e-5 * clip + 2e-6 * (1.0 + float(np.abs(expected).max()))
    assert float(np.abs(summed - expected).max()) <= near
    assert np.array_equal(start, flat.first_weights())


@pytest.mark.parametrize("clip", [1e-3, 0.5, 1e6])
@pytest.mark.parametrize("name", MODULES)
def test_a_clipped_sum_is_a_loop_over_examples(name: str, clip: float) -> None:
    torch.manual_seed(1)
    check_against_loop(MODULES[name](), squares(), clip)


@pytest.mark.parametrize("normalise", [False, True])
def test_a_clipped_sum_of_the_paper_s_network(normalise: bool) -> None:
    torch.manual_seed(0)
    check_against_loop(CNN((8, 16), 32, normalise=normalise), batch(5), 0.7)


def test_few_examples_at_a_time_have_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory bounds how many gradients there are at once."""
    flat, records = TorchModel(small()), batch()
    whole = flat.clipped_gradient(flat.first_weights(), records, 0.5)
    monkeypatch.setattr(torch_model, "AT_ONCE", 3 * len(flat))
    parts = flat.clipped_gradient(flat.first_weights(), records, 0.5)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "rows", "pools", "normalised"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38, -3e38, 1e31])
def test_an_example_that_is_not_finite_counts_for_nothing(name: str, value: float) -> None:
    torch.manual_seed(2)
    flat, records = TorchModel(MODULES[name]()), squares()
    records.inputs[2] = value
    others = records.take(np.array([0, 1, 3, 4, 5]))
    made, rest = (flat.clipped_gradient(flat.first_weights(), r, 0.5) for r in (records, others))
    assert np.isfinite(made).all()
    if name == "linear":  # else the model may saturate, and its gradient be finite
        assert np.allclose(made, rest, atol=1e-6)
    assert float(np.linalg.norm((made - rest).astype(np.float64))) <= 0.5 * (1 + 1e-6)


@settings(max_examples=80, deadline=None)
@given(
    st.floats(-30, 30), st.floats(1e-6, 1e3), st.sampled_from(["linear", "rows", "pools"]),
    st.integers(0, 4),
)  # fmt: skip
def test_no_single_example_passes_the_bound(
    magnitude: float, clip: float, name: str, label: int
) -> None:
    torch.manual_seed(4)
    flat = TorchModel(MODULES[name]())
    image = squares(3).inputs[:1] * 10.0**magnitude
    one = TorchRecords(image, torch.tensor([label]))
    made = flat.clipped_gradient(flat.first_weights(), one, clip)
    assert float(np.linalg.norm(made.astype(np.float64))) <= clip


def test_dropout_draws_for_each_example_and_stays_within_the_bound() -> None:
    flat = TorchModel(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 5))
    )
    one = squares().take(np.zeros(2, np.int64))
    torch.manual_seed(1)
    alone = flat.clipped_gradient(flat.first_weights(), one.take(np.array([0])), 0.1)
    both = flat.clipped_gradient(flat.first_weights(), one, 0.1)
    assert not np.allclose(both, 2 * alone)
    assert float(np.linalg.norm(both)) <= 0.2
