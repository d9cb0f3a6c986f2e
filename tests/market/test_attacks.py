"""Owners that do not keep to their contracts: the job goes on, and they are not paid for it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.common import changed
from tests.market.common import OWNERS, ROUNDS, events, played, scenario, state
from tests.support.cheats import Fault, FaultyEngine

from noisemarket.federated.engine import Job
from noisemarket.ledger.queries import Account, account, contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.events import Accused, Broken, Event, Paid, Settled
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.job import run_market
from noisemarket.market.outcome import MarketOutcome
from noisemarket.market.training import SerialEngine
from noisemarket.privacy.noise import SimulatedNoise, add_noise

pytestmark = pytest.mark.training

BAD = "2"  # the owner at fault


def accounts(folder: Path) -> dict[str, Account]:
    with open_ledger(folder, create=False) as ledger:
        verify(ledger)
        ids = {one.contract.owner: one.contract.id for one in contracts(ledger)}
        return {owner: account(ledger, name) for owner, name in ids.items()}


def attacked(
    images: Path, folder: Path, kind: str, **more: Any
) -> tuple[list[Event], MarketOutcome, dict[str, Account]]:
    fault = {name: more.pop(name) for name in ("factor", "first", "last") if name in more}
    faults = [{"owner": BAD, "kind": kind, **fault}]
    told, outcome = played(scenario(images, **more), folder, faults=faults)
    assert isinstance(told[-1], Settled)
    found = accounts(folder)
    for owner, one in found.items():  # the others notice nothing
        if owner != BAD:
            assert (one.state, one.paid) == ("paid", one.contract.payment)
            assert one.count("delivered") == ROUNDS
    return told, outcome, found


def model(folder: Path) -> bytes:
    with np.load(folder / "curator" / "model.npz") as saved:
        return bytes(saved["weights"].tobytes())


@pytest.mark.parametrize(
    ("kind", "factor", "reason"),
    [
        ("noise", 1.2, "too much noise"),
        ("noise", 0.8, "too little noise"),
        ("zeros", 1.0, "too little noise"),
        ("huge", 1.0, "too much noise"),
    ],
)
def test_other_noise_than_contracted(
    images: Path, tmp_path: Path, kind: str, factor: float, reason: str
) -> None:
    told, outcome, found = attacked(images, tmp_path / "run", kind, factor=factor)
    (accused,) = (event for event in told if isinstance(event, Accused))
    (broken,) = (event for event in told if isinstance(event, Broken))
    assert (accused.owner, accused.round, accused.reason) == (BAD, 1, reason)
    assert broken.evidence["reason"] == reason
    bad = found[BAD]
    assert (bad.state, bad.kept, bad.paid) == ("broken", False, 0)
    assert outcome.broken == {BAD: reason}
    assert BAD not in outcome.payments
    # Enough is in the ledger to repeat the judgement.
    seen = bad.evidence["evidence"]
    inside = seen["lowest"] <= seen["statistic"] <= seen["highest"]
    assert not inside
    assert seen["noise_ratio"] == pytest.approx(math.sqrt(seen["statistic"] / seen["degrees"]))
    # It is refused in the first round, and takes no part in those after it.
    assert [(one.outcome, one.reason) for one in bad.rounds] == [
        ("refused", reason), ("missed", "took no part"), ("missed", "took no part"),
    ]  # fmt: skip
    assert [one.rho for one in bad.rounds] == [bad.contract.rho_per_round, 0, 0]
    statement = next((tmp_path / "run").glob(f"owners/owner-{BAD}/statement.json"))
    assert json.loads(statement.read_text())["releases"] == 1
    assert json.loads(statement.read_text())["paid_micro"] is None
    # The model is the one without this owner.
    faults = [{"owner": BAD, "kind": "absent"}]
    played(scenario(images), tmp_path / "without", faults=faults)
    assert model(tmp_path / "run") == model(tmp_path / "without")


@pytest.mark.parametrize(("kind", "reason"), [("nan", "not finite"), ("short", "wrong shape")])
def test_malformed_uploads(images: Path, tmp_path: Path, kind: str, reason: str) -> None:
    """A few are as good as none and paid by the contract's rule; most of them break it."""
    told, outcome, found = attacked(images, tmp_path / "one", kind, last=1)
    bad = found[BAD]
    assert not [event for event in told if isinstance(event, Accused | Broken)]
    assert [one.outcome for one in bad.rounds] == ["refused", "delivered", "delivered"]
    assert bad.rounds[0].reason == reason
    assert (bad.state, bad.paid) == ("paid", bad.contract.payment * 2 // 3)
    assert outcome.payments[BAD] == bad.paid
    faults = [{"owner": BAD, "kind": "absent", "last": 1}]
    played(scenario(images), tmp_path / "gone", faults=faults)
    assert model(tmp_path / "one") == model(tmp_path / "gone")
    told, outcome, found = attacked(images, tmp_path / "two", kind, first=2)
    bad = found[BAD]
    assert (bad.state, bad.paid) == ("broken", 0)
    assert bad.evidence == {"reason": "malformed uploads in 2 rounds"}
    assert np.isfinite(np.frombuffer(model(tmp_path / "two"))).all()


@pytest.mark.parametrize(
    ("first", "paid"),
    [(3, (2, 3)), (2, (1, 3)), (1, (0, 3))],  # one round of three is missed; two; all
)
def test_a_contract_pays_the_rounds_that_came(
    images: Path, tmp_path: Path, first: int, paid: tuple[int, int]
) -> None:
    told, _, found = attacked(images, tmp_path, "absent", first=first)
    bad = found[BAD]
    assert (bad.state, bad.kept) == ("paid", True)  # to miss a round is no breach
    assert bad.paid == bad.contract.payment * paid[0] // paid[1]
    assert bad.count("missed") == ROUNDS - first + 1
    assert {one.reason for one in bad.rounds} <= {"no upload came", None}
    # It had been charged before it fell silent, and nobody can know what it released.
    assert {one.rho for one in bad.rounds} == {bad.contract.rho_per_round}
    amounts = {event.owner: event.amount for event in told if isinstance(event, Paid)}
    assert amounts[BAD] == bad.paid


def test_all_at_once(images: Path, tmp_path: Path) -> None:
    kinds = ["noise", "nan", "huge", "zeros"]
    faults = [{"owner": str(i), "kind": kind, "factor": 2} for i, kind in enumerate(kinds)]
    told, outcome = played(scenario(images), tmp_path, faults=faults)
    assert len(outcome.broken) == OWNERS
    assert isinstance(told[-1], Settled)
    assert (told[-1].total, told[-1].broken) == (0, OWNERS)
    assert model(tmp_path) == outcome.order.start().weights.tobytes()  # nothing moved it
    assert accounts(tmp_path)["1"].state == "broken"


def test_an_accused_owner_stays_accused_after_a_crash(images: Path, tmp_path: Path) -> None:
    """Its finding is in the checkpoint, so a resumed job judges as one that was not cut off."""
    faults = [{"owner": BAD, "kind": "noise", "factor": 1.03}]  # shows only over several rounds
    made = scenario(images, rounds=8)
    played(made, tmp_path / "whole", faults=faults)
    whole = state(tmp_path / "whole")
    reason = whole["owners"][BAD][1][4]["reason"]
    assert reason == "too much noise over the rounds so far"
    cuts = 0
    while True:
        stream = events(made, tmp_path / "cut", faults=faults)
        try:
            for _ in range(6 + 2 * cuts):  # opened, negotiated, four signed, then rounds
                next(stream)
        except StopIteration:
            break
        stream.close()
        cuts += 1
    assert cuts >= 4
    assert state(tmp_path / "cut") == whole


class FarEngine(SerialEngine):
    """One owner sends an update that is far too long, and another one that is only long."""

    def train(self, round_number: int, weights: np.ndarray, owners: Any) -> Any:
        uploads = super().train(round_number, weights, owners)
        for owner, length in ((0, 60.0), (1, 5.0)):
            if owner in uploads:
                more = np.float32(length / math.sqrt(self.first_weights().size))
                uploads[owner] = uploads[owner] + more  # type: ignore[operator]
        return uploads


def test_where_nothing_bounds_an_update_the_far_ones_are_refused(
    images: Path, tmp_path: Path
) -> None:
    """The paper's protection clips nothing, so too much noise cannot be told from learning."""
    made = scenario(images, protection="paper", owners=5, saving_levels=1)
    told = list(run_market(made, tmp_path, engine=FarEngine))
    assert [event.owner for event in told if isinstance(event, Accused)] == ["0"]
    found = accounts(tmp_path)
    assert found["0"].evidence["reason"] == "far longer than usual"
    assert found["1"].state == "paid"


# The watch itself


SIZE = 3000


def watch_of(
    images: Path,
    folder: Path,
    protection: str | None = None,
    sigma: Sequence[float] = (),
) -> tuple[UploadInspector, list[Any], Job]:
    """A watch over the owners of a small market; with ``sigma``, over so many with other terms."""
    owners = max(OWNERS, len(sigma))
    _, outcome = played(scenario(images, rounds=1, owners=owners), folder)
    with open_ledger(folder, create=False) as ledger:
        agreed = {place: one.contract for place, one in enumerate(contracts(ledger))}
    other: dict[str, Any] = {"protection": protection, "clip": None, "shards": None, "settings": {}}
    other = other if protection else {}
    if sigma:
        agreed = {
            place: changed(agreed[place], sigma=one, **other) for place, one in enumerate(sigma)
        }
    told: list[Any] = []
    return (
        UploadInspector(agreed, 1e-3, 30, SIZE, lambda *finding: told.append(finding)),
        told,
        outcome.order.job,
    )


def test_the_watch_remembers_in_plain_json(images: Path, tmp_path: Path) -> None:
    watch, told, job = watch_of(images, tmp_path)
    noise = SimulatedNoise(5)

    def uploads(number: int) -> dict[int, Any]:
        sent = {
            owner: add_noise(
                np.zeros(SIZE, np.float32), job.sigma[owner], noise.stream(owner, number)
            )
            for owner in range(3)
        }
        return sent | ({3: np.zeros(SIZE, np.float32)} if number == 1 else {})

    first = watch.inspect(1, uploads(1))
    assert first == {3: "too little noise"}
    assert [finding[:3] for finding in told] == [(3, 1, "too little noise")]
    again = UploadInspector(
        watch._contracts, 1e-3, 30, SIZE, state=json.loads(json.dumps(watch.state())),
        arrays={name: array.copy() for name, array in watch.arrays.items()},
    )  # fmt: skip
    assert again.accused == watch.accused
    assert again.present() == watch.present() == [0, 1, 2]
    for number in (2, 3):
        assert again.inspect(number, uploads(number)) == {}
        assert watch.inspect(number, uploads(number)) == {}
    assert again.state() == watch.state()
    for owner in range(4):
        assert again.evidence(owner) == watch.evidence(owner)
        json.dumps(again.evidence(owner), allow_nan=False)
    assert again.evidence(0)["rounds_checked"] == 3
    assert again.evidence(3)["evidence"]["z_score"] is None


def test_the_watch_says_what_it_has_checked(images: Path, tmp_path: Path) -> None:
    """Also where a round is judged by itself and nothing is pooled."""
    watch, _, _ = watch_of(images, tmp_path, sigma=(0.0,))
    assert watch.evidence(0) == {"checked": False}
    for number in (1, 2):
        assert watch.inspect(number, {0: np.zeros(SIZE, np.float32)}) == {}
    assert watch.evidence(0) == {"checked": True, "rounds_checked": 2}


def test_evidence_is_plain_whatever_came(images: Path, tmp_path: Path) -> None:
    watch, told, _ = watch_of(images, tmp_path)
    sent: dict[int, Any] = {owner: np.full(SIZE, 1e200) for owner in range(4)}
    assert watch.inspect(1, sent) == dict.fromkeys(range(4), "too much noise")
    for owner in range(4):
        assert watch.evidence(owner)["evidence"]["noise_ratio"] is None
        json.dumps(watch.evidence(owner), allow_nan=False)
    assert len(told) == 4


def sent_by(sigma: Sequence[float], lengths: Sequence[float], seed: int) -> dict[int, Any]:
    """Uploads with updates of these lengths under noise of these sizes."""
    rng = np.random.default_rng(seed)
    sent = {}
    for owner, (scale, length) in enumerate(zip(sigma, lengths, strict=True)):
        update = rng.normal(size=SIZE)
        update *= length / np.linalg.norm(update)
        sent[owner] = (update + rng.normal(0.0, scale, SIZE)).astype(np.float32)
    return sent


@pytest.mark.parametrize(
    ("sigma", "lengths"),
    [
        ((0.1, 0.1, 0.1, 0.1, 0.5), (1, 1, 1, 1, 1)),  # one has far more noise, as it may
        ((0.6, 0.6, 0.6, 0.05, 0.0), (1, 1, 1, 2, 2)),
        ((0.0, 0.0, 0.0, 0.01, 0.1), (1, 1.5, 0.5, 2, 2)),
        ((0.1, 0.5), (1, 20)),
        ((0.0,), (1,)),
        ((0.0, 0.0, 0.0, 0.0, 0.0), (0, 0, 0, 1, 1)),
    ],
)
def test_free_updates_under_any_noise_are_not_accused(
    images: Path, tmp_path: Path, sigma: Sequence[float], lengths: Sequence[float]
) -> None:
    watch, told, _ = watch_of(images, tmp_path, protection="paper", sigma=sigma)
    for number in range(1, 31):
        assert watch.inspect(number, sent_by(sigma, lengths, number)) == {}
    assert not told


@pytest.mark.parametrize(
    ("sigma", "lengths", "bad"),
    [
        ((0.1, 0.1, 0.1, 0.1, 0.5), (1, 1, 1, 20, 1), 3),
        ((0.1, 0.1, 0.1, 0.1, 0.5), (1, 1, 1, 1, 40), 4),
        ((0.0, 0.0, 0.0), (1, 1, 4), 2),
        ((0.01, 0.01, 0.01), (1, 1, 10), 2),
        ((0.1, 0.1), (1, 1e30), 1),  # nobody to compare with
        ((0.0, 0.6), (100, 1), 0),
        ((0.3,), (1e4,), 0),
    ],
)
def test_free_updates_that_are_far_too_long(
    images: Path, tmp_path: Path, sigma: Sequence[float], lengths: Sequence[float], bad: int
) -> None:
    watch, _, _ = watch_of(images, tmp_path, protection="paper", sigma=sigma)
    refused = watch.inspect(1, sent_by(sigma, lengths, 1))
    assert refused == {bad: "far longer than usual"}


def test_faults_happen_in_their_rounds_only(images: Path, tmp_path: Path) -> None:
    _, outcome = played(scenario(images, rounds=1), tmp_path)
    job = outcome.order.job
    faults = [
        Fault(0, "nan", first=2, last=2),
        Fault(1, "absent", last=1),
        Fault(2, "noise", 1.5),
        Fault(3, "short", first=3),
    ]
    plain = SerialEngine(job)
    weights = plain.first_weights()
    with FaultyEngine(SerialEngine(job), faults, job) as engine:
        assert engine.score(weights) == plain.score(weights)
        for number in (1, 2, 3):
            honest = plain.train(number, weights, range(4))
            sent = engine.train(number, weights, range(4))
            assert (sent[1] is None) == (number == 1)
            assert np.isnan(sent[0]).all() == (number == 2)  # type: ignore[arg-type]
            assert (len(sent[3]) < weights.size) == (number == 3)  # type: ignore[arg-type]
            added = sent[2] - honest[2]  # type: ignore[operator]
            assert np.std(added) == pytest.approx(job.sigma[2] * math.sqrt(1.25), rel=0.1)
        assert set(engine.train(1, weights, [2])) == {2}
