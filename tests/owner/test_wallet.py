"""An owner's wallet: never over its budget, whatever is asked; nothing lost, nothing kept."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisemarket.errors import BadInput
from noisemarket.owner.wallet import HELD, Balance, Wallet
from noisemarket.privacy.accountant import BudgetSpent, PrivacyBudget

RECORDS = "ab" * 32
NOW = datetime(2030, 1, 1, tzinfo=UTC)
HISTORIES = int(os.environ.get("NOISEMARKET_FUZZ", "60"))


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def later(self, **time: float) -> str:
        return (self.now + timedelta(**time)).isoformat()


def terms(rho: float, rounds: int = 10) -> PrivacyBudget:
    """Terms of a job that costs ``rho`` in so many rounds."""
    sensitivity = math.sqrt(2.0 * rho / rounds)
    return PrivacyBudget("anna", "per_record", 1.0, sensitivity, rho_cap=rho)


def wallet_in(folder: Path, clock: Callable[[], datetime] | None = None) -> Wallet:
    return Wallet(folder, "anna", RECORDS, clock or Clock())


def test_accounts_of_other_records_share_the_budget(tmp_path: Path) -> None:
    """A record may be in both sets: deleting a line of a file does not refill the budget."""
    clock = Clock()
    first, end = wallet_in(tmp_path, clock), clock.later(days=1)
    first.reserve("one", terms(0.5), end, 1.0)
    first.hold("one")
    first.spend("one", 1, "bits", 0.05)
    second = Wallet(tmp_path, "anna", "cd" * 32, clock)
    assert second.left(1.0) == 0.5
    with pytest.raises(BudgetSpent, match=r"needs 0\.6, and 0\.5 is left"):
        second.reserve("two", terms(0.6), end, 1.0)
    second.reserve("two", terms(0.4), end, 1.0)
    first.free("one")
    assert first.left(1.0) == pytest.approx(0.55)
    assert second.left(1.0, "two") == pytest.approx(0.95)
    assert second.left(math.inf) == math.inf


def test_records_without_a_bound_leave_nothing_for_others(tmp_path: Path) -> None:
    clock = Clock()
    first, end = wallet_in(tmp_path, clock), clock.later(days=1)
    first.reserve("one", PrivacyBudget("anna", "paper", 1.0, math.inf), end, math.inf)
    second = Wallet(tmp_path, "anna", "cd" * 32, clock)
    assert second.left(1.0) == 0.0
    with pytest.raises(BudgetSpent):
        second.reserve("two", terms(0.1), end, 1.0)


def test_a_job_is_reserved_spent_and_freed(tmp_path: Path) -> None:
    clock = Clock()
    wallet = wallet_in(tmp_path, clock)
    wallet.reserve("one", terms(0.5), clock.later(hours=1), 1.0)
    wallet.reserve("one", terms(0.5), clock.later(hours=1), 1.0)
    held = wallet.account()
    assert (held.reserved, held.spent, held.jobs) == (0.5, 0.0, 1)
    assert held.left(1.0) == 0.5
    assert held.left(1.0, "one") == 1.0
    wallet.hold("one")
    for number in (1, 2, 2, 3):
        wallet.spend("one", number, f"bits {number}", 0.05)
    with pytest.raises(BudgetSpent):
        wallet.spend("one", 4, "bits 4", 0.4)
    assert wallet.account().open["one"].releases == 3
    wallet.free("one")
    wallet.free("one")
    assert wallet.account().left(1.0) == pytest.approx(0.85, abs=1e-12)
    with pytest.raises(BudgetSpent):
        wallet.spend("one", 4, "bits 4", 0.05)
    with pytest.raises(BudgetSpent, match=r"needs 0\.9, and 0\.85 is left"):
        wallet.reserve("two", terms(0.9), clock.later(hours=1), 1.0)
    wallet.reserve("two", terms(0.85), clock.later(hours=1), 1.0)
    assert [line["did"] for line in wallet.history()] == [
        *("reserve", "hold", "spend", "spend", "spend", "free", "reserve"),
    ]


def test_a_reservation_lapses_where_nobody_comes_back(tmp_path: Path) -> None:
    clock = Clock()
    wallet = wallet_in(tmp_path, clock)
    for job in ("offered", "signed"):
        wallet.reserve(job, terms(0.5), clock.later(hours=24), 1.0)
    wallet.hold("signed")
    wallet.spend("signed", 1, "bits", 0.05)
    clock.now += timedelta(hours=25)
    assert wallet.account().reserved == pytest.approx(0.45)
    with pytest.raises(BudgetSpent, match="lapsed"):
        wallet.hold("offered")
    wallet.spend("signed", 2, "more bits", 0.05)
    clock.now += HELD + timedelta(hours=1)
    wallet.reserve("new", terms(0.9), clock.later(hours=1), 1.0)
    assert list(wallet.account().open) == ["new"]
    with pytest.raises(BudgetSpent):
        wallet.spend("signed", 3, "late bits", 0.05)


def test_no_more_jobs_are_open_than_a_line_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    wallet = wallet_in(tmp_path, clock)
    agreed = terms(1e-6)
    wallet.reserve("first", agreed, clock.later(hours=1), math.inf)
    monkeypatch.setattr("noisemarket.owner.wallet.MOST_OPEN", 2)
    wallet.reserve("second", agreed, clock.later(hours=1), math.inf)
    with pytest.raises(BudgetSpent, match="2 jobs have a reservation"):
        wallet.reserve("more", terms(1e-6), clock.later(hours=1), math.inf)


def test_what_bounds_nothing_costs_infinitely_much(tmp_path: Path) -> None:
    clock, nothing = Clock(), PrivacyBudget("anna", "paper", 0.1, math.inf)
    wallet = wallet_in(tmp_path, clock)
    with pytest.raises(BudgetSpent):
        wallet.reserve("one", nothing, clock.later(hours=1), 1e9)
    wallet.reserve("one", nothing, clock.later(hours=1), math.inf)
    wallet.spend("one", 1, "bits", math.inf)
    wallet.free("one")
    assert wallet.account().spent == math.inf
    assert wallet.account().left(1e9) == 0.0
    assert wallet.account().left(math.inf) == math.inf


Step = tuple[str, int, float]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "hold", "spend", "spend", "again", "free", "wait", "torn"]),
        st.integers(0, 3),
        st.floats(1e-6, 0.4),
    ),
    max_size=40,
)


def follow(folder: Path, steps: list[Step]) -> None:
    """Do these steps on a wallet and on a list of what was released, and compare."""
    clock = Clock()
    wallet, budget = wallet_in(folder, clock), 1.0
    released: list[float] = []
    last: dict[str, tuple[int, str, float]] = {}
    for count, (what, which, amount) in enumerate(steps):
        job = f"job {which}"
        try:
            if what == "reserve":
                wallet.reserve(job, terms(amount), clock.later(hours=2), budget)
            elif what == "hold":
                wallet.hold(job)
            elif what == "spend":
                last[job] = count + 1, f"bits {count}", amount / 10
                wallet.spend(job, *last[job])
                released.append(amount / 10)
            elif what == "again" and job in last:
                before = wallet.account().open.get(job)
                wallet.spend(job, *last[job])
                if before is None or before.release != last[job][1]:
                    released.append(last[job][2])
            elif what == "free":
                wallet.free(job)
            elif what == "wait":
                clock.now += timedelta(hours=24 * 40 * amount)
            elif what == "torn" and wallet.path.exists():
                with wallet.path.open("ab") as file:
                    file.write(b'{"wallet": 1, "owner"')
        except (BudgetSpent, BadInput):
            pass
        account = wallet.account()
        assert account.spent == pytest.approx(math.fsum(released), rel=1e-12)
        assert account.spent + account.reserved <= budget * (1 + 1e-9)
    clock.now += HELD + timedelta(days=30)
    assert wallet.account().reserved == 0.0, "kept for ever"
    assert wallet.account().left(budget) == pytest.approx(max(0.0, budget - math.fsum(released)))
    assert sum(line["did"] == "spend" for line in wallet.history()) == len(released)


@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_no_history_passes_the_budget(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    follow(tmp_path_factory.mktemp("wallet"), steps)


def test_the_sum_is_that_of_dp_accounting(tmp_path: Path) -> None:
    clock = Clock()
    wallet, orders = wallet_in(tmp_path, clock), [1.5, 2.0, 8.0, 64.0]
    theirs, ours = RdpAccountant(orders), RdpAccountant(orders)
    for job, (rho, rounds) in enumerate([(0.3, 30), (0.07, 7), (1.1, 11)]):
        agreed = terms(rho, rounds)
        wallet.reserve(str(job), agreed, clock.later(hours=1), 2.0)
        for number in range(1, rounds + 1):
            wallet.spend(str(job), number, f"{job} {number}", agreed.rho_per_round)
        wallet.free(str(job))
        noise = GaussianDpEvent(agreed.noise_multiplier)
        theirs.compose(SelfComposedDpEvent(noise, rounds))
    ours.compose(ZCDpEvent(wallet.account().spent))
    assert ours._rdp == pytest.approx(theirs._rdp, rel=1e-9)


def filled(folder: Path) -> Wallet:
    """A wallet in which a job was done."""
    clock = Clock()
    wallet = wallet_in(folder, clock)
    wallet.reserve("one", terms(0.5), clock.later(hours=1), 1.0)
    wallet.spend("one", 1, "bits", 0.05)
    return wallet


def test_a_copy_from_earlier_is_refused(tmp_path: Path) -> None:
    wallet = filled(tmp_path)
    before = wallet.path.read_bytes()
    wallet.free("one")
    wallet.path.write_bytes(before)
    for use in (wallet.account, lambda: wallet.free("one")):
        with pytest.raises(BadInput, match="put back to an earlier state"):
            use()
    wallet.path.unlink()
    with pytest.raises(BadInput, match="has 0 entries and 3 were noted"):
        wallet.account()


def test_a_foreign_an_old_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    wallet = filled(tmp_path)
    with pytest.raises(BadInput, match="another owner"):
        Wallet(tmp_path, "bob", RECORDS).account()
    with pytest.raises(BadInput, match="other records"):
        Wallet(tmp_path, "anna", RECORDS[:16] + "0" * 48).account()
    lines = wallet.path.read_text().splitlines()
    last = json.loads(lines[-1])
    for changed, words in (
        (last | {"wallet": 0}, "no wallet of this version"),
        (last | {"closed": 0.1}, "damaged in its last line"),
        ({"wallet": 1}, "another owner"),
    ):
        wallet.path.write_text("\n".join([*lines[:-1], json.dumps(changed)]) + "\n")
        with pytest.raises(BadInput, match=words):
            wallet.account()
    wallet.path.write_text("not a wallet\n")
    with pytest.raises(BadInput, match="damaged in line 1"):
        wallet.free("one")
    wallet.path.write_text("not a wallet")
    with pytest.raises(BadInput, match="is not a wallet"):
        wallet.free("one")


def test_a_line_that_was_changed_or_lost_shows_in_the_history(tmp_path: Path) -> None:
    wallet = filled(tmp_path)
    wallet.free("one")
    lines = wallet.path.read_text().splitlines(keepends=True)
    wallet.path.write_text(lines[0] + lines[2])
    with pytest.raises(BadInput, match="lost or changed line 2"):
        list(wallet.history())
    wallet.path.write_text(lines[0] + lines[1].replace("0.", "1.", 1) + lines[2])
    with pytest.raises(BadInput, match="is damaged in line 2"):
        list(wallet.history())


def test_other_records_have_an_account_of_their_own(tmp_path: Path) -> None:
    wallet = filled(tmp_path)
    other = Wallet(tmp_path, "anna", "cd" * 32, wallet.clock)
    assert other.account() == Balance()
    assert other.path != wallet.path


def _in_turns(folder: Path, name: str, jobs: int) -> None:
    wallet = Wallet(folder, "anna", RECORDS)
    for job in range(jobs):
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        try:
            wallet.reserve(f"{name} {job}", terms(0.3), until, 1.0)
        except BudgetSpent:
            continue
        wallet.spend(f"{name} {job}", 1, f"{name} {job}", 0.03)
        if job % 2:
            wallet.free(f"{name} {job}")


@pytest.mark.process
def test_several_processes_take_turns(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    users = [fork.Process(target=_in_turns, args=(tmp_path, str(n), 6)) for n in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
        assert user.exitcode == 0
    account = Wallet(tmp_path, "anna", RECORDS).account()
    spends = [line["rho"] for line in wallet_lines(tmp_path) if line["did"] == "spend"]
    assert account.spent == pytest.approx(math.fsum(spends))
    assert account.spent + account.reserved <= 1.0 + 1e-9


def wallet_lines(folder: Path) -> list[dict[str, object]]:
    return list(Wallet(folder, "anna", RECORDS).history())


def test_after_ten_thousand_jobs_an_operation_costs_what_it_did(tmp_path: Path) -> None:
    """In CPU seconds and in memory; what the disk takes is its own."""
    clock = Clock()
    wallet, agreed = wallet_in(tmp_path, clock), terms(1e-7)

    def seconds(first: int) -> float:
        start = time.process_time()
        for job in range(first, first + 25):
            wallet.reserve(str(job), agreed, clock.later(hours=1), 1.0)
            wallet.free(str(job))
        return (time.process_time() - start) / 50

    few = seconds(0)
    last = wallet.path.read_text().splitlines()[-1] + "\n"
    with wallet.path.open("a") as file:
        file.write(last * 20_000)  # an operation looks no further back than this line
    many = seconds(100)
    assert many < 5e-3
    assert many < 3 * few, "reading the whole file would take a hundred times as long"
    tracemalloc.start()
    wallet.reserve("more", agreed, clock.later(hours=1), 1.0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 500_000
