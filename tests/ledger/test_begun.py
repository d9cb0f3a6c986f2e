"""A round that begins, in the history of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.common import Job, key

from noisemarket.errors import LedgerConflict
from noisemarket.ledger import entries
from noisemarket.ledger.entries import NewEntry
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.offers import settle


@pytest.fixture
def job() -> Job:
    return Job.of()


@pytest.fixture
def ledger(tmp_path: Path, job: Job) -> Iterator[Ledger]:
    with open_ledger(tmp_path, curator=key("curator")) as ledger:
        ledger.append([*job.opening()])
        yield ledger


def begun(job: Job, number: int, owners: int = 3) -> NewEntry:
    return entries.begun(job.name, number, owners)


def test_rounds_begin_once_and_in_order(ledger: Ledger, job: Job) -> None:
    ledger.append([begun(job, 1)])
    ledger.append([begun(job, 1)])
    ledger.append([begun(job, 2)])
    verify(ledger)
    said = [entry.content() for entry in ledger.entries(kinds=["begun"])]
    assert said == [
        {"round": 1, "owners": 3},
        {"round": 2, "owners": 3},
    ]
    with pytest.raises(LedgerConflict, match="something else recorded"):
        ledger.append([begun(job, 1, owners=2)])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"round": 0}, "begins round 0 after round 0"),
        ({"round": 2**31}, "begins round"),
        ({"round": 1.5}, "which round begins"),
        ({"owners": -1}, "which round begins"),
        ({"owners": True}, "which round begins"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_what_cannot_begin(ledger: Ledger, job: Job, wrong: dict[str, object], told: str) -> None:
    body = {"round": 1, "owners": 3} | wrong
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
