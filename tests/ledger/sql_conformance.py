"""What a ledger in a database must hold besides: guards, tampering with its tables, and schema."""

from typing import Any

import pytest
from tests.ledger.common import NOW, Job, changed, contract, key
from tests.ledger.conformance import LedgerConformance, opened
from tests.ledger.tampering import (
    COLUMNS,
    Rows,
    change_body,
    cut_to_a_seal,
    execute,
    first,
    read,
    rewrite,
    tamper,
    write,
)

from noisemarket.errors import BadInput, LedgerBroken, LedgerError
from noisemarket.ledger import entries, store
from noisemarket.ledger.keys import CURATOR, OWNER, SignedContract
from noisemarket.ledger.store import Ledger
from noisemarket.ledger.verification import verify

TABLE = "noisemarket_entries"


class SqlConformance(LedgerConformance):
    """The suite for every database."""

    # Guards, and what is found when they are gone

    def test_the_database_refuses_changes(self, place: str, ledger: Ledger, job: Job) -> None:
        for statement in (
            f"UPDATE {TABLE} SET body = '{{}}' WHERE seq = 2",
            f"DELETE FROM {TABLE} WHERE seq = 3",
            f"DELETE FROM {TABLE}",
            "UPDATE noisemarket_head SET length = length - 1",
            "DELETE FROM noisemarket_head",
        ):
            with pytest.raises(Exception, match="only grows"):
                execute(place, statement)
        verify(ledger)

    @pytest.mark.parametrize("which", ["first", "middle", "last"])
    def test_an_edited_field_or_a_deleted_entry_is_found(
        self, place: str, ledger: Ledger, job: Job, which: str
    ) -> None:
        count = ledger.head().count
        seq = {"first": 1, "middle": count // 2, "last": count}[which]
        kept = read(place)
        for column in COLUMNS[1:]:
            other = f"coalesce({column}, '') || '0'"
            tamper(place, f"UPDATE {TABLE} SET {column} = {other} WHERE seq = {seq}")
            with pytest.raises(LedgerBroken) as found:
                verify(ledger)
            assert found.value.seq == seq, column
            write(place, kept)
        tamper(place, f"DELETE FROM {TABLE} WHERE seq = {seq}")
        with pytest.raises(LedgerBroken, match="missing") as found:
            verify(ledger)
        assert found.value.seq == seq
        write(place, kept)
        verify(ledger)

    def test_all_deleted_is_found(self, place: str, ledger: Ledger, job: Job) -> None:
        tamper(place, f"DELETE FROM {TABLE}")
        with pytest.raises(LedgerBroken, match="entry 1 is missing"):
            verify(ledger)

    def test_reordered_entries_are_found(self, place: str, ledger: Ledger, job: Job) -> None:
        tamper(
            place,
            f"UPDATE {TABLE} SET seq = -1 WHERE seq = 4",
            f"UPDATE {TABLE} SET seq = 4 WHERE seq = 5",
            f"UPDATE {TABLE} SET seq = 5 WHERE seq = -1",
        )
        with pytest.raises(LedgerBroken, match="entry 4"):
            verify(ledger)

    @pytest.mark.parametrize("seq", ["0", "(SELECT length + 1 FROM noisemarket_head)"])
    def test_an_inserted_entry_is_found(
        self, place: str, ledger: Ledger, job: Job, seq: str
    ) -> None:
        tamper(
            place,
            f"INSERT INTO {TABLE} SELECT {seq}, job, kind, contract, 'x', body, recorded_at, "
            f"previous, hash FROM {TABLE} WHERE seq = 3",
        )
        with pytest.raises(LedgerBroken, match="does not count it"):
            verify(ledger)

    def test_a_lost_or_changed_head_is_found(self, place: str, ledger: Ledger, job: Job) -> None:
        tamper(place, f"UPDATE noisemarket_head SET hash = '{'0' * 64}'")
        with pytest.raises(LedgerBroken, match="head"):
            verify(ledger)
        tamper(place, "DELETE FROM noisemarket_head")
        with pytest.raises(LedgerBroken, match="head"):
            verify(ledger)
        for use in (ledger.head, lambda: ledger.append(Job.of(job="other").opening())):
            with pytest.raises(LedgerError, match="lost its head"):
                use()

    @pytest.mark.parametrize("form", [lambda head: head, str, lambda head: head.hash])
    def test_a_noted_head_finds_what_was_cut_off(
        self, place: str, ledger: Ledger, job: Job, form: Any
    ) -> None:
        noted = form(ledger.head())
        verify(ledger, noted)
        rewrite(place, cut_to_a_seal)
        verify(ledger)  # in itself it is sound again: it ends before the job was settled
        with pytest.raises(LedgerBroken, match="cut off"):
            verify(ledger, noted)

    def test_a_noted_head_holds_after_growth_and_finds_a_rewritten_past(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        noted = ledger.head()
        Job.of(job="later").begin(ledger)
        verify(ledger, noted)
        verify(ledger, noted.hash)

        def other_statistic(rows: Rows) -> None:
            row = first(rows, "delivered")
            change_body(row, statistic=0.0)

        rewrite(place, other_statistic, key("curator"))
        verify(ledger)  # by the curator itself: nobody can see it from inside
        with pytest.raises(LedgerBroken, match=f"entry {noted.count} is not the one"):
            verify(ledger, noted)

    # A chain that was made to fit again is still held against its own sense.

    def test_a_forged_signature_in_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        def forge(rows: Rows) -> None:
            row = first(rows, "signed")
            change_body(row, owner_signature="ab" * 64)

        rewrite(place, forge, key("curator"))
        with pytest.raises(LedgerBroken, match="signature"):
            verify(ledger)

    def test_a_sweeter_contract_in_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        """The payment is raised everywhere, and the id with it; only the signatures are not."""
        old = job.contracts[1]
        new = changed(old, payment=2 * old.payment)

        def sweeten(rows: Rows) -> None:
            for row in rows:
                for name in ("contract", "once"):
                    row[name] = row[name] and row[name].replace(old.id, new.id)
                if row["contract"] == new.id and row["kind"] == "offered":
                    row["body"] = entries.offered(new).body
                if row["contract"] == new.id and row["kind"] == "paid":
                    change_body(row, amount=new.payment)
                if row["kind"] == "settled":
                    change_body(row, total=16_666_666 + old.payment)

        rewrite(place, sweeten, key("curator"))
        with pytest.raises(LedgerBroken, match="not signed by its owner"):
            verify(ledger)

    def test_a_changed_sense_in_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        kept = read(place)
        attacks: list[tuple[str, dict[str, Any], str]] = [
            ("paid", {"amount": 10_000_001}, "where the contract says"),
            ("paid", {"amount": -1}, "not negative"),
            ("paid", {"amount": 2.0**80}, "whole number"),
            ("opened", {"budget": 100}, "budget"),
            ("verified", {"delivered": 2}, "counts 2"),
            ("verified", {"kept": True}, "found kept"),
            ("settled", {"total": 1}, "a sum other"),
            ("delivered", {"round": 9}, "round 9"),
            ("delivered", {"rho": -1.0}, "negative rho"),
            ("delivered", {"rho": 0.0}, "0.002 a round"),
            ("delivered", {"rho": 1e9}, "cap"),
            ("missed", {"rho": 1.0}, "cap"),
            ("opened", {"curator_key": ["x"]}, "not a public key"),
            ("missed", {"reason": None}, "no reason"),
            ("offered", {"extra": 1}, "exactly"),
        ]
        for kind, changes, said in attacks:
            write(place, kept)
            change: Any = lambda rows, k=kind, c=changes: change_body(first(rows, k), **c)  # noqa: E731
            rewrite(place, change, key("curator"))
            with pytest.raises(LedgerBroken, match=said):
                verify(ledger)

    def test_another_jobs_name_in_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        def rename(rows: Rows) -> None:
            for row in rows:
                row["job"] = "job-2"

        rewrite(place, rename, key("curator"))
        with pytest.raises(LedgerBroken, match=r"entry 3 .* another job, job-1"):
            verify(ledger)

    def test_a_noted_key_finds_a_chain_of_other_keys(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        noted, thief = key("curator").public_hex, key("mallory")
        assert verify(ledger).curator_keys == (noted,)
        assert verify(ledger, curator_keys=[noted.upper()]).curator_keys == (noted,)
        forged = contract(owner_key=thief.public_hex, curator_key=thief.public_hex)
        both = SignedContract(forged, thief.sign(OWNER, forged), thief.sign(CURATOR, forged))
        new = [
            entries.opened(job.name, 10**9, thief.public_hex, {"north": thief.public_hex}),
            entries.offered(forged),
            entries.signed(both),
        ]

        def replaced(rows: Rows) -> None:
            said = ("job", "kind", "contract", "once", "body")
            about = [{name: getattr(entry, name) for name in said} for entry in new]
            about.append({**dict.fromkeys(said), "job": job.name, "kind": "sealed"})
            rows[:] = [{**one, "recorded_at": NOW} for one in about]

        rewrite(place, replaced, thief)
        assert verify(ledger).curator_keys == (thief.public_hex,)  # in itself it is sound
        with pytest.raises(LedgerBroken, match=f"entry 1 .* key: {thief.public_hex}"):
            verify(ledger, curator_keys=[noted])
        verify(ledger, curator_keys=[noted, thief.public_hex])

    def test_an_entry_taken_out_of_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        kept = read(place)
        for kind, said in (
            ("opened", "not opened"),
            ("offered", "not offered"),
            ("signed", "not signed"),
            ("delivered", "counts 3"),
            ("verified", "not verified"),
            ("paid", "still open"),
        ):
            write(place, kept)
            rewrite(place, lambda rows, k=kind: rows.remove(first(rows, k)), key("curator"))
            with pytest.raises(LedgerBroken, match=said):
                verify(ledger)

    def test_a_second_payment_in_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        def pay_again(rows: Rows) -> None:
            number = next(i for i, row in enumerate(rows) if row["kind"] == "paid")
            rows.insert(number + 1, {**rows[number], "once": "again"})

        rewrite(place, pay_again, key("curator"))
        with pytest.raises(LedgerBroken, match="closed"):
            verify(ledger)

    def test_the_same_contract_twice_in_a_rewritten_chain(
        self, place: str, ledger: Ledger, job: Job
    ) -> None:
        """Its whole story again, after it was closed: the state machine alone would believe it."""
        of = job.contracts[1].id

        def again(rows: Rows) -> None:
            story = [dict(row) for row in rows if row["contract"] == of]
            rows[-2:-2] = story
            change_body(rows[-2], total=26_666_666, contracts_paid=3)

        if "://" in place:
            execute(place, f"ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_job_once_key")
            rewrite(place, again, key("curator"))
            with pytest.raises(LedgerBroken, match="second time"):
                verify(ledger)
        else:  # SQLite cannot drop the constraint without a new table: it refuses
            with pytest.raises(Exception, match="UNIQUE"):
                rewrite(place, again, key("curator"))

    # Schema

    @pytest.mark.parametrize("create", [True, False])
    def test_a_ledger_of_another_version_is_refused(self, place: str, create: bool) -> None:
        opened(place).close()
        execute(place, "UPDATE noisemarket_schema SET version = 99")
        with pytest.raises(BadInput, match=r"has schema 99 and this noisemarket reads schema \d"):
            opened(place, create=create)

    def test_a_ledger_that_cannot_be_created_leaves_nothing(
        self, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dialect = "postgresql" if "://" in place else "sqlite"
        broken = (*store._GUARDS[dialect], "SELECT * FROM there_is_no_such_table")
        monkeypatch.setitem(store._GUARDS, dialect, broken)
        with pytest.raises(LedgerError, match=r"no.such.table"):
            opened(place)
        with pytest.raises(Exception, match=TABLE):
            execute(place, f"SELECT * FROM {TABLE}")
        monkeypatch.undo()
        opened(place).close()
