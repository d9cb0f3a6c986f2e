"""A round that begins, in the history of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.common import Job, key

from noisemarket.errors import LedgerConflict
from noisemarket.ledger import entries
from noisemarket.ledger.entries import NewEntry
from noisemarket.ledger.settlement import settle
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.ledger.verification import verify

DIGEST = "a" * 64


@pytest.fixture
def job() -> Job:
    return Job.of()


@pytest.fixture
def ledger(tmp_path: Path, job: Job) -> Iterator[Ledger]:
    with open_ledger(tmp_path, curator=key("curator")) as ledger:
        ledger.append([*job.opening()])
        yield ledger


def begun(job: Job, number: int, reference: str | None = None, owners: int = 3) -> NewEntry:
    return entries.begun(job.name, number, owners, reference)


def test_rounds_begin_once_and_in_order(ledger: Ledger, job: Job) -> None:
    ledger.append([begun(job, 1, DIGEST)])
    ledger.append([begun(job, 1, DIGEST)])
    ledger.append([begun(job, 2)])
    verify(ledger)
    said = [entry.content() for entry in ledger.entries(kinds=["begun"])]
    assert said == [
        {"round": 1, "owners": 3, "reference": DIGEST},
        {"round": 2, "owners": 3, "reference": None},
    ]
    for again, told in (
        (begun(job, 1, "b" * 64), "something else recorded"),
        (begun(job, 1, owners=2), "something else recorded"),
    ):
        with pytest.raises(LedgerConflict, match=told):
            ledger.append([again])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"round": 0}, "begins round 0 after round 0"),
        ({"round": 2**31}, "begins round"),
        ({"round": 1.5}, "which round begins"),
        ({"owners": -1}, "which round begins"),
        ({"owners": True}, "which round begins"),
        ({"reference": "short"}, "not a digest"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_what_cannot_begin(ledger: Ledger, job: Job, wrong: dict[str, object], told: str) -> None:
    body = {"round": 1, "owners": 3, "reference": None} | wrong
    entry = entries._new(job.name, "begun", body)
    with pytest.raises(LedgerConflict, match=told):
        ledger.append([entry])
    ledger.append([begun(job, 7)])
    with pytest.raises(LedgerConflict, match="begins round 6 after round 7"):
        ledger.append([begun(job, 6)])


def test_nothing_begins_after_the_settlement(tmp_path: Path, job: Job) -> None:
    with open_ledger(tmp_path, curator=key("curator")) as ledger:
        job.begin(ledger)
        settle(ledger, job.name, job.verdicts())
        with pytest.raises(LedgerConflict, match="after its job was settled"):
            ledger.append([begun(job, 9)])
