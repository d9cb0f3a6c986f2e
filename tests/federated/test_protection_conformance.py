"""The protections of this package against the suite for all, and one of another package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.conformance.protection_suite import ProtectionConformance

from noisemarket.federated.protections import (
    DPSGD,
    PROTECTIONS,
    Paper,
    PerRecord,
    Protection,
    Sharded,
    Upload,
    UploadTask,
)
from noisemarket.privacy.noise import add_noise, rounding_reach
from noisemarket.privacy.zcdp import Neighbours

pytestmark = pytest.mark.training


class TestPaper(ProtectionConformance):
    protection = Paper(batch=16, rate=0.05)


class TestPerRecord(ProtectionConformance):
    protection = PerRecord(clip=0.5, rate=0.3)


class TestSharded(ProtectionConformance):
    protection = Sharded(records_per_shard=5, clip=0.5, steps=2, rate=0.3)


class TestDPSGD(ProtectionConformance):
    protection = DPSGD(batch=16, rate=0.3, clip=0.7)


class TestOneShard(ProtectionConformance):
    protection = Sharded(records_per_shard=10**6, clip=0.5, steps=2, rate=0.1)


@dataclass(frozen=True)
class OneStep(Protection):
    """What a user might write first: one step on the mean of clipped gradients, noise once."""

    clip: float = 1.0
    strength: int = 50
    name = "one_step"

    def upload(self, task: UploadTask) -> Upload:
        summed = task.model.clipped_gradient(task.start, task.records, self.clip)
        return add_noise(-summed / np.float32(self.strength), task.sigma, task.noise)

    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        return neighbours.reach * self.clip / self.strength + rounding_reach(dimension)


class TestOfAnotherPackage(ProtectionConformance):
    """With nothing but what has to be written."""

    protection = OneStep(clip=0.5)

    @pytest.mark.parametrize(("factor", "verdict"), [(0.5, "too little noise")])
    def test_other_noise_than_contracted_is_found(self, factor: float, verdict: str) -> None:
        """Without a stated reach, too much noise cannot be told from learning."""
        super().test_other_noise_than_contracted_is_found(factor, verdict)

    def test_a_verdict_is_said_in_words(self) -> None:
        assert self.protection.reach(1) == np.inf


def test_all_of_the_package_are_tested() -> None:
    suites = ProtectionConformance.__subclasses__()
    assert set(PROTECTIONS) <= {suite.protection.name for suite in suites}
