"""The tamper campaign: 48 edits of a settled job, each made to fit again in all hashes.

Whoever can write to the database, and has none of the keys, can make them. ``JOB`` is of three
owners: ``north`` broke its contract, ``east`` kept it, ``south`` kept it and missed a round.
"""

import json
from collections.abc import Callable
from typing import Any

from tests.ledger.common import Job, changed, contract, key
from tests.ledger.tampering import Rows, change_body, cut_to_a_seal

from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import CURATOR, OWNER, SignedContract

JOB = Job.of(["north", "east", "south"])
NORTH, EAST, SOUTH = JOB.contracts
BROKEN = ["north"]
LATER, EARLIER = "2030-01-03T00:00:00+00:00", "2030-01-01T12:00:00+00:00"

Edit = Callable[[Rows], Any]


def row_of(rows: Rows, kind: str, of: Contract | None = None) -> dict[str, Any]:
    """The first entry of this kind, of this contract if one is given."""
    return next(
        row for row in rows if row["kind"] == kind and (of is None or row["contract"] == of.id)
    )


def says(kind: str, of: Contract | None = None, **changes: Any) -> Edit:
    return lambda rows: change_body(row_of(rows, kind, of), **changes)


def about(**changes: Any) -> Edit:
    """The opening's free part says something else."""
    return says("opened", about=changes)


def moved(kind: str, to: str) -> Edit:
    """The date of an entry is another."""
    return lambda rows: row_of(rows, kind).update(recorded_at=to)


def without(*kinds: str, of: Contract | None = None) -> Edit:
    def edit(rows: Rows) -> None:
        for kind in kinds:
            rows.remove(row_of(rows, kind, of))

    return edit


def becomes(of: Contract, old: str, new: entries.NewEntry) -> Edit:
    """One entry of a contract is another."""
    return lambda rows: row_of(rows, old, of).update(
        kind=new.kind, once=new.once, body=new.body, contract=new.contract
    )


def both(*edits: Edit) -> Edit:
    def edit(rows: Rows) -> None:
        for one in edits:
            one(rows)

    return edit


def settled_as(total: int, paid: int, broken: int) -> Edit:
    return says("settled", total=total, contracts_paid=paid, contracts_broken=broken)


def judged(of: Contract, kept: bool, delivered: int) -> Edit:
    return says("verified", of, kept=kept, delivered=delivered)


def outcome(of: Contract, number: int, new: entries.NewEntry) -> Edit:
    """A round came to something else."""

    def edit(rows: Rows) -> None:
        row = next(one for one in rows if one["once"] == f"round:{of.id}:{number}")
        row.update(kind=new.kind, body=new.body)

    return edit


def erased(rows: Rows) -> None:
    """An owner was never there."""
    rows[:] = [row for row in rows if row["contract"] != EAST.id]
    opened = row_of(rows, "opened")
    keys = json.loads(opened["body"])["owner_keys"]
    change_body(opened, owner_keys={name: keys[name] for name in keys if name != "east"})
    settled_as(6_666_666, 1, 1)(rows)


def swapped(rows: Rows) -> None:
    """Two neighbouring rounds of different owners change places: nothing else depends on it."""
    at = rows.index(row_of(rows, "delivered"))
    rows[at], rows[at + 1] = rows[at + 1], rows[at]


def inserted(rows: Rows) -> None:
    """One more offer, which nobody has to sign."""
    late = entries.offered(contract("north", nonce="late"))
    at = rows.index(row_of(rows, "signed"))
    rows.insert(at, {**rows[at], **{n: getattr(late, n) for n in entries.NewEntry.__slots__}})


def other_seal(rows: Rows) -> None:
    """A seal of another key, in its right form."""
    row_of(rows, "sealed")["body"] = json.dumps(
        {"signature": key("mallory").seal("ledger", b"")}, separators=(",", ":")
    )


def seal_again(rows: Rows) -> None:
    """A seal that was good elsewhere."""
    seals = [row for row in rows if row["kind"] == "sealed"]
    seals[0]["body"] = seals[1]["body"]


def without_seals(rows: Rows) -> None:
    rows[:] = [row for row in rows if row["kind"] != "sealed"]


def another_curator(rows: Rows) -> None:
    """Everything is put under a key of the thief's own, but for the owners' signatures."""
    thief = key("mallory")
    change_body(row_of(rows, "opened"), curator_key=thief.public_hex)


def sold_to_the_thief(rows: Rows) -> None:
    """A whole job of the thief's own, sound in itself but for the curator's seals."""
    thief = key("mallory")
    forged = changed(NORTH, owner_key=thief.public_hex, curator_key=thief.public_hex)
    signed = SignedContract(forged, thief.sign(OWNER, forged), thief.sign(CURATOR, forged))
    new = [
        entries.opened(JOB.name, 10**9, thief.public_hex, {"north": thief.public_hex}),
        entries.offered(forged),
        entries.signed(signed),
    ]
    model = rows[0]
    rows[:] = [{**model, **{n: getattr(e, n) for n in entries.NewEntry.__slots__}} for e in new]


def payment_of(rows: Rows) -> None:
    """A contract's payment is raised everywhere; its owner's signature is not."""
    new = changed(EAST, payment=2 * EAST.payment)
    for row in rows:
        for name in ("contract", "once"):
            row[name] = row[name] and row[name].replace(EAST.id, new.id)
    row_of(rows, "offered", new)["body"] = entries.offered(new).body
    row_of(rows, "paid", new)["body"] = entries.paid(new, 3).body
    settled_as(26_666_666, 2, 1)(rows)


def one_more_transaction_less(rows: Rows) -> None:
    cut_to_a_seal(rows)
    cut_to_a_seal(rows)


MISSED_EAST = entries.missed(EAST, 2, "no upload came")
EDITS: dict[str, Edit] = {
    # What the curator judged and paid
    "kept becomes broken": both(
        judged(EAST, False, 3), becomes(EAST, "paid", entries.broken(EAST, {"p_value": 0.25})),
        settled_as(6_666_666, 1, 2),
    ),
    "broken becomes paid": both(
        judged(NORTH, True, 3), becomes(NORTH, "broken", entries.paid(NORTH, 3)),
        settled_as(26_666_666, 3, 0),
    ),
    "broken becomes paid, and the settlement stays": both(
        judged(NORTH, True, 3), becomes(NORTH, "broken", entries.paid(NORTH, 3)),
    ),
    "one paid less": both(says("paid", EAST, amount=9_000_000), settled_as(15_666_666, 2, 1)),
    "one paid more": both(says("paid", EAST, amount=11_000_000), settled_as(17_666_666, 2, 1)),
    "the total": says("settled", total=1),
    "the number of the paid": says("settled", contracts_paid=3),
    "the number of the broken": says("settled", contracts_broken=0),
    "the evidence of a verdict": says("verified", NORTH, evidence={"p_value": 1e-9}),
    "the evidence of a breach": says("broken", NORTH, evidence={"reason": "other"}),
    "the evidence of a kept contract": says("verified", EAST, evidence={}),
    # Rounds
    "delivered becomes missed": both(
        outcome(EAST, 2, MISSED_EAST), judged(EAST, True, 2), says("paid", EAST, amount=6_666_666),
        settled_as(13_333_332, 2, 1),
    ),
    "delivered becomes refused": both(
        outcome(EAST, 2, entries.refused(EAST, 2, "not finite")), judged(EAST, True, 2),
        says("paid", EAST, amount=6_666_666), settled_as(13_333_332, 2, 1),
    ),
    "missed becomes delivered": both(
        outcome(SOUTH, 2, entries.delivered(SOUTH, 2)), judged(SOUTH, True, 3),
        says("paid", SOUTH, amount=10_000_000), settled_as(20_000_000, 2, 1),
    ),
    "a broken owner's round becomes missed": both(
        outcome(NORTH, 2, entries.missed(NORTH, 2, "no upload came")), judged(NORTH, False, 2)
    ),
    "a statistic": says("delivered", NORTH, statistic=9.0),
    "a statistic more": says("delivered", EAST, other=1.0),
    "a rho, within the cap": says("missed", SOUTH, rho=0.001),
    "a rho above the cap": says("delivered", EAST, rho=1.0),
    "a rho below the contract's": says("delivered", EAST, rho=0.0),
    "a reason": says("missed", SOUTH, reason="took no part"),
    "a round's number": says("delivered", EAST, round=9),
    "a round taken out": without("missed", of=SOUTH),
    "two rounds swapped": swapped,
    # The job and its contracts
    "a budget raised": says("opened", budget=2 * 10**9),
    "a budget lowered": says("opened", budget=30_000_000),
    "no owner keys": says("opened", owner_keys=None),
    "another owner's key": says(
        "opened", owner_keys=dict.fromkeys(["north", "east", "south"], key("mallory").public_hex)
    ),
    "what the opening says besides": about(weighting="other"),
    "another curator's key": another_curator,
    "an owner erased": erased,
    "an offer put in": inserted,
    "a payment raised": payment_of,
    "an owner's signature": says("signed", EAST, owner_signature="ab" * 64),
    "a curator's signature": says("signed", EAST, curator_signature="ab" * 64),
    "another job's name": lambda rows: [row.update(job="job-2") for row in rows],
    "all of it the thief's": sold_to_the_thief,
    # Dates
    "the opening earlier": moved("opened", EARLIER),
    "a signing earlier": moved("signed", EARLIER),
    "a round later": moved("delivered", LATER),
    "a payment later": moved("paid", LATER),
    "the settlement later": moved("settled", LATER),
    "the last seal later": lambda rows: rows[-1].update(recorded_at=LATER),
    # Seals
    "a seal by another key": other_seal,
    "a seal of another place": seal_again,
    "no seals": without_seals,
    # Cut off: sound in itself, so only what was noted elsewhere can tell
    "the settlement cut off": cut_to_a_seal,
    "all since the signing cut off": one_more_transaction_less,
}  # fmt: skip
CUT_OFF = ("the settlement cut off", "all since the signing cut off")
"""What no key can tell, but a receipt or a noted head can."""
