"""The whole market, from the first quote to the last payment, on a few images."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from tests.ledger.tampering import tamper
from tests.market.common import (
    OWNERS,
    ROUNDS,
    events,
    job_name,
    played,
    scenario,
    state,
    write_images,
)

from noisemarket.cli import main
from noisemarket.errors import BadInput, LedgerConflict, NoisemarketError
from noisemarket.game.levels import Levels
from noisemarket.ledger import entries
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.money import prices
from noisemarket.ledger.queries import account, contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.events import (
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
    Signed,
    Verified,
)
from noisemarket.market.job import run_market
from noisemarket.market.negotiation import negotiate
from noisemarket.market.offers import Verdict, settle
from noisemarket.market.orders import within_budget
from noisemarket.market.outcome import MarketOutcome, Outcome
from noisemarket.market.summary import summary
from noisemarket.owner.folder import OwnerFolder, owner_folder
from noisemarket.privacy.accountant import read_journal
from noisemarket.privacy.noise import KEY_BYTES

pytestmark = pytest.mark.training

Done = tuple[Path, list[object], MarketOutcome]
SECURE = {"noise": "secure", "false_alarm": 1e-9}
"""Noise drawn anew in every run, and no honest owner accused in a lifetime of runs."""


@pytest.fixture(scope="module")
def done(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("run")
    told, outcome = played(scenario(images, **SECURE), folder)
    return folder, list(told), outcome


def test_events_come_in_order(done: Done) -> None:
    folder, told, outcome = done
    kinds = [type(event) for event in told]
    assert kinds == [
        Opened, Negotiated, *[Signed] * OWNERS, *[RoundTrained] * ROUNDS,
        *[Verified, Paid] * OWNERS, Settled,
    ]  # fmt: skip
    opened, settled = told[0], told[-1]
    assert isinstance(opened, Opened)
    assert isinstance(settled, Settled)
    assert (opened.job, opened.owners, opened.rounds) == (job_name(folder), OWNERS, ROUNDS)
    assert (opened.budget, opened.resumed) == (None, False)
    rounds = [event.result.number for event in told if isinstance(event, RoundTrained)]
    assert rounds == [1, 2, 3]
    paid = [event.amount for event in told if isinstance(event, Paid)]
    assert (settled.total, settled.paid, settled.broken) == (sum(paid), OWNERS, 0)
    assert settled.head == outcome.head


def test_payments_are_the_contracts(done: Done) -> None:
    folder, told, outcome = done
    agreed = {row.owner: row for row in outcome.owners}
    total = sum(row.payment_micro for row in outcome.owners)
    signed = {event.owner: event for event in told if isinstance(event, Signed)}
    assert total > 0
    with open_ledger(folder, create=False) as ledger:
        found = verify(ledger)
        assert str(found.head) == outcome.head
        assert (found.jobs_settled, found.contracts_paid) == (1, OWNERS)
        assert found.paid == total
        for standing in contracts(ledger):
            deal = agreed[standing.contract.owner]
            assert (standing.contract.sigma, standing.contract.saving) == (deal.sigma, deal.saving)
            assert standing.paid == standing.contract.payment == deal.payment_micro
            assert (standing.delivered, standing.missed, standing.refused) == (ROUNDS, 0, 0)
            assert signed[deal.owner].contract == standing.contract.id
            whole = account(ledger, standing.contract.id)
            assert whole.evidence["checked"]
            assert whole.evidence["rounds_checked"] == ROUNDS
            assert whole.evidence["noise_ratio"] == pytest.approx(1.0, abs=0.1)


def test_an_owner_is_told_what_it_gave_up(done: Done) -> None:
    folder, _, outcome = done
    journal = read_journal(folder / "owners" / "privacy.journal")
    with open_ledger(folder, create=False) as ledger:
        standings = {one.contract.owner: one for one in contracts(ledger)}
        for place, (owner, standing) in enumerate(standings.items()):
            home = owner_folder(folder / "owners", owner)
            statement = json.loads((home / "statement.json").read_text())
            terms = standing.contract
            assert statement["paid_micro"] == standing.paid
            assert statement["rounds"] == statement["releases"] == ROUNDS
            assert statement["guaranteed"]
            assert statement["rho_total"] == pytest.approx(ROUNDS * terms.rho_per_round)
            assert statement["rho_total"] == pytest.approx(terms.rho_cap)
            assert statement["epsilon"] == pytest.approx(terms.epsilon)
            assert journal.spent(place) == statement["rho_total"]
            kept = json.loads((home / "contract.json").read_text())
            assert kept["contract"] == terms.to_dict()
            whole = account(ledger, terms.id)
            assert kept["owner_signature"] == whole.owner_signature
            assert kept["curator_signature"] == whole.curator_signature
    assert len(outcome.statements) == OWNERS


def test_what_is_private_is_under_lock(done: Done) -> None:
    folder, _, _ = done
    for place in (folder / "curator", folder / "owners", *(folder / "owners").glob("owner-*")):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    secret = [*folder.rglob("signing-key.pem"), *folder.rglob("private.json")]
    assert len(secret) == 2 * OWNERS + 1
    for file in secret:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_noise_has_a_key_until_all_is_settled(images: Path, tmp_path: Path) -> None:
    key = tmp_path / "owners" / "noise.key"
    made = scenario(images, **SECURE, rounds=1, owners=2)
    for event in events(made, tmp_path):
        if isinstance(event, RoundTrained):
            assert len(key.read_bytes()) == KEY_BYTES
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not key.exists()
    played(made, tmp_path)
    assert not key.exists()


def test_secrets_are_never_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = Path.replace

    def replaced(place: Path, target: Path) -> Path:
        seen.append(stat.S_IMODE(place.stat().st_mode))
        return real(place, target)

    monkeypatch.setattr(Path, "replace", replaced)
    before = os.umask(0)
    try:
        OwnerFolder("a", tmp_path).keep_private({"markup": 0.5})
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert json.loads((tmp_path / "private.json").read_text()) == {"markup": 0.5}
    OwnerFolder("a", tmp_path).keep_private({"markup": 0.7})  # what is there stays
    assert json.loads((tmp_path / "private.json").read_text()) == {"markup": 0.5}
    with pytest.raises(NoisemarketError, match="cannot be written"):
        OwnerFolder("a", tmp_path / "nowhere").keep_private({"markup": 0.5})


@pytest.mark.parametrize("last", [Paid, Settled])
def test_owners_are_told_before_anybody_else(images: Path, tmp_path: Path, last: type) -> None:
    stream = events(scenario(images, rounds=1), tmp_path)
    for event in stream:
        if isinstance(event, last):
            break
    stream.close()
    assert len(list(tmp_path.glob("owners/*/statement.json"))) == OWNERS


def test_done_again_is_done_once(done: Done, images: Path) -> None:
    folder, told, outcome = done
    before = state(folder)
    again, after = played(scenario(images, **SECURE), folder)
    assert isinstance(again[0], Opened)
    assert again[0].resumed
    assert state(folder) == before
    assert after.head == outcome.head
    assert again[-1] == told[-1]
    assert after.payments == outcome.payments


def test_a_second_settlement_pays_nothing(done: Done) -> None:
    folder, _, outcome = done
    with open_ledger(folder, curator=KeyPair.load(folder / "curator")) as ledger:
        agreed = [one.contract for one in contracts(ledger)]
        same = [Verdict(one, True, ROUNDS, account(ledger, one.id).evidence) for one in agreed]
        head = ledger.head()
        settle(ledger, job_name(folder), same)
        assert ledger.head() == head
        with pytest.raises(LedgerConflict):
            settle(ledger, job_name(folder), [replace(one, delivered=ROUNDS - 1) for one in same])
        with pytest.raises(LedgerConflict):
            ledger.append([entries.paid(next(contracts(ledger)).contract, ROUNDS - 1)])
        assert str(ledger.head()) == outcome.head


def test_an_edited_row_is_found(
    done: Done, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = done
    copy = tmp_path / "ledger.sqlite"
    copy.write_bytes((folder / "ledger.sqlite").read_bytes())
    more = "REPLACE(body, '\"amount\":1', '\"amount\":2')"
    tamper(str(copy), f"UPDATE noisemarket_entries SET body = {more} WHERE kind = 'paid'")
    for place, code in ((folder, 0), (tmp_path, 1)):
        with pytest.raises(SystemExit) as end:
            main(["ledger", "verify", str(place)])
        assert end.value.code == code
    assert re.search(r"entry \d+ \(paid, .*was changed", capsys.readouterr().err)


def test_the_summary_adds_up(done: Done) -> None:
    _, _, outcome = done
    result = summary(outcome, outcome.negotiation.environment)
    assert (result["owners"], result["rounds"], result["trades"]) == (OWNERS, ROUNDS, OWNERS)
    assert (result["contracts_kept"], result["contracts_broken"], result["broken"]) == (4, 0, {})
    assert result["total_paid_micro"] == sum(outcome.payments.values())
    assert result["total_paid"] == result["total_paid_micro"] / 1e6
    assert result["deployed_accuracy"] == result["averaged_accuracy"]
    assert len(result["accuracy_per_round"]) == ROUNDS
    assert result["uniform_dp_accuracy"] is None
    assert result["secure_noise"]
    assert result["guaranteed"]
    assert set(result["seconds"]) == {"negotiate", "sign", "train", "settle"}
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_money_is_added_up_exactly(done: Done) -> None:
    _, _, outcome = done
    amounts = (100_000, 100_000, 100_000, None)
    pairs = zip(outcome.owners, amounts, strict=True)
    rows = tuple(replace(row, paid_micro=amount) for row, amount in pairs)
    result = summary(replace(outcome, owners=rows), outcome.negotiation.environment)
    assert (result["total_paid"], result["total_paid_micro"]) == (0.3, 300_000)


def test_worker_processes_come_to_the_same(images: Path, tmp_path: Path) -> None:
    made = scenario(images, owners=2, rounds=2)
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    played(made, tmp_path / "here")
    run_market(made, tmp_path / "there", workers=1).finish()
    assert state(tmp_path / "here") == state(tmp_path / "there")


@pytest.mark.parametrize("owners", [1, 40])
def test_any_number_of_owners(tmp_path: Path, owners: int) -> None:
    made = scenario(
        write_images(tmp_path, 10 * owners), owners=owners, rounds=1, widths=(1, 1, 2),
    )  # fmt: skip
    told, outcome = played(made, tmp_path / "run")
    assert sum(isinstance(event, Paid) for event in told) == owners
    with open_ledger(tmp_path / "run", create=False) as ledger:
        assert verify(ledger).paid == sum(row.payment_micro for row in outcome.owners)


@pytest.mark.parametrize("protection", ["dp_sgd", "paper"])
def test_other_protections(images: Path, tmp_path: Path, protection: str) -> None:
    made = scenario(images, protection=protection, batch=5, rounds=2)
    told, outcome = played(made, tmp_path)
    assert sum(isinstance(event, Paid) for event in told) == OWNERS
    with open_ledger(tmp_path, create=False) as ledger:
        verify(ledger)
        for standing in contracts(ledger):
            terms = standing.contract
            evidence = account(ledger, terms.id).evidence
            assert (evidence["checked"], evidence["rounds_checked"]) == (True, 2)
            if protection == "dp_sgd":
                assert terms.settings["reach"] == pytest.approx(6 * 0.5)  # steps of rate 0.5
                assert np.isfinite(terms.epsilon)
            else:
                assert terms.epsilon == np.inf
                assert terms.clip is None
                assert not outcome.statements[0].guaranteed


# The budget


def test_without_money_nothing_is_traded(images: Path, tmp_path: Path) -> None:
    told, outcome = played(scenario(images, budget=0), tmp_path)
    assert (outcome.agreed, outcome.over_budget) == (0, OWNERS)
    assert not any(row.payment_micro for row in outcome.owners)
    with open_ledger(tmp_path, create=False) as ledger:
        assert verify(ledger).paid == 0
        for one in contracts(ledger):
            assert (one.contract.sigma, one.contract.saving, one.contract.payment) == (0.6, 0, 0)
            assert (one.delivered, one.state, one.paid) == (ROUNDS, "paid", 0)
    assert isinstance(told[-1], Settled)
    assert told[-1].total == 0


def test_a_budget_pays_whom_it_can(images: Path, tmp_path: Path) -> None:
    told, outcome = played(scenario(images, budget=30), tmp_path)
    assert 0 < outcome.agreed < OWNERS
    assert outcome.agreed + outcome.over_budget == OWNERS
    assert 0 < sum(outcome.payments.values()) <= 30_000_000
    assert isinstance(told[0], Opened)
    assert told[0].budget == 30_000_000
    assert {row.sigma for row in outcome.owners if not row.payment_micro} == {0.6}
    with open_ledger(tmp_path) as ledger:
        (entry,) = ledger.entries(kinds=["opened"])
        assert entry.content()["budget"] == 30_000_000
        verify(ledger)


def test_no_budget_is_ever_passed_and_none_is_wasted(images: Path) -> None:
    done = negotiate(scenario(images, owners=60))
    contracts = done.agreement.contracts
    amounts = np.array(prices(done.environment.levels.payments))
    assert within_budget(done.environment, contracts, None) is contracts
    cost = amounts[contracts.payment]
    least, whole, before = int(cost.min()), int(cost.sum()), -1
    for budget in (0, 1, least - 1, least, 40_000_000, 333_333_333, whole - 1, whole):
        deals = within_budget(done.environment, contracts, budget)
        paid = amounts[deals.payment]
        agreed = int((deals.saving > 0).sum())
        assert paid.sum() <= budget
        assert agreed >= before
        before = agreed
        out = cost[(cost > 0) & (paid == 0)]
        if len(out):  # what is left could pay none of those that were left out
            assert budget - paid.sum() < out.min()
    assert np.array_equal(deals.saving, contracts.saving)
    assert np.array_equal(deals.payment, contracts.payment)


def test_who_sells_all_its_noise_has_none() -> None:
    levels = Levels(sigma_max=0.03, saving_levels=11)
    assert levels.sigma_max - levels.savings[-1] != 0.0  # by a rounding error
    assert levels.sigma_left(11) == 0.0
    assert levels.sigma_left(0) == levels.sigma_max
    assert levels.sigma_left(5) == pytest.approx(0.03 * 6 / 11)


# Who signs what


def test_the_outcome_is_written_down(done: Done) -> None:
    folder, _, outcome = done
    kept = Outcome.load(folder)
    for name in {one.name for one in fields(Outcome)} - {"seconds"}:  # of the last run
        assert getattr(kept, name) == getattr(outcome, name), name
    assert [one.number for one in kept.results] == list(range(1, ROUNDS + 1))
    levels = outcome.negotiation.environment.levels
    for row in kept.owners:
        assert float(levels.savings[row.saving_level]) == row.saving
        assert levels.sigma_left(row.saving_level) == row.sigma
        assert round(float(levels.payments[row.payment_level]) * 1e6) == row.payment_micro
        assert (row.state, row.paid_micro) == ("paid", outcome.payments[row.owner])
    with pytest.raises(BadInput, match="the job is not settled"):
        Outcome.load(folder / "owners")
