"""Owners that outlive a run: their keys, numbers and wallets, and one ledger of all jobs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.market.common import here, job_name, scenario, write_images

from noisemarket.errors import NoisemarketError
from noisemarket.ledger.queries import documents, jobs
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import events
from noisemarket.market.outcome import LEFT_OUT, MarketOutcome
from noisemarket.owner.folder import OwnerFolder, owner_folder
from noisemarket.owner.wallet import Account, Wallet
from noisemarket.privacy.accountant import read_journal
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training

ONCE = {"model": "features", "owners": 3, "rounds": 2}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"))


def played(made: Scenario, folder: Path, root: Path, **more: object) -> MarketOutcome:
    return here(made, folder, owners=root, **more).finish()


def accounts(root: Path, count: int = 3) -> dict[str, Account]:
    found = {}
    for number in range(count):
        folder = OwnerFolder(str(number), owner_folder(root, str(number)))
        (path,) = folder.wallets()
        records = json.loads(path.read_text().splitlines()[-1])["records"]
        found[folder.name] = Wallet(folder.path, folder.name, records).account()
    return found


def test_two_jobs_add_up(images: Path, tmp_path: Path) -> None:
    root, made = tmp_path / "consortium", scenario(images, **ONCE)
    for name in ("one", "two"):
        played(made, tmp_path / name, root)
    spent = accounts(root)
    for number, (name, account) in enumerate(spent.items()):
        assert (account.jobs, account.reserved) == (2, 0.0)
        journals = [
            read_journal(tmp_path / run / "owners/privacy.journal") for run in ("one", "two")
        ]
        expected = math.fsum(journal.spent(number) for journal in journals)
        assert account.spent == pytest.approx(expected, rel=1e-12)
        own = owner_folder(root, name)
        statement = json.loads(
            (own / "jobs" / job_name(tmp_path / "two") / "statement.json").read_text()
        )
        assert statement["rho_so_far"] == pytest.approx(expected)
        assert statement["rho_total"] == pytest.approx(journals[1].spent(number))
    with open_ledger(root / "ledger.sqlite", create=False) as ledger:
        verify(ledger)
        assert [one.settled for one in jobs(ledger)] == [True, True]
        keys = {(one.owner, one.owner_key) for one in documents(ledger)}
    assert len(keys) == 3, "an owner has one key in all jobs"
    assert not (tmp_path / "one" / "ledger.sqlite").exists()


def test_what_an_owner_wrote_down_counts(images: Path, tmp_path: Path) -> None:
    root, made = tmp_path / "consortium", scenario(images, **ONCE)
    first = played(made, tmp_path / "one", root)
    assert first.agreed == 3
    own = owner_folder(root, "1") / "private.json"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"floor": 0.6}))
    second = played(made, tmp_path / "two", root)
    assert [owner.saving > 0 for owner in second.owners] == [True, False, True]
    third = played(made, tmp_path / "three", root, renew=True)
    assert third.agreed == 3


def test_an_owner_that_has_run_dry_takes_no_part(images: Path, tmp_path: Path) -> None:
    """First it sells less, then it does not train at all; nobody passes its budget."""
    root = tmp_path / "consortium"
    free = played(scenario(images, **ONCE), tmp_path / "free", tmp_path / "others")
    budget = 1.5 * max(owner.rho for owner in free.owners)
    made = scenario(images, **ONCE, rho_budget=budget)
    sigmas, left_out = [], []
    for number in range(6):
        try:
            outcome = played(made, tmp_path / str(number), root)
        except NoisemarketError:  # nobody is left
            left_out.append(3)
            break
        sigmas.append([owner.sigma for owner in outcome.owners if owner.state != LEFT_OUT])
        left_out.append(sum(owner.state == LEFT_OUT for owner in outcome.owners))
    assert sigmas[1] > sigmas[0], "what is left buys less"
    assert left_out[0] == 0
    assert left_out[-1] > 0
    for account in accounts(root).values():
        assert account.spent <= budget * (1 + 1e-9)
        assert account.reserved == 0.0


def test_a_cap_on_all_jobs_may_be_an_epsilon(images: Path, tmp_path: Path) -> None:
    root = tmp_path / "consortium"
    made = scenario(images, **ONCE, epsilon_budget=0.01)
    with pytest.raises(Exception, match="No owner has signed"):
        played(made, tmp_path / "one", root)


def test_a_job_that_was_killed_keeps_its_reservation_until_it_is_done(
    images: Path, tmp_path: Path
) -> None:
    root, made = tmp_path / "consortium", scenario(images, **ONCE, rho_budget=1e3)
    for event in here(made, tmp_path / "run", owners=root):
        if isinstance(event, events.RoundTrained):
            break
    held = accounts(root)
    assert all(account.reserved > 0.0 and account.spent > 0.0 for account in held.values())
    played(made, tmp_path / "run", root)
    for name, account in accounts(root).items():
        assert (account.jobs, account.reserved) == (1, 0.0)
        assert account.spent == pytest.approx(2 * held[name].spent)
    played(made, tmp_path / "run", root)  # once more, of a job that is settled
    assert {name: one.spent for name, one in accounts(root).items()} == pytest.approx(
        {name: 2 * one.spent for name, one in held.items()}
    )


def test_the_owners_own_relation_counts(images: Path, tmp_path: Path) -> None:
    """A contract that counts zero-out neighbours costs four times what it says."""
    root, made = tmp_path / "consortium", scenario(images, **ONCE, neighbours="zero_out")
    played(made, tmp_path / "one", root)
    before = {name: account.spent for name, account in accounts(root).items()}
    for name in before:
        own = owner_folder(root, name) / "private.json"
        assert json.loads(own.read_text())["neighbours"] == "zero_out"
        own.write_text(json.dumps(json.loads(own.read_text()) | {"neighbours": "replace_one"}))
    played(made, tmp_path / "two", root)
    for name, account in accounts(root).items():
        assert account.spent - before[name] == pytest.approx(4 * before[name], rel=0.02)
