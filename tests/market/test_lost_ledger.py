"""A ledger that is lost, or put back, is not begun anew and does not pay again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.postgres import Server
from tests.ledger.tampering import cut_to_a_seal, rewrite
from tests.market.common import events, job_name, played, scenario

from noisemarket.cli import main
from noisemarket.errors import BadInput, LedgerBroken, LedgerLost
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.receipts import Receipt, load_receipt
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify, verify_receipt
from noisemarket.market.events import RoundTrained, Signed
from noisemarket.market.offers import RECEIPTS
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training

NOTE = Path("curator") / "head.json"
LOST = "restored from an older backup, and resuming would pay again. Restore a backup"


@pytest.fixture(scope="module")
def made(images: Path) -> Scenario:
    return scenario(images, owners=2, rounds=2, widths=(2, 2, 8))


@pytest.fixture(scope="module")
def settled(made: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settled") / "run"
    played(made, folder)
    return folder


@pytest.fixture
def run(settled: Path, tmp_path: Path) -> Path:
    """A copy of a run folder whose job is settled."""
    return Path(shutil.copytree(settled, tmp_path / "run"))


def forget(run: Path, *, owners: bool) -> None:
    """Leave the heads with the owners only, or with the curator only."""
    for path in run.glob("owners/*/*-receipt.json") if owners else [run / NOTE]:
        path.unlink()


@pytest.mark.parametrize("left_with", ["curator", "owners"])
def test_a_lost_ledger_is_not_begun_anew(made: Scenario, run: Path, left_with: str) -> None:
    forget(run, owners=left_with == "curator")
    backup = (run / "ledger.sqlite").read_bytes()
    (run / "ledger.sqlite").unlink()
    with pytest.raises(LedgerLost, match=LOST) as told:
        played(made, run)
    assert ("curator/head.json" in str(told.value)) == (left_with == "curator")
    assert ("receipt of owner" in str(told.value)) == (left_with == "owners")
    if left_with == "curator":
        assert not (run / "ledger.sqlite").exists()
    (run / "ledger.sqlite").write_bytes(backup)  # as the message says
    played(made, run)


def test_a_settled_job_is_not_run_again_though_all_but_the_statements_is_gone(
    made: Scenario, run: Path
) -> None:
    """Ledger, head, receipts, checkpoint and journal: owners would be charged once for both."""
    gone = ["ledger.sqlite*", "owners/*/*-receipt.json", "owners/privacy.journal"]
    gone += ["curator/head.json", "curator/receipts.jsonl", "curator/checkpoint.npz"]
    for path in [found for pattern in gone for found in run.glob(pattern)]:
        path.unlink()
    with pytest.raises(LedgerLost, match="the statement of owner"):
        played(made, run)
    assert not (run / "owners" / "privacy.journal").exists()


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(["ledger", "verify", str(run)])
    out, err = capsys.readouterr()
    return out + " ".join(err.split())


def test_verifying_a_folder_holds_its_ledger_against_its_other_files(
    made: Scenario, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another run's ledger is sound, and is not this one's; nor is this one's, cut off."""
    job, ledger = job_name(run), (run / "ledger.sqlite").read_bytes()
    assert f"folder: job {job[:12]}, 8 receipts and 2 contracts of owners" in verified(run, capsys)
    other = tmp_path / "other"
    played(made, other)
    (run / "ledger.sqlite").write_bytes((other / "ledger.sqlite").read_bytes())
    assert f"does not hold job {job[:12]} of this folder" in verified(run, capsys)
    (run / "ledger.sqlite").write_bytes(ledger)
    shutil.copy(next(other.glob("owners/*/contract.json")), next(run.glob("owners/*/")))
    assert "does not hold the contract in" in verified(run, capsys)
    rewrite(str(run / "ledger.sqlite"), cut_to_a_seal)
    assert "head.json notes: it was cut off or replaced" in verified(run, capsys)
    (run / "curator" / "head.json").unlink()
    assert "receipts.jsonl notes: it was cut off or replaced" in verified(run, capsys)


@pytest.mark.parametrize("file", [f"curator/{RECEIPTS}", "owners/*/settlement-receipt.json"])
def test_verifying_a_folder_holds_its_ledger_against_receipts_of_other_jobs(
    made: Scenario, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Of another curator, of the same one, and of this job with another payment."""
    for other, key, said in (
        ("stranger", None, "is of another curator than"),
        ("same", run / "curator", "does not hold the contract of"),
    ):
        played(made, tmp_path / other, curator=key)
        shutil.copy(next((tmp_path / other).glob(file)), next(run.glob(file)))
        assert said in verified(run, capsys)
    with open_ledger(run, create=False) as ledger:
        agreed, head = next(contracts(ledger)).contract, ledger.head()
    wrong = Receipt.of(KeyPair.load(run / "curator"), agreed, "settled", head, agreed.payment + 1)
    next(run.glob(file)).write_text(json.dumps(wrong.to_dict()) + "\n")
    assert f"says {agreed.payment + 1}" in verified(run, capsys)


@pytest.mark.parametrize("left_with", ["curator", "owners"])
def test_a_ledger_that_was_put_back_does_not_pay_again(
    made: Scenario, run: Path, left_with: str
) -> None:
    forget(run, owners=left_with == "curator")
    rewrite(str(run / "ledger.sqlite"), cut_to_a_seal)  # before the settlement: sound in itself
    with open_ledger(run, create=False) as ledger:
        before = verify(ledger)
        assert before.jobs_settled == 0
    with pytest.raises(LedgerLost, match=LOST):
        played(made, run)
    with open_ledger(run, create=False) as ledger:
        assert verify(ledger).head == before.head


def test_a_job_that_is_only_signed_is_held_to_its_ledger_too(
    made: Scenario, tmp_path: Path
) -> None:
    stream = events(made, tmp_path)
    assert any(isinstance(event, Signed) for event in stream)
    stream.close()
    forget(tmp_path, owners=False)
    (tmp_path / "ledger.sqlite").unlink()
    with pytest.raises(LedgerLost, match="receipt of owner"):
        played(made, tmp_path)


def test_a_ledger_on_a_server_that_was_put_back(
    made: Scenario, images: Path, tmp_path: Path, server: Server
) -> None:
    place = server.new_place()
    given = {"owners": 2, "rounds": 2, "widths": (2, 2, 8)}
    there = scenario(images, ledger=place, **given)
    played(there, tmp_path)
    rewrite(place, cut_to_a_seal)
    with pytest.raises(LedgerLost, match=LOST):
        played(there, tmp_path)


def test_a_note_that_cannot_be_read_is_told(made: Scenario, run: Path) -> None:
    for damage in ("", "[]", "{}", '{"head": "1:x"}', '{"head": 1}'):
        (run / NOTE).write_text(damage)
        with pytest.raises(BadInput, match=r"noted head .*head\.json cannot be read"):
            played(made, run)


def test_the_receipt_of_a_stranger_is_no_ones_word(
    made: Scenario, run: Path, tmp_path: Path
) -> None:
    """Whoever can write to an owner's folder cannot stop the job with a head of its own."""
    path = next(run.glob("owners/*/settlement-receipt.json"))
    receipt = load_receipt(path)
    with open_ledger(run, create=False) as ledger:
        agreed = next(
            one.contract for one in contracts(ledger) if one.contract.owner == receipt.owner
        )
    stranger = KeyPair.create(tmp_path / "stranger")
    forged = Receipt.of(stranger, agreed, "settled", type(receipt.noted)(999, "9" * 64), 5)
    path.write_text(json.dumps(forged.to_dict()))
    played(made, run)
    assert load_receipt(path) == receipt


def receipts_of(run: Path) -> Iterator[tuple[Path, Receipt]]:
    for path in sorted(run.glob("owners/*/*-receipt.json")):
        yield path, load_receipt(path)


def test_both_sides_have_receipts_with_both_signatures(run: Path) -> None:
    curator = KeyPair.load(run / "curator").public_hex
    lines = (run / "curator" / RECEIPTS).read_text().splitlines()
    kept = {Receipt.from_dict(json.loads(line)) for line in lines}
    with open_ledger(run, create=False) as ledger:
        paid = {one.contract.owner: one.paid for one in contracts(ledger)}
        found = list(receipts_of(run))
        assert len(found) == 2 * len(paid)
        for path, receipt in found:
            receipt.check(curator, owner=True)
            assert receipt.job == job_name(run)
            assert receipt in kept
            assert receipt.paid == (paid[receipt.owner] if "settlement" in path.name else None)
            assert path.stat().st_mode & 0o077 == 0
            verify(ledger, receipt.noted, curator_keys=[curator])


def test_receipts_that_were_cut_off_in_a_line_go_on_after_the_last_whole_one(
    made: Scenario, run: Path
) -> None:
    """A power cut in the middle of a line loses that line, and none before or after it."""
    path = run / "curator" / RECEIPTS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:50])
    played(made, run)
    lines = path.read_text().splitlines()
    found = {Receipt.from_dict(json.loads(line)) for line in lines}
    assert found >= {receipt for _, receipt in receipts_of(run)}


def test_receipts_are_on_disk_before_the_job_goes_on(
    made: Scenario, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    real = os.fsync

    def fsync(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    played(made, run)
    assert (run / "curator" / RECEIPTS).stat().st_ino in synced


def test_the_curators_own_receipts_hold_the_ledger_too(made: Scenario, run: Path) -> None:
    """Where the noted head and the owners' copies are gone, what they countersigned is left."""
    forget(run, owners=True)
    forget(run, owners=False)
    rewrite(str(run / "ledger.sqlite"), cut_to_a_seal)
    with pytest.raises(LedgerLost, match=LOST):
        played(made, run)
    path = run / "curator" / RECEIPTS
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(BadInput, match=r"receipts .* is damaged in line 1: restore"):
        played(made, run)


def test_the_head_is_noted_after_every_transaction(made: Scenario, tmp_path: Path) -> None:
    stream = events(made, tmp_path)
    for event in stream:
        if isinstance(event, Signed | RoundTrained):
            with open_ledger(tmp_path, create=False) as ledger:
                assert json.loads((tmp_path / NOTE).read_text())["head"] == str(ledger.head())
    stream.close()


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["ledger", "verify", *words])
    return int(end.value.code or 0)


def test_a_receipt_finds_what_no_key_can(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(run / "ledger.sqlite")  # the folder has heads of its own
    curator = KeyPair.load(run / "curator").public_hex
    receipt = str(next(run.glob("owners/*/settlement-receipt.json")))
    signing = str(next(run.glob("owners/*/signing-receipt.json")))
    for file in (receipt, signing):
        assert ended(where, "--receipt", file) == 0
        assert "The receipt holds" in capsys.readouterr().out
    rewrite(where, cut_to_a_seal)
    assert ended(where, "--curator-key", curator) == 0
    assert ended(where, "--receipt", signing) == 0
    capsys.readouterr()
    assert ended(where, "--receipt", receipt) == 1
    said = capsys.readouterr().err
    assert "does not hold entry" in said
    assert len(said.splitlines()) == 1


def test_a_receipt_that_is_none_is_refused_in_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(run.glob("owners/*/settlement-receipt.json"))
    good = json.loads(path.read_text())
    changed = tmp_path / "changed.json"
    for change, said in (
        ({"paid": good["paid"] + 1}, "not signed by the curator"),
        ({"head": f"1:{'0' * 64}"}, "not signed by the curator"),
        ({"stage": "other"}, "is not a receipt"),
        ({"more": 1}, "is not a receipt"),
    ):
        changed.write_text(json.dumps(good | change))
        assert ended(str(run), "--receipt", str(changed)) in (1, 2)
        told = capsys.readouterr().err
        assert said in told
        assert len(told.splitlines()) == 1
    assert ended(str(run), "--receipt", str(tmp_path / "none")) == 2
    assert "cannot be read" in capsys.readouterr().err
    other = KeyPair.create(tmp_path / "other").public_hex
    assert ended(str(run), "--receipt", str(path), "--curator-key", other) == 1


def test_a_curator_that_pays_other_than_it_signed_is_found(run: Path, tmp_path: Path) -> None:
    """The receipt is of this ledger's head, but says something else than the ledger does."""
    receipt = load_receipt(next(run.glob("owners/*/settlement-receipt.json")))
    with open_ledger(run, create=False) as ledger:
        agreed = next(
            one.contract for one in contracts(ledger) if one.contract.owner == receipt.owner
        )
        curator = KeyPair.load(run / "curator")
        more = Receipt.of(curator, agreed, "settled", receipt.noted, (receipt.paid or 0) + 1)
        (tmp_path / "more.json").write_text(json.dumps(more.to_dict()))
        verify_receipt(ledger, receipt)
        with pytest.raises(LedgerBroken, match="pays"):
            verify_receipt(ledger, more)
