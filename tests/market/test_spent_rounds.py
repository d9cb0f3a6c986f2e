"""Rounds that the ledger has are not released again, whatever files were lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.common import NOW, Job, key
from tests.market.common import events, here, played, scenario, state

from noisemarket.errors import BadInput
from noisemarket.federated.rounds import State
from noisemarket.ledger.store import open_ledger
from noisemarket.market.events import RoundTrained
from noisemarket.market.offers import RoundBeginning
from noisemarket.market.training import SerialEngine
from noisemarket.privacy.accountant import JournalledAccountant, PrivacyBudget, read_journal
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training

CHECKPOINT, JOURNAL = Path("curator/checkpoint.npz"), Path("owners/privacy.journal")
KEY = Path("owners/noise.key")


@pytest.fixture(scope="module")
def made(images: Path) -> Scenario:
    given = {"owners": 2, "rounds": 3, "widths": (2, 2, 8)}
    return scenario(images, noise="secure", false_alarm=1e-9, **given)


@pytest.fixture(scope="module")
def settled(made: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settled") / "run"
    played(made, folder)
    return folder


@pytest.fixture(scope="module")
def half(made: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was cut off after its second round."""
    folder = tmp_path_factory.mktemp("half") / "run"
    stream = events(made, folder)
    for event in stream:
        if isinstance(event, RoundTrained) and event.result.number == 2:
            break
    stream.close()
    return folder


def without(run: Path, to: Path, *names: Path) -> Path:
    """A copy of a run folder that has lost some files."""
    shutil.copytree(run, to)
    for name in names:
        (to / name).unlink()
    return to


@pytest.mark.parametrize("names", [(CHECKPOINT,), (CHECKPOINT, JOURNAL)])
def test_a_settled_job_releases_nothing_again(
    made: Scenario, settled: Path, tmp_path: Path, names: tuple[Path, ...]
) -> None:
    run = without(settled, tmp_path / "run", *names)
    with pytest.raises(BadInput, match=r"checkpoint\.npz lacks round 3 of a job that is settled"):
        played(made, run)
    if JOURNAL in names:
        assert read_journal(run / JOURNAL).charges == ()  # nothing was charged, nothing released


@pytest.mark.parametrize("names", [(JOURNAL,), (JOURNAL, CHECKPOINT), (JOURNAL, CHECKPOINT, KEY)])
def test_a_first_round_that_was_begun_is_known_although_all_files_are_lost(
    made: Scenario, tmp_path: Path, names: tuple[Path, ...]
) -> None:
    """It was cut off in the middle: uploads had left, and were charged in the journal only."""

    class CutOff(SerialEngine):
        def train(self, *given: Any) -> Any:
            super().train(*given)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(here(made, tmp_path, engine=CutOff))
    assert len(read_journal(tmp_path / JOURNAL).charges) == 2
    run = without(tmp_path, tmp_path / "again", *names)
    for _ in range(2):  # an attempt that was refused opens no door
        with pytest.raises(BadInput, match=r"lacks charges of round 1, which the ledger says was"):
            played(made, run)
        assert read_journal(run / JOURNAL).charges == ()
    played(made, tmp_path)  # with all its files it goes on
    assert len(read_journal(tmp_path / JOURNAL).charges) == 2 * 3


def test_a_round_that_was_just_begun_is_known_with_its_owners(tmp_path: Path) -> None:
    job, weights = Job.of(), np.zeros(3)
    with open_ledger(tmp_path, clock=lambda: NOW, curator=key("curator")) as ledger:
        ledger.append([*job.opening(), *job.signing()])
        begun = RoundBeginning(ledger, job.name)
        begun.begin(1, [0, 1])
        budgets = [PrivacyBudget(owner, "sharded", sigma=1.0, sensitivity=1.0) for owner in (0, 1)]
        with JournalledAccountant(tmp_path / "journal", budgets) as accountant:
            given = dict(enumerate(job.contracts)), State.first(weights), accountant, tmp_path
            accountant.charge(0, 1)
            with pytest.raises(BadInput, match="lacks charges of round 1"):
                begun.check_spent(*given)
            accountant.charge(1, 1)
            begun.check_spent(*given)


def test_a_job_under_way_needs_the_charges_of_the_rounds_on_its_ledger(
    made: Scenario, half: Path, tmp_path: Path
) -> None:
    run = without(half, tmp_path / "run", CHECKPOINT, JOURNAL)
    with pytest.raises(BadInput, match=r"lacks a charge of round 1, which the ledger has"):
        played(made, run)
    assert read_journal(run / JOURNAL).charges == ()


def test_with_journal_and_key_a_lost_checkpoint_is_made_again_bit_by_bit(
    made: Scenario, half: Path, tmp_path: Path
) -> None:
    played(made, without(half, tmp_path / "whole"))
    played(made, without(half, tmp_path / "run", CHECKPOINT))
    assert state(tmp_path / "run") == state(tmp_path / "whole")
    charges = read_journal(tmp_path / "run" / JOURNAL).charges
    assert len(charges) == 2 * 3


def test_a_journal_is_of_one_job(made: Scenario, half: Path, settled: Path, tmp_path: Path) -> None:
    """Another job of the same budgets must not lend its account to this one."""
    run = without(half, tmp_path / "run")
    shutil.copy(settled / JOURNAL, run / JOURNAL)
    with pytest.raises(BadInput, match=r"privacy\.journal is of another job"):
        played(made, run)
