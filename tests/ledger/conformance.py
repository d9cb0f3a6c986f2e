"""What a ledger must hold on any database. A test module gets it by saying where one is::

class TestSQLite(LedgerConformance):
    @pytest.fixture
    def place(self, sqlite_place): return sqlite_place
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.ledger import processes
from tests.ledger.common import NOW, Job, contract, key, sign

from noisemarket.errors import BadInput, LedgerConflict, OverBudget
from noisemarket.ledger import entries, queries
from noisemarket.ledger.entries import FIRST, Head
from noisemarket.ledger.keys import CURATOR, OWNER, SignedContract
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.offers import Verdict, settle


def opened(place: str, **options: Any) -> Ledger:
    return open_ledger(place, clock=lambda: NOW, **{"curator": key("curator"), **options})


def story(ledger: Ledger) -> list[tuple[Any, ...]]:
    """All that is recorded, whatever the transactions: each of them has a seal."""
    seals = (entries.SEALED,)
    return [(e.job, e.kind, e.once, e.body) for e in ledger.entries() if e.kind not in seals]


class LedgerConformance:
    """One suite for every database."""

    @pytest.fixture
    def place(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, place: str) -> Iterator[Ledger]:
        with opened(place) as ledger:
            yield ledger

    @pytest.fixture
    def job(self, ledger: Ledger) -> Job:
        """A whole job, settled; the last owner missed a round and the first broke its contract."""
        job = Job.of(["north", "east", "south"])
        job.begin(ledger)
        settle(ledger, job.name, job.verdicts(broken=["north"]))
        return job

    # Appending

    def test_a_new_ledger_is_empty_and_sound(self, ledger: Ledger) -> None:
        assert ledger.head() == Head(0, FIRST)
        assert verify(ledger).entries == 0
        assert verify(ledger, Head(0, FIRST)).entries == 0
        assert list(ledger.entries()) == []

    def test_what_is_appended_is_there_in_order_and_chained(self, ledger: Ledger) -> None:
        job = Job.of()
        given = [*job.opening(), *job.signing(), *job.rounds()]
        recorded = ledger.append(given)
        assert [entry.seq for entry in recorded] == list(range(1, len(given) + 1))
        assert all(entry.says(new) for entry, new in zip(recorded, given, strict=True))
        assert [entry.previous for entry in recorded] == [
            FIRST,
            *(entry.hash for entry in recorded[:-1]),
        ]
        *all_given, seal = ledger.entries()
        assert tuple(all_given) == recorded
        assert (seal.kind, seal.previous) == (entries.SEALED, recorded[-1].hash)
        assert ledger.head() == Head(len(given) + 1, seal.hash)

    def test_it_is_all_there_when_opened_again(self, place: str, ledger: Ledger) -> None:
        Job.of().begin(ledger)
        with opened(place) as again:
            assert list(again.entries()) == list(ledger.entries())
            assert verify(again, ledger.head()).contracts == 2

    def test_the_same_once_key_records_nothing_new(self, ledger: Ledger) -> None:
        job = Job.of()
        first = ledger.append([*job.opening(), *job.signing()])
        again = ledger.append([*job.signing(), *job.rounds()])
        assert again[:4] == first[1:]
        assert ledger.head().count == len(first) + len(job.rounds()) + 2  # and two seals
        head = ledger.head()
        ledger.append([*job.signing(), *job.rounds()])
        assert ledger.head() == head

    def test_twice_in_one_batch_counts_once(self, ledger: Ledger) -> None:
        job = Job.of()
        one, two = ledger.append([*job.opening(), *job.opening()])
        assert one == two
        assert ledger.head().count == 2

    def test_another_body_under_a_once_key_is_a_conflict(self, ledger: Ledger) -> None:
        job = Job.of()
        job.begin(ledger)
        head = ledger.head()
        other = entries.delivered(job.contracts[0], 1, statistic=99.0)
        with pytest.raises(LedgerConflict, match="something else"):
            ledger.append([other])
        with pytest.raises(LedgerConflict, match="something else"):
            ledger.append([entries.missed(job.contracts[0], 1, "no upload")])
        assert ledger.head() == head

    def test_without_the_jobs_key_nothing_is_recorded(self, place: str, ledger: Ledger) -> None:
        job = Job.of()
        ledger.append(job.opening())
        head = ledger.head()
        with (
            opened(place, curator=None) as reader,
            pytest.raises(BadInput, match="open the ledger with the curator's key"),
        ):
            reader.append(job.signing())
        with (
            opened(place, curator=key("mallory")) as other,
            pytest.raises(LedgerConflict, match="opened with another key"),
        ):
            other.append(job.signing())
        with pytest.raises(LedgerConflict, match="did not write itself"):
            ledger.append([entries.NewEntry(job.name, "sealed", None, None, "{}")])
        assert ledger.head() == head

    def test_all_or_nothing(self, ledger: Ledger) -> None:
        job = Job.of()
        ledger.append([*job.opening(), *job.signing()])
        head = ledger.head()
        good, bad = job.rounds()[0], entries.delivered(job.contracts[0], 99)
        with pytest.raises(LedgerConflict, match="round 99"):
            ledger.append([good, bad])
        assert ledger.head() == head
        assert verify(ledger).entries == head.count
        assert ledger.append([good])[0].seq == head.count + 1

    def test_the_ledger_follows_what_others_append(self, place: str, ledger: Ledger) -> None:
        job = Job.of()
        ledger.append([*job.opening(), *job.signing()])
        with opened(place) as other:
            other.append(job.rounds()[:3])
        ledger.append(job.rounds()[3:])
        with pytest.raises(LedgerConflict, match="counts 0 rounds"):
            ledger.append([entries.verified(job.contracts[0], True, 0)])
        settle(ledger, job.name, job.verdicts())
        assert verify(ledger).jobs_settled == 1

    def test_a_large_batch(self, ledger: Ledger) -> None:
        """More once keys than one query asks for, more entries than one page has."""
        owners = 520
        job = Job.of([f"o{number}" for number in range(owners)], rounds=1, payment=0)
        ledger.append([*job.opening(), *job.signing()])
        ledger.append([entries.delivered(one, 1) for one in job.contracts])
        settle(ledger, job.name, [Verdict(one, True, 1) for one in job.contracts])
        assert len(list(queries.contracts(ledger))) == owners
        assert verify(ledger).contracts_paid == owners

    # Sense

    def test_nothing_comes_before_the_offer_nor_before_the_signatures(self, ledger: Ledger) -> None:
        job = Job.of(["north"])
        one = job.contracts[0]
        early = [
            entries.delivered(one, 1),
            entries.verified(one, True, 0),
            entries.paid(one, 0),
            entries.broken(one),
        ]
        ledger.append(job.opening())
        for entry in (entries.signed(sign(one)), *early):
            with pytest.raises(LedgerConflict, match="not offered"):
                ledger.append([entry])
        ledger.append([entries.offered(one)])
        for entry in early:
            with pytest.raises(LedgerConflict, match="that is offered"):
                ledger.append([entry])

    def test_no_job_without_opening_it(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerConflict, match="not opened"):
            ledger.append(Job.of().signing())

    def test_nothing_is_paid_that_was_not_verified(self, ledger: Ledger) -> None:
        job = Job.of()
        job.begin(ledger)
        with pytest.raises(LedgerConflict, match="that is signed, not verified"):
            ledger.append([entries.paid(job.contracts[0], 3)])

    def test_paid_and_broken_exclude_each_other(self, ledger: Ledger) -> None:
        job = Job.of(["north"])
        ledger.append([*job.opening(), *job.signing()])
        one = job.contracts[0]
        ledger.append([entries.verified(one, True, 0), entries.paid(one, 0)])
        with pytest.raises(LedgerConflict, match="something else"):
            ledger.append([entries.broken(one)])

    @pytest.mark.parametrize("kind", ["paid", "broken"])
    def test_the_closing_follows_the_finding(self, ledger: Ledger, kind: str) -> None:
        job = Job.of(["north"])
        one = job.contracts[0]
        ledger.append([*job.opening(), *job.signing(), entries.verified(one, kind == "broken", 0)])
        with pytest.raises(LedgerConflict, match="found"):
            ledger.append([entries.paid(one, 0) if kind == "paid" else entries.broken(one)])

    def test_a_payment_that_is_not_the_contracts(self, ledger: Ledger) -> None:
        job = Job.of(["north"])
        ledger.append([*job.opening(), *job.signing()])
        one = job.contracts[0]
        ledger.append([entries.delivered(one, number) for number in (1, 2, 3)])
        ledger.append([entries.verified(one, True, 3)])
        right = entries.paid(one, 3)
        for amount in (-1, 9_999_999, 10_000_001, 2**53, 2**70, 1.5, True, "1", None):
            with pytest.raises(LedgerConflict):
                ledger.append([replace(right, body=f'{{"amount":{json.dumps(amount)}}}')])
        assert ledger.append([right])[0].content() == {"amount": 10_000_000}

    def test_the_budget_is_a_hard_limit(self, ledger: Ledger) -> None:
        job = replace(Job.of(["north", "east", "south"]), budget=25_000_000)
        ledger.append(job.opening())
        ledger.append([entries.offered(one) for one in job.contracts])
        first, second, third = (entries.signed(sign(one)) for one in job.contracts)
        ledger.append([first, second])
        with pytest.raises(OverBudget, match="budget"):
            ledger.append([third])
        # What a closed contract leaves over is free again.
        one = job.contracts[0]
        ledger.append([entries.verified(one, False, 0), entries.broken(one)])
        ledger.append([third])
        verify(ledger)

    def test_an_expired_contract_is_not_signed(self, place: str, ledger: Ledger) -> None:
        job = Job.of(["north"])
        ledger.append([*job.opening(), entries.offered(job.contracts[0])])
        after = "2030-02-01T00:00:00.001+00:00"
        late = open_ledger(place, clock=lambda: after, curator=key("curator"))
        with late, pytest.raises(LedgerConflict, match="expired"):
            late.append([entries.signed(sign(job.contracts[0]))])

    # Signatures

    def test_a_forged_or_replayed_signature_is_refused(self, ledger: Ledger) -> None:
        one, other = contract(nonce="1"), contract(nonce="2")
        ledger.append([*Job((one,)).opening(), entries.offered(one), entries.offered(other)])
        good, replayed = sign(one), sign(other)
        for forged in (
            replace(good, owner_signature=good.curator_signature),
            replace(good, curator_signature=good.owner_signature),
            replace(good, owner_signature=replayed.owner_signature),
            replace(good, curator_signature=replayed.curator_signature),
            replace(good, owner_signature="00" * 64),
            replace(good, owner_signature=""),
            replace(good, owner_signature=good.owner_signature.upper()),
        ):
            with pytest.raises(LedgerConflict, match="signature"):
                ledger.append([entries.signed(forged)])
        ledger.append([entries.signed(good)])

    def test_a_contract_with_the_wrong_key_is_refused(self, ledger: Ledger) -> None:
        ledger.append(Job.of(["north"]).opening())
        for name in ("owner_key", "curator_key"):
            with pytest.raises(LedgerConflict, match=name.partition("_")[0]):
                ledger.append([entries.offered(contract(**{name: key("mallory").public_hex}))])
        with pytest.raises(LedgerConflict, match="owner's key"):
            ledger.append([entries.offered(contract("stranger"))])

    def test_a_contract_is_of_one_job(self, ledger: Ledger, job: Job) -> None:
        """A contract that was paid cannot be offered again under another job's name."""
        ledger.append(Job.of(["north", "east", "south"], "job-2").opening())
        head = ledger.head()
        story = [entry for entry in ledger.entries(job.name) if entry.contract is not None]
        again = [entries.NewEntry("job-2", e.kind, e.contract, e.once, e.body) for e in story]
        with pytest.raises(LedgerConflict, match=r"contract of another job, job-1\."):
            ledger.append(again)
        with pytest.raises(LedgerConflict, match="not offered"):
            ledger.append(again[len(job.contracts) :])
        assert ledger.head() == head

    # Privacy

    @pytest.mark.parametrize(
        ("rho", "said"), [(0.0, "0.002 a round"), (0.0019, "0.002 a round"), (1e9, "cap of 0.006")]
    )
    def test_rho_is_the_contracts(self, ledger: Ledger, rho: float, said: str) -> None:
        job = Job.of(["north"])
        ledger.append([*job.opening(), *job.signing()])
        one = job.contracts[0]
        for entry in (entries.delivered(one, 1, rho), entries.refused(one, 1, "short", rho)):
            with pytest.raises(LedgerConflict, match=said):
                ledger.append([entry])

    def test_the_cap_counts_every_round(self, ledger: Ledger) -> None:
        job = Job.of(["north"])
        ledger.append([*job.opening(), *job.signing()])
        one = job.contracts[0]
        ledger.append([entries.delivered(one, 1, 0.004), entries.missed(one, 2, "lost", 0.002)])
        for more in (entries.delivered(one, 3), entries.missed(one, 3, "lost", 1e-6)):
            with pytest.raises(LedgerConflict, match=r"above the contract's cap of 0\.006"):
                ledger.append([more])
        ledger.append([entries.missed(one, 3, "took no part")])
        verify(ledger)

    # Settling

    def test_settling_pays_by_the_rule(self, ledger: Ledger, job: Job) -> None:
        paid = {one.contract.owner: one.paid for one in queries.contracts(ledger)}
        assert paid == {"north": 0, "east": 10_000_000, "south": 6_666_666}
        assert [each.state for each in queries.contracts(ledger)] == ["broken", "paid", "paid"]
        (standing,) = queries.jobs(ledger)
        assert (standing.paid, standing.broken, standing.settled) == (16_666_666, 1, True)

    def test_a_second_settlement_changes_nothing(self, ledger: Ledger, job: Job) -> None:
        head = ledger.head()
        settle(ledger, job.name, job.verdicts(broken=["north"]), batch=1)
        assert ledger.head() == head

    @pytest.mark.parametrize("batch", [None, 1])
    def test_a_second_settlement_with_other_verdicts_is_a_conflict(
        self, ledger: Ledger, job: Job, batch: int | None
    ) -> None:
        head = ledger.head()
        for broken in ([], ["north", "east"]):
            with pytest.raises(LedgerConflict):
                settle(ledger, job.name, job.verdicts(broken), batch=batch)
        assert ledger.head() == head

    def test_what_was_settled_before_a_conflict_stays(self, ledger: Ledger) -> None:
        job = Job.of()
        job.begin(ledger)
        good = job.verdicts()
        with pytest.raises(LedgerConflict, match="counts 1 rounds"):
            settle(ledger, job.name, [good[0], replace(good[1], delivered=1)], batch=1)
        assert [each.state for each in queries.contracts(ledger)] == ["paid", "signed"]
        verify(ledger)
        settle(ledger, job.name, good, batch=1)
        assert story(ledger) == self._settled_alone(job)

    def test_nothing_follows_the_settlement(self, ledger: Ledger, job: Job) -> None:
        late = contract(nonce="late")
        for entry in (entries.offered(late), entries.delivered(late, 1)):
            with pytest.raises(LedgerConflict, match="settled"):
                ledger.append([entry])

    def test_verdicts_are_for_all_signed_contracts_and_no_others(self, ledger: Ledger) -> None:
        job = Job.of()
        job.begin(ledger)
        lapsed = contract(nonce="never signed")
        ledger.append([entries.offered(lapsed)])
        good = job.verdicts()
        for wrong, said in (
            (good[:1], "still open: 1"),
            ([*good, good[0]], "other than what was paid"),
            ([*good, Verdict(lapsed, True, 0)], "offered, not signed"),
        ):
            with pytest.raises(LedgerConflict, match=said):
                settle(ledger, job.name, wrong)
        with pytest.raises(LedgerConflict, match="counts 1 rounds"):
            settle(ledger, job.name, [replace(good[0], delivered=1), good[1]])
        settle(ledger, job.name, good)
        assert [each.state for each in queries.contracts(ledger)] == ["paid", "paid", "offered"]
        verify(ledger)

    def test_a_job_is_not_closed_while_contracts_are_open(self, ledger: Ledger) -> None:
        job = Job.of()
        job.begin(ledger)
        with pytest.raises(LedgerConflict, match="still open"):
            ledger.append([entries.settled(job.name, 0, 0, 0)])

    def test_several_jobs_in_one_ledger(self, ledger: Ledger) -> None:
        jobs = [Job.of(job=f"job-{number}") for number in range(3)]
        for job in jobs:
            job.begin(ledger)
        for job in reversed(jobs):
            settle(ledger, job.name, job.verdicts())
        found = verify(ledger)
        assert (found.jobs, found.jobs_settled, found.contracts_paid) == (3, 3, 6)
        assert found.paid == 3 * 16_666_666
        assert len(list(queries.contracts(ledger, "job-1"))) == 2

    def test_a_head_that_is_none(self, ledger: Ledger) -> None:
        for head in ("", "abc", "x:" + "0" * 64, "1:" + "g" * 64):
            with pytest.raises(BadInput):
                verify(ledger, head)

    def test_a_curator_key_that_is_none(self, ledger: Ledger) -> None:
        for wrong in ("", "abc", "g" * 64, "0" * 65):
            with pytest.raises(BadInput, match="64 hexadecimal digits"):
                verify(ledger, curator_keys=[wrong])

    # Processes

    @pytest.mark.process
    def test_processes_that_settle_at_once_pay_once(self, place: str, ledger: Ledger) -> None:
        job = processes.job()
        job.begin(ledger)
        assert processes.run("race", place, "same") == f"{processes.WRITERS}\n"
        found = verify(ledger)
        assert found.contracts_paid == len(job.contracts)
        assert story(ledger) == self._settled_alone(job)

    @pytest.mark.process
    def test_processes_with_different_verdicts_do_not_mix(self, place: str, ledger: Ledger) -> None:
        """One contract is settled in one way, by whoever came first; nobody is paid twice."""
        job = processes.job()
        job.begin(ledger)
        assert int(processes.run("race", place, "different")) == 1
        found = verify(ledger)
        assert (found.contracts_broken, found.jobs_settled) == (1, 1)
        assert found.contracts_paid == len(job.contracts) - 1

    @pytest.mark.process
    def test_killed_in_the_middle_of_a_settlement(self, place: str, ledger: Ledger) -> None:
        job = processes.job()
        job.begin(ledger)
        before = ledger.head()
        assert int(processes.run("kill", place, "1")) >= 5
        verify(ledger, before)  # sound, however far it came
        settle(ledger, job.name, job.verdicts(), batch=1)
        assert verify(ledger).contracts_paid == len(job.contracts)
        assert story(ledger) == self._settled_alone(job)

    @staticmethod
    def _settled_alone(job: Job) -> list[tuple[Any, ...]]:
        """What is recorded when one process does everything, undisturbed."""
        with tempfile.TemporaryDirectory() as folder, opened(f"{folder}/alone.sqlite") as ledger:
            job.begin(ledger)
            settle(ledger, job.name, job.verdicts())
            return story(ledger)

    # Questions

    def test_an_account_has_everything(self, ledger: Ledger, job: Job) -> None:
        south = job.contracts[2]
        found = queries.account(ledger, queries.find_contract(ledger, south.id[:10]))
        assert found.contract == south
        SignedContract(south, found.owner_signature or "", found.curator_signature or "").verify(
            key("south").public_hex, key("curator").public_hex
        )
        assert [(each.round, each.outcome, each.rho, each.reason) for each in found.rounds] == [
            (1, "delivered", 0.002, None),
            (2, "missed", 0.0, "no upload"),
            (3, "delivered", 0.002, None),
        ]
        assert (found.state, found.kept, found.paid) == ("paid", True, 6_666_666)
        north = queries.account(ledger, job.contracts[0].id)
        assert (north.state, north.kept, north.paid) == ("broken", False, 0)
        assert north.evidence == {"p_value": 0.25}

    def test_a_contract_is_found_by_the_beginning_of_its_id(self, ledger: Ledger, job: Job) -> None:
        for wrong, said in (("", "hexadecimal"), ("xyz", "hexadecimal"), ("%", "hexadecimal")):
            with pytest.raises(BadInput, match=said):
                queries.find_contract(ledger, wrong)
        with pytest.raises(BadInput, match="no contract"):
            queries.find_contract(ledger, "0" * 64)
        many = Job.of([f"o{number}" for number in range(20)], job="many")
        ledger.append([*many.opening(), *many.signing()])
        shared = next(
            d for d in "0123456789abcdef" if sum(c.id[0] == d for c in many.contracts) > 1
        )
        with pytest.raises(BadInput, match="more than one"):
            queries.find_contract(ledger, shared)

    def test_signatures_of_both_roles_differ(self) -> None:
        both = contract(owner_key=key("curator").public_hex)
        assert key("curator").sign(OWNER, both) != key("curator").sign(CURATOR, both)
