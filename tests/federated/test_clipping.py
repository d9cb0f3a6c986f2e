"""Clipped sums: from one pass the same as from a loop over examples, or not from one pass."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.flat_model import FlatModel
from noisemarket.federated.models.torch_clipping import by_layers, by_vmap

pytestmark = pytest.mark.training

COUNT = 6


@pytest.fixture(autouse=True, scope="module")
def _one_thread():  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def looped(flat: FlatModel, images: torch.Tensor, labels: torch.Tensor, clip: float):  # type: ignore[no-untyped-def]
    """Each example's gradient by plain backward, cut and added in double precision."""
    total = torch.zeros(len(flat), dtype=torch.float64)
    for i in range(len(labels)):
        flat.gradient.zero_()
        functional.cross_entropy(flat.module(images[i : i + 1]), labels[i : i + 1]).backward()
        gradient = flat.gradient.double()
        total += gradient * min(1.0, clip / max(float(gradient.norm()), 1e-300))
    return total


def agree(module: nn.Module, images: torch.Tensor, classes: int, clip: float, fast: bool) -> None:
    torch.manual_seed(1)
    flat, labels = FlatModel(module), torch.randint(0, classes, (len(images),))
    expected = looped(flat, images, labels, clip)
    before = flat.weights.clone()
    given = module, flat.layers, images, labels, clip
    made = by_layers(*given)
    assert (made is not None) == fast
    for sums in (made, by_vmap(*given), flat.clipped_gradient(images, labels, clip)):
        if sums is not None:
            assert sums.shape == flat.weights.shape
            near = 1e-5 * clip + 2e-6 * float(expected.abs().max())
            assert float((sums - expected).abs().max()) <= near
    assert torch.equal(flat.weights, before)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(seen.flatten(1)).relu())


class Own(nn.Module):
    """A model that is a function of its images."""

    def __init__(self, way: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.layer = way, nn.Linear(64, 5)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.layer(self.way(seen))


class Double(torch.autograd.Function):
    """Forward twice the input, backward the gradient of the examples in turned order."""

    @staticmethod
    def forward(seen: torch.Tensor) -> torch.Tensor:
        return seen.flatten(1) * 2

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return gradient.flip(0).view(-1, 1, 8, 8)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 5, bias=False)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        seen = seen.view(seen.size(0), -1)
        return functional.log_softmax(self.second(seen + 0.5 * torch.tanh(self.first(seen))), dim=1)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5))
    module[0].weight.requires_grad_(False)
    module[3].bias.requires_grad_(False)
    return module


FAST: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5)),
    "rows": lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Flatten(), nn.Linear(32, 5)),
    "pools": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(4, 3, 2, bias=False), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(12, 5),
    ),
    "residual": Residual,
    "frozen": frozen,
    "unused": lambda: _with_unused(),
}  # fmt: skip

SLOW: dict[str, Callable[[], nn.Module]] = {
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
    "reflected": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(192, 5)
    ),
    "mean over examples": lambda: Own(lambda x: (x - x.mean(0)).flatten(1)),
    "all examples added": lambda: Own(lambda x: x.flatten(1) + x.flatten(1).sum(0)),
    "examples turned round": lambda: Own(lambda x: x.flatten(1).flip(0)),
    "softmax over examples": lambda: Own(lambda x: functional.softmax(x.flatten(1), dim=0)),
}


def _with_unused() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    module[1].register_parameter("spare", nn.Parameter(torch.ones(3)))
    return module


def squares(seed: int = 0) -> torch.Tensor:
    return torch.randn(COUNT, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("clip", [1e-3, 0.5, 1e6])
@pytest.mark.parametrize("name", FAST)
def test_one_pass_gives_what_a_loop_gives(name: str, clip: float) -> None:
    agree(FAST[name](), squares(), 5, clip, fast=True)


@pytest.mark.parametrize("clip", [1e-3, 0.5, 1e6])
@pytest.mark.parametrize("name", SLOW)
def test_what_might_mix_examples_is_run_on_one_at_a_time(name: str, clip: float) -> None:
    agree(SLOW[name](), squares(), 5, clip, fast=False)


@pytest.mark.parametrize("shape", [((16, 32), 128), ((8, 16), 32)])
def test_the_paper_s_network_takes_the_fast_way(shape: tuple[tuple[int, int], int]) -> None:
    torch.manual_seed(0)
    images = torch.randn(5, 1, 28, 28)
    agree(CNN(*shape), images, 10, 0.7, fast=True)
    agree(CNN(*shape), images.contiguous(memory_format=torch.channels_last), 10, 0.7, fast=True)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(3, 9), st.integers(3, 9),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.integers(1, 2), st.integers(0, 2),
    st.integers(1, 2), st.booleans(), st.sampled_from([1e-2, 1.0, 1e6]),
)  # fmt: skip
def test_any_convolution(
    count, into, out, height, width, kernel, stride, padding, dilation, bias, clip
) -> None:  # type: ignore[no-untyped-def]
    reach = [dilation * (k - 1) + 1 for k in kernel]
    if height + 2 * padding < reach[0] or width + 2 * padding < reach[1]:
        return
    torch.manual_seed(count + 7 * height + 31 * width)
    layer = nn.Conv2d(into, out, kernel, stride, padding, dilation, bias=bias)
    images = torch.randn(count, into, height, width)
    inner = layer(images).flatten(1).shape[1]
    agree(nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(inner, 3)), images, 3, clip, True)


def test_a_backward_pass_of_its_own_is_not_trusted() -> None:
    first = nn.Sequential(nn.Conv2d(1, 1, 1), Own(Double.apply))
    flat, labels = FlatModel(first), torch.arange(COUNT) % 5
    assert by_layers(first, flat.layers, squares(), labels, 1.0) is None


def test_a_hook_on_gradients_is_not_trusted() -> None:
    first = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 5))
    first[2].register_full_backward_hook(lambda module, given, out: (given[0].flip(0),))
    flat, labels = FlatModel(first), torch.arange(COUNT) % 5
    assert by_layers(first, flat.layers, squares(), labels, 1.0) is None


@pytest.mark.parametrize("name", ["linear", "rows", "pools", "normalised"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38, -3e38, 1e31])
def test_an_example_that_is_not_finite_counts_for_nothing(name: str, value: float) -> None:
    torch.manual_seed(2)
    flat = FlatModel((FAST | SLOW)[name]())
    images, labels = squares(), torch.arange(COUNT) % 5
    images[2] = value
    others = [0, 1, 3, 4, 5]
    made = flat.clipped_gradient(images, labels, 0.5)
    assert made.isfinite().all()
    rest = flat.clipped_gradient(images[others], labels[others], 0.5)
    if name == "linear":  # else the model may saturate, and its gradient be finite
        assert torch.allclose(made, rest, atol=1e-6)
    assert float((made - rest).double().norm()) <= 0.5 * (1 + 1e-6)


@settings(max_examples=80, deadline=None)
@given(
    st.floats(-30, 30), st.floats(1e-6, 1e3), st.sampled_from(["linear", "rows", "pools"]),
    st.integers(0, 4),
)  # fmt: skip
def test_no_single_example_passes_the_bound(
    magnitude: float, clip: float, name: str, label: int
) -> None:
    torch.manual_seed(4)
    flat = FlatModel(FAST[name]())
    image = squares(3)[:1] * 10.0**magnitude
    made = by_layers(flat.module, flat.layers, image, torch.tensor([label]), clip)
    assert made is not None
    assert float(made.double().norm()) <= clip


def test_dropout_stays_within_the_bound() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 5))
    flat, labels = FlatModel(module), torch.arange(COUNT) % 5
    first, second = (by_layers(module, flat.layers, squares(), labels, 0.1) for _ in range(2))
    assert first is not None
    assert second is not None
    assert not torch.equal(first, second)
    assert float(first.norm()) <= 0.1 * COUNT


class Normalised(nn.Module):
    """Two layers with a norm between them, over an example or (wrongly) over the batch."""

    def __init__(self, over_batch: bool) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 4), nn.Linear(4, 3)
        self.over_batch = over_batch

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.inner(images)
        over = seen.shape if self.over_batch else seen.shape[1:]
        return self.outer(functional.layer_norm(seen, over))


def test_a_norm_within_an_example_is_known_to_keep_examples_apart() -> None:
    images, labels = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    model = FlatModel(Normalised(over_batch=False))
    fast = by_layers(model.module, model.layers, images, labels, 0.3)
    assert fast is not None
    slow = by_vmap(model.module, model.layers, images, labels, 0.3)
    assert torch.allclose(fast, slow, atol=1e-6)


def test_a_norm_over_the_batch_is_not() -> None:
    images, labels = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    model = FlatModel(Normalised(over_batch=True))
    assert by_layers(model.module, model.layers, images, labels, 0.3) is None
