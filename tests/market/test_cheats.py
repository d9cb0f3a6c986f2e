"""The cheat campaign, small: owners that send what is only as long as noise, or another's noise.

``benchmarks/cheats.py`` plays it at full size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import here, played, scenario
from tests.market.test_attacks import BAD, accounts, attacked

from noisemarket.federated.engine import Weights
from noisemarket.market.events import Accused
from noisemarket.market.inspection import SAME_NOISE
from noisemarket.market.training import SerialEngine

pytestmark = pytest.mark.training

NOT_GAUSSIAN = "the noise is not Gaussian"


@pytest.mark.parametrize(
    ("kind", "number", "reason"),
    [
        ("constant", 1, NOT_GAUSSIAN),
        ("two_point", 1, NOT_GAUSSIAN),
        ("half_noise", 1, NOT_GAUSSIAN),
        ("boosted", 1, "too little noise in part of the upload"),
        ("boosted_flip", 1, "too little noise in part of the upload"),
        ("bias_push", 1, "too little noise in part of the upload"),
        ("replay", 2, "one direction over all rounds, beyond the clip"),
        ("shared_noise", 2, "one direction over all rounds, beyond the clip"),
    ],
)
def test_what_is_only_as_long_as_noise_is_found(
    images: Path, tmp_path: Path, kind: str, number: int, reason: str
) -> None:
    told, _, found = attacked(images, tmp_path, kind)
    (accused,) = (event for event in told if isinstance(event, Accused))
    assert (accused.owner, accused.round) == (BAD, number)
    assert accused.reason == reason
    assert (found[BAD].state, found[BAD].paid) == ("broken", 0)
    seen = found[BAD].evidence["evidence"]
    assert not (seen["lowest"] or -np.inf) <= seen["statistic"] <= (seen["highest"] or np.inf)


@pytest.mark.parametrize("kind", ["copy", "opposite", "blend"])
def test_of_two_uploads_with_the_same_noise_neither_counts(
    images: Path, tmp_path: Path, kind: str
) -> None:
    """Who took it from whom cannot be told: nobody is accused, and nobody is paid for the round."""
    faults = [{"owner": BAD, "kind": kind, "first": 2, "last": 2}]
    told, _ = played(scenario(images), tmp_path, faults=faults)
    assert not [event for event in told if isinstance(event, Accused)]
    found = accounts(tmp_path)
    for owner, one in found.items():
        both = owner in (BAD, "3")
        outcomes = ["delivered", "refused" if both else "delivered", "delivered"]
        assert [seen.outcome for seen in one.rounds] == outcomes
        assert one.paid == one.contract.payment * (2 if both else 3) // 3
    assert found[BAD].rounds[1].reason == SAME_NOISE


def test_a_replay_is_found_although_the_job_was_cut_off_after_every_round(
    images: Path, tmp_path: Path
) -> None:
    """What is kept of uploads is in the checkpoint: a resumed job compares with all of them."""
    made = scenario(images, rounds=4)

    class Replaying(SerialEngine):
        """An owner that remembers its first upload, in a file, and sends it again in the end."""

        def train(self, round_number: int, weights: Weights, owners: Any) -> Any:
            uploads = super().train(round_number, weights, owners)
            file = tmp_path / "first.npy"
            if round_number == 1:
                np.save(file, uploads[2])
            elif round_number == 4:
                uploads[2] = np.load(file)
            return uploads

    cuts = 0
    while True:
        stream = here(made, tmp_path / "cut", engine=Replaying)
        try:
            for _ in range(7 + cuts):
                next(stream)
        except StopIteration:
            break
        stream.close()
        cuts += 1
    assert cuts >= 3
    bad = accounts(tmp_path / "cut")[BAD]
    assert bad.evidence["reason"] == "repeats an earlier upload of its own"
    assert (bad.evidence["round"], bad.evidence["evidence"]["statistic"]) == (4, 512)


def test_a_free_rider_with_the_right_noise_is_paid(images: Path, tmp_path: Path) -> None:
    """At the noise that protects a record nobody can tell who learned: a weight cap bounds it."""
    faults = [{"owner": BAD, "kind": "free_rider"}]
    played(scenario(images), tmp_path, faults=faults)
    assert accounts(tmp_path)[BAD].state == "paid"


def test_a_single_owner_is_watched_too(images: Path, tmp_path: Path) -> None:
    faults = [{"owner": "0", "kind": "replay"}]
    played(scenario(images, owners=1), tmp_path, faults=faults)
    assert accounts(tmp_path)["0"].state == "broken"
