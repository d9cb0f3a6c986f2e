"""The cheat campaign, small: owners that send what is only as long as noise, or what helps nobody.

``benchmarks/cheats.py`` plays it at full size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import here, played, scenario, state
from tests.market.test_attacks import BAD, accounts, attacked
from tests.privacy.whole_standing import standing_of

from noisemarket.errors import BadInput
from noisemarket.federated.engine import Weights
from noisemarket.ledger.queries import Account
from noisemarket.market.events import Accused
from noisemarket.market.faults import CHEATS
from noisemarket.market.noise_watch import SAME_NOISE
from noisemarket.market.preparation import prepare
from noisemarket.market.serial_engine import SerialEngine
from noisemarket.privacy.usefulness_rule import UsefulnessRule
from noisemarket.scenario.schema import FaultSection

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
    made = scenario(images, faults=[{"owner": BAD, "kind": kind, "first": 2, "last": 2}])
    told, _ = played(made, tmp_path)
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


def test_every_kind_of_fault_can_be_named() -> None:
    for kind in (*CHEATS, "absent"):
        assert FaultSection(owner="1", kind=kind).kind == kind  # type: ignore[arg-type]


# Does it help?


class Recorder(SerialEngine):
    """Keeps what the owners sent, as each of them could."""

    sent: dict[int, list[np.ndarray]]

    def train(self, round_number: int, weights: Weights, owners: Any) -> Any:
        uploads = super().train(round_number, weights, owners)
        for owner, upload in uploads.items():
            Recorder.sent.setdefault(owner, []).append(upload)
        return uploads


def useful(images: Path, folder: Path, **more: Any) -> dict[str, Account]:
    """A market that pays only for what helps. All owners sell nearly all their noise."""
    terms = {"sigma_max": 0.1, "quality_value": 2.0, "privacy_cost": 3.8}
    given = {"rounds": 12, "reference_records": 60, **terms, **more}
    Recorder.sent = {}
    run = here(scenario(images, **given), folder, engine=Recorder)
    list(run)
    return accounts(folder)


def test_only_who_helps_is_paid_and_every_owner_can_check_it(images: Path, tmp_path: Path) -> None:
    faults = [{"owner": BAD, "kind": "free_rider"}]
    found = useful(images, tmp_path, faults=faults)
    for one in found.values():
        contract = one.contract
        rule = UsefulnessRule.of(contract.usefulness)
        assert (contract.pay, rule.directions) == ("useful", 11)
        stated, idle = contract.usefulness["idle_paid"], rule.idle_paid(contract.sigma, 12)
        assert stated == pytest.approx(idle, rel=1e-5)
        assert stated < 0.01
        assert contract.payment > 0
        assert 0.0 < contract.sigma < 0.05
    assert {owner for owner, one in found.items() if one.state == "paid"} == {"0", "1", "3"}
    assert found[BAD].evidence["reason"] == "not found useful"
    # By its own uploads, and the directions that are published, an owner finds the same.
    rounds = sorted((tmp_path / "curator" / "reference").iterdir())
    directions = np.stack([np.load(path)["directions"] for path in rounds])
    assert directions.shape == (12, 11, 2000)
    for owner in (0, 1, 3):
        one = found[str(owner)]
        at = standing_of(np.stack(Recorder.sent[owner]), directions, one.contract.sigma)
        seen = one.evidence["usefulness"]
        assert (at.rounds, at.best) == (12, pytest.approx(seen["best"], rel=1e-4))
        assert at.against == pytest.approx(seen["against"], rel=1e-4, abs=1e-4)


def test_honest_owners_are_paid_where_noise_comes_in_steps(images: Path, tmp_path: Path) -> None:
    """Seven steps a round: what is asked for is a share of one step, which honest owners move, and
    not of all seven as if they had one direction. Who sends mere noise is not paid."""
    faults = [{"owner": BAD, "kind": "free_rider"}]
    given = {"protection": "dp_sgd", "batch": 2, "faults": faults}
    found = useful(images, tmp_path, **given)
    for one in found.values():
        stated, terms = one.contract.usefulness, one.contract.settings
        assert stated["reach"] == pytest.approx(terms["rate"] * one.contract.clip)
        assert terms["reach"] == pytest.approx(7 * stated["reach"])
    assert {owner for owner, one in found.items() if one.state == "paid"} == {"0", "1", "3"}
    assert found[BAD].evidence["reason"] == "not found useful"


def test_who_moves_the_model_back_is_found_and_left_out(images: Path, tmp_path: Path) -> None:
    faults = [{"owner": BAD, "kind": "flip"}]
    found = useful(images, tmp_path / "mean", faults=faults)
    assert found[BAD].evidence["reason"] == "moves the model against the reference records"
    assert found[BAD].state == "broken"
    assert [one.state for owner, one in found.items() if owner != BAD] == ["paid"] * 3
    screened = useful(images, tmp_path / "screened", faults=faults, aggregate="screened")
    assert screened[BAD].state == "broken"


def test_without_records_of_its_own_a_curator_pays_who_keeps_the_contract(
    images: Path, tmp_path: Path
) -> None:
    """It cannot tell who helps: a free rider is paid, and the contract says who is."""
    faults = [{"owner": BAD, "kind": "free_rider"}]
    played(scenario(images, faults=faults), tmp_path)
    one = accounts(tmp_path)[BAD]
    assert (one.state, one.contract.pay, dict(one.contract.usefulness)) == ("paid", "kept", {})
    assert "usefulness" not in one.evidence


@pytest.mark.parametrize("setting", [{"pay": "useful"}, {"aggregate": "screened"}])
def test_what_needs_reference_records_says_so(images: Path, setting: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="reference_records above 0"):
        prepare(scenario(images, **setting))
    with pytest.raises(BadInput, match="at most half of the 120 training records"):
        prepare(scenario(images, reference_records=61, **setting))


def test_a_single_owner_is_watched_too(images: Path, tmp_path: Path) -> None:
    faults = [{"owner": "0", "kind": "replay"}]
    made = scenario(images, owners=1, faults=faults, reference_records=20)
    played(made, tmp_path)
    assert accounts(tmp_path)["0"].state == "broken"


def test_a_resumed_job_with_records_of_its_own_ends_as_one_that_was_not_cut_off(
    images: Path, tmp_path: Path
) -> None:
    made = scenario(images, reference_records=40, rounds=3)
    played(made, tmp_path / "whole")
    for steps in (7, 8, 30):
        stream = here(made, tmp_path / "cut")
        for _ in zip(range(steps), stream, strict=False):
            pass
        stream.close()
    assert state(tmp_path / "cut") == state(tmp_path / "whole")
