"""A journal read again after a crash at any byte knows of every charge that was acted upon."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.privacy.accountant import (
    Accountant,
    BudgetSpent,
    Charge,
    JournalledAccountant,
    PrivacyBudget,
    read_journal,
)

BUDGETS = (
    PrivacyBudget(0, "sharded", sigma=0.3, sensitivity=2 / 64, rho_cap=0.1),
    PrivacyBudget("b", "paper", sigma=0.3, sensitivity=float("inf")),
)
RHO = BUDGETS[0].rho_per_round


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with this one's import path."""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=path
    )


def copy_of(accountant: Accountant) -> Accountant:
    copied = Accountant(accountant.budgets)
    copied.charge_all(accountant.charges)
    return copied


def fill(path: Path) -> list[tuple[int, Accountant]]:
    """Six calls; after each, the file's size and what the ledger then was."""
    history = []
    with JournalledAccountant(path, BUDGETS) as accountant:
        history.append((path.stat().st_size, copy_of(accountant)))
        for number in (1, 2, 3):
            accountant.charge(0, number, RHO, f"first-{number}")
            history.append((path.stat().st_size, copy_of(accountant)))
            accountant.charge_all(
                [
                    Charge(0, number, RHO, f"again ☂ {number}"),
                    Charge("b", number, float("inf"), f"x\n{number}"),
                ]
            )
            history.append((path.stat().st_size, copy_of(accountant)))
    return history


@pytest.mark.slow
def test_a_crash_at_any_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that was acted upon counts, and the job goes on under the same cap."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # four thousand of them take long
    path = tmp_path / "journal"
    history = fill(path)
    content = path.read_bytes()
    torn = tmp_path / "torn"
    for size in range(len(content) + 1):
        torn.write_bytes(content[:size])
        # A charge counts as soon as its line is whole, also without the line end.
        acted_upon = [ledger for end, ledger in history if end - 1 <= size]
        acted_upon = acted_upon or [Accountant(BUDGETS)]
        with JournalledAccountant(torn, BUDGETS) as resumed:
            assert resumed.charges == acted_upon[-1].charges
            known = resumed.charged(0, 2, "first-2")
            assert resumed.charge(0, 2, RHO, "first-2") is not known  # the same bits: once
            before = resumed.spent(0)
            resumed.charge(0, 2)  # new bits: again
            assert resumed.spent(0) == pytest.approx(before + RHO)
            state = resumed.budgets, resumed.charges
        again = read_journal(torn)
        assert (again.budgets, again.charges) == state


def test_every_charge_is_on_disk_before_it_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for size, ledger in fill(path):
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes()[:size])
        assert read_journal(copy).charges == ledger.charges


def test_the_cap_holds_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    charged = 0
    while True:
        with JournalledAccountant(path, BUDGETS) as accountant:
            if not accountant.may_start(0):
                break
            accountant.charge(0, 1)
            charged += 1
    assert charged == int(0.1 / RHO)
    with JournalledAccountant(path, BUDGETS) as accountant:
        with pytest.raises(BudgetSpent):
            accountant.charge(0, 2)
        assert accountant.spent(0) <= 0.1
    assert read_journal(path).statement(0).releases == charged


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.process
def test_a_killed_process_leaves_its_charges(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    fill(path)
    code = f"""
import os, signal
from noisemarket.privacy.accountant import JournalledAccountant, read_journal
accountant = JournalledAccountant({str(path)!r}, read_journal({str(path)!r}).budgets)
accountant.charge(0, 7, None, "last words")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert python(code).returncode == -9  # SIGKILL
    with JournalledAccountant(path, BUDGETS) as resumed:
        assert resumed.charged(0, 7, "last words")


def test_caps_cannot_change_under_way(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    fill(path)
    before = path.read_bytes()
    raised = (PrivacyBudget(0, "sharded", sigma=0.3, sensitivity=2 / 64, rho_cap=9.9), BUDGETS[1])
    with pytest.raises(BadInput, match="other budgets"):
        JournalledAccountant(path, raised)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"my diary", b"my\ndiary\n", b"[1]\n", b'{"budgets": [{}]}\n', b"\xff\n", b"{}", b"\0\0"],
)
def test_foreign_files_stay_as_they_are(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not a privacy journal"):
        JournalledAccountant(path, BUDGETS)
    with pytest.raises(BadInput, match="not a privacy journal"):
        read_journal(path)
    assert path.read_bytes() == content


def test_a_journal_that_does_not_say_its_job_is_of_none(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    *_, (_, last) = fill(path)
    header, lines = path.read_bytes().split(b"\n", 1)
    said = {"budgets": json.loads(header)["budgets"]}
    path.write_bytes(json.dumps(said).encode() + b"\n" + lines)
    assert read_journal(path).charges == last.charges
    with JournalledAccountant(path, BUDGETS) as resumed:
        assert (resumed.charges, resumed.job, resumed.made_by) == (last.charges, "", "")
    with pytest.raises(BadInput, match="of another job"):
        JournalledAccountant(path, BUDGETS, job="job-1")


def test_damage_in_the_middle_is_not_guessed_away(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    fill(path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:-5]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(BadInput, match="line 3"):
        JournalledAccountant(path, BUDGETS)


def test_blank_blocks_after_a_power_cut_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    *_, (_, last) = fill(path)
    with path.open("ab") as file:
        file.write(bytes(512))
    with JournalledAccountant(path, BUDGETS) as resumed:
        assert resumed.charges == last.charges


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        JournalledAccountant(tmp_path / "no" / "folder", BUDGETS)
    with pytest.raises(BadInput, match="cannot be used"):
        read_journal(tmp_path / "none")


def test_a_full_disk_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    with JournalledAccountant(path, BUDGETS) as accountant:
        with monkeypatch.context() as patch:

            def fail(descriptor: int) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            patch.setattr(os, "fsync", fail)
            with pytest.raises(NoisemarketError, match="No space left"):
                accountant.charge(0, 1)
        assert accountant.spent(0) == 0.0
        with pytest.raises(NoisemarketError, match="open it again"):
            accountant.charge(0, 1)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
@pytest.mark.process
def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    fill(path)
    code = f"""
from noisemarket.errors import BadInput
from noisemarket.privacy.accountant import JournalledAccountant, read_journal
try:
    JournalledAccountant({str(path)!r}, read_journal({str(path)!r}).budgets)
except BadInput as problem:
    print(problem)
"""
    with JournalledAccountant(path, BUDGETS):
        done = python(code)
    assert "in use by another job" in done.stdout


def test_a_forked_child_may_not_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with JournalledAccountant(tmp_path / "journal", BUDGETS) as accountant:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(NoisemarketError, match="open it again"):
            accountant.charge(0, 1)
