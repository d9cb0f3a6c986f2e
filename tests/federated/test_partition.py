"""The partition: exact for any beta and any owners, as uneven as asked, and the same every time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.partition import label_counts, label_entropy, targets
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from noisemarket.errors import BadInput
from noisemarket.federated.partition import (
    MINIMUM,
    Partition,
    dirichlet_partition,
    owner_sizes,
)

MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST = np.random.default_rng(0).permutation(np.repeat(np.arange(10), MNIST_COUNTS))
"""Labels with MNIST's class counts: all that a partition sees of MNIST."""

BETAS = st.floats(0.05, 20)
ANY_BETA = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


def deal(owners: int, beta: object, seed: int = 1, **more: object) -> Partition:
    rng = np.random.default_rng(seed)
    return dirichlet_partition(MNIST, owners, beta, rng, **more)  # type: ignore[arg-type]


def assert_exact(dealt: Partition, images: int, minimum: int = MINIMUM) -> None:
    """Every image once, nobody below the minimum."""
    assert np.array_equal(np.sort(np.concatenate(dealt.indices)), np.arange(images))
    assert dealt.sizes.min() >= minimum
    assert dealt.sizes.tolist() == [len(own) for own in dealt.indices]
    assert all((np.diff(own) > 0).all() for own in dealt.indices)


def shares(dealt: Partition) -> np.ndarray:
    return label_counts(dealt, MNIST) / dealt.sizes[:, None]


def complaint(do: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as problem:
        do()
    message = str(problem.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


class TestExact:
    @given(
        labels=st.lists(st.integers(0, 12), min_size=1, max_size=300),
        part=st.floats(0, 1),
        minimum=st.integers(1, 12),
        seed=st.integers(0, 2**32),
        values=st.data(),
    )
    def test_any_labels_owners_betas_and_sizes(
        self, labels: list[int], part: float, minimum: int, seed: int, values: st.DataObject
    ) -> None:
        minimum = min(minimum, len(labels))
        owners = max(1, int(part * (len(labels) // minimum)))
        each = st.lists(ANY_BETA, min_size=owners, max_size=owners)
        beta = values.draw(st.one_of(BETAS, ANY_BETA, each))
        sizes = values.draw(st.one_of(st.none(), each))
        dealt = dirichlet_partition(
            labels, owners, beta, np.random.default_rng(seed), data_size=sizes, minimum=minimum
        )
        assert len(dealt) == owners
        assert_exact(dealt, len(labels), minimum)
        counts = label_counts(dealt, labels)
        assert counts.sum(axis=0).tolist() == np.bincount(labels).tolist()

    @pytest.mark.parametrize("beta", [0.05, 0.1, 1, 20])
    @pytest.mark.parametrize("owners", [1, 2, 3, 10, 100, 1000, len(MNIST) // MINIMUM])
    def test_mnist(self, owners: int, beta: float) -> None:
        dealt = deal(owners, beta)
        assert_exact(dealt, len(MNIST))
        assert dealt.sizes.max() - dealt.sizes.min() <= 1

    def test_every_image_its_own_owner(self) -> None:
        labels = MNIST[:500]
        dealt = dirichlet_partition(labels, 500, 0.05, np.random.default_rng(1), minimum=1)
        assert_exact(dealt, 500, 1)

    @given(owners=st.integers(1, 60), beta=BETAS, seed=st.integers(0, 2**32))
    def test_the_same_generator_gives_the_same(self, owners: int, beta: float, seed: int) -> None:
        labels = MNIST[:1000]
        one, two = (
            dirichlet_partition(labels, owners, beta, np.random.default_rng(seed)) for _ in range(2)
        )
        assert all(map(np.array_equal, one.indices, two.indices))

    def test_another_generator_gives_another(self) -> None:
        assert not np.array_equal(
            deal(10, 1.0, seed=1).indices[0], deal(10, 1.0, seed=2).indices[0]
        )

    def test_a_thousand_owners_take_less_than_a_second(self) -> None:
        start = time.process_time()
        deal(1000, 0.05)
        assert time.process_time() - start < 1.0


class TestSizes:
    @given(
        wishes=st.lists(st.floats(0.001, 1000), min_size=1, max_size=50),
        spare=st.integers(0, 5000),
        minimum=st.integers(1, 20),
    )
    def test_proportional_within_one(self, wishes: list[float], spare: int, minimum: int) -> None:
        images = len(wishes) * minimum + spare
        sizes = owner_sizes(images, np.array(wishes), minimum)
        assert sizes.sum() == images
        assert sizes.min() >= minimum
        below, above = 0.0, images / min(wishes)
        for _ in range(200):  # the level at which shares, none below the minimum, use all images
            level = (below + above) / 2
            enough = np.maximum(level * np.array(wishes), minimum).sum() >= images
            below, above = (below, level) if enough else (level, above)
        assert np.abs(sizes - np.maximum(above * np.array(wishes), minimum)).max() < 1 + 1e-6

    def test_given_sizes_are_kept(self) -> None:
        sizes = [1000, 2000, 27_000, 30_000]
        assert deal(4, 0.5, data_size=sizes).sizes.tolist() == sizes
        assert deal(4, 0.5, data_size=[size / 7 for size in sizes]).sizes.tolist() == sizes

    def test_the_minimum_lifts_the_smallest(self) -> None:
        dealt = deal(3, 1.0, data_size=[1e-9, 1, 2], minimum=60)
        assert dealt.sizes.tolist() == [60, 19_980, 39_960]

    def test_skewed(self) -> None:
        wishes = np.exp(np.random.default_rng(1).standard_normal(100))
        dealt = deal(100, 0.1, data_size=wishes)
        assert_exact(dealt, len(MNIST))
        assert dealt.sizes.max() > 5 * np.median(dealt.sizes)
        assert np.abs(dealt.sizes - 60_000 * wishes / wishes.sum()).max() <= 1


class TestFollowsTheDirichletLaw:
    def test_entropy_rises_with_beta(self) -> None:
        means = [
            label_entropy(label_counts(deal(100, b), MNIST)).mean() for b in (0.05, 0.3, 2, 20)
        ]
        assert means == sorted(means)
        assert means[0] < 0.8
        assert means[-1] > 2.2

    @pytest.mark.parametrize("beta", [0.05, 0.1, 0.5, 1, 5, 20])
    def test_as_uneven_as_drawn(self, beta: float) -> None:
        """Over many partitions the achieved entropies and spreads are those of the draws."""
        many = [deal(100, beta, seed) for seed in range(10)]
        got, drawn = (
            np.concatenate([shares(p) for p in many]),
            np.concatenate([targets(MNIST, 100, beta, seed) for seed in range(10)]),
        )
        assert label_entropy(got).mean() == pytest.approx(label_entropy(drawn).mean(), abs=0.04)
        assert got.std(axis=0).mean() == pytest.approx(drawn.std(axis=0).mean(), rel=0.04)
        fresh = np.random.default_rng(9).dirichlet(beta * np.array(MNIST_COUNTS) / 6000, 20_000)
        distances = [
            stats.ks_2samp(np.round(got[:, y], 2), np.round(fresh[:, y], 2)).statistic
            for y in range(10)
        ]
        assert max(distances) < 0.08

    @pytest.mark.parametrize("beta", [0.05, 1, 20])
    def test_moves_little_more_than_it_must(self, beta: float) -> None:
        """No partition can be nearer to the draws than the excess of wishes for each class."""
        dealt = deal(100, beta)
        change = shares(dealt) - targets(MNIST, 100, beta, 1)
        least = np.abs(change.sum(axis=0)).sum() / 2 / 100
        assert least <= np.abs(change).sum() / 2 / 100 < 1.5 * least + 0.005

    def test_even_at_beta_20(self) -> None:
        whole = np.array(MNIST_COUNTS) / 60_000
        distance = np.abs(shares(deal(100, 20)) - whole).sum(axis=1) / 2
        assert distance.mean() < 0.1
        assert distance.max() < 0.2

    def test_one_owner_holds_all(self) -> None:
        assert label_counts(deal(1, 0.05), MNIST).tolist() == [MNIST_COUNTS]

    def test_each_owner_has_its_own_beta(self) -> None:
        """An even owner stays even whatever its uneven neighbours draw."""
        betas = np.tile([0.05, 20.0], 50)
        dealt = deal(100, betas)
        entropy = label_entropy(label_counts(dealt, MNIST))
        assert entropy[::2].mean() < 0.8
        assert entropy[1::2].min() > 2.15
        moved = np.abs(shares(dealt) - targets(MNIST, 100, betas, 1)).sum(axis=1) / 2
        assert moved[1::2].max() < 0.02

    def test_rare_classes_are_dealt_too(self) -> None:
        labels = np.repeat([0, 1, 7], [9000, 990, 10])
        dealt = dirichlet_partition(labels, 50, 0.1, np.random.default_rng(1))
        assert_exact(dealt, 10_000)
        counts = label_counts(dealt, labels)
        assert counts.sum(axis=0).tolist() == [9000, 990, 0, 0, 0, 0, 0, 10]

    def test_entropy_of_known_rows(self) -> None:
        entropy = label_entropy([[5, 0, 0, 0], [1, 1, 0, 0], [2, 2, 2, 2]])
        assert entropy == pytest.approx([0, np.log(2), np.log(4)])


@pytest.mark.parametrize(
    ("owners", "minimum", "said"),
    [
        (6001, 10, "owners is 6001: 60,000 records suffice for 6,000 owners of at least 10 each."),
        (60_001, 1, "60,000 records suffice for 60,000 owners"),
    ],
)
def test_more_owners_than_images_suffice_for(owners: int, minimum: int, said: str) -> None:
    assert said in complaint(lambda: deal(owners, 1.0, minimum=minimum))
