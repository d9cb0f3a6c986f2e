"""Owners that outlive a run: their keys, numbers and wallets, and one ledger of all jobs."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.common import contract, sign
from tests.market.common import here, job_name, scenario, write_images

from noisemarket.cli import main
from noisemarket.cli.common import show
from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import private_folder
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.money import in_words
from noisemarket.ledger.queries import documents, jobs
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import events
from noisemarket.market.lasting import budgets_said
from noisemarket.market.outcome import LEFT_OUT, MarketOutcome
from noisemarket.market.run_folder import MarketFolder, RunFolder
from noisemarket.owner.folder import Declined, OwnerFolder, owner_folder
from noisemarket.owner.wallet import AHEAD, HELD, Balance, Wallet
from noisemarket.privacy.accountant import PrivacyBudget, read_journal
from noisemarket.scenario import Scenario
from noisemarket.show.account_report import accounts_shown, owner_account, write_accounts

pytestmark = pytest.mark.training

ONCE = {"model": "features", "owners": 3, "rounds": 2}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"))


def played(made: Scenario, folder: Path, root: Path, **more: object) -> MarketOutcome:
    return here(made, folder, owners=root, **more).finish()


def accounts(root: Path, count: int = 3) -> dict[str, Balance]:
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
        (key,) = verify(ledger).curator_keys
        assert {KeyPair.load(tmp_path / run / "curator").public_hex for run in ("one", "two")} == {
            key
        }, "what an operator notes after a job must hold after the next"
        assert [one.settled for one in jobs(ledger)] == [True, True]
        keys = {(one.owner, one.owner_key) for one in documents(ledger)}
    assert len(keys) == 3, "an owner has one key in all jobs"
    assert not (tmp_path / "one" / "ledger.sqlite").exists()


def test_a_folder_of_a_job_finds_what_its_owners_keep(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the job was run from Python."""
    played(scenario(images, **ONCE), tmp_path / "one", tmp_path / "consortium")
    with pytest.raises(SystemExit):
        main(["ledger", "verify", str(tmp_path / "one")])
    assert "12 receipts and 3 contracts of owners" in capsys.readouterr().out


def test_what_an_owner_wrote_down_counts(images: Path, tmp_path: Path) -> None:
    root, made = tmp_path / "consortium", scenario(images, **ONCE)
    first = played(made, tmp_path / "one", root)
    assert first.agreed == 3
    own = owner_folder(root, "1") / "private.json"
    numbers = json.loads(own.read_text())
    own.write_text(json.dumps(numbers | {"floor": 0.6}))
    second = played(made, tmp_path / "two", root)
    assert [owner.saving > 0 for owner in second.owners] == [True, False, True]
    third = played(made, tmp_path / "three", root, renew=True)
    assert third.agreed == 3
    own.write_text(json.dumps(json.loads(own.read_text()) | {"epsilon_budgt": 10}))
    with pytest.raises(BadInput, match=r"unknown name, epsilon_budgt: did you mean epsilon_budget"):
        played(made, tmp_path / "four", root)
    own.write_text(json.dumps({**numbers, "floor": "x"}))
    with pytest.raises(BadInput, match=r"^floor of owner 1 is x: give a number"):
        played(made, tmp_path / "six", root)
    own.write_text("[1]")
    with pytest.raises(BadInput, match=r"is not a JSON object"):
        played(made, tmp_path / "five", root)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"most_rounds": 1}, "more rounds than the owner allows"),
        ({"most_weights": 10}, "more weights than the owner allows"),
        ({"most_steps": 0}, "more steps than the owner allows"),
        ({"sigma_max": 0.8}, "unpaid, the owner keeps more noise"),
        ({"floor": 0.7}, "below the owner's floor"),
        ({"rho_cap": 1e-9}, "more than the owner's privacy cap"),
        ({"rho_budget": 0}, "the privacy budget is spent"),
        ({"privacy_weight": 1e9}, ""),
        ({"payment_value": 0}, ""),
    ],
)
def test_an_owner_keeps_to_its_own_limits(
    images: Path, tmp_path: Path, own: dict[str, float], why: str
) -> None:
    """It is left out with the reason, before anything is agreed, or it sells nothing."""
    root, made = tmp_path / "consortium", scenario(images, **ONCE)
    folder = OwnerFolder("1", owner_folder(root, "1"))
    private_folder(root)
    private_folder(folder.path)
    said = {"privacy_cost": 0.7, "markup": 0.2, "payment_value": 0.08, "privacy_weight": 2.5}
    folder.keep_private(said | own)
    outcome = played(made, tmp_path / "run", root)
    assert outcome.agreed == 2
    assert outcome.owners[1].saving == 0.0
    assert (outcome.owners[1].state == LEFT_OUT) == bool(why)
    assert why in outcome.owners[1].reason


@pytest.mark.parametrize("own", [{}, {"privacy_cost": "dear"}, {"privacy_cost": math.nan}])
def test_an_owner_must_say_what_its_privacy_is_worth(
    images: Path, tmp_path: Path, own: dict[str, object]
) -> None:
    root = private_folder(tmp_path / "consortium")
    path = private_folder(owner_folder(root, "1"))
    said = {"markup": 0.2, "payment_value": 0.08, "privacy_weight": 2.5}
    (path / "private.json").write_text(json.dumps(said | own))
    with pytest.raises(BadInput, match="give numbers for privacy_cost, markup"):
        played(scenario(images, **ONCE), tmp_path / "run", root)


def test_an_owner_that_has_run_dry_takes_no_part(images: Path, tmp_path: Path) -> None:
    """First it sells less, then it does not train at all; nobody passes its budget."""
    root = tmp_path / "consortium"
    free = played(scenario(images, **ONCE), tmp_path / "free", tmp_path / "others")
    budget = 1.5 * max(owner.rho for owner in free.owners)
    made = scenario(images, **ONCE, rho_budget=budget)
    sigmas, left_out, said = [], [], list[list[str]]()
    for number in range(6):
        try:
            outcome = played(made, tmp_path / str(number), root)
        except NoisemarketError:  # nobody is left
            left_out.append(3)
            break
        said.append(budgets_said(outcome, MarketFolder(tmp_path / str(number)), root))
        sigmas.append([owner.sigma for owner in outcome.owners if owner.state != LEFT_OUT])
        left_out.append(sum(owner.state == LEFT_OUT for owner in outcome.owners))
    assert sigmas[1] > sigmas[0], "what is left buys less"
    assert budgets_said(free, MarketFolder(tmp_path / "free"), tmp_path / "others") == []
    assert said[1] == ["1 of 3 owners' wallets allow no more: 2."]
    assert sigmas[1][2] > sigmas[0][2]
    more = replace(outcome.negotiation, scenario=scenario(images, **ONCE, rho_budget=9 * budget))
    told = budgets_said(replace(outcome, negotiation=more), MarketFolder(tmp_path / "0"), root)
    assert told[0].startswith(
        f"3 of 3 owners keep a budget of their own, not rho_budget={9 * budget:g}"
    )
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


def test_the_account_of_a_folder(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line: jobs, what they cost and brought, what is left, and what it covers."""
    root = tmp_path / "consortium"
    made = scenario(images, **ONCE, rho_budget=1e4, currency="EUR")
    outcomes = [played(made, tmp_path / name, root) for name in ("one", "two")]
    document = told(capsys, "owner", "account", str(owner_folder(root, "1")), "--json")
    (owner,) = document["owners"]
    (account,) = owner["accounts"]
    rho = math.fsum(outcome.owners[1].rho for outcome in outcomes)
    assert account["rho"] == pytest.approx(rho)
    assert account["left"] == pytest.approx(1e4 - rho)
    assert owner["paid_micro"] == sum(outcome.owners[1].paid_micro or 0 for outcome in outcomes)
    assert [row["state"] for row in account["each_job"]] == ["closed", "closed"]
    held = outcomes[0].statements[1]
    at = {one["sigma"]: one["rounds"] for one in account["could_sell"]}
    cost = held.rho_per_round * (held.sigma / 0.3) ** 2
    assert at[0.3] == math.floor(account["left"] / cost)
    total = told(capsys, "ledger", "statement", str(root), "1", "--json")["totals"]
    assert [one["rho"] for one in total] == [pytest.approx(rho)]
    assert owner["money_micro"] == {"EUR": owner["paid_micro"]}
    main_quietly("owner", "account", str(owner_folder(root, "1")))
    assert f"Paid in all: {in_words(owner['paid_micro'], 'EUR')}." in capsys.readouterr().out
    main_quietly("owner", "account", str(root))
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["owner", "0", "1", "2"]
    main_quietly("ledger", "ls", str(root))
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]
    (head,) = (at for at, row in enumerate(listed) if row[:3] == ["contract", "job", "owner"])
    runs = [job_name(tmp_path / name)[:12] for name in ("one", "two")]
    assert sorted(row[1] for row in listed[head + 1 :]) == sorted(3 * runs)
    for words, names in (
        (("ledger", "statement", str(root), "9"), "owners are 0, 1, 2."),
        (("owner", "account", str(root / "1")), "owner-0, "),
    ):
        with pytest.raises(SystemExit):
            main(list(words))
        assert names in " ".join(capsys.readouterr().err.split())


def test_a_currency_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"job": "one", "state": "closed", "rounds": 1, "rho": 1.0, "epsilon": 1.0}
    row |= {"paid_micro": 2_000_000, "currency": "[/b]"}
    account = {"records": "", "jobs": 1, "rho": 1.0, "epsilon": 1.0, "reserved": 0.0, "left": None}
    account |= {"could_sell": [], "each_job": [row]}
    owner = {"owner": "anna", "neighbours": "add_one", "delta": 1e-5, "rho": 1.0, "epsilon": 1.0}
    owner |= {"money_micro": {"[/b]": 2_000_000}, "accounts": [account], "rho_budget": None}
    for owners in ([owner], [owner, owner]):
        show(False, None, *accounts_shown({"owners": owners}))
        assert capsys.readouterr().out.count("2.00 [/b]") == 2


def test_a_wallet_that_lacks_a_signed_job_is_refused(images: Path, tmp_path: Path) -> None:
    """Also where its note was put back with it: the contracts are still there."""
    root, made = tmp_path / "consortium", scenario(images, **ONCE)
    played(made, tmp_path / "one", root)
    own = owner_folder(root, "1")
    before = {path: path.read_bytes() for path in own.glob("wallet-*")}
    played(made, tmp_path / "two", root)
    for path, content in before.items():
        path.write_bytes(content)
    with pytest.raises(BadInput, match="whose contract is here: it was put back"):
        owner_account(own)
    third = played(made, tmp_path / "three", root)
    assert [row.state for row in third.owners] == ["paid", "left out", "paid"]
    assert third.owners[1].reason.endswith("the owner's wallet was put back to an earlier state")
    *_, said = write_accounts(RunFolder(tmp_path / "three"), root)
    assert "whose contract is here: it was put back" in said
    kept = json.loads((tmp_path / "three" / "accounts.json").read_text())["owners"]
    assert [*kept] == ["0", "2"]


def test_the_wallet_of_another_owner_is_named(images: Path, tmp_path: Path) -> None:
    root = tmp_path / "consortium"
    played(scenario(images, **ONCE), tmp_path / "one", root)
    (own,), (foreign,) = (owner_folder(root, name).glob("wallet-*.jsonl") for name in "12")
    own.write_bytes(foreign.read_bytes())
    with pytest.raises(BadInput, match="is of another owner or of other records"):
        owner_account(own.parent)


def keep_contract(folder: OwnerFolder, offered: datetime) -> None:
    one = contract(job="job", owner="anna", offered_at=offered.isoformat())
    folder.keep_contract(sign(one))


def test_a_job_that_has_lapsed_is_no_sign_of_an_earlier_wallet(tmp_path: Path) -> None:
    """Whenever its files were written last, and whatever a curator's clock says."""
    folder = OwnerFolder("anna", private_folder(tmp_path / "anna"))
    for offered in (datetime.now(UTC) - HELD + AHEAD, datetime.now(UTC) + AHEAD):
        keep_contract(folder, offered)
        folder.check_wallet(folder.wallet())


def test_a_wallet_that_lacks_what_an_open_job_has_spent_is_refused(tmp_path: Path) -> None:
    folder = OwnerFolder("anna", private_folder(tmp_path / "anna"))
    wallet, terms = folder.wallet(), PrivacyBudget("anna", "per_record", 0.1, 0.02, rho_cap=0.5)
    wallet.reserve("job", terms, "2999-01-01T00:00:00+00:00", 1.0)
    empty = {path: path.read_bytes() for path in folder.path.glob("wallet-*")}
    wallet.hold("job")
    keep_contract(folder, datetime.now(UTC))
    os.utime(folder.job("job") / "contract.json", (0, 0))  # as in a copy without times
    wallet.spend("job", 1, "one", 0.1)
    folder.keep_release("job", "one", 1, {"weights": np.zeros(1)})
    folder.check_wallet(wallet)
    for path, content in empty.items():
        path.write_bytes(content)
    with pytest.raises(Declined, match="put back to an earlier state"):
        folder.check_wallet(wallet)
    for path in empty:
        path.unlink()
    with pytest.raises(Declined, match="put back to an earlier state"):
        folder.check_wallet(wallet)


def test_a_run_is_verified_with_the_contracts_of_lasting_owners(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, run = tmp_path / "consortium", tmp_path / "one"
    played(scenario(images, **ONCE), run, root)
    RunFolder(run).note(owners_folder=str(root))
    main_quietly("ledger", "verify", str(run))
    said = " ".join(capsys.readouterr().out.split())
    assert "12 receipts and 3 contracts of owners" in said
    (file,) = root.glob("owner-1/jobs/*/contract.json")
    kept = json.loads(file.read_text())
    kept["contract"]["payment"] += 1
    file.write_text(json.dumps(kept))
    with pytest.raises(SystemExit) as end:
        main(["ledger", "verify", str(run)])
    assert end.value.code != 0
    assert "does not hold the contract in" in " ".join(capsys.readouterr().err.split())


def test_other_records_are_said_aloud(images: Path, tmp_path: Path) -> None:
    root = tmp_path / "consortium"
    for number in (1, 2):  # another seed deals other records
        played(scenario(images, **ONCE, seed=number), tmp_path / str(number), root)
    said = write_accounts(RunFolder(tmp_path / "2"), root)
    assert said[1].startswith("3 of 3 owners have other records than in earlier jobs")
    shown = accounts_shown({"owners": [owner_account(owner_folder(root, "0"))]})
    assert any("Other records, so another account" in str(one) for one in shown)


def main_quietly(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 0


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    main_quietly(*words)
    return dict(json.loads(capsys.readouterr().out))
