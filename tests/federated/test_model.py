"""The flat model: one vector for all parameters, and exactly what torch itself would compute."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from noisemarket.errors import BadInput
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.flat_model import FlatModel

pytestmark = pytest.mark.training


@pytest.fixture(autouse=True, scope="module")
def _one_thread():  # type: ignore[no-untyped-def]
    """As in a worker; threads only slow so small a model down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small() -> CNN:
    torch.manual_seed(3)
    return CNN((2, 3), 8)


def batch(count: int = 7, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 28, 28, generator=made)
    return images, torch.randint(0, 10, (count,), generator=made)


def test_the_default_model_has_the_size_it_says() -> None:
    assert len(FlatModel(CNN())) == 80_202


@pytest.mark.parametrize("module", [small, lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10))])
def test_going_flat_changes_no_weight_and_no_answer(module) -> None:  # type: ignore[no-untyped-def]
    plain = module()
    flat = FlatModel(copy.deepcopy(plain))
    images, _ = batch()
    assert torch.allclose(flat.module(images), plain(images), atol=1e-6)
    for (name, ours), theirs in zip(
        flat.module.named_parameters(), plain.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs), name


def test_parameters_and_gradients_are_views_of_one_vector() -> None:
    flat = FlatModel(small())
    images, labels = batch()
    functional.cross_entropy(flat.module(images), labels).backward()
    assert flat.gradient.abs().sum() > 0
    layers = flat.layers
    assert sum(here.stop - here.start for here in layers.values()) == len(flat)
    for name, parameter in flat.module.named_parameters():
        here = layers[name]
        assert parameter.data.untyped_storage().data_ptr() == (
            flat.weights.untyped_storage().data_ptr()
        )
        assert parameter.grad is not None
        assert torch.equal(parameter.grad.flatten().sort()[0], flat.gradient[here].sort()[0])
    flat.weights.fill_(7.0)
    flat.gradient.fill_(5.0)
    for parameter in flat.module.parameters():
        assert parameter.grad is not None
        assert (parameter == 7.0).all()
        assert (parameter.grad == 5.0).all()


def test_descend_is_a_step_of_sgd() -> None:
    plain = small()
    flat = FlatModel(copy.deepcopy(plain))
    steps = torch.optim.SGD(plain.parameters(), lr=0.3)
    for seed in range(3):
        images, labels = batch(seed=seed)
        flat.descend(images, labels, 0.3)
        steps.zero_grad()
        functional.cross_entropy(plain(images), labels).backward()
        steps.step()
    for ours, theirs in zip(flat.module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("clip", [0.01, 1.0, 1e6])
def test_clipped_gradient_is_a_loop_over_examples(clip: float) -> None:
    flat = FlatModel(small())
    images, labels = batch()
    expected = torch.zeros(len(flat))
    for i in range(len(labels)):
        flat.gradient.zero_()
        loss = functional.cross_entropy(flat.module(images[i : i + 1]), labels[i : i + 1])
        loss.backward()
        expected += flat.gradient * min(1.0, clip / float(flat.gradient.norm()))
    before = flat.weights.clone()
    summed = flat.clipped_gradient(images, labels, clip)
    assert torch.allclose(summed, expected, atol=1e-5)
    assert torch.equal(flat.weights, before)
    assert float(summed.norm()) <= clip * len(labels)


def test_score_counts_and_leaves_the_model_in_training() -> None:
    flat = FlatModel(small())
    images, labels = batch(20)
    right, loss = flat.score(images, labels)
    with torch.no_grad():
        out = flat.module(images)
    assert right == int((out.argmax(1) == labels).sum())
    assert loss == pytest.approx(float(functional.cross_entropy(out, labels)) * 20, rel=1e-5)
    assert flat.module.training


def test_frozen_parameters_stay_out() -> None:
    module = small()
    module.first.weight.requires_grad_(False)
    flat = FlatModel(module)
    assert len(flat) == sum(p.numel() for p in module.parameters()) - module.first.weight.numel()
    assert "first.weight" not in flat.layers


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), "GroupNorm"),
        (nn.ReLU, "parameters"),
        (lambda: CNN(side=12), "at least"),
    ],
)
def test_what_cannot_be_trained_is_refused(module, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=said):
        FlatModel(module())


def test_the_narrowest_image() -> None:
    assert CNN(side=16)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    with pytest.raises(BadInput, match="at least 16"):
        CNN(side=15)
